"""The decoder of Moondream 2 (https://github.com/vikhyat/moondream): Phi's layers. A token before a
picture and those of the picture see each other."""

from __future__ import annotations

from dataclasses import replace

from ....weights.fields import Fields
from ..config import DecoderConfig
from .family import Family, State, split_rows, substituted
from .parallel import PHI

SIDE = 378, 14  # of a square that is looked at, and of its patches
NAMES = (  # of both ways in which it was published
    (r"^model\.(blocks|h)\.(\d+)\.ln\.", r"model.layers.\2.input_layernorm."),
    (r"^model\.(blocks|h)\.", "model.layers."),
    (r"\.mixer\.Wqkv\.", ".attn.qkv."),
    (r"\.(mixer\.out_proj|attn\.proj)\.", ".self_attn.o_proj."),
    (r"\.mlp\.fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
    (r"^model\.(embd\.)?wte(\.weight)?$", "model.embed_tokens.weight"),
    (r"^model\.(post_ln|lm_head\.ln)\.", "model.norm."),
    (r"^model\.lm_head\.(linear\.)?", "lm_head."),
)


def _config(values: Fields) -> DecoderConfig:
    """The usual sizes are those of 2 billion parameters."""
    own = values.fields("config")
    text, vision = own.fields("text"), own.fields("vision")
    heads = text.count("n_heads", 32)
    given = {
        "model_type": "phi", "vocab_size": text.count("vocab_size", 51200),
        "hidden_size": text.count("dim", 2048), "intermediate_size": text.count("ff_dim", 8192),
        "num_hidden_layers": text.count("n_layers", 24), "num_attention_heads": heads,
        "num_key_value_heads": text.count("n_kv_heads", heads),
        "max_position_embeddings": text.count("max_context", 2048),
        "eos_token_id": own.fields("tokenizer").count_if("eos_id", low=0),
    }  # fmt: skip
    side = vision.count("crop_size", SIDE[0]) // vision.count("enc_patch_size", SIDE[1])
    return replace(PHI.config(Fields(given, values.where)), together=1 + side**2)


def _adapt(state: State, config: DecoderConfig) -> State:
    state = substituted(state, NAMES)
    inner, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for layer in range(config.layers):
        for kind in ("weight", "bias"):
            names = [f"model.layers.{layer}.self_attn.{letter}_proj.{kind}" for letter in "qkv"]
            packed = f"model.layers.{layer}.attn.qkv.{kind}"
            split_rows(state, packed, dict(zip(names, (inner, kv, kv))))
    return state


MOONDREAM = Family("moondream1_text", _config, _adapt)
