"""LFM2 of Liquid AI, and its mixtures: short convolutions, with attention in some layers."""

from __future__ import annotations

from typing import Any

from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, common
from ..mixers import ShortConvolution
from .family import Family, State, defaults, substituted
from .mamba import inner_layers
from .qwen import adapt_experts

PARTS = (
    (r"\.conv\.(conv|in_proj|out_proj)\.", r".mixer.\1."), (r"\.feed_forward\.", ".mlp."),
    (r"\.self_attn\.out_proj\.", ".self_attn.o_proj."), (r"\.([qk])_layernorm\.", r".\1_norm."),
    (r"\.operator_norm\.", ".input_layernorm."), (r"\.ffn_norm\.", ".post_attention_layernorm."),
    (r"\.embedding_norm\.", ".norm."), (r"\.expert_bias$", ".correction"),
    (r"\.w1\.", ".gate_proj."), (r"\.w3\.", ".up_proj."), (r"\.w2\.", ".down_proj."),
)  # fmt: skip


def _lfm2(values: Fields, **more: Any) -> DecoderConfig:
    layers = values.count("num_hidden_layers")
    attending = set(range(layers))
    if values.has("layer_types"):
        kinds = values.texts("layer_types", layers)
        attending = {n for n, kind in enumerate(kinds) if kind == "full_attention"}
    elif values.has("full_attn_idxs"):
        attending = set(values.counts("full_attn_idxs"))
    mixer = ShortConvolution(values.count("conv_L_cache", 3), values.flag("conv_bias"))
    values = defaults(
        values, tie_word_embeddings=values.flag("tie_embedding", True), rope_theta=1e6
    )
    return common(
        values, mixers=inner_layers(values, attending, mixer), qk_norm="head",
        eps=values.number("norm_eps", 1e-5, low=0, high=1), **more,
    )  # fmt: skip


def _dense(values: Fields) -> DecoderConfig:
    return _lfm2(values, hidden=_hidden(values))


def _hidden(values: Fields) -> int:
    """Of layers that give two thirds of a width, in whole multiples."""
    hidden = values.count("block_ff_dim", values.count_if("intermediate_size"))
    if not values.flag("block_auto_adjust_ff_dim", True):
        return hidden
    hidden = int(2 * hidden / 3)
    factor = values.number("block_ffn_dim_multiplier", 1.0)
    whole = values.count("block_multiple_of", 256)
    return -(-int(factor * hidden) // whole) * whole


def _mixture(values: Fields) -> DecoderConfig:
    layers = values.count("num_hidden_layers")
    experts = Experts(
        values.count("num_experts"), values.count("num_experts_per_tok"),
        values.count("moe_intermediate_size"), values.flag("norm_topk_prob", True),
        frozenset(range(values.count("num_dense_layers", 2, low=0), layers)), scoring="sigmoid",
        correction=values.flag("use_expert_bias", True),
        factor=values.number("routed_scaling_factor", 1.0),
    )  # fmt: skip
    return _lfm2(values, experts=experts)


def _adapt(state: State, config: DecoderConfig) -> State:
    found = substituted(state, PARTS)
    return found if config.experts is None else adapt_experts(found, config)


LFM2 = Family("lfm2", _dense, _adapt)
LFM2_MOE = Family("lfm2_moe", _mixture, _adapt)
