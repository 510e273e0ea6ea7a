"""Architectures of GGUF files: which family each is, and what its metadata and tensors are called.

Those with layers of other kinds than attention, or with numbers beside them, are in `gguf_hybrids`.
"""

from __future__ import annotations

from ...weights.fields import Fields
from ...weights.gguf import GGUF
from .gguf_hybrids import HYBRIDS
from .gguf_names import BEFORE_MLP, GRANITE, Architecture, More, Values, partial_names


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
    "qwen2vl": Architecture("qwen2_vl_text"),
    "qwen3": Architecture("qwen3"),
    "qwen3vl": Architecture("qwen3_vl_text", woven=True),
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
    **HYBRIDS,
}  # fmt: skip
