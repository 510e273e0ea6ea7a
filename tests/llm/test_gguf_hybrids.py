"""GGUF files of models with states or with numbers beside their layers, written as their converters
do, against transformers (RWKV 7: against its formulas)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from luminal import LLM

from .gguf_files import CODE, Cases, add_fields, check_logits, finish, model_of, names, rounded
from .rwkv import CONFIG

gguf = pytest.importorskip("gguf")

CASES: Cases = {
    "bitnet": ("bitnet", "BITNET", {"hidden_act": "silu", "tie_word_embeddings": True}),
    "mamba": ("mamba", "MAMBA", {}),
    "falcon-mamba": ("falcon-mamba", "MAMBA", {}),
    "mamba2": ("mamba2", "MAMBA2", {}),
    "jamba": ("jamba", "JAMBA", {}),
    "granite4": ("granite4", "GRANITE_HYBRID", {}),
    "granite4-dense": ("granite4-dense", "GRANITE_HYBRID", {}),
    "bamba": ("bamba", "GRANITE_HYBRID", {}),
    "qwen3-next": ("qwen3-next", "QWEN3NEXT", {}),
    "qwen3.5": ("qwen3.5", "QWEN35", {"linear_num_key_heads": 2}),
    "qwen3.5-moe": ("qwen3.5-moe", "QWEN35MOE", {"linear_num_key_heads": 2}),
    "gemma3n": ("gemma3n", "GEMMA3N", {}),
    "gemma4": ("gemma4", "GEMMA4", {}),
    "gemma4-wide": ("gemma4-wide", "GEMMA4", {}),
    "rwkv7": ("rwkv7", "RWKV7", {}),
}
NEXT = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
ALWAYS = ("jamba", "granite4", "qwen3-next", "qwen3.5-moe", "gemma3n", "gemma4", "rwkv7")
Named = Iterator[tuple[str, torch.Tensor]]


def states(config: Any, kind: str) -> dict[str, Any]:
    """Metadata of layers with states. kind: model_type."""
    if kind in ("mamba", "falcon_mamba"):
        return {"ssm.inner_size": config.intermediate_size, "ssm.state_size": config.state_size,
                "ssm.conv_kernel": config.conv_kernel, "ssm.time_step_rank": config.time_step_rank,
                "ssm.dt_b_c_rms": kind == "falcon_mamba"}  # fmt: skip
    if kind == "mamba2":
        return {"ssm.inner_size": config.num_heads * config.head_dim,
                "ssm.state_size": config.state_size, "ssm.conv_kernel": config.conv_kernel,
                "ssm.time_step_rank": config.num_heads,
                "ssm.group_count": config.n_groups}  # fmt: skip
    if kind in NEXT:
        heads = config.linear_num_value_heads
        return {"ssm.inner_size": config.linear_value_head_dim * heads,
                "ssm.state_size": config.linear_key_head_dim, "ssm.time_step_rank": heads,
                "ssm.conv_kernel": config.linear_conv_kernel_dim,
                "ssm.group_count": config.linear_num_key_heads}  # fmt: skip
    if not hasattr(config, "mamba_d_state"):
        return {}
    return {"ssm.inner_size": config.mamba_expand * config.hidden_size,
            "ssm.state_size": config.mamba_d_state, "ssm.conv_kernel": config.mamba_d_conv,
            "ssm.time_step_rank": getattr(config, "mamba_n_heads", None) or config.mamba_dt_rank,
            "ssm.group_count": getattr(config, "mamba_n_groups", 1)}  # fmt: skip


def beside(config: Any) -> dict[str, Any]:
    """Metadata of Gemma 3n and 4."""
    near = [kind == "sliding_attention" for kind in config.layer_types]
    found = {
        "attention.sliding_window_pattern": near,
        "attention.shared_kv_layers": config.num_kv_shared_layers,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
    }
    ropes = config.rope_parameters
    for name, kind in (("", "full_attention"), ("_swa", "sliding_attention")):
        found[f"rope.freq_base{name}"] = ropes[kind]["rope_theta"]
    if config.model_type == "gemma3n_text":
        normal = torch.distributions.Normal(0.0, 1.0)
        shares = torch.tensor(config.activation_sparsity_pattern)
        return found | {"activation_sparsity_scale": normal.icdf(shares).tolist(),
                        "altup.num_inputs": config.altup_num_inputs, "altup.active_idx": 0,
                        "feed_forward_length": list(config.intermediate_size)}  # fmt: skip
    first = len(near) - config.num_kv_shared_layers
    if config.use_double_wide_mlp:
        wide = [config.intermediate_size * (1 + (n >= first)) for n in range(len(near))]
        found["feed_forward_length"] = wide
    whole = config.per_layer_config[near.index(False)]
    if whole.num_key_value_heads != config.num_key_value_heads:
        heads = (whole.num_key_value_heads, config.num_key_value_heads)
        found["attention.head_count_kv"] = [heads[each] for each in near]
    return found | {"attention.key_length": whole.head_dim,
                    "attention.key_length_swa": config.head_dim}  # fmt: skip


def metadata(config: Any) -> dict[str, Any]:
    """What a converter writes of a model of transformers."""
    config.allow_global_per_layer_attribute_access = True
    kind, rope = config.model_type, getattr(config, "rope_parameters", None) or {}
    heads, kv = (config.to_dict().get(f"num_{what}_heads") for what in ("attention", "key_value"))
    eps = getattr(config, "rms_norm_eps", None) or config.layer_norm_epsilon
    found = {
        "block_count": config.num_hidden_layers, "embedding_length": config.hidden_size,
        "attention.head_count": heads or 0, "attention.layer_norm_rms_epsilon": eps,
        "context_length": 512, "feed_forward_length": getattr(config, "intermediate_size", 0),
        "attention.key_length": getattr(config, "head_dim", None), "attention.head_count_kv": kv,
        "rope.freq_base": rope.get("rope_theta"),
        "expert_count": getattr(config, "num_experts", getattr(config, "num_local_experts", None)),
        "expert_used_count": getattr(config, "num_experts_per_tok", None),
        "expert_feed_forward_length": getattr(config, "moe_intermediate_size", None),
        "attention.sliding_window": getattr(config, "sliding_window", None),
        "final_logit_softcapping": getattr(config, "final_logit_softcapping", None),
    }  # fmt: skip
    if kind in ("jamba", "granitemoehybrid", "bamba"):
        kinds = config.layer_types or config.layers_block_type
        found["attention.head_count_kv"] = [kv * ("attention" in k[:14]) for k in kinds]
        found["attention.key_length"] = None
    if kind == "granitemoehybrid":
        found |= {"attention.scale": config.attention_multiplier,
                  "embedding_scale": config.embedding_multiplier,
                  "residual_scale": config.residual_multiplier,
                  "logit_scale": config.logits_scaling,
                  "expert_shared_feed_forward_length": config.shared_intermediate_size}
    turning = kind == "bamba" or getattr(config, "position_embedding_type", "") == "rope"
    found["rope.scaling.finetuned"] = turning
    share = rope.get("partial_rotary_factor", 1.0)
    if share != 1 and "full_attention" not in rope:
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        found["rope.dimension_count"] = int(size * share)
    if kind in ("qwen3_next", "qwen3_5_moe_text"):
        found["expert_shared_feed_forward_length"] = config.shared_expert_intermediate_size
    found |= beside(config) if kind.startswith("gemma") else {}
    return found | states(config, kind)


def tensors(model: Any, architecture: str) -> Named:
    """(name in the file, values): those of the model under a converter's names and in its forms."""
    config, kind = model.config, model.config.model_type
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], config.num_hidden_layers)
    stacks: dict[str, list[torch.Tensor]] = {}
    buffers = [(n, b) for n, b in model.named_buffers() if n.endswith("layer_scalar")]
    for name, values in [*((n, p.data) for n, p in model.named_parameters()), *buffers]:
        block = f"blk.{(name.split('.') + ['', ''])[2]}"
        if name.endswith("A_log"):
            values = -values.exp()
        if name.endswith(("A_log", ".D")) and kind in ("mamba2", "bamba", "granitemoehybrid"):
            values = values.unsqueeze(-1)
        if "conv1d.weight" in name:
            values = values.squeeze()
        if kind in NEXT and "norm" in name and "linear_attn.norm" not in name:
            values = values + 1
        if architecture == "GRANITE_HYBRID" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            split = values.unflatten(0, (heads, 2, -1))
            values = split.transpose(1, 2).reshape(values.shape)
        if kind.startswith("qwen3_5") and ".linear_attn." in name:
            values = tiled(name, values, config)
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if "in_proj_qkvz" in name:
            yield from regrouped(values, block, config)
        elif "altup_projections" in name or "altup_unembed" in name:
            stacks.setdefault(name.split(".")[1], []).append(values)
        elif ".experts." in name or ("block_sparse_moe" in name and "linear" in name):
            parts = values.chunk(2, 1) if "gate_up" in name or "input" in name else (values,)
            for part, label in zip(parts, ("gate", "up") if len(parts) == 2 else ("down",)):
                yield f"{block}.ffn_{label}_exps.weight", part
        elif "shared_mlp" in name:
            end = "_shexp" if config.num_local_experts else ""
            parts = values.chunk(2) if "input" in name else (values,)
            for part, label in zip(parts, ("gate", "up") if len(parts) == 2 else ("down",)):
                yield f"{block}.ffn_{label}{end}.weight", part
        else:
            yield found_name(known, name), values
    for name, pieces in stacks.items():
        yield found_name(known, f"model.{name}.weight"), torch.stack(pieces)
    if kind == "gemma4_text":
        turning = config.rope_parameters["full_attention"]["partial_rotary_factor"]
        whole = config.layer_types.index("full_attention")
        half = config.per_layer_config[whole].head_dim // 2
        yield "rope_freqs.weight", torch.where(torch.arange(half) < turning * half, 1.0, 1e30)


