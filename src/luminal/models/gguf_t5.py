"""T5 in GGUF files (architectures t5 and t5encoder): its tensors and config under Hugging Face's
names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn
from ..errors import Unsupported, WeightsError
from ..graph import Graph, Tensor
from ..weights.fields import Fields
from ..weights.gguf import GGUF
from .diffusion.t5 import T5Config, T5Encoder
from .encoders import Backbone
from .kinds import T5_FILES

NAMES = (
    (r"^token_embd\.", "shared."), (r"^output\.", "lm_head."),
    (r"^enc\.", "encoder."), (r"^dec\.", "decoder."), (r"\.output_norm\.", ".final_layer_norm."),
    (r"\.blk\.", ".block."), (r"\.cross_attn_norm\.", ".layer.1.layer_norm."),
    (r"\.cross_attn_([qkvo])\.", r".layer.1.EncDecAttention.\1."),
    (r"\.attn_norm\.", ".layer.0.layer_norm."),
    (r"\.attn_([qkvo])\.", r".layer.0.SelfAttention.\1."),
    (r"\.attn_rel_b\.", ".layer.0.SelfAttention.relative_attention_bias."),
    (r"^(encoder.*)\.ffn_", r"\1.layer.1.ffn_"), (r"^(decoder.*)\.ffn_", r"\1.layer.2.ffn_"),
    (r"\.ffn_norm\.", ".layer_norm."), (r"\.ffn_down\.", ".DenseReluDense.wo."),
    (r"\.ffn_gate\.", ".DenseReluDense.wi_0."), (r"\.ffn_up\.", ".DenseReluDense.wi."),
)  # fmt: skip
FIELDS = {
    "d_model": "embedding_length", "d_ff": "feed_forward_length", "num_layers": "block_count",
    "num_heads": "attention.head_count", "d_kv": "attention.key_length",
    "relative_attention_num_buckets": "attention.relative_buckets_count",
    "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
    "decoder_start_token_id": "decoder_start_token_id", "num_decoder_layers": "decoder_block_count",
}  # fmt: skip


def gguf_t5(path: Path) -> tuple[Fields, dict[str, np.ndarray]]:
    """(its config.json, its tensors), blocks as f32. Raises WeightsError or Unsupported."""
    file = GGUF(path)
    given = Fields(file.metadata, str(path))
    kind = given.text("general.architecture", among=T5_FILES)
    if any(name.endswith("blk.1.attn_rel_b.weight") for name in file):
        raise Unsupported(f"{path}: a T5 with distances of its own in every layer (UMT5)")
    gated = "enc.blk.0.ffn_gate.weight" in file
    values: dict[str, Any] = {
        ours: file.metadata.get(f"{kind}.{theirs}") for ours, theirs in FIELDS.items()
    }
    values |= {
        "model_type": "t5", "feed_forward_proj": "gated-gelu" if gated else "relu",
        "vocab_size": file["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in file,
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
    }  # fmt: skip
    state = {}
    for name, tensor in file.items():
        ours = name
        for theirs, known in NAMES:
            ours = re.sub(theirs, known, ours)
        ours = ours.replace(".wi.", ".wi_1.") if gated else ours
        if not ours.startswith(("shared.", "lm_head.", "encoder.", "decoder.")):
            raise WeightsError(f"{path}: tensor {name!r} has no place in the model")
        state[ours] = tensor.array()
    return Fields(values, str(path)), state


class Reading(nn.Module):
    """ids (batch, tokens), mask (batch, tokens) -> hidden states of a T5's encoder."""

    def __init__(self, graph: Graph, config: T5Config, most: int) -> None:
        super().__init__()
        self.t5, self.most = T5Encoder(graph, config), most

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        return self.t5(ids, self.most, mask)


def t5_backbone(path: Path) -> Backbone:
    """The encoder of a file. Raises WeightsError or Unsupported."""
    given, state = gguf_t5(path)
    config, most = T5Config.read(given), _context(path)
    own = {f"t5.{name}": v for name, v in state.items() if name.startswith(("shared.", "encoder."))}
    return Backbone(
        "t5", config.d_model, config.vocab_size, most, 0,
        lambda graph: Reading(graph, config, most), own, {}, given,
    )  # fmt: skip


def _context(path: Path) -> int:
    given = Fields(GGUF(path).metadata, str(path))
    return given.count(f"{given.text('general.architecture')}.context_length", 512)
