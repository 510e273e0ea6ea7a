"""Architectures of GGUF files whose layers carry states, in the place of attention or besides, and
those of Gemma 3n and 4, which have numbers beside their layers (see `gguf_names`)."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from ...errors import WeightsError
from ...weights.fields import Fields
from ...weights.gguf import GGUF, GGUFTensor
from .config import DecoderConfig
from .gguf_names import BEFORE_MLP, GRANITE, Architecture, Values
from .mixers import GatedDelta

SSM = {
    "ssm_in": "mixer.in_proj", "ssm_conv1d": "mixer.conv1d", "ssm_x": "mixer.x_proj",
    "ssm_dt": "mixer.dt_proj", "ssm_norm": "mixer.norm", "ssm_out": "mixer.out_proj",
    "ssm_dt_norm": "mixer.dt_layernorm", "ssm_b_norm": "mixer.b_layernorm",
    "ssm_c_norm": "mixer.c_layernorm",
}  # fmt: skip
SSM_BARE = {"ssm_a": "mixer.A_log", "ssm_d": "mixer.D"}
HEADS = SSM_BARE | {"ssm_dt.bias": "mixer.dt_bias"}  # of Mamba 2: one number of a head each
KERNELS = {"mixer.conv1d.weight": lambda x, config: x.reshape(len(x), 1, -1)}
CHANNELS = KERNELS | {"mixer.A_log": lambda x, config: np.log(-x)}  # files have -exp(A_log)
STATES = KERNELS | {
    "mixer.A_log": lambda x, config: np.log(-x.reshape(-1)),
    "mixer.D": lambda x, config: x.reshape(-1),
    "mixer.norm.weight": lambda x, config: x.reshape(-1),
}
EPS = "attention.layer_norm_rms_epsilon"
NO_HEADS = {"num_attention_heads": 1, "num_key_value_heads": 1}  # files of such models say 0


def _layers(file: GGUF, part: str) -> list[int]:
    """Those that have it."""
    found = (name.split(".", 2) for name in file if name.startswith("blk."))
    return sorted(int(layer) for _, layer, inner in found if inner == part and layer.isdecimal())


def _kinds(file: GGUF, found: Values) -> list[str]:
    """Of each layer: whether it attends."""
    attending = set(_layers(file, "attn_q.weight"))
    return ["full_attention" if layer in attending else "linear_attention"
            for layer in range(found["num_hidden_layers"])]  # fmt: skip


def _size(given: Fields) -> int:
    """Of a head with a state."""
    return given.count("ssm.inner_size") // given.count("ssm.time_step_rank")


def _mamba(file: GGUF, given: Fields, found: Values) -> Values:
    falcon = given.flag("ssm.dt_b_c_rms")
    return {"model_type": "falcon_mamba" if falcon else "mamba"}


def _mamba2(file: GGUF, given: Fields, found: Values) -> Values:
    return {"head_dim": _size(given)}


def _jamba(file: GGUF, given: Fields, found: Values) -> Values:
    layers, width = given.count("block_count"), given.count("embedding_length")
    more = {"num_key_value_heads": max(given.counts("attention.head_count_kv")),
            "mamba_expand": given.count("ssm.inner_size") // width}  # fmt: skip
    for what, part in (("attn", "attn_q.weight"), ("expert", "ffn_gate_inp.weight")):
        having = _layers(file, part) or [layers]
        period = having[1] - having[0] if len(having) > 1 else layers
        more |= {f"{what}_layer_offset": having[0], f"{what}_layer_period": period}
    return more


def _granite(file: GGUF, given: Fields, found: Values) -> Values:
    """Bamba is written as one without Granite's factors."""
    kinds = _kinds(file, found)
    turning = given.flag("rope.scaling.finetuned")
    return {
        "model_type": "granitemoehybrid" if given.has("attention.scale") else "bamba",
        "num_key_value_heads": max(given.counts("attention.head_count_kv")),
        "layer_types": kinds, "position_embedding_type": "rope" if turning else None,
        "attn_layer_indices": [n for n, kind in enumerate(kinds) if kind == "full_attention"],
        "num_local_experts": given.count("expert_count", 0, low=0), "mamba_d_head": _size(given),
    }  # fmt: skip


