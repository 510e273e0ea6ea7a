"""GGUF files of every family, written as their converters do, against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from luminal.errors import WeightsError
from luminal.models.llm.gguf_source import GGUFSource
from luminal.models.llm.loading import load

from .checkpoints import LONGROPE, YARN, checkpoint, make_model
from .gguf_files import CODE, Cases, add_fields, check_logits, finish, model_of, names, rounded

gguf = pytest.importorskip("gguf")

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
FOUR = {"num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
CASES: Cases = {
    "llama": ("llama2", "LLAMA", {"num_key_value_heads": 2}),
    "mistral": ("mistral", "LLAMA", {"sliding_window": None}),
    "mixtral": ("mixtral", "LLAMA", EXPERTS),
    "qwen2": ("qwen2", "QWEN2", {}),
    "qwen3": ("qwen3", "QWEN3", {}),
    "qwen3-moe": ("qwen3-moe", "QWEN3MOE", {"moe_intermediate_size": 64, "mlp_only_layers": []}),
    "phi3": ("phi3", "PHI3", {}),
    "phi3-long": ("phi3-long", "PHI3", {"rope_parameters": LONGROPE}),
    "gemma": ("gemma", "GEMMA", {}),
    "gemma2": ("gemma2", "GEMMA2", {"query_pre_attn_scalar": 64 // 4}),
    "gemma3": ("gemma3", "GEMMA3", {"query_pre_attn_scalar": 64 // 4, "num_hidden_layers": 6,
                                    "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}),
    "gpt2": ("gpt2", "GPT2", {}),
    "gpt-oss": ("gpt-oss", "GPT_OSS", {}),
    "qwen2-moe": ("qwen2-moe", "QWEN2MOE", {"shared_expert_intermediate_size": 96}),
    "granite-moe": ("granite-moe-shared", "GRANITE_MOE", {"shared_intermediate_size": 96}),
    "glm4": ("glm4", "GLM4", {}),
    "cohere2": ("cohere2", "COHERE2", FOUR),
    "falcon": ("falcon-new", "FALCON", {"ffn_hidden_size": 256}),
    "stablelm": ("stablelm-parallel", "STABLELM", {}),
    "starcoder2": ("starcoder2", "STARCODER2", {"sliding_window": None}),
    "phi2": ("phi", "PHI2", {"num_key_value_heads": 4}),
    "olmo2": ("olmo2", "OLMO2", {}),
    "olmo3": ("olmo3", "OLMO2", FOUR),
    "olmoe": ("olmoe", "OLMOE", {}),
    "smollm3": ("smollm3", "SMOLLM3", {"num_hidden_layers": 4, "no_rope_layer_interval": 4}),
    "deepseek-v2": ("deepseek-v2", "DEEPSEEK2", {}),
    "deepseek-v3": ("deepseek-v3", "DEEPSEEK2", {
        "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.7}}),
    "mistral3": ("ministral3", "MISTRAL3", {"rope_parameters": YARN | {
        "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 16,
        "mscale": 1.0, "mscale_all_dim": 1.0}}),
    "lfm2": ("lfm2", "LFM2", {"block_auto_adjust_ff_dim": False}),
}  # fmt: skip
TURNED = ("LLAMA", "GRANITE_MOE", "SMOLLM3", "MISTRAL3")  # a pair's features lie side by side
NUMBERS = {  # of config.json -> of the file
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_local_experts": "expert_count", "num_experts": "expert_count",
    "n_routed_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "shared_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count", "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count", "routed_scaling_factor": "expert_weights_scale",
    "first_k_dense_replace": "leading_dense_block_count", "conv_L_cache": "shortconv.l_cache",
    "kv_lora_rank": "attention.kv_lora_rank", "q_lora_rank": "attention.q_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count", "v_head_dim": "attention.value_length_mla",
    "embedding_multiplier": "embedding_scale", "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale",
    "logit_scale": "logit_scale", "use_parallel_residual": "use_parallel_residual",
    "norm_topk_prob": "expert_weights_norm",
}  # fmt: skip
EPS = ("rms_norm_eps", "norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")


def describe(writer: Any, config: Any, name: str) -> None:
    """The metadata that a converter writes. name: of the architecture."""
    heads, kind = config.num_attention_heads, config.model_type
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(heads)
    writer.add_context_length(config.max_position_embeddings)
    eps = next(getattr(config, field) for field in EPS if hasattr(config, field))
    writer.add_layer_norm_eps(eps)
    writer.add_layer_norm_rms_eps(eps)
    widths = (getattr(config, name, None) for name in ("ffn_hidden_size", "intermediate_size"))
    hidden = next(filter(None, widths), 4 * config.hidden_size)
    writer.add_feed_forward_length(hidden)
    if kind == "gpt_oss":
        writer.add_expert_feed_forward_length(hidden)
    if kind == "gpt2":
        return
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    kv = getattr(config, "num_kv_heads", None) or config.num_key_value_heads
    if kind == "lfm2":
        kv = [kv if each == "full_attention" else 0 for each in config.layer_types]
    writer.add_head_count_kv(kv)
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    if kind.startswith("deepseek"):
        writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    else:
        writer.add_key_length(size)
        writer.add_rope_dimension_count(int(size * rope.get("partial_rotary_factor", 1)))
    for field, theirs in NUMBERS.items():
        value = getattr(config, field, None)
        if value is not None and (theirs != "rope.dimension_count" or kind.startswith("deepseek")):
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
            add[type(value)](f"{name}.{theirs}", value)
    if "long_factor" in rope:
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for kind in ("long", "short"):
            factors = np.array(rope[f"{kind}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{kind}.weight", factors)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        share = 0.1 if kind.startswith("deepseek") else 1.0
        writer.add_rope_scaling_yarn_log_mul(share * rope.get("mscale_all_dim", 0.0))
        if "llama_4_scaling_beta" in rope:
            writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def tensors(model: Any, architecture: str) -> Iterator[tuple[str, torch.Tensor]]:
    """(name in the file, the values that belong there: a view of the model's)."""
    config, layers = model.config, model.config.num_hidden_layers
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], layers)
    for name, parameter in [*model.named_parameters(), *corrections(model)]:
        values, block = parameter.data, f"blk.{(name.split('.') + ['', ''])[2]}"
        if ".experts." in name or (".block_sparse_moe." in name and "linear" in name):
            yield from experts(name, values, f"{block}.ffn", config.model_type)
        elif ".shared_mlp.input_linear" in name:
            for half, part in zip(values.chunk(2), ("gate", "up")):
                yield f"{block}.ffn_{part}_shexp.weight", half
        elif ".kv_b_proj" in name:
            value = config.v_head_dim
            split = values.view(config.num_attention_heads, -1, config.kv_lora_rank)
            yield f"{block}.attn_k_b.weight", split[:, :-value].mT
            yield f"{block}.attn_v_b.weight", split[:, -value:]
        elif ".query_key_value" in name:
            groups = values.view(config.num_kv_heads, -1, 16, values.shape[-1])
            parts = groups[:, :-2], groups[:, -2], groups[:, -1]
            for part, letter in zip(parts, "qkv"):
                yield f"{block}.attn_qkv.weight {letter}", part
        elif ".conv.conv." in name:
            yield f"{block}.shortconv.conv.weight", values[:, 0]
        else:
            if config.model_type == "gpt2" and ".c_" in name and values.ndim == 2:
                values = values.T
            name = name.replace(".router.weight", ".router.layer.weight" if "sparse" in name
                                else ".router.weight")  # fmt: skip
            found = known.get_name(name, try_suffixes=(".weight", ".bias"))
            assert found is not None, name
            yield f"{found}.weight" if found.endswith("sinks") else found, values


