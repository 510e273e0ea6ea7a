"""Llama 2, 3, 3.1, 3.2 and what has its shape (SmolLM, TinyLlama ...); Mistral with its window;
SmolLM 3, some of whose layers have no positions; BitNet with a norm within each part."""

from __future__ import annotations

from dataclasses import replace

from ....weights.fields import Fields
from ..config import DecoderConfig, Heat, common, layer_windows, rope, stretching
from .family import Family


def _llama(values: Fields) -> DecoderConfig:
    """All features of a head turn, whatever partial_rotary_factor says, as in transformers."""
    return common(values, ropes={"all": replace(rope(values), share=1.0)})


def _mistral(values: Fields) -> DecoderConfig:
    window = values.count_if("sliding_window")
    return common(values, windows=(window,) * values.count("num_hidden_layers"))


def _ministral(values: Fields) -> DecoderConfig:
    return common(values, windows=layer_windows(values))


def _smollm3(values: Fields) -> DecoderConfig:
    """Every fourth layer, as a rule, has no positions."""
    layers, step = values.count("num_hidden_layers"), values.count("no_rope_layer_interval", 4)
    turning = [(n + 1) % step for n in range(layers)]
    if values.values.get("no_rope_layers"):
        turning = values.counts("no_rope_layers", layers)
    return common(
        values,
        rotary=tuple("all" if turns else None for turns in turning),
        windows=layer_windows(values) if values.has("layer_types") else (None,) * layers,
        tied=values.flag("tie_word_embeddings", True),
    )


def _ministral3(values: Fields) -> DecoderConfig:
    """YaRN, and queries that grow with every original context."""
    given = stretching(values)
    beta = given.number("llama_4_scaling_beta", 0.0)
    period = given.number("original_max_position_embeddings", 16384, low=1)
    return replace(_mistral(values), heat=Heat(beta, period) if beta else None)


def _bitnet(values: Fields) -> DecoderConfig:
    kind = values.text("hidden_act", "relu2")
    return common(values, sub_norms=True, activation=kind)


LLAMA = Family("llama", _llama)
MINISTRAL3 = Family("ministral3", _ministral3)
MISTRAL = Family("mistral", _mistral)
MINISTRAL = Family("ministral", _ministral)
SMOLLM3 = Family("smollm3", _smollm3)
BITNET = Family("bitnet", _bitnet)
