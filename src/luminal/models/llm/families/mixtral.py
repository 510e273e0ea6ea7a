"""Mixtral: Mistral with eight experts in place of the feed-forward part."""

from __future__ import annotations

from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, common
from .family import Family, State, renamed, stack_experts


def _config(values: Fields) -> DecoderConfig:
    experts = Experts(
        count=values.count("num_local_experts"),
        chosen=values.count("num_experts_per_tok"),
        hidden=values.count("intermediate_size"),
    )
    window = values.count_if("sliding_window")
    return common(values, windows=(window,) * values.count("num_hidden_layers"), experts=experts)


def _adapt(state: State, config: DecoderConfig) -> State:
    assert config.experts is not None
    state = renamed(state, {"block_sparse_moe": "mlp"})
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    for layer in range(config.layers):
        stack_experts(state, f"model.layers.{layer}.mlp.", config.experts.count, names)
    return state


MIXTRAL = Family("mixtral", _config, _adapt)