def corrections(model: Any) -> list[tuple[str, torch.Tensor]]:
    """Buffers that are weights."""
    ending = ".e_score_correction_bias"
    return [(name.replace(ending, ".e_score_correction.bias"), value)
            for name, value in model.named_buffers() if name.endswith(ending)]  # fmt: skip


def experts(
    name: str, values: torch.Tensor, stem: str, kind: str
) -> Iterator[tuple[str, torch.Tensor]]:
    ending = "bias" if name.endswith("bias") else "weight"
    if kind == "gpt_oss":  # gates and ups in turns, matrices the other way round
        values = values if ending == "bias" else values.mT
        halves = values[:, ::2], values[:, 1::2]
    else:
        halves = values.chunk(2, 1)
    if "gate_up_proj" in name or "input_linear" in name:
        for half, part in zip(halves, ("gate", "up")):
            yield f"{stem}_{part}_exps.{ending}", half
    else:
        yield f"{stem}_down_exps.{ending}", values


def convert(model: Any, architecture: str, path: Path, fields: Any = ()) -> None:
    """Write the file, matrices in blocks; the model gets the weights that the file has. fields:
    more metadata, under the architecture's name."""
    kind = model.config.model_type
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture]])
    describe(writer, model.config, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture]])
    add_fields(writer, {f"{writer.arch}.{name}": value for name, value in dict(fields).items()})
    packed: dict[str, list[np.ndarray]] = {}
    for name, values in tensors(model, architecture):
        plain = np.ascontiguousarray(values.numpy(), np.float32)
        if " " in name:
            packed.setdefault(name.split()[0], []).append(plain.reshape(-1, plain.shape[-1]))
            continue
        small = name.endswith(".bias") or values.ndim == 1 or values.shape[-1] % 32
        if small or any(part in name for part in ("ffn_gate_inp", "position", "norm", "conv.")):
            extra = 1 if kind.startswith("gemma") and "norm" in name else 0
            writer.add_tensor(name, plain + np.float32(extra))
            continue
        raw, same = rounded(plain)
        values.copy_(torch.from_numpy(same))
        if architecture in TURNED and ("attn_q" in name or "attn_k" in name):
            keys, queries = model.config.num_key_value_heads, model.config.num_attention_heads
            split = raw.reshape(queries if "attn_q" in name else keys, 2, -1, raw.shape[1])
            raw = np.ascontiguousarray(split.swapaxes(1, 2)).reshape(raw.shape)
        writer.add_tensor(name, raw, raw_dtype=CODE)
    for name, pieces in packed.items():
        writer.add_tensor(name, np.concatenate(pieces))
    finish(writer)