def found_name(names: Any, name: str) -> str:
    """Under the names that the package knows."""
    name = name.replace(".dt_bias", ".dt_proj.bias").replace("attn_sub_norm", "inner_attn_ln")
    name = name.replace("sparse_moe.router.weight", "sparse_moe.router.layer.weight")
    name = name.replace("mlp.ffn_sub_norm", "mlp.ffn_layernorm")
    if name.endswith(("_scale", "layer_scalar")):
        name = f"{name}.weight"
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return str(found)


def regrouped(values: torch.Tensor, block: str, config: Any) -> Named:
    """Rows of each head of keys --> those of all queries, keys, values, and of all gates."""
    key, keys = config.linear_key_head_dim, config.linear_num_key_heads
    value = config.linear_value_head_dim * config.linear_num_value_heads // keys
    split = values.unflatten(0, (keys, -1)).split([key, key, value, value], 1)
    q, k, v, z = (part.reshape(-1, values.shape[-1]) for part in split)
    yield f"{block}.attn_qkv.weight", torch.cat([q, k, v])
    yield f"{block}.attn_gate.weight", z


def tiled(name: str, values: torch.Tensor, config: Any) -> torch.Tensor:
    """Heads of values so that the next one has the next head of keys."""
    keys, size = config.linear_num_key_heads, config.linear_value_head_dim
    inner = size * config.linear_num_value_heads

    def turned(x: torch.Tensor, each: int) -> torch.Tensor:
        return x.unflatten(0, (keys, -1, each)).transpose(0, 1).reshape(x.shape)

    if "qkv" in name or "conv1d" in name:
        return torch.cat([values[:-inner], turned(values[-inner:], size)])
    if "out_proj" in name:
        return turned(values.T, size).T
    if "in_proj_z" in name:
        return turned(values, size)
    return values if "norm" in name else turned(values, 1)


