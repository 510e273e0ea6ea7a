"""Qwen3-Next and Qwen 3.5: gated delta rules, with gated attention in every fourth layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....errors import WeightsError
from ....weights.fields import Fields
from ..config import DecoderConfig, common
from ..mixers import GatedDelta
from .family import Family, State, defaults
from .mamba import inner_layers
from .qwen import adapt_experts, experts

PARTS = {
    "in_proj_qkv": "qkv_proj", "in_proj_z": "z_proj", "in_proj_b": "b_proj", "in_proj_a": "a_proj",
}  # fmt: skip


def _dense(values: Fields, **more: Any) -> DecoderConfig:
    layers, every = values.count("num_hidden_layers"), values.count("full_attention_interval", 4)
    attending = set(range(every - 1, layers, every))
    if values.has("layer_types"):
        kinds = values.texts("layer_types", layers)
        attending = {n for n, kind in enumerate(kinds) if kind == "full_attention"}
    mixer = GatedDelta(
        values.count("linear_num_value_heads", 32), values.count("linear_num_key_heads", 16),
        values.count("linear_key_head_dim", 128), values.count("linear_value_head_dim", 128),
        values.count("linear_conv_kernel_dim", 4), values.flag("tiled_heads"),
    )  # fmt: skip
    if mixer.heads % mixer.keys:
        raise WeightsError(f"{values.where}: {mixer.heads} heads, {mixer.keys} heads of keys")
    values = defaults(values, partial_rotary_factor=0.25, head_dim=256)
    return common(
        values, mixers=inner_layers(values, attending, mixer), norm="rms1", qk_norm="head",
        attention_gate=True, **more,
    )  # fmt: skip


def _mixture(values: Fields) -> DecoderConfig:
    shared = values.count("shared_expert_intermediate_size", 512, low=0)
    usual = defaults(values, norm_topk_prob=True)
    found = experts(usual, shared=shared, shared_gate=shared > 0)
    return _dense(values, experts=found, hidden=values.count("intermediate_size", found.hidden))


def _adapt(state: State, config: DecoderConfig) -> State:
    found: State = {}
    for name, value in state.items():
        if name.startswith("mtp."):
            continue  # layers that predict further tokens
        name = name.replace(".linear_attn.", ".mixer.").replace("model.language_model.", "model.")
        for theirs, ours in PARTS.items():
            name = name.replace(f".{theirs}.", f".{ours}.")
        found[name] = value
    for layer in range(config.layers):
        mixer = config.mixer(layer)
        if isinstance(mixer, GatedDelta):
            _split(found, f"model.layers.{layer}.mixer.", mixer)
    return found if config.experts is None else adapt_experts(found, config)


def _split(state: State, prefix: str, mixer: GatedDelta) -> None:
    """Rows that are, for each head of keys, its query, key, values, gates --> those of all heads;
    and rows that are its betas and decays."""
    several = mixer.heads // mixer.keys
    value = several * mixer.value
    sizes = [mixer.key, mixer.key, value, value]
    wide = _parts(state, f"{prefix}in_proj_qkvz.weight", sizes, mixer)
    if wide:
        state[f"{prefix}qkv_proj.weight"] = np.concatenate(wide[:3])
        state[f"{prefix}z_proj.weight"] = wide[3]
    narrow = _parts(state, f"{prefix}in_proj_ba.weight", [several, several], mixer)
    if narrow:
        state[f"{prefix}b_proj.weight"], state[f"{prefix}a_proj.weight"] = narrow


def _parts(state: State, name: str, sizes: list[int], mixer: GatedDelta) -> list[np.ndarray]:
    """The rows of each part of all heads of keys; none if there is no such tensor."""
    packed = state.pop(name, None)
    if packed is None:
        return []
    if packed.shape[0] != mixer.keys * sum(sizes):
        raise WeightsError(f"tensor {name!r} is of shape {packed.shape}")
    heads = np.asarray(packed).reshape(mixer.keys, sum(sizes), -1)
    cuts = np.split(heads, np.cumsum(sizes)[:-1], 1)
    return [np.ascontiguousarray(cut).reshape(-1, heads.shape[-1]) for cut in cuts]


QWEN3_NEXT = Family("qwen3_next", _mixture, _adapt)
QWEN3_5_TEXT = Family("qwen3_5_text", _dense, _adapt)
QWEN3_5_MOE_TEXT = Family("qwen3_5_moe_text", _mixture, _adapt)