ALWAYS = (  # the others differ in less
    "mixtral", "phi3-long", "gemma3", "gpt2", "gpt-oss", "deepseek-v3", "lfm2", "falcon",
)  # fmt: skip


@pytest.mark.parametrize("name", names(CASES, ALWAYS))
def test_logits_equal_those_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model, architecture), file = model_of(CASES, name, monkeypatch), tmp_path / "model.gguf"
    convert(model, architecture, file)
    check_logits(file, model)


LINEAR, PLAIN = ({"rope_type": kind, "rope_theta": 1e4, "factor": 4.0}
                 for kind in ("linear", "default"))  # fmt: skip


@pytest.mark.parametrize("rope, fields", [
    (LINEAR, {"rope.scaling.factor": 4.0}), (LINEAR, {"rope.scale_linear": 4.0}),
    (PLAIN, {"rope.scaling.type": "linear", "rope.scaling.factor": 0.0}),
    (PLAIN, {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}),
    (YARN | {"attention_factor": 1.0}, {"rope.scaling.attn_factor": 1 / (1 + 0.1 * np.log(4))}),
])  # fmt: skip
def test_ways_to_stretch_positions(
    rope: dict[str, Any], fields: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factor without a kind is that of a linear one, 0 is none; YaRN's own factor has a share."""
    case = {"llama": ("llama2", "LLAMA", {"rope_parameters": rope})}
    (model, architecture), file = model_of(case, "llama", monkeypatch), tmp_path / "model.gguf"
    convert(model, architecture, file, fields)
    check_logits(file, model)


def test_adapters_on_files_and_directories(tmp_path: Path) -> None:
    """A GGUF adapter on a GGUF model (q8 becomes f16) and on a directory; a peft one on GGUF."""
    model, file = make_model("llama2"), tmp_path / "model.gguf"
    model.save_pretrained(tmp_path / "exact")
    exact = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    convert(model, "LLAMA", file)
    rounded = {name: p.detach().numpy() for name, p in model.named_parameters()}
    lora, peft, random = tmp_path / "lora.gguf", tmp_path / "peft", np.random.default_rng(0)
    peft.mkdir()
    writer, tensors, more = gguf.GGUFWriter(lora, "llama"), {}, {}
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    places = {"blk.0.attn_q": "model.layers.0.self_attn.q_proj",
              "blk.1.ffn_down": "model.layers.1.mlp.down_proj"}  # fmt: skip
    for theirs, ours in places.items():
        out, inside = exact[f"{ours}.weight"].shape
        a, b = (random.normal(0, 0.1, s).astype(np.float32) for s in ((4, inside), (out, 4)))
        more[f"{ours}.weight"] = 2 * b @ a
        tensors |= {f"base_model.model.{ours}.lora_A.weight": a,
                    f"base_model.model.{ours}.lora_B.weight": b}  # fmt: skip
        if "attn_q" in theirs:
            b = np.ascontiguousarray(b.reshape(4, 2, -1, 4).swapaxes(1, 2)).reshape(b.shape)
        writer.add_tensor(f"{theirs}.weight.lora_a", a)
        writer.add_tensor(f"{theirs}.weight.lora_b", b)
    finish(writer)
    save_file(tensors, peft / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8}
    (peft / "adapter_config.json").write_text(json.dumps(settings))
    for base, adapter, own in (
        (file, lora, rounded), (tmp_path / "exact", lora, exact), (file, peft, rounded),
    ):  # fmt: skip
        state = load(base, lora=adapter).state
        for name, product in more.items():
            bound = 1e-6 if own is exact else 1e-3
            np.testing.assert_allclose(np.asarray(state[name]), own[name] + product, atol=bound)
    with pytest.raises(WeightsError, match="not of an adapter"):
        load(file, lora=file)
    with pytest.raises(WeightsError, match="'llama', the model is of 'qwen2'"):
        load(checkpoint("qwen2")[0], lora=lora)


def test_every_end_token_of_a_file_ends_replies(tmp_path: Path) -> None:
    """Those that metadata names, and special tokens that are called so; not a word like them."""
    model, file = make_model("llama2"), tmp_path / "model.gguf"
    tokens = [f"t{n}" for n in range(320)]
    called = {10: "<|end|>", 11: "<|im_end|>", 12: "<|endoftext|>", 13: "<|eot_id|>"}
    kinds = [1] * 320
    for number, text in called.items():
        tokens[number], kinds[number] = text, {10: 3, 11: 4, 12: 3}.get(number, 1)

    def more(writer: Any, config: Any, name: str) -> None:
        plain(writer, config, name)
        writer.add_token_list(tokens)
        writer.add_token_types(kinds)
        writer.add_eos_token_id(2)
        writer.add_eot_token_id(12)
        writer.add_uint32("tokenizer.ggml.eom_token_id", 20)

    plain = describe
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "describe", more)
        convert(model, "LLAMA", file)
    assert set(GGUFSource(file).config.end_tokens) == {2, 10, 11, 12, 20}