def _qwen_next(file: GGUF, given: Fields, found: Values) -> Values:
    share = found.get("partial_rotary_factor", 1.0)
    return {"layer_types": _kinds(file, found), "linear_value_head_dim": _size(given),
            "partial_rotary_factor": share}  # fmt: skip


def _gates(tensor: GGUFTensor, config: DecoderConfig) -> dict[str, GGUFTensor]:
    """Rows that are, for each head of keys, its betas and decays."""
    mixer = next(m for m in config.mixers if isinstance(m, GatedDelta))
    if tensor.shape[0] != 2 * mixer.heads:
        raise WeightsError(f"tensor {tensor.name!r} of shape {tensor.shape}")
    rows = np.arange(2 * mixer.heads).reshape(mixer.keys, 2, -1)
    return {f"mixer.{name}_proj.weight": tensor.take(rows[:, n].reshape(-1))
            for n, name in enumerate("ba")}  # fmt: skip


def _mixed(tensor: GGUFTensor, config: DecoderConfig) -> dict[str, GGUFTensor]:
    """How much of the last token is in r, w, k, v, a, g."""
    return {f"mixer.x_{name}": _slice(tensor, n, (config.width,))
            for n, name in enumerate("rwkvag")}  # fmt: skip


def _stack(name: str, tensor: GGUFTensor, config: DecoderConfig) -> dict[str, GGUFTensor]:
    """One matrix of each stream but the first."""
    if len(tensor.shape) != 3:
        raise WeightsError(f"tensor {tensor.name!r} of shape {tensor.shape}")
    return {f"streams.{name}.{n}.weight": _slice(tensor, n, tensor.shape[1:])
            for n in range(config.streams - 1)}  # fmt: skip


def _slice(tensor: GGUFTensor, number: int, shape: tuple[int, ...]) -> GGUFTensor:
    """One of those along the first dimension."""
    if not 0 <= number < tensor.shape[0]:
        raise WeightsError(f"tensor {tensor.name!r} of shape {tensor.shape}")
    raw = tensor.raw.reshape(tensor.shape[0], -1, tensor.raw.shape[-1])[number]
    return replace(tensor, shape=shape, raw=raw)


def _unseen(name: str, config: DecoderConfig) -> bool:
    """Keys and values of layers that see those of others."""
    layer = name.split(".")[2]
    own = (".k_proj.", ".v_proj.", ".k_norm.", ".v_norm.")
    return layer.isdecimal() and any(part in name for part in own) and (
        config.source(int(layer)) != int(layer)
    )  # fmt: skip


def _first_values(name: str, config: DecoderConfig) -> bool:
    """RWKV's first layer mixes no earlier values in: files have some for it, of which nothing is
    made."""
    return name.startswith("model.layers.0.mixer.v_lora.")


def _sides(file: GGUF, given: Fields) -> Values:
    """What the layers of Gemma 3n and 4 have alike. The width inside may differ among layers."""
    hidden = given.values.get("feed_forward_length")
    hidden = [int(n) for n in hidden] if isinstance(hidden, np.ndarray) else [int(hidden or 1)]
    table = "per_layer_token_embd.weight"
    return {
        "intermediate_size": hidden[0] if len(hidden) == 1 else hidden,
        "hidden_size_per_layer_input": given.count("embedding_length_per_layer_input", 0, low=0),
        "vocab_size_per_layer_input": file[table].shape[0] if table in file else 1,
    }  # fmt: skip


def _gemma3n(file: GGUF, given: Fields, found: Values) -> Values:
    more = _sides(file, given) | {"laurel_rank": file["blk.0.laurel_l.weight"].shape[0]}
    name = "activation_sparsity_scale"  # in deviations
    if given.has(name):
        shares = [NormalDist().cdf(float(z)) for z in given.values[name]]
        more |= {"activation_sparsity_pattern": shares}
    return more