def rwkv(model: Any) -> Named:
    """RWKV 7 under a converter's names."""
    plain = {"attn.r_proj": "time_mix_receptance", "attn.k_proj": "time_mix_key",
             "attn.v_proj": "time_mix_value", "attn.o_proj": "time_mix_output",
             "attn.g_norm": "time_mix_ln", "attn_norm": "attn_norm", "ffn_norm": "attn_norm_2",
             "ffn.key": "channel_mix_key", "ffn.value": "channel_mix_value"}  # fmt: skip
    outside = {"model.embeddings": "token_embd", "model.norm": "output_norm", "lm_head": "output",
               "model.layers.0.pre_norm": "token_embd_norm"}  # fmt: skip
    weights = {name: torch.from_numpy(value) for name, value in model.weights.items()}
    for name, values in weights.items():
        stem, _, end = name.rpartition(".")
        if stem in outside:
            yield f"{outside[stem]}.{end}", values
            continue
        layer, inner = name.removeprefix("model.layers.").split(".", 1)
        stem, at = inner.rpartition(".")[0], f"blk.{layer}"
        if stem in plain:
            yield f"{at}.{plain[stem]}.{end}", values
        elif inner == "ffn.x_k":
            yield f"{at}.channel_mix_lerp_k.weight", values
        elif "_lora" in inner:
            number = {"lora.0.weight": 1, "lora.2.weight": 2, "lora.2.bias": 0}[inner[12:]]
            yield f"{at}.time_mix_{inner[5]}{number}.weight", values
            if layer == "0" and inner[5] == "a":  # the first layer has none: these stand there
                yield f"{at}.time_mix_v{number}.weight", values
        elif inner == "attn.x_r":
            mixed = [weights[f"model.layers.{layer}.attn.x_{letter}"] for letter in "rwkvag"]
            yield f"{at}.time_mix_lerp_fused.weight", torch.stack(mixed)
        elif ".x_" not in inner:
            yield f"{at}.time_mix_{inner[5:]}.weight", values.flatten()


