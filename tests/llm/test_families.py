"""Every family against transformers: logits, and the same greedy tokens."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from speech.checkpoints import TABLED

from luminal import LLM
from luminal.errors import Unsupported
from luminal.models.gguf_encoders import KINDS
from luminal.models.llm import Engine, Wishes
from luminal.models.llm.families import family_of
from luminal.models.llm.loading import load
from luminal.weights.fields import Fields

from .checkpoints import (
    ALIKE,
    FAMILIES,
    LONGROPE,
    VOCABULARY,
    checkpoint,
    greedy,
    make_model,
    reference_logits,
)

TOKENS = 50
RUN = [name for name in FAMILIES if name not in ALIKE]


def prompt(length: int) -> list[int]:
    return np.random.default_rng(length).integers(3, VOCABULARY, length).tolist()


@functools.cache
def loaded(name: str) -> LLM:
    """The model, with prompts cut into chunks of at most 16 tokens."""
    llm = LLM(checkpoint(name)[0], context=200, threads=1)
    llm.program.chunk = 16
    llm.config = replace(llm.config, end_tokens=())
    return llm


@pytest.mark.parametrize("name", RUN)
def test_logits_equal_those_of_transformers(name: str) -> None:
    llm, (_, model) = loaded(name), checkpoint(name)
    for length in (1, 16, 37):
        ids = prompt(length)
        np.testing.assert_allclose(llm.logits(ids), reference_logits(model, ids), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", sorted(ALIKE))
def test_tensors_are_those_that_the_config_asks_for(name: str) -> None:
    assert len(load(checkpoint(name)[0]).state)


GELU: dict[str, Any] = {"hidden_act": "gelu"}


@pytest.mark.parametrize("name, more", [
    ("mamba", GELU), ("mamba2", GELU), ("qwen3.5", GELU),
    ("gemma3", {"attn_logit_softcapping": 1.0}),
    ("llama2", {"rope_parameters": LONGROPE | {"factor": 8.0}}),
    ("llama2", {"rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
])  # fmt: skip
def test_fields_mean_what_they_mean_in_transformers(
    name: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, own = FAMILIES[name]
    monkeypatch.setitem(FAMILIES, name, (kind, own | more))
    model, ids = make_model(name), prompt(20)
    model.save_pretrained(tmp_path)
    found = LLM(tmp_path, context=64, threads=1, precision="f32").logits(ids)
    np.testing.assert_allclose(found, reference_logits(model, ids), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", RUN)
def test_greedy_tokens_equal_those_of_transformers(name: str) -> None:
    llm, (_, model) = loaded(name), checkpoint(name)
    ids = prompt(40)
    reply = llm.complete(ids, TOKENS)
    assert reply.tokens == greedy(model, ids, TOKENS)
    assert reply.finish == "length" and reply.prompt_tokens == 40


def test_states_are_carried_for_many_at_once() -> None:
    """More prompts than seats, in parts, beside each other's replies, some given up and computed
    again: Mamba 2, attention and experts in one model."""
    directory, model = checkpoint("granite4")
    engine = Engine.load(directory, context=64, batch=3, chunk=12, cache=96, threads=1)
    try:
        asked = [prompt(length) for length in (30, 1, 9, 24, 13, 17)]
        for ids, pieces in zip(asked, engine.complete(asked, Wishes(20))):
            found = [piece.token for piece in pieces if piece.token is not None]
            assert found == greedy(model, ids, 20)
        load = engine.load_now()
        assert load.preempted and not load.reused
        with pytest.raises(Unsupported, match="carry states"):
            Engine(engine.program, None, speculate=2)
    finally:
        engine.close(10)


def test_states_cannot_go_back() -> None:
    """A prompt that goes on is fed from where the last one ended, any other one from its start."""
    llm, (_, model) = loaded("granite4"), checkpoint("granite4")
    ids = prompt(20)
    made = llm.complete(ids, 5).tokens
    for more in ([*ids, *made, 7, 8], ids, ids[:9]):
        assert llm.complete(more, 10).tokens == greedy(model, more, 10)
    with pytest.raises(Unsupported, match="carry states"):
        llm.complete(ids, 5, speculate=3)


def test_interrupted_runs_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during a run is raised behind it: the states have a token more than is known of."""
    llm, ids = loaded("granite4"), prompt(20)
    program, run, runs = llm.program._program, llm.program._program.run, []

    def interrupted(**sizes: int) -> None:
        run(**sizes)
        runs.append(sizes)
        if len(runs) == 5:
            raise KeyboardInterrupt

    llm.program.keep(0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(program, "run", interrupted)
        llm.complete(ids, 20)
    fed = list(llm.program.tokens)
    assert fed[:20] == ids and len(fed) == 22
    llm.program.feed([7, 8])
    found, again = llm.program.feed([9]), llm.logits([*fed, 7, 8, 9])[-1:]
    np.testing.assert_allclose(found, again, atol=1e-5, rtol=0)


def cached(model: Any, ids: list[int], count: int) -> list[int]:
    """What transformers generates with the keys that it has, however long the sequence gets."""
    made, known = torch.tensor([ids]), None
    with torch.no_grad():
        for _ in range(count):
            fed = made if known is None else made[:, -1:]
            out = model(fed, past_key_values=known, use_cache=True)
            known = out.past_key_values
            made = torch.cat([made, out.logits[:, -1:].argmax(-1)], 1)
    return made[0, len(ids) :].tolist()


def test_factors_of_longrope_are_those_of_the_sequence() -> None:
    """Up to 110 tokens short ones, and cached keys keep them; a beginning that long prompts share
    with short ones is not shared in the cache. One after the other, and side by side in parts."""
    directory, model = checkpoint("phi3-long")
    llm, ids = loaded("phi3-long"), prompt(150)
    np.testing.assert_allclose(llm.logits(ids), reference_logits(model, ids), atol=1e-4, rtol=0)
    asked = [ids[:98], ids[:110], ids[:111], ids, ids[:102], ids[:140]]
    expected = [cached(model, each, 20) for each in asked]
    for given, made in zip(asked, expected):
        assert llm.complete(given, 20).tokens == made
        assert llm.complete(given, 20, speculate=4).tokens == made
    engine = Engine.load(directory, context=176, batch=3, chunk=12, cache=256, threads=1)
    try:
        for given, pieces in zip(expected, engine.complete(asked, Wishes(20))):
            assert [piece.token for piece in pieces if piece.token is not None] == given
        load = engine.load_now()
        assert load.reused and load.preempted
    finally:
        engine.close(10)


@pytest.mark.parametrize("length", [1, 3, 16, 17])
def test_greedy_tokens_after_prompts_of_any_length(length: int) -> None:
    llm, (_, model) = loaded("llama3"), checkpoint("llama3")
    assert llm.complete(prompt(length), 10).tokens == greedy(model, prompt(length), 10)


def test_one_program_serves_every_length() -> None:
    """Nothing is compiled again, and caches are written in place."""
    program = loaded("llama3").program
    kernels = program.explain()
    for length in (1, 2, 15, 17, 100):
        program.keep(0)
        assert program.feed(prompt(length)).shape == (1, VOCABULARY)
    assert program.explain() == kernels
    assert len(program._program._report.plan.in_place) == 2 * program.config.layers


def test_half_weights_are_computed_in_f32() -> None:
    directory, model = checkpoint("llama3", half=True)
    llm, ids = LLM(directory, precision="f32", context=64, threads=1), prompt(20)
    np.testing.assert_allclose(llm.logits(ids), reference_logits(model, ids), atol=1e-4, rtol=0)


def test_a_common_prefix_is_not_computed_again() -> None:
    llm, fed = loaded("qwen2"), []
    first, second = prompt(30), [*prompt(30)[:20], *prompt(7)]
    llm.complete(first, 1)
    whole, run = llm.program.feed, llm.program.feed
    try:
        llm.program.feed = lambda ids, wanted=1: (fed.append(len(ids)), run(ids, wanted))[1]
        again = llm.complete(second, 10).tokens
    finally:
        llm.program.feed = whole
    assert fed[0] == 7
    llm.program.keep(0)
    assert llm.complete(second, 10).tokens == again


@pytest.mark.parametrize("kind, given", [("gemma3_text", True), ("gemma4_text", "all")])
def test_encoders_among_decoders_are_refused(kind: str, given: object) -> None:
    """EmbeddingGemma: tokens see later ones too."""
    config = Fields({"model_type": kind, "use_bidirectional_attention": given}, "config.json")
    with pytest.raises(Unsupported, match="an encoder"):
        family_of(config).config(config)


PUBLISHED = ("bge", "bge-m3", "e5", "e5-multilingual")
WORDS = ("gemma", "gte-qwen2", "mistral", "qwen3")  # language models


def test_the_table_of_families_is_complete() -> None:
    """docs/models.md is written by a script from its results."""
    table = (Path(__file__).parents[2] / "docs" / "models.md").read_text().partition("\n## ")[0]
    named = {line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")}
    speech = {"moonshine", "wav2vec2-base", "wav2vec2-large"}
    speech |= {f"whisper-{size}" for size in TABLED}
    others = {f"rerank-{name}" for name in ("bert", "gte", "modernbert", "xlm-roberta")}
    others |= {f"splade-{name}" for name in ("bert", "gte", "modernbert", "xlm-roberta")}
    others |= {f"embed-{name}" for name in ("gte", "modernbert", "nomic", *PUBLISHED, *WORDS)}
    others |= {"t5", "flan-t5"}
    files = {f"gguf-{name}" for name in ("jina-bert-v2-packed", *KINDS)}
    assert named == {*FAMILIES, *speech, *others, *files, "family"} and "differs" not in table
