"""OLMo 1 (norms without weights), 2 and 3 (norms behind attention and feed-forward part only, and
of whole queries and keys; windows in 3), and the mixture OLMoE."""

from __future__ import annotations

from typing import Any

from ....errors import Unsupported
from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, common, layer_windows, rope
from .family import Family, State, renamed
from .qwen import adapt_experts

BEHIND = {"post_attention_layernorm": "attention_output_norm",
          "post_feedforward_layernorm": "mlp_output_norm"}  # fmt: skip


def _unclipped(values: Fields, **more: Any) -> DecoderConfig:
    if values.number_if("clip_qkv") is not None:
        raise Unsupported(f"{values.where}: queries, keys and values that are clipped (clip_qkv)")
    return common(values, **more)


def _olmo(values: Fields) -> DecoderConfig:
    return _unclipped(values, norm="plain", eps=1e-5)


def _olmo2(values: Fields, **more: Any) -> DecoderConfig:
    return common(values, block="output", qk_norm="whole", **more)


def _olmo3(values: Fields) -> DecoderConfig:
    """Where positions are stretched, layers with a window turn as if they were not."""
    windows = layer_windows(values, alternating=4)
    if values.fields("rope_parameters").has("full_attention"):
        ropes = {name: rope(values, name) for name in ("sliding_attention", "full_attention")}
    else:
        plain = Fields({**values.values, "rope_scaling": None, "rope_parameters": {
            "rope_theta": rope(values).theta}}, values.where)  # fmt: skip
        ropes = {"sliding_attention": rope(plain), "full_attention": rope(values)}
    kinds = tuple("full_attention" if w is None else "sliding_attention" for w in windows)
    return _olmo2(values, windows=windows, ropes=ropes, rotary=kinds)


def _olmoe(values: Fields) -> DecoderConfig:
    experts = Experts(
        count=values.count("num_experts"),
        chosen=values.count("num_experts_per_tok"),
        hidden=values.count("intermediate_size"),
        normalise=values.flag("norm_topk_prob"),
    )
    return _unclipped(values, qk_norm="whole", experts=experts)


def _adapt(state: State, config: DecoderConfig) -> State:
    return renamed(state, BEHIND)


OLMO = Family("olmo", _olmo)
OLMO2 = Family("olmo2", _olmo2, _adapt)
OLMO3 = Family("olmo3", _olmo3, _adapt)
OLMOE = Family("olmoe", _olmoe, adapt_experts)
