"""Architectures of GGUF files: which family each is, and what its metadata and tensors are called.

What a converter writes is in gguf-py's constants and in llama.cpp's conversion; what a file leaves
out is in llama.cpp's own code for the architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...weights.fields import Fields
from ...weights.gguf import GGUF

Values = dict[str, Any]
More = Callable[[GGUF, Fields, Values], Values]  # (file, its metadata without prefix, found so far)
FIELDS = {  # config.json's name -> the metadata's, after "<architecture>."
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
PARTS = {  # of blk.N.
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "post_attention_norm": "attention_output_norm", "post_ffw_norm": "mlp_output_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate", "ffn_gate_exps": "mlp.gate_proj", "ffn_up_exps": "mlp.up_proj",
    "ffn_down_exps": "mlp.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_k_b": "self_attn.k_b_proj",
    "attn_v_b": "self_attn.v_b_proj", "shortconv.conv": "mixer.conv",
    "shortconv.in_proj": "mixer.in_proj", "shortconv.out_proj": "mixer.out_proj",
}  # fmt: skip
BARE = {  # of blk.N., whole names: ours end otherwise
    "attn_sinks.weight": "self_attn.sinks", "exp_probs_b.bias": "mlp.correction",
    "ffn_gate_exps.bias": "mlp.gate_bias", "ffn_up_exps.bias": "mlp.up_bias",
    "ffn_down_exps.bias": "mlp.down_bias",
}  # fmt: skip
OUTSIDE = {"token_embd": "model.embed_tokens", "position_embd": "model.embed_positions",
           "output_norm": "model.norm", "token_embd_norm": "model.norm",
           "output": "lm_head"}  # fmt: skip
BEFORE_MLP = {"post_attention_norm": "post_attention_layernorm"}


@dataclass(frozen=True)
class Architecture:
    """family: of FAMILIES. fields, parts: beside FIELDS and PARTS. fixed: fields of which a file
    says nothing. second: parts of files with an `attn_norm_2`. turned: queries and keys have the
    features of a pair side by side where the family has the second half of a head after the first.
    more: what else follows from the file; its "model_type" is another family."""

    family: str
    fields: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    second: Mapping[str, str] = field(default_factory=dict)
    turned: bool = False
    more: More | None = None

    def fitting(self, file: GGUF) -> Architecture:
        """As it is in this file."""
        if "attn_norm_2.weight" not in partial_names(file):
            return self
        return replace(self, parts={**self.parts, **self.second})

    def values(self, file: GGUF, given: Fields) -> Values:
        """The fields of a config.json, and "model_type". given: metadata without the prefix."""
        found: Values = {"model_type": self.family, "norm_topk_prob": True}
        for ours, theirs in {**FIELDS, **self.fields}.items():
            if given.has(theirs):
                found[ours] = given.values[theirs]
        later = given.count("nextn_predict_layers", 0, low=0)  # layers that predict further tokens
        if later:
            found["num_hidden_layers"] = given.count("block_count", low=later + 1) - later
        has = partial_names(file)
        found |= {"attention_bias": "attn_q.bias" in has or "attn_qkv.bias" in has}
        found |= {"qk_layernorm": "attn_q_norm.weight" in has} | self._kinds(given)
        width = given.count_if("rope.dimension_count")
        if width is not None:
            usual = given.count("embedding_length") // given.count("attention.head_count")
            size = given.count("attention.key_length", max(1, usual))
            found |= {"partial_rotary_factor": width / size} if width < size else {}
        found |= self.fixed
        return found if self.more is None else found | self.more(file, given, found)

    def _kinds(self, given: Fields) -> Values:
        """Which layers have a window."""
        name = "attention.sliding_window_pattern"
        if not isinstance(given.values.get(name), np.ndarray):  # a number: every so many-th
            return {}
        near = [bool(each) for each in given.values[name]]
        return {"layer_types": ["sliding_attention" if n else "full_attention" for n in near]}


def partial_names(file: GGUF) -> set[str]:
    """The names of tensors within layers: of any."""
    return {name.split(".", 2)[-1] for name in file if name.startswith("blk.")}


def _mixtral(file: GGUF, given: Fields, found: Values) -> Values:
    """Mixtures of Llama's shape have its architecture."""
    return {"model_type": "mixtral"} if given.count("expert_count", 0, low=0) else {}


def _biased(*names: str) -> More:
    """Flags that say whether there are biases."""
    return lambda file, given, found: dict.fromkeys(names, found["attention_bias"])


def _falcon(file: GGUF, given: Fields, found: Values) -> Values:
    """The larger ones have two norms side by side: `attn_norm_2` is attention's."""
    two = "attn_norm_2.weight" in partial_names(file)
    return {"new_decoder_architecture": two, "bias": found["attention_bias"]}


def _olmo2(file: GGUF, given: Fields, found: Values) -> Values:
    return {"model_type": "olmo3"} if given.has("attention.sliding_window") else {}


def _deepseek(file: GGUF, given: Fields, found: Values) -> Values:
    """V3 and R1 score experts by sigmoids and correct them; V2 does not."""
    newer = "exp_probs_b.bias" in partial_names(file)
    turning, groups = given.count("rope.dimension_count"), given.count("expert_group_count", 1)
    key = given.count("attention.key_length_mla", given.count_if("attention.key_length"))
    value = given.count("attention.value_length_mla", given.count_if("attention.value_length"))
    scale = 10 * given.number("rope.scaling.yarn_log_multiplier", 0.0)
    return {
        "model_type": "deepseek_v3" if newer else "deepseek_v2",
        "yarn": {"mscale": scale, "mscale_all_dim": scale} if scale else {},
        "topk_method": "group_limited_greedy" if groups > 1 else "greedy",
        "qk_rope_head_dim": turning, "qk_nope_head_dim": key - turning, "v_head_dim": value,
    }  # fmt: skip


