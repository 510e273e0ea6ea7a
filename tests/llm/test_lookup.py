"""Guessed tokens: where they come from, and that a reply is the same with them in fewer runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from luminal import LLM
from luminal.errors import InputError, Unsupported
from luminal.models.llm import Engine, Wishes
from luminal.models.llm.batch import BatchProgram
from luminal.models.llm.draft import Draft, Drafts
from luminal.models.llm.llm import Completion
from luminal.models.llm.loading import load
from luminal.models.llm.lookup import Lookup

from .checkpoints import checkpoint, greedy

REPEATED = [7, 8, 9, 10, 11, 12] * 4


def test_the_latest_longest_match_is_continued() -> None:
    assert Lookup().guess([1, 2, 3, 4, 5, 1, 2], 3) == [3, 4, 5]
    assert Lookup().guess([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 2) == [9, 2]  # not 8: fewer in common
    assert Lookup().guess([1, 2, 6, 1, 2, 7, 1, 2], 1) == [7]
    assert Lookup().guess([1, 2, 3, 4], 3) == Lookup().guess([], 3) == []


def test_a_continuation_goes_round() -> None:
    assert Lookup().guess([5, 5, 5], 4) == [5, 5, 5, 5]
    assert Lookup().guess([1, 2, 3, 1, 2, 3], 5) == [1, 2, 3, 1, 2]


def test_a_lookup_follows_its_sequence() -> None:
    lookup, tokens = Lookup(), [1, 2, 3]
    assert lookup.guess(tokens, 2) == []
    tokens += [4, 1, 2]
    assert lookup.guess(tokens, 2) == [3, 4]


@pytest.fixture(scope="module")
def llm() -> LLM:
    made = LLM(checkpoint("llama3")[0], context=128, threads=1)
    made.config = replace(made.config, end_tokens=())
    return made


def counted(llm: LLM, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Completion, int]:
    """A reply, and how many runs it took."""
    runs, run = [], llm.program._run

    def count(*given: Any) -> Any:
        runs.append(given)
        return run(*given)

    llm.program.keep(0)
    with monkeypatch.context() as patch:
        patch.setattr(llm.program, "_run", count)
        return llm.complete(options.pop("prompt", REPEATED), **options), len(runs)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_greedy_replies_are_the_same_in_fewer_runs(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    plain, runs = counted(llm, monkeypatch, max_tokens=60)
    guessed, fewer = counted(llm, monkeypatch, max_tokens=60, speculate=count)
    assert guessed.tokens == plain.tokens and guessed.finish == plain.finish
    assert guessed.logprobs == pytest.approx(plain.logprobs, abs=1e-3)
    assert runs == 60 and fewer < (50 if count == 1 else 40)


def test_sampled_replies_are_the_same_too(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"max_tokens": 40, "temperature": 0.3, "top_k": 8, "seed": 5}
    plain, runs = counted(llm, monkeypatch, **options)
    guessed, fewer = counted(llm, monkeypatch, speculate=4, **options)
    assert guessed.tokens == plain.tokens and fewer <= runs


def test_the_context_the_stop_text_and_the_limit_end_it(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"prompt": [5] * 120, "max_tokens": 50}
    assert counted(llm, monkeypatch, **long, speculate=9)[0].finish == "length"
    plain = llm.complete(REPEATED, 40)
    stop = plain.text[8:12]
    assert llm.complete(REPEATED, 40, stop=stop, speculate=4).text == plain.text.split(stop)[0]
    for limit in range(1, 4):
        assert llm.complete(REPEATED, limit, speculate=4).tokens == plain.tokens[:limit]


def test_what_cannot_be_guessed_is_refused(llm: LLM) -> None:
    with pytest.raises(InputError, match="speculate=-1: 0 to 127"):
        llm.generate("the", 4, speculate=-1)
    with pytest.raises(InputError, match="one prompt"):
        llm.generate(["the", "a"], 4, speculate=2)


def test_a_draft_model_guesses_and_replies_stay_the_same(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own twin is always right: five tokens a run; another model, hardly ever."""
    ids = [9, 4, 77, 130, 25]
    plain, _ = counted(llm, monkeypatch, prompt=ids, max_tokens=60)
    twin, other = (LLM(checkpoint(name)[0], context=96, threads=1) for name in ("llama3", "qwen2"))
    fewer = {}
    for name, made in {"twin": twin, "other": other}.items():
        monkeypatch.setattr(llm, "_draft", Draft(made.program, llm.config.vocabulary))
        reply, fewer[name] = counted(llm, monkeypatch, prompt=ids, max_tokens=60, speculate=4)
        assert reply.tokens == plain.tokens
    assert fewer["twin"] == 12 and 30 < fewer["other"] <= 60
    assert len(Draft(other.program, llm.config.vocabulary).guess([5] * 94, 4)) == 2


def test_a_draft_model_by_its_path(llm: LLM) -> None:
    directory = checkpoint("llama3")[0]
    both = LLM(directory, context=128, threads=1, draft=directory)
    both.config = replace(both.config, end_tokens=())
    ids = [9, 4, 77, 130, 25]
    assert both.complete(ids, 9, speculate=3).tokens == llm.complete(ids, 9).tokens


def test_drafts_guess_for_a_batch_and_replies_stay_the_same() -> None:
    """Sequences join and leave; prompts longer than a run, contexts longer than the small model's,
    more sequences than its cache holds. Five tokens a run by the twin."""
    directory, model = checkpoint("llama3")
    engine = Engine.load(
        directory, context=120, batch=5, chunk=30, device="reference", draft=directory
    )
    engine.config = replace(engine.config, end_tokens=())
    stranger = load(checkpoint("qwen2")[0], context=70)
    other = BatchProgram.of(stranger, 5, 30, 100, device="reference")
    rng = np.random.default_rng(0)
    asked = [rng.integers(3, 300, n).tolist() for n in (5, 70, 1, 33, 50, 12, 2, 90)]
    try:
        runs = []
        for drafts in (engine._drafts, Drafts(other, engine.config.vocabulary)):
            engine._drafts, before = drafts, engine.load_now().runs
            for ids, pieces in zip(asked, engine.complete(asked, Wishes(25))):
                said = [piece.token for piece in pieces if piece.token is not None]
                assert said == greedy(model, ids, 25)
            runs.append(engine.load_now().runs - before)
        assert runs[0] < 0.7 * runs[1]
        assert other is engine._drafts.program and len(engine._drafts._held) <= 5
    finally:
        engine.close(10)


def test_a_draft_model_with_other_tokens_is_refused() -> None:
    with pytest.raises(InputError, match="other tokens than the model"):
        Engine.load(checkpoint("llama3")[0], context=32, draft="luminal-tiny")
    with pytest.raises(Unsupported, match="carry states"):
        Engine.load(checkpoint("llama3")[0], context=32, draft=checkpoint("mamba2")[0])
