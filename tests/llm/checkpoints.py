"""Tiny random checkpoints of every family, made with transformers, and a small tokenizer."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM

from .rwkv import Rwkv7
from .rwkv6 import Rwkv6

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)  # tiny models: more threads only wait for each other
VOCABULARY = 320
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.1] * 8, "long_factor": [2.0] * 8,
    "original_max_position_embeddings": 110,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": 9}
LAYERS = ["sliding_attention", "full_attention"]
GRANITE = {
    "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5,
    "logits_scaling": 2.0,
}  # fmt: skip
ROUTED = {
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "n_group": 4,
    "topk_group": 2, "moe_intermediate_size": 48, "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}  # fmt: skip
MLA = ROUTED | {
    "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
    "num_key_value_heads": 4,
}  # fmt: skip
MIXED = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 2}
DELTA = {
    "layer_types": ["linear_attention", "full_attention"], "head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
}  # fmt: skip
SIDE = {
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 9, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 300,
}  # fmt: skip
# name -> (class of the config, what differs from SIZES)
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("LlamaConfig", {"num_key_value_heads": 4}),
    "llama3": ("LlamaConfig", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama-yarn": ("LlamaConfig", {"rope_parameters": YARN, "attention_bias": True}),
    "llama-dynamic": ("LlamaConfig", {"rope_parameters": DYNAMIC, "num_key_value_heads": 1}),
    "smollm3": ("SmolLM3Config", {"no_rope_layer_interval": 2}),
    "mistral": ("MistralConfig", {"sliding_window": 9}),
    "mistral-small3": ("MistralConfig", {
        "head_dim": 24, "sliding_window": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e8},
    }),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "qwen3-moe": ("Qwen3MoeConfig", {
        "head_dim": 32, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
        "norm_topk_prob": True, "mlp_only_layers": [1],
    }),
    "phi3": ("Phi3Config", {"original_max_position_embeddings": 512}),
    "phi3-long": ("Phi3Config", {
        "rope_parameters": LONGROPE, "original_max_position_embeddings": 110,
    }),
    "gemma": ("GemmaConfig", {"head_dim": 32}),
    "gemma2": ("Gemma2Config", GEMMA | {"layer_types": LAYERS}),
    "gemma3": ("Gemma3TextConfig", GEMMA | {"layer_types": LAYERS}),
    "gpt2": ("GPT2Config", {
        "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512,
    }),
    "ministral": ("MinistralConfig", {
        "sliding_window": 9, "layer_types": LAYERS, "head_dim": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }),
    "qwen2-moe": ("Qwen2MoeConfig", {
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
    }),
    "phi": ("PhiConfig", {}),
    "olmo": ("OlmoConfig", {}),
    "olmo2": ("Olmo2Config", {}),
    "olmo3": ("Olmo3Config", {"sliding_window": 9, "layer_types": LAYERS}),
    "olmoe": ("OlmoeConfig", {"num_experts": 6, "num_experts_per_tok": 2}),
    "granite": ("GraniteConfig", GRANITE),
    "granite-moe": ("GraniteMoeConfig", GRANITE | {
        "num_local_experts": 6, "num_experts_per_tok": 2,
    }),
    "granite-moe-shared": ("GraniteMoeSharedConfig", GRANITE | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 80,
    }),
    "glm": ("GlmConfig", {"head_dim": 16}),
    "glm4": ("Glm4Config", {"head_dim": 16}),
    "cohere": ("CohereConfig", {}),
    "cohere2": ("Cohere2Config", {"sliding_window": 9, "layer_types": LAYERS}),
    "cohere-plus": ("CohereConfig", {"use_qk_norm": True}),
    "phi-normed": ("PhiConfig", {"qk_layernorm": True}),
    "stablelm-normed": ("StableLmConfig", {"qk_layernorm": True, "num_key_value_heads": 2}),
    "falcon": ("FalconConfig", {"ffn_hidden_size": 96}),
    "falcon-new": ("FalconConfig", {
        "new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 96,
    }),
    "gpt-neox": ("GPTNeoXConfig", {}),
    "stablelm": ("StableLmConfig", {}),
    "stablelm-parallel": ("StableLmConfig", {"use_parallel_residual": True, "use_qkv_bias": True}),
    "gpt-oss": ("GptOssConfig", {
        "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 9,
        "layer_types": LAYERS, "rope_parameters": YARN | {"truncate": False},
    }),
    "deepseek-v2": ("DeepseekV2Config", MLA | {
        "q_lora_rank": None, "topk_method": "group_limited_greedy",
    }),
    "deepseek-v3": ("DeepseekV3Config", MLA | {
        "q_lora_rank": 32, "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.7},
    }),
    "glm4-moe": ("Glm4MoeConfig", ROUTED | {"use_qk_norm": True, "head_dim": 16}),
    "glm4-moe-lite": ("Glm4MoeLiteConfig", MLA | {
        "q_lora_rank": 32, "mlp_layer_types": ["sparse", "dense"],
    }),
    "bitnet": ("BitNetConfig", {}),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 9}),
    "mamba": ("MambaConfig", {"state_size": 8}),
    "falcon-mamba": ("FalconMambaConfig", {"state_size": 8}),
    "mamba2": ("Mamba2Config", {"num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 16}),
    "granite4": ("GraniteMoeHybridConfig", GRANITE | MIXED | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 80,
        "layer_types": ["linear_attention", "full_attention"],
    }),
    "granite4-dense": ("GraniteMoeHybridConfig", GRANITE | MIXED | {
        "num_local_experts": 0, "shared_intermediate_size": 80, "position_embedding_type": "rope",
        "layer_types": ["full_attention", "linear_attention"], "mamba_n_groups": 1,
    }),
    "bamba": ("BambaConfig", MIXED | {"attn_layer_indices": [1], "mamba_d_head": 16}),
    "jamba": ("JambaConfig", {
        "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4, "mamba_d_state": 8,
    }),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}),
    "lfm2-moe": ("Lfm2MoeConfig", {
        "layer_types": ["full_attention", "conv"], "num_experts": 6, "num_dense_layers": 1,
        "moe_intermediate_size": 48, "num_experts_per_tok": 2,
    }),
    "qwen3-next": ("Qwen3NextConfig", DELTA | {
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
    }),
    "ministral3": ("Ministral3Config", {"head_dim": 16, "rope_parameters": YARN | {
        "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 16,
    }}),
    "llama4": ("Llama4TextConfig", {
        "head_dim": 16, "num_hidden_layers": 4, "attention_chunk_size": 11, "floor_scale": 8,
        "intermediate_size_mlp": 80, "num_local_experts": 4, "num_experts_per_tok": 2,
        "interleave_moe_layer_step": 2, "attn_scale": 0.5,
    }),
    "gemma3n": ("Gemma3nTextConfig", SIDE | {
        "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0], "laurel_rank": 8,
        "head_dim": 16, "intermediate_size": [96, 96, 96, 96], "num_kv_shared_layers": 2,
    }),
    "gemma4": ("Gemma4TextConfig", SIDE | {
        "vocab_size_per_layer_input": VOCABULARY,
        "global_head_dim": 32, "head_dim": 16, "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
    }),
    "gemma4-wide": ("Gemma4TextConfig", SIDE | {
        "global_head_dim": 32, "head_dim": 16, "attention_k_eq_v": True,
        "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
    }),
    "gemma4-moe": ("Gemma4TextConfig", SIDE | {
        "global_head_dim": 32, "head_dim": 16, "hidden_size_per_layer_input": 0,
        "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
        "moe_intermediate_size": 48,
    }),
    "rwkv6": ("Rwkv6", {}),
    "rwkv7": ("Rwkv7", {}),
    "qwen3.5": ("Qwen3_5TextConfig", DELTA | {"linear_num_key_heads": 4}),
    "qwen3.5-moe": ("Qwen3_5MoeTextConfig", DELTA | {
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 96,
    }),
}  # fmt: skip
# their parts are those of others: tests look at their tensors, scripts/language_models.py runs them
ALIKE = {
    "mistral-small3", "falcon-mamba", "mamba", "mamba2", "ministral3", "granite4-dense", "bamba",
    "lfm2-moe", "qwen3.5", "qwen3.5-moe", "gemma4", "gemma4-wide", "phi-normed",
    "glm4-moe-lite", "cohere-plus",
}  # fmt: skip


def make_model(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model of transformers with random weights that are not tiny: logits differ clearly."""
    kind, more = FAMILIES[name]
    if kind in ("Rwkv6", "Rwkv7"):
        return Rwkv6() if kind == "Rwkv6" else Rwkv7()
    sizes = {k: v for k, v in SIZES.items() if kind != "GPT2Config" or "_id" in k or "voc" in k}
    config = getattr(transformers, kind)(**sizes | more)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.normal_(0, 0.1)
        for name, buffer in model.named_buffers():
            if name.endswith(("layer_scalar", "expert_bias")):
                buffer.add_(0.1 * torch.randn_like(buffer))
    return model.to(dtype)


