"""Qwen 2 and 2.5 (biases on queries, keys, values), Qwen 3 (norms on them), and their mixtures."""

from __future__ import annotations

from typing import Any

from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, common, layer_windows
from .family import Family, State, defaults, stack_experts


def _windows(values: Fields) -> tuple[int | None, ...]:
    """The layers from max_window_layers on have the window, if it is switched on."""
    layers, first = values.count("num_hidden_layers"), values.count("max_window_layers", 0, low=0)
    if not values.flag("use_sliding_window"):
        return (None,) * layers
    if values.has("layer_types"):
        return layer_windows(values)
    window = values.count_if("sliding_window")
    return tuple(window if n >= first else None for n in range(layers))


def _qwen2(values: Fields) -> DecoderConfig:
    return common(
        values, windows=_windows(values), attention_bias=True, output_bias=False, mlp_bias=False
    )


def _qwen3(values: Fields) -> DecoderConfig:
    return common(values, windows=_windows(values), qk_norm="head")


def _moe_layers(values: Fields) -> frozenset[int]:
    dense, step = values.counts_if("mlp_only_layers"), values.count("decoder_sparse_step", 1)
    layers = range(values.count("num_hidden_layers"))
    return frozenset(n for n in layers if n not in (dense or ()) and (n + 1) % step == 0)


def experts(values: Fields, **more: Any) -> Experts:
    return Experts(
        count=values.count("num_experts", values.count_if("num_local_experts")),
        chosen=values.count("num_experts_per_tok"),
        hidden=values.count("moe_intermediate_size"),
        normalise=values.flag("norm_topk_prob"),
        layers=_moe_layers(values),
        **more,
    )


def _qwen3_moe(values: Fields) -> DecoderConfig:
    windows = _windows(values)
    return common(values, windows=windows, qk_norm="head", experts=experts(values))


def _qwen2_moe(values: Fields) -> DecoderConfig:
    shared = values.count("shared_expert_intermediate_size", 0, low=0)
    return common(
        values, windows=_windows(values), attention_bias=values.flag("qkv_bias", True),
        output_bias=False, mlp_bias=False,
        experts=experts(values, shared=shared, shared_gate=shared > 0),
    )  # fmt: skip


def adapt_experts(state: State, config: DecoderConfig) -> State:
    assert config.experts is not None
    names = {name: name for name in ("gate_proj", "up_proj", "down_proj")}
    for layer in range(config.layers):
        stack_experts(state, f"model.layers.{layer}.mlp.", config.experts.count, names)
    return state


def _qwen3_vl_moe(values: Fields) -> DecoderConfig:
    return _qwen3_moe(defaults(values, norm_topk_prob=True))


def _packed(state: State, config: DecoderConfig) -> State:
    """experts.gate_up_proj (experts, width, 2 hidden), all gates before all ups --> gate_proj and
    up_proj (experts, hidden, width); transformers 5 writes them that way round"""
    assert config.experts is not None
    hidden, width = config.experts.hidden, config.width
    rows, found = {"gate_up_proj": 2 * hidden, "down_proj": width}, State()
    for name, value in state.items():
        at, _, part = name.partition(".mlp.experts.")
        if part in rows and value.ndim == 3:
            value = value if value.shape[1] == rows[part] else value.swapaxes(1, 2)
            if part == "gate_up_proj":
                found[f"{at}.mlp.gate_proj.weight"] = value[:, :hidden]
                part, value = "up_proj", value[:, hidden:]
            name = f"{at}.mlp.{part}.weight"
        found[name] = value
    return adapt_experts(found, config)


QWEN2 = Family("qwen2", _qwen2)
QWEN3 = Family("qwen3", _qwen3)
QWEN_VL = [
    *(Family(name, _qwen2) for name in ("qwen2_vl_text", "qwen2_5_vl_text")),
    Family("qwen3_vl_text", _qwen3),
    Family("qwen3_vl_moe_text", _qwen3_vl_moe, _packed),
]
QWEN2_MOE = Family("qwen2_moe", _qwen2_moe, adapt_experts)
QWEN3_MOE = Family("qwen3_moe", _qwen3_moe, adapt_experts)
