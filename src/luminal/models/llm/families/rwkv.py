"""RWKV 7, under the names that checkpoints of flash-linear-attention give it. A layer of it is two
of ours: what mixes tokens, and what follows."""

from __future__ import annotations

import re

import numpy as np

from ....errors import Unsupported
from ....weights.fields import Fields
from ..config import DecoderConfig, Mixer, common
from ..mixers import ChannelMix, TimeMix, TimeMix6
from .family import Family, State, defaults
from .mamba import NO_END

LAYER = re.compile(r"^model\.layers\.(\d+)\.(attn|ffn)(_norm)?\.(.*)$")


def _rwkv7(values: Fields) -> DecoderConfig:
    layers, width = values.count("num_hidden_layers"), values.count("hidden_size")
    if values.has("attn"):
        raise Unsupported(f"{values.where}: RWKV 7 with attention in some layers")
    if values.text("hidden_act", "sqrelu") != "sqrelu" or not values.flag("norm_bias", True):
        raise Unsupported(f"{values.where}: RWKV 7 with another activation or without biases")
    size = values.count("head_dim", 64)
    mixer = TimeMix(
        width // size, size, values.count("decay_low_rank_dim", 64),
        values.count("a_low_rank_dim", 64), values.count("v_low_rank_dim", 16),
        values.count("gate_low_rank_dim", 128),
    )  # fmt: skip
    hidden = int(width * values.number("hidden_ratio", 4.0))
    hidden = values.count("intermediate_size", -(-hidden // 32) * 32)
    return mixing(values, layers, mixer, ChannelMix(hidden), "norm_eps")


def mixing(
    values: Fields, layers: int, mixer: TimeMix | TimeMix6, follows: Mixer, eps: str
) -> DecoderConfig:
    """That of so many pairs of layers. eps: the field of that of norms."""
    both = {"num_hidden_layers": 2 * layers, "num_attention_heads": mixer.heads}
    both |= {"head_dim": mixer.head_dim}
    given = {name: value for name, value in values.values.items() if name != "num_key_value_heads"}
    inner = defaults(Fields(given | both, values.where), tie_word_embeddings=False)
    return common(
        inner, mixers=(mixer, follows) * layers, rotary=(None,) * (2 * layers), hidden=0,
        block="alone", norm="layer", context=NO_END, ropes={},
        eps=values.number(eps, 1e-5, low=0, high=1),
    )  # fmt: skip


def _adapt(state: State, config: DecoderConfig) -> State:
    found: State = {}
    for name, value in state.items():
        match = LAYER.match(name)
        if match is None:
            found[name.replace(".embeddings.", ".embed_tokens.")] = value
            continue
        layer, part, norm, rest = match.groups()
        rest = rest.replace("_lora.lora.0.", "_lora.down.").replace("_lora.lora.2.", "_lora.up.")
        at = f"model.layers.{2 * int(layer) + (part == 'ffn')}"
        value = value.reshape(-1) if rest.startswith("x_") else value
        found[f"{at}.{'input_layernorm' if norm else 'mixer'}.{rest}"] = value
    return normed_first(found, config)


def normed_first(state: State, config: DecoderConfig) -> State:
    """The first layer has a norm before all else: that of the tokens' embeddings."""
    names = [f"model.layers.0.pre_norm.{part}" for part in ("weight", "bias")]
    weight, bias = (state.pop(name, None) for name in names)
    table = state.get("model.embed_tokens.weight")
    if weight is None or bias is None or table is None:
        return state
    return {**state, "model.embed_tokens.weight": normed_rows(table, weight, bias, config.eps)}


def normed_rows(
    table: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float
) -> np.ndarray:
    """A layer norm of each row, f32."""
    wide = np.asarray(table, np.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    wide /= np.sqrt((wide * wide).mean(-1, keepdims=True) + np.float32(eps))
    return wide * np.asarray(weight, np.float32) + np.asarray(bias, np.float32)


RWKV7 = Family("rwkv7", _rwkv7, _adapt)