def _gemma4(file: GGUF, given: Fields, found: Values) -> Values:
    """Layers without a window have other heads; frequencies of what does not turn are divided by
    a huge number."""
    layers, more = given.count("block_count"), _sides(file, given)
    near = [kind == "sliding_attention" for kind in found.get("layer_types", ())]
    whole = near.index(False) if False in near else 0
    heads = given.values.get("attention.head_count_kv")
    if isinstance(heads, np.ndarray):
        heads = given.counts("attention.head_count_kv", layers)
        more |= {"num_key_value_heads": heads[near.index(True) if True in near else 0],
                 "num_global_key_value_heads": heads[whole]}  # fmt: skip
    hidden = more["intermediate_size"]
    if isinstance(hidden, list):
        more |= {"intermediate_size": min(hidden), "use_double_wide_mlp": True}
    share = 1.0
    if "rope_freqs.weight" in file:
        share = float(np.mean(file["rope_freqs.weight"].array() == 1))
    ropes = {
        "full_attention": {"rope_theta": given.number("rope.freq_base", 1e6),
                           "partial_rotary_factor": share},
        "sliding_attention": {"rope_theta": given.number("rope.freq_base_swa", 1e4)},
    }  # fmt: skip
    return more | {
        "rope_parameters": ropes, "attention_k_eq_v": f"blk.{whole}.attn_v.weight" not in file,
        "enable_moe_block": given.count("expert_count", 0, low=0) > 0,
    }  # fmt: skip


GEMMA = {
    "num_kv_shared_layers": "attention.shared_kv_layers", "altup_num_inputs": "altup.num_inputs",
    "altup_active_idx": "altup.active_idx",
}  # fmt: skip
AROUND = {
    "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm", "laurel_l": "laurel.linear_left",
    "laurel_r": "laurel.linear_right", "laurel_post_norm": "laurel.post_laurel_norm",
    "altup_correct_coef": "altup.correction_coefs", "altup_router": "altup.modality_router",
    "altup_predict_coef": "altup.prediction_coefs", "altup_router_norm": "altup.router_norm",
}  # fmt: skip
AROUND_BARE = {"altup_correct_scale.weight": "altup.correct_output_scale",
               "layer_output_scale.weight": "layer_scalar"}  # fmt: skip
ALL_LAYERS = {
    "per_layer_token_embd": "model.sides.embed_tokens_per_layer",
    "per_layer_model_proj": "model.sides.per_layer_model_projection",
    "per_layer_proj_norm": "model.sides.per_layer_projection_norm",
}  # fmt: skip
LOW_RANK = {
    f"time_mix_{letter}{n}.weight": f"mixer.{letter}_lora.{ours}"
    for letter in "wavg" for n, ours in enumerate(("up.bias", "down.weight", "up.weight"))
}  # fmt: skip
RWKV = {
    "attn_norm_2": "input_layernorm", "time_mix_receptance": "mixer.r_proj",
    "time_mix_key": "mixer.k_proj", "time_mix_value": "mixer.v_proj",
    "time_mix_output": "mixer.o_proj", "time_mix_ln": "mixer.g_norm",
    "channel_mix_key": "mixer.key", "channel_mix_value": "mixer.value",
}  # fmt: skip
RWKV_BARE = LOW_RANK | {
    "time_mix_k_k.weight": "mixer.k_k", "time_mix_k_a.weight": "mixer.k_a",
    "time_mix_r_k.weight": "mixer.r_k", "channel_mix_lerp_k.weight": "mixer.x_k",
}  # fmt: skip
DELTA = {"ssm_conv1d": "mixer.conv1d", "ssm_norm": "mixer.norm", "ssm_out": "mixer.out_proj",
         "attn_qkv": "mixer.qkv_proj", "attn_gate": "mixer.z_proj"}  # fmt: skip
DELTA_FIELDS = {
    "linear_num_value_heads": "ssm.time_step_rank", "linear_num_key_heads": "ssm.group_count",
    "linear_key_head_dim": "ssm.state_size", "linear_conv_kernel_dim": "ssm.conv_kernel",
    "num_experts": "expert_count",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}  # fmt: skip
