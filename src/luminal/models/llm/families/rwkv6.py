"""RWKV 6, under the names that its authors' checkpoints for transformers give it. A layer of it is
two of ours, as of RWKV 7."""

from __future__ import annotations

import re

import numpy as np

from ....errors import Unsupported
from ....weights.fields import Fields
from ..config import DecoderConfig
from ..mixers import ChannelMix, TimeMix6
from ..mixers.rwkv6 import MIXED
from .family import Family, State
from .rwkv import mixing, normed_first

PART = re.compile(r"^rwkv\.blocks\.(\d+)\.(ln1|ln2|attention|feed_forward)\.(.*)$")
NAMES = {
    "rwkv.embeddings.weight": "model.embed_tokens.weight", "head.weight": "lm_head.weight",
    "rwkv.ln_out.weight": "model.norm.weight", "rwkv.ln_out.bias": "model.norm.bias",
    "rwkv.blocks.0.pre_ln.weight": "model.layers.0.pre_norm.weight",
    "rwkv.blocks.0.pre_ln.bias": "model.layers.0.pre_norm.bias",
}  # fmt: skip
INSIDE = {
    "ln1": {"weight": "input_layernorm.weight", "bias": "input_layernorm.bias"},
    "ln2": {"weight": "input_layernorm.weight", "bias": "input_layernorm.bias"},
    "feed_forward": {
        "time_maa_k": "mixer.x_k", "time_maa_r": "mixer.x_r", "key.weight": "mixer.key.weight",
        "receptance.weight": "mixer.receptance.weight", "value.weight": "mixer.value.weight",
    },
    "attention": {
        "time_maa_x": "mixer.x_x", "time_maa_w1": "mixer.mix_down.weight",
        "time_maa_w2": "mixer.mix_up", "time_decay": "mixer.w_lora.up.bias",
        "time_decay_w1": "mixer.w_lora.down.weight", "time_decay_w2": "mixer.w_lora.up.weight",
        "time_faaaa": "mixer.bonus", "ln_x.weight": "mixer.g_norm.weight",
        "ln_x.bias": "mixer.g_norm.bias", "receptance.weight": "mixer.r_proj.weight",
        "key.weight": "mixer.k_proj.weight", "value.weight": "mixer.v_proj.weight",
        "gate.weight": "mixer.g_proj.weight", "output.weight": "mixer.o_proj.weight",
    },
}  # fmt: skip
TURNED = ("time_maa_w1", "time_decay_w1", "time_decay_w2")  # stored as (in, out)


def _rwkv6(values: Fields) -> DecoderConfig:
    layers, width = values.count("num_hidden_layers"), values.count("hidden_size")
    size, large = values.count("head_size", 64), 1 + (width == 4096)
    if values.count("attention_hidden_size", width) != width:
        raise Unsupported(f"{values.where}: RWKV 6 with heads of another width than the model's")
    mixer = TimeMix6(
        width // size, size, values.count("time_mix_extra_dim", 32 * large),
        values.count("time_decay_extra_dim", 64 * large),
        1e-5 * values.count("head_size_divisor", 8) ** 2,
    )  # fmt: skip
    hidden = values.count("intermediate_size", int(width * 3.5) // 32 * 32)
    return mixing(values, layers, mixer, ChannelMix(hidden, gated=True), "layer_norm_epsilon")


def _adapt(state: State, config: DecoderConfig) -> State:
    found: State = {}
    for name, value in state.items():
        match = PART.match(name)
        if match is None:
            found[NAMES.get(name, name)] = value
            continue
        layer, part, rest = match.groups()
        value = value.T if rest in TURNED else value
        value = value.reshape(-1) if value.shape[:2] == (1, 1) else value
        at = f"model.layers.{2 * int(layer) + (part in ('ln2', 'feed_forward'))}"
        found[f"{at}.{INSIDE[part].get(rest, rest)}"] = value
    for layer in range(0, len(config.mixers), 2):
        at = f"model.layers.{layer}"
        shares = [found.pop(f"{at}.time_maa_{letter}", None) for letter in MIXED]
        if all(share is not None for share in shares):
            found[f"{at}.mixer.x_all"] = np.stack(shares)  # type: ignore[arg-type]
    return normed_first(found, config)


RWKV6 = Family("rwkv6", _rwkv6, _adapt)
