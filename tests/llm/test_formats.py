"""Checkpoints in other forms than plain safetensors: quantised, as pickles, with adapters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from luminal import LLM
from luminal.errors import Unsupported, WeightsError
from luminal.models.llm.adapters import read_peft
from luminal.models.llm.loading import load, usual_precision

from .checkpoints import checkpoint, make_model, reference_logits

IDS = list(range(3, 40))
RANDOM = np.random.default_rng(5)


def edit(directory: Path, **more: Any) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))


def copied(name: str, target: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A checkpoint of its own, whose weights are still to be written."""
    shutil.copytree(checkpoint(name)[0], target)
    state = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    return target, state


def model_with(name: str, state: dict[str, np.ndarray]) -> Any:
    """The model of transformers with these weights in place of its own."""
    model = make_model(name)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for key, value in state.items():
            own[key].copy_(torch.from_numpy(np.ascontiguousarray(value)))
    return model


def compare(directory: Path, model: Any, **options: Any) -> LLM:
    llm = LLM(directory, precision="f32", context=64, threads=1, **options)
    expected = reference_logits(model, IDS)
    bound = 1e-5 * max(10.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(llm.logits(IDS), expected, atol=bound, rtol=0)
    return llm


def test_gptq_runs_as_it_is_stored(tmp_path: Path) -> None:
    """Four bits with zero points, two quants a byte in memory too."""
    directory, state = copied("llama2", tmp_path / "m")
    values = {}
    for name in [n for n in state if "_proj" in n]:
        out, inside = state.pop(name).shape
        quants = RANDOM.integers(0, 16, (out, inside))
        zeros = RANDOM.integers(1, 17, (out, inside // 32))
        scales = (RANDOM.random(zeros.shape) / 30).astype(np.float16)
        each = np.arange(inside) // 32
        values[name] = (quants - zeros[:, each]) * scales.astype(np.float32)[:, each]
        stem, columns = name.removesuffix("weight"), quants.T.reshape(-1, 8, out).swapaxes(1, 2)
        state[f"{stem}qweight"] = words(columns)
        state[f"{stem}qzeros"] = words((zeros.T - 1).reshape(len(zeros.T), -1, 8))
        state[f"{stem}scales"] = np.ascontiguousarray(scales.T)
    save_file(state, directory / "model.safetensors")
    edit(directory, quantization_config={"quant_method": "gptq", "bits": 4, "sym": False})
    llm = compare(directory, model_with("llama2", values))
    stored = llm.program._weights
    assert stored["model.layers.0.mlp.up_proj.quants"] == 96 * 64 // 2


def words(numbers: np.ndarray) -> np.ndarray:
    """Eight numbers each (..., 8), in i32."""
    whole = (numbers << 4 * np.arange(8)).sum(-1)
    return np.ascontiguousarray(whole.astype(np.uint32).view(np.int32))


def test_gpt_oss_in_mxfp4(tmp_path: Path) -> None:
    directory, state = copied("gpt-oss", tmp_path / "m")
    table, values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]), {}
    for name in [n for n in state if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, inside, out = state.pop(name).shape
        codes = RANDOM.integers(0, 16, (experts, out, inside // 32, 32))
        exponents = RANDOM.integers(121, 125, codes.shape[:-1])
        plain = table[codes & 7] * np.where(codes & 8, -1, 1) * 2.0 ** (exponents - 127)[..., None]
        values[name] = plain.reshape(experts, out, inside).swapaxes(1, 2)
        state[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)
        state[f"{name}_scales"] = exponents.astype(np.uint8)
    save_file(state, directory / "model.safetensors")
    edit(directory, quantization_config={"quant_method": "mxfp4"})
    llm = compare(directory, model_with("gpt-oss", values))
    assert "model.layers.1.mlp.gate_proj.quants" in llm.program._weights


def adapter(directory: Path, names: list[str], state: dict[str, np.ndarray], **more: Any) -> dict:
    """Write one of rank 4; the merged weights."""
    directory.mkdir()
    merged, tensors = {}, {}
    for name in names:
        out, inside = state[name].shape
        a, b = (RANDOM.normal(0, 0.1, s).astype(np.float32) for s in ((4, inside), (out, 4)))
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        tensors |= {f"{stem}.lora_A.weight": a, f"{stem}.lora_B.weight": b}
        merged[name] = state[name].astype(np.float32) + 2 * b @ a
    save_file(tensors, directory / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8} | more
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return merged


def test_an_adapter_is_merged_into_a_pickled_checkpoint(tmp_path: Path) -> None:
    """phi3 has queries, keys and values in one matrix: it is cut after the sum."""
    directory, state = copied("phi3", tmp_path / "m")
    torch.save({n: torch.from_numpy(v) for n, v in state.items()}, directory / "pytorch_model.bin")
    names = [n for n in state if n.endswith(("qkv_proj.weight", "down_proj.weight"))]
    merged = adapter(tmp_path / "lora", names, state)
    compare(directory, model_with("phi3", merged), lora=tmp_path / "lora")
    own, with_it = (load(directory, lora=lora).identity for lora in (None, tmp_path / "lora"))
    assert own != with_it


def test_pickles_that_are_no_plain_tensors(tmp_path: Path) -> None:
    directory, _ = copied("llama2", tmp_path / "m")
    for bad in ({"a": 1}, [1], {"a": Path("x")}):
        torch.save(bad, directory / "pytorch_model.bin")
        with pytest.raises(WeightsError, match=r"plain tensors|a dictionary of"):
            load(directory)
    (directory / "pytorch_model.bin").write_bytes(b"no pickle")
    with pytest.raises(WeightsError, match="plain tensors"):
        load(directory)


def test_the_first_pattern_that_fits_a_module_has_its_alpha(tmp_path: Path) -> None:
    """As peft reads them: alternatives of a pattern are all meant."""
    _, model = checkpoint("llama2")
    state = {n: p.detach().numpy() for n, p in model.named_parameters()}
    names = [n for n in state if n.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]
    patterns = {"k_proj|v_proj": 2, r"layers\.1\..*": 4, r"model.*v_proj": 16}
    adapter(tmp_path / "a", names, state, alpha_pattern=patterns, use_rslora=True)
    pairs = read_peft(tmp_path / "a").pairs
    assert {(n[13], n[-13]): pair.factor for n, pair in pairs.items()} == {
        ("0", "q"): 4, ("0", "k"): 1, ("0", "v"): 1, ("1", "q"): 2, ("1", "k"): 1, ("1", "v"): 1,
    }  # fmt: skip
    adapter(tmp_path / "b", names, state, alpha_pattern={"(": 2})
    with pytest.raises(WeightsError, match="alpha_pattern '\\('"):
        read_peft(tmp_path / "b")


@pytest.mark.parametrize("begin", ["pissa_niter_4", "olora", "loftq"])
def test_adapters_of_other_weights_are_refused(tmp_path: Path, begin: str) -> None:
    """Their beginning was taken off the model's, which are not kept with them."""
    adapter(tmp_path / "a", ["m.weight"], {"m.weight": np.zeros((4, 4))}, init_lora_weights=begin)
    with pytest.raises(Unsupported, match="convert"):
        read_peft(tmp_path / "a")


def test_adapters_that_do_not_fit(tmp_path: Path) -> None:
    directory, model = checkpoint("llama2")
    state = {n: p.detach().numpy() for n, p in model.named_parameters()}
    name = "model.layers.0.self_attn.q_proj.weight"
    adapter(tmp_path / "a", [name], state, use_dora=True)
    with pytest.raises(Unsupported, match="use_dora"):
        load(directory, lora=tmp_path / "a")
    adapter(tmp_path / "b", [name], {name: state[name][:5]})
    with pytest.raises(WeightsError, match="its adapter of"):
        load(directory, lora=tmp_path / "b")
    adapter(tmp_path / "c", ["model.other.weight"], {"model.other.weight": state[name]})
    with pytest.raises(WeightsError, match="not in the model"):
        load(directory, lora=tmp_path / "c")


def test_products_are_those_that_a_device_is_good_at() -> None:
    """Tensor cores multiply bf16; a CPU adds up products of bytes."""
    assert usual_precision("a checkpoint", "cuda:sm_90a") == "bf16"
    assert usual_precision("a checkpoint", "cpu") == "quantised"
    assert usual_precision("a checkpoint", "reference") == "quantised"
    assert usual_precision(None, "cuda:sm_90a") == "f32"