QWEN3_5 = Architecture(
    "qwen3_5_text", DELTA_FIELDS, {"tiled_heads": True}, DELTA | BEFORE_MLP | {
        "ssm_beta": "mixer.b_proj", "ssm_alpha": "mixer.a_proj",
    }, more=_qwen_next, bare=HEADS, changes=STATES,
)  # fmt: skip
HYBRIDS = {
    "bitnet": Architecture("bitnet", fixed={"hidden_act": "silu"}, parts={
        "attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"}),
    "mamba": Architecture("mamba", {
        "intermediate_size": "ssm.inner_size", "state_size": "ssm.state_size",
        "conv_kernel": "ssm.conv_kernel", "time_step_rank": "ssm.time_step_rank",
        "layer_norm_epsilon": EPS,
    }, NO_HEADS, SSM, more=_mamba, bare=SSM_BARE, changes=CHANNELS),
    "mamba2": Architecture("mamba2", {
        "num_heads": "ssm.time_step_rank", "n_groups": "ssm.group_count",
        "state_size": "ssm.state_size", "conv_kernel": "ssm.conv_kernel",
        "layer_norm_epsilon": EPS,
    }, NO_HEADS, SSM, more=_mamba2, bare=HEADS, changes=STATES),
    "jamba": Architecture("jamba", {
        "mamba_d_state": "ssm.state_size", "mamba_d_conv": "ssm.conv_kernel",
        "mamba_dt_rank": "ssm.time_step_rank", "num_experts": "expert_count",
    }, parts=SSM, more=_jamba, bare=SSM_BARE, changes=CHANNELS),
    "granitehybrid": Architecture("granitemoehybrid", GRANITE | {
        "mamba_n_heads": "ssm.time_step_rank", "mamba_n_groups": "ssm.group_count",
        "mamba_d_state": "ssm.state_size", "mamba_d_conv": "ssm.conv_kernel",
    }, parts=SSM, turned=True, more=_granite, bare=HEADS, changes=STATES),
    "qwen3next": Architecture(
        "qwen3_next", DELTA_FIELDS, parts=DELTA | BEFORE_MLP, more=_qwen_next, bare=HEADS,
        changes=STATES, cuts={"ssm_ba": _gates}),
    "qwen35": QWEN3_5,
    "qwen35moe": replace(QWEN3_5, family="qwen3_5_moe_text"),
    "rwkv7": Architecture("rwkv7", {
        "head_dim": "wkv.head_size", "norm_eps": "attention.layer_norm_epsilon",
        "decay_low_rank_dim": "attention.decay_lora_rank",
        "a_low_rank_dim": "attention.iclr_lora_rank",
        "v_low_rank_dim": "attention.value_residual_mix_lora_rank",
        "gate_low_rank_dim": "attention.gate_lora_rank",
    }, parts=RWKV, bare=RWKV_BARE, cuts={"time_mix_lerp_fused": _mixed}, changes={
        "mixer.r_k": lambda x, config: x.reshape(config.heads, -1),
        "mixer.x_k": lambda x, config: x.reshape(-1),
    }, lost=_first_values, upper=("attn_norm_2", "channel_mix"), normed=True),
    "gemma3n": Architecture(
        "gemma3n_text", GEMMA, parts=AROUND, more=_gemma3n, outside=ALL_LAYERS, bare=AROUND_BARE,
        lost=_unseen, cuts={
            "altup_proj": lambda x, config: _stack("altup_projections", x, config),
            "altup_unembd_proj": lambda x, config: _stack("altup_unembed_projections", x, config),
        }),
    "gemma4": Architecture("gemma4_text", GEMMA | {
        "head_dim": "attention.key_length_swa", "global_head_dim": "attention.key_length",
    }, parts=AROUND, more=_gemma4, outside=ALL_LAYERS, bare=AROUND_BARE, lost=_unseen),
}  # fmt: skip
