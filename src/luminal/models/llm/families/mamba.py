"""Models of state-space layers: Mamba, Falcon Mamba and Mamba 2, of nothing else; Jamba and Bamba,
with attention in some layers."""

from __future__ import annotations

import math
from typing import Any

from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, Mixer, common
from ..mixers import Mamba, Mamba2
from .family import Family, State, defaults, substituted
from .qwen import adapt_experts

NO_END = 1 << 20  # tokens of models that no position limits
PARTS = (
    (r"^backbone\.", "model."), (r"\.embeddings\.", ".embed_tokens."), (r"\.norm_f\.", ".norm."),
    (r"(\.layers\.\d+)\.norm\.", r"\1.input_layernorm."), (r"\.mamba\.", ".mixer."),
    (r"\.final_layernorm\.", ".norm."), (r"\.pre_ff_layernorm\.", ".post_attention_layernorm."),
    (r"\.feed_forward\.router\.", ".mlp.gate."), (r"\.feed_forward\.", ".mlp."),
)  # fmt: skip


def inner_layers(values: Fields, attending: set[int], mixer: Mixer) -> tuple[Mixer | None, ...]:
    """The mixer in all layers but those that attend."""
    layers = range(values.count("num_hidden_layers"))
    return tuple(None if layer in attending else mixer for layer in layers)


def _alone(values: Fields, mixer: Mixer, **more: Any) -> DecoderConfig:
    """Layers that are a norm and a mixer."""
    layers = values.count("num_hidden_layers")
    values = defaults(
        values, num_attention_heads=1, max_position_embeddings=NO_END, tie_word_embeddings=True
    )
    return common(
        values, mixers=(mixer,) * layers, hidden=0, block="alone", rotary=(None,) * layers,
        eps=values.number("layer_norm_epsilon", 1e-5, low=0, high=1), mlp_bias=False, **more,
    )  # fmt: skip


def _mamba(values: Fields, **more: Any) -> DecoderConfig:
    width = values.count("hidden_size")
    rank = math.ceil(width / 16)
    if values.values.get("time_step_rank") != "auto":
        rank = values.count("time_step_rank", rank)
    mixer = Mamba(
        values.count("intermediate_size", values.count("expand", 2) * width),
        values.count("state_size", 16), values.count("conv_kernel", 4), rank,
        values.flag("use_bias"), values.flag("use_conv_bias", True), **more,
    )  # fmt: skip
    return _alone(values, mixer)


def _falcon_mamba(values: Fields) -> DecoderConfig:
    """Norms without weights of dt, B and C."""
    eps = values.number("mixer_rms_eps", 1e-6, low=0, high=1)
    return _mamba(values, bare_norms=eps)


def _mamba2(values: Fields) -> DecoderConfig:
    values = defaults(values, tie_word_embeddings=False)
    mixer = Mamba2(
        values.count("num_heads", 128), values.count("head_dim", 64), values.count("n_groups", 8),
        values.count("state_size", 128), values.count("conv_kernel", 4), values.flag("use_bias"),
        values.flag("use_conv_bias", True), limits(values),
    )  # fmt: skip
    return _alone(values, mixer, head_dim=1)


def limits(values: Fields) -> tuple[float | None, float | None]:
    """Of dt; those that limit nothing are none. Infinity is no JSON: some write a dictionary."""
    given = values.values.get("time_step_limit")
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        return None, None
    low, high = (v if isinstance(v, (int, float)) else math.inf for v in given)
    return (low if low > 0 else None), (high if math.isfinite(high) else None)


def mamba2_of(values: Fields) -> Mamba2:
    """Under the names that hybrids give it."""
    width, heads = values.count("hidden_size"), values.count("mamba_n_heads", 128)
    inner = values.count("mamba_expand", 2) * width
    usual = values.values.get("mamba_d_head") in (None, "auto")
    return Mamba2(
        heads, inner // heads if usual else values.count("mamba_d_head"),
        values.count("mamba_n_groups", 1), values.count("mamba_d_state", 256),
        values.count("mamba_d_conv", 4), values.flag("mamba_proj_bias"),
        values.flag("mamba_conv_bias", True), limits(values),
    )  # fmt: skip


def _jamba(values: Fields) -> DecoderConfig:
    layers, width = values.count("num_hidden_layers"), values.count("hidden_size")
    rank = math.ceil(width / 16)
    if values.values.get("mamba_dt_rank") != "auto":
        rank = values.count("mamba_dt_rank", rank)
    mixer = Mamba(
        values.count("mamba_expand", 2) * width, values.count("mamba_d_state", 16),
        values.count("mamba_d_conv", 4), rank, values.flag("mamba_proj_bias"),
        values.flag("mamba_conv_bias", True), norms=True,
    )  # fmt: skip
    count = values.count("num_experts", 16)
    experts = Experts(
        count, values.count("num_experts_per_tok", 2), values.count("intermediate_size"), False,
        _every(values, "expert_layer", 2, 1),
    )  # fmt: skip
    attending = set(_every(values, "attn_layer", 8, 4))
    return common(
        defaults(values, max_position_embeddings=262144, tie_word_embeddings=False),
        mixers=inner_layers(values, attending, mixer), rotary=(None,) * layers,
        experts=experts if count > 1 else None, mlp_bias=False,
    )  # fmt: skip


def _every(values: Fields, what: str, period: int, offset: int) -> frozenset[int]:
    """The layers offset, offset + period ..."""
    period = values.count(f"{what}_period", period)
    offset = values.count(f"{what}_offset", offset, low=0)
    return frozenset(range(offset, values.count("num_hidden_layers"), period))


def _bamba(values: Fields) -> DecoderConfig:
    attending = set(values.counts_if("attn_layer_indices") or ())
    return common(
        values, mixers=inner_layers(values, attending, mamba2_of(values)),
        eps=values.number("rms_norm_eps", 1e-5, low=0, high=1),
    )  # fmt: skip


def _adapt(state: State, config: DecoderConfig) -> State:
    found = substituted(state, PARTS)
    return found if config.experts is None else adapt_experts(found, config)


MAMBA = Family("mamba", _mamba, _adapt)
FALCON_MAMBA = Family("falcon_mamba", _falcon_mamba, _adapt)
MAMBA2 = Family("mamba2", _mamba2, _adapt)
JAMBA = Family("jamba", _jamba, _adapt)
BAMBA = Family("bamba", _bamba, _adapt)
