"""Tensors of Whisper checkpoints under our names: encoder.*, memory.* (keys and values of encoded
sound), decoder.*."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ...weights import CTranslate2
from .config import WhisperConfig

State = dict[str, np.ndarray]
HUGGING_FACE = [(re.compile(theirs), ours) for theirs, ours in (
    (r"^model\.", ""), (r"^encoder\.layers\.", "encoder.stack.layers."),
    (r"^encoder\.layer_norm", "encoder.stack.norm"), (r"^decoder\.layer_norm", "decoder.norm"),
    (r"\.self_attn_layer_norm\.", ".input_layernorm."),
    (r"\.encoder_attn_layer_norm\.", ".cross_layernorm."),
    (r"\.final_layer_norm\.", ".post_attention_layernorm."), (r"\.fc1\.", ".mlp.up_proj."),
    (r"\.fc2\.", ".mlp.down_proj."), (r"\.out_proj\.", ".o_proj."),
    (r"^decoder\.layers\.(\d+)\.encoder_attn\.([kv]_proj)", r"memory.layers.\1.\2"),
)]  # fmt: skip
CTRANSLATE2 = [(re.compile(theirs), ours) for theirs, ours in (
    (r"^encoder/layer_(\d+)/", r"encoder.stack.layers.\1."), (r"^decoder/layer_(\d+)/",
     r"decoder.layers.\1."), (r"^encoder/layer_norm/", "encoder.stack.norm."),
    (r"^decoder/layer_norm/", "decoder.norm."), (r"^(encoder|decoder)/", r"\1."),
    (r"position_encodings/encodings$", "embed_positions.weight"),
    (r"^decoder\.embeddings/", "decoder.embed_tokens."),
    (r"\.self_attention/layer_norm/", ".input_layernorm."),
    (r"\.attention/layer_norm/", ".cross_layernorm."),
    (r"\.ffn/layer_norm/", ".post_attention_layernorm."),
    (r"\.ffn/linear_0/", ".mlp.up_proj."), (r"\.ffn/linear_1/", ".mlp.down_proj."),
    (r"\.self_attention/linear_0/", ".self_attn.q_proj+k_proj+v_proj."),
    (r"\.self_attention/linear_1/", ".self_attn.o_proj."),
    (r"\.attention/linear_0/", ".encoder_attn.q_proj."),
    (r"^decoder\.layers\.(\d+)\.attention/linear_1/", r"memory.layers.\1.k_proj+v_proj."),
    (r"\.attention/linear_2/", ".encoder_attn.o_proj."),
    (r"gamma$", "weight"), (r"beta$", "bias"), (r"/", "."),
)]  # fmt: skip
TABLES = ("decoder/alignment_heads", "decoder/projection/weight")


def _renamed(name: str, rules: list[tuple[re.Pattern[str], str]]) -> str:
    for pattern, ours in rules:
        name = pattern.sub(ours, name)
    return name


def from_hugging_face(state: Mapping[str, np.ndarray], config: WhisperConfig) -> State:
    """Keys have no bias in a checkpoint: zeros."""
    found = {_renamed(name, HUGGING_FACE): value for name, value in state.items()
             if name != "proj_out.weight"}  # fmt: skip
    for name in [n for n in found if n.endswith("k_proj.weight")]:
        zeros = np.zeros(found[name].shape[0], np.float32)
        found.setdefault(f"{name.removesuffix('weight')}bias", zeros)
    return found


def from_ctranslate2(file: CTranslate2, config: WhisperConfig) -> State:
    """Matrices of queries, keys and values lie below each other."""
    found: State = {}
    for name in file:
        if name in TABLES or name.endswith(("_scale", "/num_heads")) or file[name].ndim == 0:
            continue
        path, _, kind = _renamed(name, CTRANSLATE2).rpartition(".")
        place, _, last = path.rpartition(".")
        parts = last.split("+")
        for part, rows in zip(parts, np.split(file[name], len(parts))):
            found[f"{place}.{part}.{kind}" if place else f"{part}.{kind}"] = rows
    return found
