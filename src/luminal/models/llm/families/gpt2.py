"""GPT-2: learned positions, layer norms, biases everywhere, weights stored transposed."""

from __future__ import annotations

from ....errors import Unsupported
from ....weights.fields import Fields
from ..config import DecoderConfig, common
from .family import Family, State, renamed, split_rows

PARTS = {
    "transformer": "model", "wte": "embed_tokens", "wpe": "embed_positions", "h": "layers",
    "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "ln_f": "norm",
    "attn": "self_attn", "c_fc": "up_proj",
}  # fmt: skip
NAMES = {
    "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions", "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
}  # fmt: skip


def _config(values: Fields) -> DecoderConfig:
    if values.flag("scale_attn_by_inverse_layer_idx"):
        raise Unsupported(f"{values.where}: attention scaled by the number of the layer")
    plain = dict(values.values)
    plain.update({ours: plain.get(theirs) for ours, theirs in NAMES.items()})
    plain["intermediate_size"] = plain["intermediate_size"] or 4 * values.count("n_embd")
    translated = Fields(plain, values.where)
    return common(
        translated,
        norm="layer",
        eps=values.number("layer_norm_epsilon", 1e-5, low=0, high=1),
        activation=values.text("activation_function", "gelu_new"),
        gated=False,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        learned_positions=True,
        attention_scale=None if values.flag("scale_attn_weights", True) else 1.0,
        rotary=(None,) * translated.count("num_hidden_layers"),
        tied=values.flag("tie_word_embeddings", True),
    )


def _adapt(state: State, config: DecoderConfig) -> State:
    """transformer.h.0.attn.c_attn.weight (in, 3 x out) --> q_proj, k_proj, v_proj (out, in)."""
    if "wte.weight" in state:  # the original checkpoint has no "transformer."
        state = {f"transformer.{name}": value for name, value in state.items()}
    masks = (".self_attn.bias", ".self_attn.masked_bias")  # old checkpoints store causal masks
    state = {n: v for n, v in renamed(state, PARTS).items() if not n.endswith(masks)}
    for name in list(state):
        if name.endswith((".c_attn.weight", ".c_proj.weight", ".up_proj.weight")):
            state[name] = state[name].T
    for layer in range(config.layers):
        attention, mlp = f"model.layers.{layer}.self_attn.", f"model.layers.{layer}.mlp."
        for part in ("weight", "bias"):
            names = [f"{attention}{letter}_proj.{part}" for letter in "qkv"]
            split_rows(state, f"{attention}c_attn.{part}", dict.fromkeys(names, config.width))
            moved = {f"{attention}c_proj": f"{attention}o_proj", f"{mlp}c_proj": f"{mlp}down_proj"}
            for theirs, ours in moved.items():
                if f"{theirs}.{part}" in state:
                    state[f"{ours}.{part}"] = state.pop(f"{theirs}.{part}")
    return state


GPT2 = Family("gpt2", _config, _adapt)
