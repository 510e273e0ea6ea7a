"""T5 and Flan-T5 against transformers: the same 64 tokens, after texts of several lengths."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForSeq2SeqLM, T5ForConditionalGeneration

from luminal.cli.main import main
from luminal.errors import InputError
from luminal.models import T5
from luminal.models.seq2seq import Asked
from luminal.server.asking import Gone
from luminal.server.faults import Fault
from luminal.server.requests import Completion
from luminal.server.rewriting import Rewriter
from luminal.server.run import Options, build

SIZES: dict[str, Any] = {
    "vocab_size": 80, "d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20, "decoder_start_token_id": 0,
}  # fmt: skip


def tiny(directory: Path, more: dict[str, Any]) -> T5ForConditionalGeneration:
    """One of transformers, with its files."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(**{"model_type": "t5"} | SIZES | more)
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 1.0 if "shared" in name or "bias" in name else 0.3)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    return model


@pytest.mark.parametrize(
    "more",
    [
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        pytest.param({}, marks=pytest.mark.slow),
    ],
    ids=["flan", "first"],
)
def test_tokens_equal_those_of_transformers(tmp_path: Path, more: dict[str, Any]) -> None:
    model = tiny(tmp_path, more)
    t5 = T5(tmp_path, context=100, threads=1, batch=3)
    t5.ends, together, all_expected = (), list[Asked](), list[list[int]]()
    for length in (1, 7, 40, 23):
        ids = np.random.default_rng(length).integers(2, 80, length).tolist()
        with torch.no_grad():
            expected = model.generate(
                torch.tensor([ids]), max_new_tokens=64, min_new_tokens=64, do_sample=False,
                eos_token_id=None,
            )  # fmt: skip
        assert t5.complete(ids, 64) == expected[0, 1:].tolist()
        together.append(Asked(ids, 64 - length))  # some end before others
        all_expected.append(expected[0, 1 : 65 - length].tolist())
        made = np.random.default_rng(0).integers(2, 80, 50).tolist()
        with torch.no_grad():
            wanted = model(torch.tensor([ids]), decoder_input_ids=torch.tensor([[0, *made]]))
        wanted = wanted.logits[0].numpy()
        bound = 1e-4 * np.abs(wanted).max()
        np.testing.assert_allclose(t5.logits(ids, made), wanted, atol=bound, rtol=0)
    assert t5.complete_all(together) == all_expected
    with pytest.raises(InputError, match="0 tokens"):
        t5.complete([])
    with pytest.raises(InputError, match="from 0 to 79"):
        t5.complete([80])


@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_what_logits_are_multiplied_by(tmp_path: Path, kind: str) -> None:
    """A tied head of T5's scales them, one of mT5's does not."""
    model = tiny(tmp_path, {"model_type": kind})
    ids = [5, 6, 7]
    with torch.no_grad():
        wanted = model(torch.tensor([ids]), decoder_input_ids=torch.tensor([[0]])).logits[0].numpy()
    got = T5(tmp_path, context=16, device="reference").logits(ids, [])
    np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max(), rtol=0)


def test_the_command_and_the_server_rewrite_a_text(tmp_path: Path) -> None:
    model = tiny(tmp_path, {})
    words = {f"w{n}": n for n in range(78)} | {"</s>": 78, "<unk>": 79}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with torch.no_grad():
        made = model.generate(torch.tensor([[5, 9, 2]]), max_new_tokens=6, do_sample=False)
    expected = tokenizer.decode([t for t in made[0, 1:].tolist() if t != 1])
    asked = ["run", str(tmp_path), "w5 w9 w2", "--max-tokens", "6", "--threads", "1"]
    result = CliRunner().invoke(main, asked)
    assert result.stdout.strip() == expected, result.output
    result = CliRunner().invoke(main, [*asked, "--temperature", "9", "--seed", "1", "--json"])
    assert json.loads(result.stdout)["text"] != expected
    body = {"model": tmp_path.name, "prompt": ["w5 w9 w2", "w5"], "max_tokens": 6, "temperature": 0}
    given = Completion.model_validate(body)
    rewriter = Rewriter(tmp_path, threads=1)
    made = rewriter.complete(given)
    assert made["choices"][0]["text"] == expected and made["usage"]["prompt_tokens"] == 4
    other = body | {"prompt": "w7 w30 w1 w2", "max_tokens": 9}
    wanted = [rewriter.complete(Completion.model_validate(each)) for each in (body, other)]
    with ThreadPoolExecutor(6) as pool:
        asked_for = [Completion.model_validate(each) for each in [body, other] * 5]
        for found, plain in zip(pool.map(rewriter.complete, asked_for), wanted * 5):
            assert found["choices"] == plain["choices"] and found["usage"] == plain["usage"]
    short = expected.split()[1]
    stopped = rewriter.complete(given.model_copy(update={"stop": short}))["choices"][0]
    assert stopped["text"] == expected.split(short)[0] and stopped["finish_reason"] == "stop"
    assert found["usage"]["completion_tokens"] > 2
    gone = threading.Event()
    gone.set()  # nobody waits: each text has one token
    assert rewriter.complete(given, gone)["usage"]["completion_tokens"] == 2

    async def leave():
        return {"type": "http.disconnect"}

    many = Completion.model_validate(body | {"prompt": ["w5 w9 w2"] * 64})  # not done before
    with pytest.raises(Gone):
        asyncio.run(rewriter.answer(leave, many))
    with pytest.raises(ValueError, match="at most 128 in all"):
        Completion.model_validate(body | {"n": 65})
    with pytest.raises(Fault, match="stream"):
        rewriter.complete(given.model_copy(update={"stream": True}))
    with pytest.raises(InputError, match="comes first"):
        build(str(tmp_path), Options())
    result = CliRunner().invoke(main, [*asked, "--lora", "x"])
    assert result.exit_code == 1 and "without --lora" in result.stderr
