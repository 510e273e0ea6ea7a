"""Continuous batching without a model: what runs, what waits, which pages hold what."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.errors import InputError
from luminal.models.llm.scheduler import Part, Scheduler, Sequence


class Memory:
    """Stands for the cache: what each slot holds, and whether a part could see its whole past."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.slots: dict[int, tuple[int, ...]] = {}
        self.page = scheduler.page

    def run(self, parts: list[Part]) -> None:
        """A slot holds all tokens up to its own, as keys and values depend on them."""
        for part in parts:
            tokens = part.sequence.tokens[: part.start] + part.tokens
            assert len(tokens) == part.start + part.count
            for place in range(part.start, part.start + part.count):
                self.slots[self.slot(part, place)] = tuple(tokens[: place + 1])
        for part in parts:
            tokens = part.sequence.tokens[: part.start] + part.tokens
            for place in range(part.start + part.count):
                assert self.slots[self.slot(part, place)] == tuple(tokens[: place + 1])

    def slot(self, part: Part, place: int) -> int:
        return part.pages[place // self.page] * self.page + place % self.page


def check(scheduler: Scheduler, parts: list[Part]) -> None:
    """What must hold of every plan."""
    assert len({id(part.sequence) for part in parts}) == len(parts) <= scheduler.batch
    assert sum(part.count for part in parts) <= scheduler.chunk
    assert all(part.count >= 1 and part.start == part.sequence.cached for part in parts)
    assert len(scheduler.running) <= scheduler.batch
    for part in parts:
        assert len(part.sequence.pages) * scheduler.page >= part.start + part.count
    for sequence in scheduler.running:  # nobody who generates is left out
        if len(sequence.tokens) - sequence.cached == 1:
            assert any(part.sequence is sequence for part in parts)


def reply(scheduler: Scheduler, part: Part, length: int, guesses: int) -> None:
    """The next token, and those that were guessed rightly; then another guess, often wrong."""
    sequence, guess = part.sequence, part.sequence.guess[: part.guessed]
    for expected in [*guess, None]:
        sequence.tokens.append(len(sequence.tokens) % 3)
        if sequence.tokens[-1] != expected or len(sequence.tokens) >= length:
            break
    if guess:
        scheduler.accepted(part)
    known = len(sequence.tokens)
    right = [place % 3 for place in range(known, known + guesses)]
    wrong = known % (guesses + 1)  # from here on
    guess = right[:wrong] + [7] * (guesses - wrong)
    sequence.guess = guess[: max(0, length - known - 1)]


def step(
    scheduler: Scheduler, memory: Memory, length: dict[Sequence, int], leaver: float = 1,
    guesses: int = 0,
) -> list[Sequence]:  # fmt: skip
    """One run; the sequences that ended. leaver: one that leaves between plan and run, as a share
    of all. guesses: tokens that each guesses for the next run."""
    parts = scheduler.plan()
    assert parts
    check(scheduler, parts)
    gone = [part.sequence for part in parts][int(leaver * len(parts)) :][:1]
    for sequence in gone:
        scheduler.remove(sequence)
    memory.run(parts)
    parts = [part for part in parts if part.sequence not in gone]
    last = [part.sequence for part in parts if part.last]
    scheduler.ran(parts)
    for part in [part for part in parts if part.last]:
        reply(scheduler, part, length[part.sequence], guesses)
    ended = [sequence for sequence in last if len(sequence.tokens) >= length[sequence]]
    for sequence in ended:
        scheduler.remove(sequence)
    return ended + gone


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 4), st.integers(8, 20))
def test_every_request_ends_and_sees_its_own_past(
    seed: int, page: int, batch: int, pages: int
) -> None:
    rng = random.Random(seed)
    context = pages * page if rng.random() < 0.5 else max(3, pages * page // 2)
    scheduler = Scheduler(pages, page, batch + rng.randint(1, 9), batch, context)
    memory, length, ended = Memory(scheduler), {}, 0
    prompts = [[rng.randint(0, 2) for _ in range(rng.randint(1, context - 1))] for _ in range(12)]
    while prompts or scheduler.waiting or scheduler.running:
        while prompts and rng.random() < 0.5:
            sequence = Sequence(prompts.pop())
            length[sequence] = rng.randint(len(sequence.tokens) + 1, context)
            scheduler.add(sequence)
        everyone = scheduler.running + scheduler.waiting
        if everyone and rng.random() < 0.1:  # a client leaves
            scheduler.remove(rng.choice(everyone))
            ended += 1
        if scheduler.running or scheduler.waiting:
            leaver = rng.random() if rng.random() < 0.1 else 1
            ended += len(step(scheduler, memory, length, leaver, seed % 5))
    assert ended == 12
    assert scheduler.pages.available == pages and not scheduler.pages.held


def test_a_long_prompt_does_not_stall_replies() -> None:
    scheduler = Scheduler(40, 4, 8, 4, 100)
    memory, short, long = Memory(scheduler), Sequence([1, 2, 3]), Sequence([1] * 60)
    length = {short: 30, long: 70}
    scheduler.add(short)
    step(scheduler, memory, length)
    scheduler.add(long)
    for _ in range(8):  # 7 tokens of the prompt in each run, and one token of the reply
        before = len(short.tokens)
        step(scheduler, memory, length)
        assert len(short.tokens) == before + 1
    assert long.cached == 56


def test_prompts_of_several_sequences_share_a_run() -> None:
    scheduler = Scheduler(40, 4, 32, 4, 100)
    for tokens in ([1] * 5, [2] * 7, [3] * 30):
        scheduler.add(Sequence(tokens))
    assert [part.count for part in scheduler.plan()] == [5, 7, 20]


def test_the_youngest_gives_its_pages_back_and_goes_on_later() -> None:
    scheduler = Scheduler(8, 2, 8, 4, 16)
    memory, first, second = Memory(scheduler), Sequence([1] * 5), Sequence([2] * 6)
    length = {first: 16, second: 12}
    scheduler.add(first)
    scheduler.add(second)
    order: list[Sequence] = []
    while len(order) < 2:
        order += step(scheduler, memory, length)
    assert order == [first, second] and scheduler.preempted >= 1
    assert len(second.tokens) == 12


def test_a_common_beginning_is_computed_once() -> None:
    scheduler = Scheduler(40, 4, 64, 4, 100)
    memory, prompt = Memory(scheduler), list(range(20))
    first = Sequence([*prompt, 7])
    length = {first: 22}
    scheduler.add(first)
    assert step(scheduler, memory, length) == [first]
    second, third = Sequence([*prompt, 8, 9]), Sequence(prompt)
    for sequence in (second, third):
        scheduler.add(sequence)
        length[sequence] = 30
    parts = scheduler.plan()
    assert [(part.start, part.count) for part in parts] == [(20, 2), (16, 4)]
    assert second.pages[:4] == third.pages[:4] and second.pages[4] != third.pages[4]
    assert scheduler.reused == 36


def test_pages_that_are_needed_forget_the_longest_unused_contents() -> None:
    scheduler = Scheduler(4, 2, 8, 2, 8)
    memory = Memory(scheduler)
    for tokens in ([1, 1, 1], [2, 2, 2], [3, 3, 3], [4, 4, 4]):
        sequence = Sequence(tokens)
        scheduler.add(sequence)
        step(scheduler, memory, {sequence: 4})
    found = [Sequence([n, n, n]) for n in (1, 2, 3, 4)]
    for sequence in found:
        scheduler.add(sequence)
        step(scheduler, memory, {sequence: 4})
    assert scheduler.reused < 8 and scheduler.pages.available == 4


def test_sizes_that_cannot_work_are_refused() -> None:
    with pytest.raises(InputError, match="do not hold a context of 100"):
        Scheduler(4, 16, 64, 8, 100)
    with pytest.raises(InputError, match="longer than a batch"):
        Scheduler(40, 16, 8, 8, 100)
