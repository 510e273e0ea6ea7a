"""Granite 3 and the mixtures of its kind, with an expert for all tokens in some: Llama with factors
on embeddings, attention, residuals and logits. Granite 4 has Mamba 2 in most layers."""

from __future__ import annotations

from typing import Any

from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, common
from .family import Family, State, renamed, split_rows
from .mamba import inner_layers, mamba2_of

PARTS = {"block_sparse_moe": "mlp", "input_linear": "gate_up_proj",
         "output_linear": "down_proj", "mamba": "mixer"}  # fmt: skip


def _granite(values: Fields, **more: Any) -> DecoderConfig:
    return common(
        values,
        embedding_scale=values.number("embedding_multiplier", 1.0),
        attention_scale=values.number("attention_multiplier", 1.0),
        residual_scale=values.number("residual_multiplier", 1.0),
        logit_scale=1 / values.number("logits_scaling", 1.0, low=1e-6),
        **more,
    )


def _mixture(values: Fields) -> DecoderConfig:
    return _granite(values, experts=_experts(values))


def _experts(values: Fields) -> Experts:
    return Experts(
        count=values.count("num_local_experts"),
        chosen=values.count("num_experts_per_tok"),
        hidden=values.count("intermediate_size"),
        shared=values.count("shared_intermediate_size", 0, low=0),
    )


def _hybrid(values: Fields) -> DecoderConfig:
    """Without experts, what all tokens go through is the only feed-forward part."""
    layers = values.count("num_hidden_layers")
    name = "layer_types" if values.has("layer_types") else "layers_block_type"
    kinds = values.texts(name, layers)
    attending = {n for n, kind in enumerate(kinds) if kind in ("attention", "full_attention")}
    turning = values.values.get("position_embedding_type") == "rope"
    return _granite(
        values, mixers=inner_layers(values, attending, mamba2_of(values)),
        rotary=("all" if turning else None,) * layers,
        experts=_experts(values) if values.count("num_local_experts", 8, low=0) else None,
        hidden=values.count("shared_intermediate_size", 1024),
    )  # fmt: skip


def _adapt(state: State, config: DecoderConfig) -> State:
    """block_sparse_moe.input_linear (experts, 2 hidden, width) --> mlp.gate_proj, mlp.up_proj"""
    state = {n.replace(".router.layer.", ".gate."): v for n, v in renamed(state, PARTS).items()}
    for layer in range(config.layers):
        at = f"model.layers.{layer}."
        packed = state.pop(f"{at}mlp.gate_up_proj.weight", None)
        if packed is not None and packed.ndim == 3:
            half = packed.shape[1] // 2
            state[f"{at}mlp.gate_proj.weight"] = packed[:, :half]
            state[f"{at}mlp.up_proj.weight"] = packed[:, half:]
        if config.experts is None or config.experts.shared:
            own = f"{at}mlp." if config.experts is None else f"{at}mlp.shared_expert."
            theirs = f"{at}shared_mlp."
            names = [f"{own}gate_proj.weight", f"{own}up_proj.weight"]
            shared = config.hidden if config.experts is None else config.experts.shared
            halves = dict.fromkeys(names, shared)
            split_rows(state, f"{theirs}gate_up_proj.weight", halves)
            if f"{theirs}down_proj.weight" in state:
                state[f"{own}down_proj.weight"] = state.pop(f"{theirs}down_proj.weight")
    return state


GRANITE = Family("granite", _granite)
GRANITE_MOE = Family("granitemoe", _mixture, _adapt)
GRANITE_MOE_SHARED = Family("granitemoeshared", _mixture, _adapt)
GRANITE_HYBRID = Family("granitemoehybrid", _hybrid, _adapt)