def _glm4_moe(file: GGUF, given: Fields, found: Values) -> Values:
    return {"use_qk_norm": found["qk_layernorm"]}


def _attending(file: GGUF, given: Fields, found: Values) -> Values:
    """The layers that have heads of keys and values attend."""
    heads = given.counts("attention.head_count_kv")
    return {
        "num_key_value_heads": max(heads),
        "full_attn_idxs": [layer for layer, count in enumerate(heads) if count],
        "use_expert_bias": "exp_probs_b.bias" in partial_names(file),
    }  # fmt: skip


def _ministral3(file: GGUF, given: Fields, found: Values) -> Values:
    scale = given.number("rope.scaling.yarn_log_multiplier", 0.0)
    more = {"mscale": 1.0, "mscale_all_dim": scale} if scale else {}
    beta = given.number("attention.temperature_scale", 0.0)
    return {"yarn": {**more, "llama_4_scaling_beta": beta}}


def _llama4(file: GGUF, given: Fields, found: Values) -> Values:
    """The larger one (of 128 experts) has no norms of queries and keys."""
    return {"use_qk_norm": given.count("expert_count") != 128}


GRANITE = {
    "embedding_multiplier": "embedding_scale", "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale",
    "shared_intermediate_size": "expert_shared_feed_forward_length",
}  # fmt: skip
ROUTED = {
    "n_routed_experts": "expert_count", "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count", "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count", "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
}  # fmt: skip
PARALLEL = {"use_parallel_residual": "use_parallel_residual"}
ARCHITECTURES = {
    "llama": Architecture("llama", turned=True, more=_mixtral),
    "qwen2": Architecture("qwen2"),
    "qwen2moe": Architecture("qwen2_moe", {
        "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    }, {"norm_topk_prob": False}, more=_biased("qkv_bias")),
    "qwen3": Architecture("qwen3"),
    "qwen3moe": Architecture("qwen3_moe"),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture("gemma2"),
    "gemma3": Architecture("gemma3_text"),
    "phi2": Architecture("phi"),
    "phi3": Architecture("phi3"),
    "gpt2": Architecture("gpt2"),
    "gpt-oss": Architecture(
        "gpt_oss", {"intermediate_size": "expert_feed_forward_length"},
        {"yarn": {"truncate": False}}, BEFORE_MLP),
    "granite": Architecture("granite", GRANITE, turned=True),
    "granitemoe": Architecture("granitemoeshared", GRANITE, turned=True),
    "chatglm": Architecture("glm"),
    "glm4": Architecture("glm4"),
    "glm4moe": Architecture("glm4_moe", ROUTED, parts=BEFORE_MLP, more=_glm4_moe),
    "command-r": Architecture("cohere", {"logit_scale": "logit_scale"}),
    "cohere2": Architecture("cohere2", {"logit_scale": "logit_scale"}),
    "falcon": Architecture(
        "falcon", {"ffn_hidden_size": "feed_forward_length",
                   "num_kv_heads": "attention.head_count_kv"},
        {"multi_query": False}, more=_falcon, second={
            "attn_norm": "post_attention_layernorm", "attn_norm_2": "input_layernorm"}),
    "gptneox": Architecture("gpt_neox", PARALLEL),
    "stablelm": Architecture("stablelm", PARALLEL, more=_biased("use_qkv_bias")),
    "starcoder2": Architecture(
        "starcoder2", {"norm_epsilon": "attention.layer_norm_epsilon"}, more=_biased("use_bias")),
    "olmo": Architecture("olmo", {"clip_qkv": "attention.clamp_kqv"}, turned=True),
    "olmo2": Architecture("olmo2", more=_olmo2),
    "olmoe": Architecture("olmoe", {"num_experts": "expert_count"}, {"norm_topk_prob": False}),
    "smollm3": Architecture("smollm3", turned=True),
    "deepseek2": Architecture("deepseek_v2", ROUTED | {
        "q_lora_rank": "attention.q_lora_rank", "kv_lora_rank": "attention.kv_lora_rank",
    }, more=_deepseek),
    "lfm2": Architecture("lfm2", {
        "conv_L_cache": "shortconv.l_cache", "norm_eps": "attention.layer_norm_rms_epsilon",
    }, {"block_auto_adjust_ff_dim": False}, more=_attending),
    "lfm2moe": Architecture("lfm2_moe", {
        "conv_L_cache": "shortconv.l_cache", "norm_eps": "attention.layer_norm_rms_epsilon",
        "num_experts": "expert_count", "num_dense_layers": "leading_dense_block_count",
        "routed_scaling_factor": "expert_weights_scale",
    }, more=_attending),
    "llama4": Architecture("llama4_text", {
        "intermediate_size_mlp": "feed_forward_length",
        "intermediate_size": "expert_feed_forward_length",
        "interleave_moe_layer_step": "interleave_moe_layer_step",
    }, {"attention_chunk_size": 8192}, more=_llama4),
    "mistral3": Architecture("ministral3", turned=True, more=_ministral3),
}  # fmt: skip
