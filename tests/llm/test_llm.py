"""The object that users hold: text in and out, options, quantised weights, bad input."""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from luminal import LLM
from luminal.errors import InputError, LuminalError, Unsupported, WeightsError
from luminal.models.llm.loading import load
from luminal.models.llm.storage import quantise4, quantise8
from luminal.weights import locate

from .checkpoints import checkpoint, reference_logits

MESSAGES = [{"role": "user", "content": "the quick dog"}]


@functools.cache
def model() -> LLM:
    llm = LLM(checkpoint("llama3")[0], context=128, threads=1)
    llm.config = replace(llm.config, end_tokens=())
    return llm


def test_a_stream_is_the_generated_text() -> None:
    whole = model().generate("the quick", max_tokens=30)
    assert whole and "".join(model().stream("the quick", max_tokens=30)) == whole
    assert model().generate(MESSAGES, max_tokens=5) == model().generate(
        model().tokenizer.chat(MESSAGES), max_tokens=5
    )


def test_two_replies_at_once_do_not_disturb_each_other() -> None:
    prompts = ("the quick", "brown dog jumps")
    alone = [model().generate(prompt, max_tokens=8) for prompt in prompts]
    streams = [model().pieces(prompt, 8) for prompt in prompts]
    texts = ["", ""]
    for pieces in zip(*streams):
        for number, piece in enumerate(pieces):
            texts[number] += piece.text
    assert texts == alone


def test_a_stop_text_ends_the_reply() -> None:
    whole = model().complete("the quick", 30)
    stop = whole.text[5:8]
    cut = model().complete("the quick", 30, stop=stop)
    assert cut.text == whole.text[: whole.text.index(stop)] and cut.finish == "stop"


def test_an_end_token_ends_the_reply_and_is_not_shown() -> None:
    options = {"temperature": 1.0, "seed": 1}
    llm, whole = model(), model().complete("the quick", 10, **options)
    end = next(t for t in whole.tokens if whole.tokens.index(t) > 2)
    count = whole.tokens.index(end)
    try:
        llm.config = replace(llm.config, end_tokens=(end,))
        cut = llm.complete("the quick", 10, **options)
    finally:
        llm.config = replace(llm.config, end_tokens=())
    assert cut.tokens == whole.tokens[:count] and cut.finish == "stop"


def test_seeded_sampling_and_logprobs() -> None:
    options = {"temperature": 1.0, "top_k": 20, "seed": 3}
    first, second = (model().complete("the", 12, **options) for _ in range(2))
    assert first == second and len(first.logprobs) == len(first.tokens) == 12
    assert model().complete("the", 12, temperature=1.0, seed=4).tokens != first.tokens
    ids = model().tokenizer.encode("the")
    logits = torch.from_numpy(model().logits(ids + first.tokens))
    expected = torch.log_softmax(logits, -1)[range(len(ids) - 1, len(ids) + 11), first.tokens]
    np.testing.assert_allclose(first.logprobs, expected.numpy(), atol=1e-4)


def test_the_context_ends_a_reply() -> None:
    llm = model()
    reply = llm.complete([5] * 120, 50)
    assert len(reply.tokens) == 9 and reply.finish == "length"  # the last one is not fed again
    with pytest.raises(InputError, match="129 tokens, the context 128"):
        llm.generate([5] * 129)
    assert llm.complete([5] * 128, 50).tokens


@pytest.mark.parametrize("wrong", [
    {"prompt": None}, {"prompt": 5}, {"prompt": b"a"}, {"stop": 5}, {"stop": [5]},
    {"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": "a"}, {"max_tokens": 1.5},
    {"prompt": [1.5, 2]}, {"prompt": [True, False]}, {"prompt": [{"role": "user"}, 3]},
    {"prompt": [1, "a"]}, {"schema": True},
])  # fmt: skip
def test_what_is_no_prompt_no_stop_and_no_number(wrong: dict[str, Any]) -> None:
    for ask in (model().complete, model().generate):
        with pytest.raises(InputError, match=next(iter(wrong))):
            ask(**{"prompt": [5, 6]} | wrong)


def test_wrong_options() -> None:
    with pytest.raises(InputError, match="unknown option 'heat'"):
        model().generate("a", heat=1)
    with pytest.raises(InputError, match="empty"):
        model().generate([])
    with pytest.raises(InputError, match="token ids go from 0"):
        model().logits([100000])


# ---- quantised weights