RWKV = {
    "block_count": CONFIG["num_hidden_layers"], "embedding_length": CONFIG["hidden_size"],
    "attention.layer_norm_epsilon": 1e-5, "wkv.head_size": CONFIG["head_dim"],
    "attention.decay_lora_rank": 12, "attention.iclr_lora_rank": 8, "attention.head_count": 0,
    "attention.value_residual_mix_lora_rank": 4, "attention.gate_lora_rank": 20,
    "feed_forward_length": 96, "context_length": 1 << 20,
}  # fmt: skip
PLAIN = ("ffn_gate_inp", "norm", "conv1d", "altup", "ssm_a", "ssm_d", "lerp", "token_embd_norm")


def write(
    path: Path, architecture: str, given: dict[str, Any], named: Named,
    words: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Matrices in Q8_0; what has such numbers already is the same in them. words: metadata of the
    tokenizer."""
    name = gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture]]
    writer = gguf.GGUFWriter(path, name)
    add_fields(writer, {f"{name}.{field}": value for field, value in given.items()})
    add_fields(writer, words or {})
    for theirs, values in named:
        plain = np.ascontiguousarray(values.numpy(), np.float32)
        if plain.ndim < 2 or plain.shape[-1] % 32 or any(part in theirs for part in PLAIN):
            writer.add_tensor(theirs, plain)
        else:
            writer.add_tensor(theirs, rounded(plain)[0], raw_dtype=CODE)
    finish(writer)


@pytest.mark.parametrize("name", names(CASES, ALWAYS))
def test_logits_are_those_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model, architecture), file = model_of(CASES, name, monkeypatch), tmp_path / "model.gguf"
    own = CASES[name][0] == "rwkv7"
    if own:
        matrices = [torch.from_numpy(w) for w in model.weights.values() if w.ndim == 2]
    else:
        matrices = [p.data for n, p in model.named_parameters() if p.ndim > 1 and "conv" not in n]
    for values in matrices:
        if values.shape[-1] % 32 == 0:
            values.copy_(torch.from_numpy(rounded(values.numpy())[1]))
    with torch.no_grad():
        if own:
            write(file, architecture, RWKV, rwkv(model))
        else:
            write(file, architecture, metadata(model.config), tensors(model, architecture))
    check_logits(file, model)


def test_texts_of_rwkv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The World tokenizer, the template that is only named, and "\\n\\n" as the end of a turn."""
    model, architecture = model_of(CASES, "rwkv7", monkeypatch)
    tokens = [*(repr(bytes([n]))[2:-1] for n in range(256)), "\\n\\n", "User"]
    tokens = ["<s>", *tokens, *(f"[PAD{n}]" for n in range(320 - 259))]
    write(tmp_path / "model.gguf", architecture, RWKV, rwkv(model), {
        "tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] + [1] * 319, "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.eot_token_id": 257, "tokenizer.chat_template": "rwkv-world",
    })  # fmt: skip
    llm = LLM(tmp_path / "model.gguf", context=64, threads=1)
    assert llm.config.end_tokens == (0, 257)
    ids = llm.ids([{"role": "user", "content": "hé"}])
    assert ids[0] == 258 and llm.tokenizer.decode(ids) == "User: hé\n\nAssistant:"
    made = llm.complete("hé", max_tokens=4)
    assert made.prompt_tokens == 3 and made.text == llm.tokenizer.decode(made.tokens)
