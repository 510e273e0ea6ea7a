"""Llama 2, 3, 3.1, 3.2 and what has its shape (SmolLM, TinyLlama ...); Mistral with its window."""

from __future__ import annotations

from ..config import DecoderConfig, Values, common
from .family import Family


def _mistral(values: Values) -> DecoderConfig:
    window = values.get("sliding_window")
    return common(values, windows=(window,) * values.count("num_hidden_layers"))


LLAMA = Family("llama", common)
MISTRAL = Family("mistral", _mistral)