@pytest.mark.parametrize(("quant", "bits"), [("q8", 8), ("q4", 4)])
def test_quantised_logits_equal_those_of_the_dequantised_weights(quant: str, bits: int) -> None:
    """Activations that stay f32: only the rounding of f32 sums differs. With activations of eight
    bits the logits move by 2% of their size at most."""
    directory, _ = checkpoint("llama2")
    _, reference = checkpoint.__wrapped__("llama2")
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if parameter.ndim == 2:
                head = "embed" in name or "lm_head" in name
                parameter.copy_(torch.from_numpy(rounded(parameter.numpy(), 8 if head else bits)))
    ids = list(range(3, 40))
    expected = reference_logits(reference, ids)
    got = LLM(directory, quant=quant, precision="f32", context=64, threads=1).logits(ids)
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=0)
    narrow = LLM(directory, quant=quant, context=64, threads=1)  # the default
    moved = np.linalg.norm(narrow.logits(ids) - expected) / np.linalg.norm(expected)
    assert 1e-4 < moved < 0.02


def test_the_tokenizers_end_token_ends_replies_too(copy: Path) -> None:
    """Some checkpoints name it nowhere else."""
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "<|end|>"}))
    assert load(copy).config.end_tokens == (2, 5)


def rounded(weight: np.ndarray, bits: int) -> np.ndarray:
    """A weight as quantised and back."""
    quants, scales = (quantise8 if bits == 8 else quantise4)(weight)
    if bits == 4:
        quants = np.concatenate([quants & 15, quants >> 4], -1)
    wide = (quants.astype(np.float32) - 2 ** (bits - 1)) * scales.astype(np.float32)[..., None]
    return wide.reshape(weight.shape)


def test_quantising_keeps_the_largest_and_zero() -> None:
    weight = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    weight[0, :32] = 0
    for bits, bound in ((8, 0.51 / 127), (4, 1.01 / 8)):  # half a step; -8 .. 7 cuts one end
        error = np.abs(rounded(weight, bits) - weight).reshape(5, 2, 32).max(-1)
        assert (error <= bound * np.abs(weight).reshape(5, 2, 32).max(-1) + 1e-3).all()
        assert not rounded(weight, bits)[0, :32].any()


# ---- bad input


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint("llama2")[0], tmp_path / "model"))


def edit_config(directory: Path, **more: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))


def test_unknown_architecture(copy: Path) -> None:
    edit_config(copy, model_type="mamba9")
    with pytest.raises(Unsupported, match="unknown architecture 'mamba9'"):
        LLM(copy)


def test_what_would_change_the_numbers_is_refused(copy: Path) -> None:
    edit_config(copy, quantization_config={"quant_method": "higgs", "bits": 4})
    with pytest.raises(Unsupported, match="weights quantised by 'higgs'"):
        LLM(copy)
    edit_config(copy, quantization_config=None, model_type="gpt2", n_layer=2, n_embd=64, n_head=4,
                scale_attn_by_inverse_layer_idx=True)  # fmt: skip
    with pytest.raises(Unsupported, match="scaled by the number of the layer"):
        LLM(copy)


def test_missing_config_and_missing_weights(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"no \*\.safetensors"):
        LLM(copy)
    (copy / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"no config\.json"):
        LLM(copy)


def test_truncated_weights(copy: Path) -> None:
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(WeightsError, match="truncated"):
        LLM(copy)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers(copy: Path, bad: float) -> None:
    file = copy / "model.safetensors"
    state = load_file(file)
    state["model.layers.1.mlp.up_proj.weight"][3, 4] = bad
    save_file(state, file)
    with pytest.raises(WeightsError, match=r"layers\.1\.mlp\.up_proj\.weight.*NaN"):
        LLM(copy)


def test_a_missing_and_a_misshapen_tensor(copy: Path) -> None:
    file = copy / "model.safetensors"
    state = load_file(file)
    norm = state.pop("model.norm.weight")
    save_file(state, file)
    with pytest.raises(WeightsError, match=r"1 missing: model\.norm\.weight"):
        LLM(copy, context=8)
    save_file({**state, "model.norm.weight": norm[:5].copy()}, file)
    with pytest.raises(WeightsError, match=r"model\.norm\.weight: expected shape"):
        LLM(copy, context=8)


def test_a_context_that_does_not_fit(copy: Path) -> None:
    with pytest.raises(InputError, match="context=1000: this model has 1 to 512"):
        LLM(copy, context=1000)
    edit_config(copy, max_position_embeddings=10**9)
    with pytest.raises(WeightsError, match="do not fit"):
        LLM(copy, context=10**9)


def test_a_missing_tokenizer_only_hinders_text(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    llm = LLM(copy, context=16, threads=1)
    assert llm.logits([1, 2]).shape == (2, 320)
    with pytest.raises(WeightsError, match=r"tokenizer\.json: no such file"):
        llm.generate("text")


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such file"):
        locate(tmp_path / "nothing")
    with pytest.raises(LuminalError, match="quant='q3'"):
        LLM(tmp_path, quant="q3")


def test_loading_tells_how_far_it_is(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("luminal.progress.DELAY", 0.0)
    LLM(copy, context=16, threads=1, progress=True)
    assert "loading tensor 1/" in capsys.readouterr().err
    LLM(copy, context=16, threads=1)
    assert capsys.readouterr().err == ""
