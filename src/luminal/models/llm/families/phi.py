"""Phi-3 (and Phi-4): Llama with packed projections and LongRoPE."""

from __future__ import annotations

from dataclasses import replace

from ....weights.fields import Fields
from ..config import DecoderConfig, common, rope
from .family import Family, State, split_rows


def _config(values: Fields) -> DecoderConfig:
    turning = rope(values)
    original = values.count_if("original_max_position_embeddings")
    if original is not None and "original_max_position_embeddings" not in turning.parameters:
        extra = {"original_max_position_embeddings": original}
        turning = replace(turning, parameters={**turning.parameters, **extra})
    window = values.count_if("sliding_window")
    windows = (window,) * values.count("num_hidden_layers")
    return common(values, ropes={"all": turning}, windows=windows)


def _adapt(state: State, config: DecoderConfig) -> State:
    inner, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for layer in range(config.layers):
        attention, mlp = f"model.layers.{layer}.self_attn.", f"model.layers.{layer}.mlp."
        if f"{attention}qkv_proj.weight" in state:
            names = [f"{attention}{letter}_proj.weight" for letter in "qkv"]
            split_rows(state, f"{attention}qkv_proj.weight", dict(zip(names, (inner, kv, kv))))
            names = [f"{mlp}gate_proj.weight", f"{mlp}up_proj.weight"]
            halves = dict.fromkeys(names, config.hidden)
            split_rows(state, f"{mlp}gate_up_proj.weight", halves)
    return state


PHI3 = Family("phi3", _config, _adapt)
