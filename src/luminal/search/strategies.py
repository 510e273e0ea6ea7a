"""How to look for better points: short strategies over one protocol.

A strategy sees what has been tried and proposes choices. It may propose what was tried before or is
illegal: whoever runs the search sorts that out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..scheduling.decisions import Choice, Choices, Decision

GAIN = 0.98  # of the time: more than the noise of one measurement
LATER = 0.7  # an option is tried so often as the one before it in the list
POPULATION = 6


@dataclass(frozen=True)
class Tried:
    """A point and what it took. decisions: the ways on from it."""

    choices: Mapping[str, Choice]
    decisions: Mapping[str, Decision]
    seconds: float


class Strategy(Protocol):
    """Where to look next."""

    def propose(self, tried: Sequence[Tried]) -> Choices | None:
        """The next choices, or None where nothing is left. The first of `tried` is the default;
        only candidates that worked are in it."""
        ...


class Climb:
    """One decision at a time from the best so far, most promising options first."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.at: Tried | None = None
        self.waiting: list[tuple[str, Choice]] = []

    def propose(self, tried: Sequence[Tried]) -> Choices | None:
        best = min(tried, key=lambda t: t.seconds)
        if self.at is None or best.seconds < GAIN * self.at.seconds:
            self._move(best)
        if not self.waiting or self.at is None:
            return None
        name, option = self.waiting.pop(0)
        return {**self.at.choices, name: option}

    def _move(self, best: Tried) -> None:
        """The neighbours of the new place: rank by rank, decisions in random order."""
        known = self.at.decisions if self.at else {}
        self.at = best
        names = list(best.decisions)
        self.rng.shuffle(names)
        names.sort(key=lambda n: n in known)  # decisions that have just come up come first
        ranked = [
            (rank, number, name, option)
            for number, name in enumerate(names)
            for rank, option in enumerate(best.decisions[name].others)
        ]
        self.waiting = [(name, option) for _, _, name, option in sorted(ranked, key=_place)]


def _place(entry: tuple[int, int, str, Choice]) -> tuple[int, int]:
    return entry[0], entry[1]


class Evolve:
    """Crosses two of the best points and changes the child a little."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def propose(self, tried: Sequence[Tried]) -> Choices | None:
        best = sorted(tried, key=lambda t: t.seconds)[:POPULATION]
        mother = min(self.rng.choice(best), self.rng.choice(best), key=lambda t: t.seconds)
        father = self.rng.choice(best)
        names = sorted({*mother.choices, *father.choices})
        mixed = {n: self.rng.choice((mother, father)).choices.get(n) for n in names}
        kept = {name: choice for name, choice in mixed.items() if choice is not None}
        start = Tried(kept, {**father.decisions, **mother.decisions}, 0.0)
        return changed(start, self.rng.choice((1, 1, 2, 3)), self.rng)


class InTurn:
    """One strategy until it has nothing left, then the next."""

    def __init__(self, *strategies: Strategy) -> None:
        self.left = list(strategies)

    def propose(self, tried: Sequence[Tried]) -> Choices | None:
        while self.left:
            found = self.left[0].propose(tried)
            if found is not None:
                return found
            del self.left[0]
        return None


def standard(seed: int) -> Strategy:
    """Climb from the default, then evolve what was found."""
    return InTurn(Climb(seed), Evolve(seed))


def changed(start: Tried, count: int, rng: random.Random) -> Choices | None:
    """The point with so many decisions changed."""
    open_ = [d for d in start.decisions.values() if len(d.options) > 1]
    if not open_:
        return None
    choices = dict(start.choices)
    for decision in rng.sample(open_, min(count, len(open_))):
        others = [o for o in decision.options if o != choices.get(decision.name, decision.default)]
        weights = [LATER**rank for rank in range(len(others))]
        choices[decision.name] = rng.choices(others, weights)[0]
    return choices
