"""Many replies at once from one model, each as if it were alone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from luminal import LLM
from luminal.errors import InputError, LuminalError
from luminal.models.llm import Busy, Engine, Piece, Sampling, Wishes
from luminal.models.llm.scheduler import Part
from luminal.store import Store

from .checkpoints import VOCABULARY, checkpoint, greedy

Heard = SimpleQueue[Piece | LuminalError]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """A cache that is too small for all, and no end tokens."""
    directory, _ = checkpoint("llama3")
    engine = Engine.load(directory, context=120, batch=6, chunk=20, cache=300, queue=30, threads=1)
    yield engine
    engine.close(10)


def prompts(count: int, longest: int = 60) -> list[list[int]]:
    rng = np.random.default_rng(count)
    return [rng.integers(3, VOCABULARY, rng.integers(1, longest)).tolist() for _ in range(count)]


def tokens(pieces: list[Piece]) -> list[int]:
    return [piece.token for piece in pieces if piece.token is not None]


def heard_to_end(box: Heard) -> list[Piece]:
    pieces: list[Piece] = []
    while not pieces or pieces[-1].finish is None:
        heard = box.get(timeout=200)
        assert isinstance(heard, Piece)
        pieces.append(heard)
    return pieces


def test_greedy_replies_in_a_batch_equal_those_of_transformers(engine: Engine) -> None:
    """More prompts than places, more tokens than pages: some are given up and computed again."""
    asked = prompts(24)
    replies = engine.complete(asked, Wishes(30))
    _, model = checkpoint("llama3")
    for prompt, pieces in zip(asked, replies):
        assert tokens(pieces) == greedy(model, prompt, 30)
        assert pieces[-1].finish == "length"
    load = engine.load_now()
    assert load.preempted and load.pages_held == load.running == load.waiting == 0


@pytest.mark.parametrize("temperature", [0, 1])
def test_guesses_change_no_reply(engine: Engine, temperature: float) -> None:
    """Prompts that repeat themselves: many guesses are right. Fewer runs are needed for one."""
    asked = [(prompt * 4)[:50] for prompt in prompts(12, 14)]
    wishes = Wishes(40, sampling=Sampling(temperature, top_k=2, seed=3))
    guessing = Engine(engine.program, None, speculate=4)
    try:
        for some in (asked, asked[:1]):
            before = engine.load_now().runs
            expected = [tokens(pieces) for pieces in engine.complete(some, wishes)]
            runs = engine.load_now().runs - before
            before = guessing.load_now().runs
            assert [tokens(pieces) for pieces in guessing.complete(some, wishes)] == expected
            fewer = runs - (guessing.load_now().runs - before)
        assert fewer > 0 or temperature
        assert guessing.load_now().pages_held == 0
    finally:
        guessing.close(10)


def test_a_seed_gives_the_same_reply_in_any_company(engine: Engine) -> None:
    wishes = Wishes(20, sampling=Sampling(temperature=1.0, top_k=50, seed=7))
    asked = prompts(9)
    together = [tokens(pieces) for pieces in engine.complete(asked, wishes)]
    alone = [tokens(engine.complete([prompt], wishes)[0]) for prompt in asked[:3]]
    assert together[:3] == alone and len({tuple(reply) for reply in together}) == 9


def test_logprobs_in_a_batch_are_those_of_one_sequence(engine: Engine) -> None:
    asked = prompts(5)
    replies = engine.complete(asked, Wishes(4, logprobs=3))
    llm = LLM(checkpoint("llama3")[0], context=120, threads=1)
    for prompt, pieces in zip(asked, replies):
        alone = llm.complete(prompt, 4)
        made = [piece for piece in pieces if piece.token is not None]
        np.testing.assert_allclose([p.logprob for p in made], alone.logprobs, atol=1e-4)
        assert all(p.likely[0] == (p.token, p.logprob) and len(p.likely) == 3 for p in made)


def test_cancelled_replies_free_their_pages_and_disturb_nobody(engine: Engine) -> None:
    asked, heard = prompts(16), [Heard() for _ in range(16)]
    tickets = engine.submit(
        [(prompt, Wishes(40), box.put) for prompt, box in zip(asked, heard)]
    )  # fmt: skip
    heard[0].get()
    for ticket in tickets[::2]:
        engine.cancel(ticket)
        engine.cancel(ticket)  # once more does nothing
    _, model = checkpoint("llama3")
    for prompt, box in list(zip(asked, heard))[1::2]:
        assert tokens(heard_to_end(box)) == greedy(model, prompt, 40)
    load = engine.load_now()
    assert load.pages_held == load.running == load.waiting == 0


def test_replies_cancelled_between_plan_and_run_write_to_no_others_pages(engine: Engine) -> None:
    program, run = engine.program, engine.program.run
    other, boxes = Engine(program, engine.tokenizer), [Heard() for _ in range(4)]
    asked, tickets, first = [[5], [6] * 3, [7] * 3, [8] * 3], [], threading.Event()

    def cancel_before(parts: list[Part]) -> np.ndarray:
        first.wait()
        for ticket in tickets[1:]:
            other.cancel(ticket)
        return run(parts)

    program.run = cancel_before  # type: ignore[method-assign, assignment]
    try:
        tickets += other.submit([(ids, Wishes(20), box.put) for ids, box in zip(asked, boxes)])
        first.set()
        assert tokens(heard_to_end(boxes[0])) == greedy(checkpoint("llama3")[1], asked[0], 20)
    finally:
        program.run = run  # type: ignore[method-assign]
        other.close(0)
    assert all(box.empty() for box in boxes[1:])


def test_a_full_queue_and_wrong_prompts_are_refused(engine: Engine) -> None:
    with pytest.raises(Busy, match="the queue is full"):
        engine.complete([[5]] * 37, Wishes(2))
    with pytest.raises(InputError, match="121 tokens, the context 120"):
        engine.complete([[5], [5] * 121], Wishes(2))
    with pytest.raises(InputError, match="token ids go from 0"):
        engine.complete([[VOCABULARY]], Wishes(2))
    with pytest.raises(InputError, match="empty"):
        engine.complete([[]], Wishes(2))
    assert len(engine.complete([[5]] * 36, Wishes(2))) == 36  # 30 wait for 6 places
    assert len(tokens(engine.complete([[5] * 120], Wishes(9))[0])) == 1


def test_a_failing_run_fails_its_replies_and_no_others(engine: Engine) -> None:
    program, run = engine.program, engine.program.run

    def fail(parts: object) -> np.ndarray:
        program.run = run  # type: ignore[method-assign]
        raise MemoryError("none left")

    program.run = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(LuminalError, match="none left"):
        engine.complete([[5]], Wishes(2))
    assert len(tokens(engine.complete([[5]], Wishes(2))[0])) == 2
    assert engine.load_now().pages_held == 0


def test_a_run_that_fails_after_a_reply_was_cancelled_fails_the_others(engine: Engine) -> None:
    program, run = engine.program, engine.program.run
    other, boxes = Engine(program, None), [Heard() for _ in range(2)]

    def fail(parts: object) -> np.ndarray:
        program.run = run  # type: ignore[method-assign]
        other.cancel(tickets[0])
        raise MemoryError("none left")

    program.run = fail  # type: ignore[method-assign, assignment]
    with other._change:  # the thread begins when there are tickets
        tickets = other.submit([([5], Wishes(2), box.put) for box in boxes])
    assert "none left" in str(boxes[1].get(timeout=60))
    assert len(tokens(other.complete([[5]], Wishes(2))[0])) == 2
    other.close(0)


def test_closing_finishes_what_was_asked_for(engine: Engine) -> None:
    other = Engine(engine.program, engine.tokenizer)
    box = Heard()
    other.submit([([5, 6], Wishes(8), box.put)])
    closer = threading.Thread(target=other.close)
    closer.start()
    closer.join(300)
    heard = [box.get(timeout=60) for _ in range(9)]
    assert isinstance(heard[-1], Piece) and heard[-1].finish == "length"
    with pytest.raises(Busy, match="closing"):
        other.complete([[5]], Wishes(2))


def test_closing_at_once_gives_replies_up(engine: Engine) -> None:
    other = Engine(engine.program, engine.tokenizer)
    box, left = Heard(), threading.Event()

    def hear(piece: Any) -> None:
        """The first token waits until the reply is given up."""
        box.put(piece)
        if isinstance(piece, Piece):
            left.wait(60)
        else:
            left.set()

    other.submit([([5, 6], Wishes(100), hear)])
    other.close(0)
    while isinstance(heard := box.get(timeout=60), Piece):
        assert heard.finish is None
    assert "closed" in str(heard)


def test_a_list_of_prompts_is_generated_as_one_by_one() -> None:
    llm = LLM(checkpoint("gemma2")[0], context=128, threads=1)
    llm.config = replace(llm.config, end_tokens=())
    asked = ["the quick", "brown dog jumps over the lazy dog", "naïve café"]
    assert llm.generate(asked, max_tokens=20) == [llm.generate(text, 20) for text in asked]
    stop = llm.generate(asked[1], 20)[3:5]
    assert llm.generate([asked[1]], 20, stop=stop) == [llm.generate(asked[1], 20, stop=stop)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_loads_an_engine_of_its_own(engine: Engine) -> None:
    llm = LLM(checkpoint("llama3")[0], context=40, threads=1)
    first = llm.complete_all([[5, 6, 7]], 4)
    child = os.fork()
    if child == 0:
        signal.alarm(200)
        with pytest.raises(LuminalError, match="was forked"):
            engine.complete(prompts(1), Wishes(1))
        same = llm.complete_all([[5, 6, 7]], 4)[0].text == first[0].text
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_beginnings_of_prompts_are_kept_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next engine finds all full pages of them; what is damaged is computed again."""
    store = Store(tmp_path / "kept", suffix=".pages")
    monkeypatch.setattr(Store, "of_prefixes", staticmethod(lambda: store))
    asked, heard, reused = prompts(3, 60), [], []
    directory = checkpoint("llama3")[0]

    def ask() -> None:
        options = {"context": 120, "batch": 6, "chunk": 20, "cache": 300, "threads": 1}
        engine = Engine.load(directory, prefixes=True, kv="int8", **options)
        heard.append([tokens(pieces) for pieces in engine.complete(asked, Wishes(5))])
        reused.append(engine.load_now().reused)
        engine.close(10)

    ask()
    ask()
    assert heard[0] == heard[1] and reused[0] == 0
    assert reused[1] == sum((len(ids) - 1) // 16 * 16 for ids in asked) > 0
    (file,) = store.folder.glob("*.pages")
    whole = file.read_bytes()
    file.write_bytes(whole[:5000] + bytes(64) + whole[5064:])
    with pytest.warns(UserWarning, match="made anew"):
        ask()
    assert heard[0] == heard[2] and reused[2] == 0
