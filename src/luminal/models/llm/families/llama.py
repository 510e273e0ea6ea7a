"""Llama 2, 3, 3.1, 3.2 and what has its shape (SmolLM, TinyLlama ...); Mistral with its window;
SmolLM 3, some of whose layers have no positions."""

from __future__ import annotations

from ....errors import WeightsError
from ..config import DecoderConfig, Values, common, layer_windows
from .family import Family


def _mistral(values: Values) -> DecoderConfig:
    window = values.get("sliding_window")
    return common(values, windows=(window,) * values.count("num_hidden_layers"))


def _smollm3(values: Values) -> DecoderConfig:
    """Every fourth layer, as a rule, has no positions."""
    layers, step = values.count("num_hidden_layers"), values.count("no_rope_layer_interval", 4)
    turning = values.get("no_rope_layers") or [(n + 1) % step for n in range(layers)]
    if len(turning) != layers:
        raise WeightsError(f"{values.where}: {len(turning)} no_rope_layers for {layers} layers")
    return common(
        values,
        rotary=tuple("all" if turns else None for turns in turning),
        windows=layer_windows(values) if values.get("layer_types") else (None,) * layers,
        tied=bool(values.get("tie_word_embeddings", True)),
    )


LLAMA = Family("llama", common)
MISTRAL = Family("mistral", _mistral)
SMOLLM3 = Family("smollm3", _smollm3)
