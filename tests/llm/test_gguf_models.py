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

from luminal import LLM
from luminal.errors import WeightsError
from luminal.models.llm.gguf_source import GGUFSource
from luminal.models.llm.loading import load

from .checkpoints import FAMILIES, LONGROPE, checkpoint, make_model, reference_logits

gguf = pytest.importorskip("gguf")

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    # name: (family of transformers, architecture of the file, what differs)
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
}  # fmt: skip


def describe(writer: Any, config: Any) -> None:
    """The metadata that a converter writes."""
    heads = config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(heads)
    writer.add_context_length(config.max_position_embeddings)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_key_length(size)
    for name, add in {
        "sliding_window": writer.add_sliding_window,
        "attn_logit_softcapping": writer.add_attn_logit_softcapping,
        "final_logit_softcapping": writer.add_final_logit_softcapping,
        "num_local_experts": writer.add_expert_count,
        "num_experts": writer.add_expert_count,
        "num_experts_per_tok": writer.add_expert_used_count,
        "moe_intermediate_size": writer.add_expert_feed_forward_length,
    }.items():
        if getattr(config, name, None):
            add(getattr(config, name))
    if "long_factor" in rope:
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for kind in ("long", "short"):
            factors = np.array(rope[f"{kind}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{kind}.weight", factors)


def tensors(model: Any, architecture: str) -> Iterator[tuple[str, torch.Tensor]]:
    """(name in the file, the values that belong there: a view of the model's)."""
    layers = model.config.num_hidden_layers
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], layers)
    for name, parameter in model.named_parameters():
        if ".experts." in name:
            block = f"blk.{name.split('.')[2]}.ffn"
            if name.endswith("gate_up_proj"):
                gate, up = parameter.data.chunk(2, 1)
                yield f"{block}_gate_exps.weight", gate
                yield f"{block}_up_exps.weight", up
            else:
                yield f"{block}_down_exps.weight", parameter.data
            continue
        values = parameter.data
        if model.config.model_type == "gpt2" and ".c_" in name and values.ndim == 2:
            values = values.T
        yield names.get_name(name, try_suffixes=(".weight", ".bias")), values


def convert(model: Any, architecture: str, path: Path) -> None:
    """Write the file, matrices in blocks; the model gets the weights that the file has."""
    code, kind = gguf.GGMLQuantizationType.Q8_0, model.config.model_type
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture]])
    describe(writer, model.config)
    for name, values in tensors(model, architecture):
        plain = np.ascontiguousarray(values.numpy(), np.float32)
        if values.ndim == 1 or "ffn_gate_inp" in name or "position" in name:
            extra = 1 if kind.startswith("gemma") and "norm" in name else 0
            writer.add_tensor(name, plain + np.float32(extra))
            continue
        raw = gguf.quants.quantize(plain, code)
        values.copy_(torch.from_numpy(gguf.quants.dequantize(raw, code)))
        if architecture == "LLAMA" and ("attn_q" in name or "attn_k" in name):
            keys, queries = model.config.num_key_value_heads, model.config.num_attention_heads
            split = raw.reshape(queries if "attn_q" in name else keys, 2, -1, raw.shape[1])
            raw = np.ascontiguousarray(split.swapaxes(1, 2)).reshape(raw.shape)
        writer.add_tensor(name, raw, raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


ALWAYS = ("mixtral", "phi3-long", "gemma3", "gpt2")  # the others differ in less


@pytest.mark.parametrize(
    "name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_logits_equal_those_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, architecture, more = CASES[name]
    kind, own = FAMILIES[family]
    monkeypatch.setitem(FAMILIES, family, (kind, own | more))
    model, file, ids = make_model(family), tmp_path / "model.gguf", list(range(3, 40))
    convert(model, architecture, file)
    expected = reference_logits(model, ids)
    got = LLM(file, precision="f32", context=64, threads=1).logits(ids)
    bound = 1e-5 * max(10.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(got, expected, atol=bound, rtol=0)


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
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file,
                  writer.write_tensors_to_file, writer.close):  # fmt: skip
        write()
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

    def more(writer: Any, config: Any) -> None:
        plain(writer, config)
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
