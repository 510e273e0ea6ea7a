"""GLM-4: half of the features turn, those side by side as pairs; in the second generation norms
behind attention and feed-forward part too."""

from __future__ import annotations

from typing import Any

from ....weights.fields import Fields
from ..config import DecoderConfig, common
from .family import Family, State, defaults, interleaved, renamed, split_rows

NORMS = {"post_self_attn_layernorm": "attention_output_norm",
         "post_mlp_layernorm": "mlp_output_norm"}  # fmt: skip


def _glm(values: Fields, **more: Any) -> DecoderConfig:
    values = defaults(values, partial_rotary_factor=0.5)
    bias = values.flag("attention_bias", True)
    return common(
        values, ropes=interleaved(values), attention_bias=bias, output_bias=False, **more
    )


def _glm4(values: Fields) -> DecoderConfig:
    return _glm(values, block="both")


def _adapt(state: State, config: DecoderConfig) -> State:
    state = renamed(state, NORMS)
    for layer in range(config.layers):
        mlp = f"model.layers.{layer}.mlp."
        halves = dict.fromkeys((f"{mlp}gate_proj.weight", f"{mlp}up_proj.weight"), config.hidden)
        split_rows(state, f"{mlp}gate_up_proj.weight", halves)
    return state


GLM = Family("glm", _glm, _adapt)
GLM4 = Family("glm4", _glm4, _adapt)
