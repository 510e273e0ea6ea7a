"""Encoders of texts in GGUF files: a row of a table for each architecture, its tensors under our
names, how tokens are pooled.

All are `TextEncoder`s. What a file has is in the gguf package's constants; what it leaves out is
what llama.cpp computes for the architecture. Blocks are read as f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Unsupported, WeightsError
from ..weights.fields import Fields
from ..weights.gguf import GGUF
from .encoders import Backbone, TextEncoder
from .kinds import T5_FILES
from .llm.config import DecoderConfig, Experts, Rope
from .llm.gguf_names import partial_names
from .llm.whole import plain_config
from .pooling import Pooling

PARTS = {  # of blk.N.
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_output_norm": "attention_output_norm", "layer_output_norm": "mlp_output_norm",
    "attn_qkv": "self_attn.qkv", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate", "ffn_up_exps": "mlp.up_proj", "ffn_down_exps": "mlp.down_proj",
}  # fmt: skip
OUTSIDE = {
    "token_embd": "embed_tokens", "token_types": "token_types", "position_embd": "positions",
    "token_embd_norm": "embed_norm", "output_norm": "norm", "enc.output_norm": "norm",
    "cls": "pooler.dense", "cls.output": "classifier",
}  # fmt: skip
MODERN_HEAD = {"cls": "head.dense", "cls.norm": "head.norm", "cls.output": "classifier"}
POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken", 4: "cls"}  # 0: none; 4: for scores
THETA = 10000.0


@dataclass(frozen=True)
class Kind:
    """fixed: fields of the config of which a file says nothing. last: whether a norm is the last
    step. rotary: positions turn. outside: names beside OUTSIDE. by_head: packed queries, keys and
    values are those of one head after the other."""

    fixed: Mapping[str, Any]
    last: bool = False
    rotary: bool = False
    interleaved: bool = False
    outside: Mapping[str, str] = field(default_factory=dict)
    by_head: bool = False


POST = {"block": "post", "norm": "layer", "activation": "gelu", "gated": False}
GATED = POST | {"gated": True}
RMS = {"block": "input", "norm": "rms", "activation": "silu", "gated": True}
KINDS: Mapping[str, Kind] = {
    "bert": Kind(POST),
    "nomic-bert": Kind(GATED | {"activation": "silu"}, rotary=True),
    "nomic-bert-moe": Kind(POST, rotary=True),
    "jina-bert-v2": Kind(GATED | {"alibi": 8.0}),
    "jina-bert-v3": Kind(POST, rotary=True),
    "modern-bert": Kind(
        GATED | {"block": "input", "bare_first": True}, last=True, rotary=True,
        outside=MODERN_HEAD),
    "neo-bert": Kind(RMS, last=True, rotary=True, interleaved=True, by_head=True),
    "eurobert": Kind(RMS, last=True, rotary=True),
}  # fmt: skip


def gguf_backbone(path: Path) -> Backbone:
    """The encoder of a GGUF file. Raises WeightsError or Unsupported."""
    file = GGUF(path)
    kind, name, given = _opened(file)
    config = _config(file, kind, given)
    state: dict[str, np.ndarray] = {}
    rest: dict[str, np.ndarray] = {}
    for theirs, tensor in file.items():
        ours = _our_name(theirs, kind, str(path))
        own = ours.startswith(("layers.", "embed_", "token_types.", "positions.", "norm."))
        (state if own else rest)[ours] = tensor.array()
    for ours in list(state):
        state |= _parts(ours, state, config, kind)
    types = len(state["token_types.weight"]) if "token_types.weight" in state else 0
    eps = {"norm_eps": config.eps, "layer_norm_eps": config.eps}
    return Backbone(
        name, config.width, config.vocabulary, config.context, types,
        lambda graph: TextEncoder(graph, config, types, kind.last), state, rest,
        Fields(eps, str(path)),
    )  # fmt: skip


def gguf_pooling(path: Path) -> Pooling:
    """How tokens become a vector: the mean where the file does not say. Raises WeightsError or
    Unsupported."""
    _, name, given = _opened(GGUF(path))
    number = given.count("pooling_type", 1, low=0)
    if number not in POOLINGS:
        raise Unsupported(f"{path}: pooling {number} of {name!r}; there are {sorted(POOLINGS)}")
    return Pooling((POOLINGS[number],))


def _opened(file: GGUF) -> tuple[Kind, str, Fields]:
    """(its row, its architecture, metadata without the prefix)."""
    name = Fields(file.metadata, str(file.path)).text("general.architecture")
    if name not in (*KINDS, *T5_FILES):
        known = ", ".join((*KINDS, *T5_FILES))
        raise Unsupported(f"{file.path}: {name!r} is no encoder of texts; there are {known}")
    own = {key.removeprefix(f"{name}."): value for key, value in file.metadata.items()}
    return KINDS.get(name, Kind({})), name, Fields(own, str(file.path))


def _config(file: GGUF, kind: Kind, given: Fields) -> DecoderConfig:
    has, layers = partial_names(file), given.count("block_count", high=4096)
    heads, width = given.count("attention.head_count"), given.count("embedding_length")
    if width % heads:
        raise WeightsError(f"{given.where}: {heads} heads do not share {width} features")
    norms = ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon")
    eps = norms[kind.fixed["norm"] == "rms"]
    settings: dict[str, Any] = {
        "family": "encoder", "vocabulary": len(file["token_embd.weight"].raw), "width": width,
        "layers": layers, "heads": heads, "hidden": given.count("feed_forward_length"),
        "kv_heads": given.count("attention.head_count_kv", heads),
        "context": given.count("context_length"), "eps": given.number(eps, 1e-12, low=0, high=1),
        "attention_bias": bool({"attn_q.bias", "attn_qkv.bias"} & has),
        "output_bias": "attn_output.bias" in has, "mlp_bias": "ffn_down.bias" in has,
        "learned_positions": "position_embd.weight" in file,
        "qk_norm": "whole" if "attn_q_norm.weight" in has else None,
    }  # fmt: skip
    settings |= {**kind.fixed, **_turning(given, kind, layers), **_experts(file, given)}
    if settings["norm"] == "layer" and not any(name.endswith("norm.bias") for name in file):
        settings["norm"] = "scale"
    return plain_config(**settings)


def _turning(given: Fields, kind: Kind, layers: int) -> dict[str, Any]:
    """Rotary positions, and windows, which have others."""
    if not kind.rotary:
        return {}
    theta = given.number("rope.freq_base", THETA, low=1.5)
    ropes = {"all": Rope(theta, interleaved=kind.interleaved)}
    near, pattern = [False] * layers, given.values.get("attention.sliding_window_pattern")
    if given.has("attention.sliding_window"):
        every = 3 if pattern is None else pattern
        near = [bool(n % every) for n in range(layers)] if np.ndim(every) == 0 else [
            bool(each) for each in given.values["attention.sliding_window_pattern"]]  # fmt: skip
    window = given.count("attention.sliding_window", 2) // 2
    ropes["near"] = Rope(given.number("rope.freq_base_swa", THETA, low=1.5))
    return {
        "ropes": ropes, "rotary": tuple("near" if each else "all" for each in near),
        "windows": tuple(window if each else None for each in near),
    }  # fmt: skip


def _experts(file: GGUF, given: Fields) -> dict[str, Any]:
    """Plain experts in the layers that have a router; their shares are not made to sum to 1."""
    having = {int(name.split(".")[1]) for name in file if name.endswith(".ffn_gate_inp.weight")}
    if not having:
        return {}
    return {"experts": Experts(
        given.count("expert_count"), given.count("expert_used_count"),
        given.count("feed_forward_length"), normalise=False, layers=frozenset(having), gated=False,
    )}  # fmt: skip


def _our_name(name: str, kind: Kind, where: str) -> str:
    """blk.3.attn_q.weight --> layers.3.self_attn.q_proj.weight"""
    stem, _, end = name.rpartition(".")
    outside = {**OUTSIDE, **kind.outside}
    if stem in outside:
        return f"{outside[stem]}.{end}"
    _, layer, part = (*stem.split(".", 2), "", "")[:3]
    if not stem.startswith("blk.") or part not in PARTS:
        raise WeightsError(f"{where}: tensor {name!r} has no place in the model")
    return f"layers.{layer}.{PARTS[part]}.{end}"


def _parts(
    name: str, state: dict[str, np.ndarray], config: DecoderConfig, kind: Kind
) -> dict[str, np.ndarray]:
    """What is several of ours below each other: queries, keys and values; gate and up."""
    stem, _, end = name.rpartition(".")
    if stem.endswith(".qkv"):
        packed, size = state.pop(name), config.head_dim
        if kind.by_head:
            rows = packed.reshape(config.heads, 3, size, *packed.shape[1:])
            pieces = [rows[:, n].reshape(-1, *packed.shape[1:]) for n in range(3)]
        else:
            kv = config.kv_heads * size
            pieces = np.split(packed, [config.heads * size, config.heads * size + kv])
        return {f"{stem.removesuffix('qkv')}{letter}_proj.{end}": piece
                for letter, piece in zip("qkv", pieces)}  # fmt: skip
    gate = stem.replace("up_proj", "gate_proj")
    if not stem.endswith(".up_proj") or not config.gated or f"{gate}.{end}" in state:
        return {}
    first, second = np.split(state[name], 2)
    return {f"{gate}.{end}": first, name: second}