@functools.cache
def checkpoint(name: str, half: bool = False) -> tuple[Path, Any]:
    """(directory, the model of transformers for it, which computes in f32), with a tokenizer."""
    directory = Path(tempfile.mkdtemp(prefix=f"llm-{name}-"))
    model = make_model(name, torch.bfloat16 if half else torch.float32)
    model.save_pretrained(directory)
    save_tokenizer(directory)
    if half:
        options = {"dtype": torch.float32, "attn_implementation": "eager"}
        model = AutoModelForCausalLM.from_pretrained(directory, **options).eval()
    return directory, model


TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps. naïve café 日本語 🙂 "
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def save_tokenizer(directory: Path) -> None:
    """A byte-level BPE tokenizer of VOCABULARY tokens with a chat template."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    raw.train_from_iterator([TEXT] * 10, trainer)
    raw.save(str(directory / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def greedy(model: Any, ids: list[int], count: int) -> list[int]:
    """What transformers generates, without stopping."""
    with torch.no_grad():
        found = model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=count, min_new_tokens=count, do_sample=False, eos_token_id=None,
        )  # fmt: skip
    return [int(token) for token in found[0, len(ids) :]]


def reference_logits(model: Any, ids: list[int]) -> Any:
    """Logits (tokens, vocabulary) of transformers."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()
