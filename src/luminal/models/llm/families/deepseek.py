"""DeepSeek V2, V3 and R1 (Kimi K2 has their shape): latent attention; mixtures of many experts in
groups, with some that all tokens go through. GLM 4.5 has these mixtures, and attention of its own;
GLM 4.7 Flash has both.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ....errors import Unsupported
from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, Latent, Rope, common, rope
from .family import Family, State, defaults, stack_experts


def _experts(values: Fields, **more: Any) -> Experts | None:
    """The layers from first_k_dense_replace on are mixtures."""
    if not values.has("n_routed_experts"):
        return None
    layers, first = values.count("num_hidden_layers"), values.count("first_k_dense_replace", 0, 0)
    hidden = values.count("moe_intermediate_size")
    return Experts(
        count=values.count("n_routed_experts"),
        chosen=values.count("num_experts_per_tok"),
        hidden=hidden,
        layers=frozenset(range(first, layers)),
        shared=hidden * values.count("n_shared_experts", 0, low=0),
        factor=values.number("routed_scaling_factor", 1.0),
        **more,
    )


def _groups(values: Fields, best: int) -> dict[str, int]:
    groups, kept = values.count("n_group", 1), values.count("topk_group", 1)
    if kept > groups or values.count("n_routed_experts", groups) % groups:
        raise values.wrong("topk_group", "of at most n_group groups of as many experts each")
    return {"groups": groups, "kept": kept, "best": best}


def _corrected(values: Fields) -> Experts | None:
    """V3: sigmoids, corrected where experts are chosen; a group counts by its two best."""
    normalise = values.flag("norm_topk_prob", True)
    more = _groups(values, best=2)
    return _experts(values, normalise=normalise, scoring="sigmoid", correction=True, **more)


def _rope(values: Fields) -> Rope:
    width = values.count("qk_rope_head_dim", 64)
    return replace(rope(values), interleaved=values.flag("rope_interleave", True), width=width)


def _scale(values: Fields, turning: Rope) -> float:
    """1 / sqrt(numbers of a query), times YaRN's factor for all dimensions, squared."""
    numbers = values.count("qk_nope_head_dim", 128) + values.count("qk_rope_head_dim", 64)
    all_of_them = turning.parameters.get("mscale_all_dim", 0)
    grown = 1.0
    if turning.kind != "default" and all_of_them and turning.parameters.get("factor", 1) > 1:
        grown = 0.1 * all_of_them * math.log(turning.parameters["factor"]) + 1.0
    return numbers**-0.5 * grown * grown


def _latent(values: Fields, experts: Experts | None) -> DecoderConfig:
    latent = Latent(
        rank=values.count("kv_lora_rank", 512),
        turning=values.count("qk_rope_head_dim", 64),
        plain=values.count("qk_nope_head_dim", 128),
        value=values.count("v_head_dim", 128),
        query=values.count_if("q_lora_rank"),
    )
    turning = _rope(values)
    return common(
        values, latent=latent, kv_heads=1, head_dim=latent.rank + latent.turning,
        ropes={"all": turning}, attention_scale=_scale(values, turning), experts=experts,
    )  # fmt: skip


def _v2(values: Fields) -> DecoderConfig:
    method = values.text("topk_method", "greedy", among=("greedy", "group_limited_greedy"))
    groups = _groups(values, best=1) if method != "greedy" else {}
    return _latent(values, _experts(values, normalise=False, **groups))


def _v3(values: Fields) -> DecoderConfig:
    return _latent(values, _corrected(values))


def _glm4_moe(values: Fields) -> DecoderConfig:
    if values.flag("use_qk_norm") and not values.has("head_dim"):
        raise Unsupported(f"{values.where}: norms of queries without head_dim")
    values = defaults(values, partial_rotary_factor=0.5)
    return common(
        values, output_bias=False, qk_norm="head" if values.flag("use_qk_norm") else None,
        experts=_corrected(values),
    )  # fmt: skip


def _glm4_lite(values: Fields) -> DecoderConfig:
    """Layers are named one by one, or all but the first are mixtures."""
    config = _v3(defaults(values, first_k_dense_replace=1, n_shared_experts=1))
    if config.experts is None or not values.has("mlp_layer_types"):
        return config
    kinds = values.texts("mlp_layer_types", config.layers)
    mixed = frozenset(n for n, kind in enumerate(kinds) if kind == "sparse")
    return replace(config, experts=replace(config.experts, layers=mixed))


def _adapt(state: State, config: DecoderConfig) -> State:
    found: State = {}
    first_too_many = [f"model.layers.{n}." for n in range(config.layers, config.layers + 4)]
    for name, value in state.items():
        if name.startswith(tuple(first_too_many)):
            continue  # layers that predict further tokens
        name = name.replace(".shared_experts.", ".shared_expert.")
        name = name.replace(".kv_a_proj_with_mqa.", ".kv_a_proj.").replace(".q_b_proj.", ".q_proj.")
        found[name.replace(".gate.e_score_correction_bias", ".correction")] = value
    experts = config.experts
    names = {name: name for name in ("gate_proj", "up_proj", "down_proj")}
    for layer in range(config.layers):
        if experts is not None and config.has_experts(layer):
            stack_experts(found, f"model.layers.{layer}.mlp.", experts.count, names)
        _split(found, f"model.layers.{layer}.self_attn.", config)
    return found


def _split(state: State, prefix: str, config: DecoderConfig) -> None:
    """kv_b_proj (heads * (plain + value), rank) --> k_b_proj and v_b_proj, head by head"""
    latent, packed = config.latent, state.pop(f"{prefix}kv_b_proj.weight", None)
    if latent is None or packed is None:
        return
    heads = packed.reshape(config.heads, latent.plain + latent.value, latent.rank)
    state[f"{prefix}k_b_proj.weight"] = heads[:, : latent.plain]
    state[f"{prefix}v_b_proj.weight"] = heads[:, latent.plain :]


DEEPSEEK_V2 = Family("deepseek_v2", _v2, _adapt)
DEEPSEEK_V3 = Family("deepseek_v3", _v3, _adapt)
KIMI_K2 = Family("kimi_k2", _v3, _adapt)
GLM4_MOE = Family("glm4_moe", _glm4_moe, _adapt)
GLM4_MOE_LITE = Family("glm4_moe_lite", _glm4_lite, _adapt)
