"""Timing in turns: all sides meet the same moments of the machine, and ratios are taken within a
round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

LEAST_ROUNDS = 5
MOST = 0.7  # of the rounds that a winner must have won
BETTER = 0.99  # of the other's time: less is noise

Name = TypeVar("Name", bound=Hashable)
Sample = Callable[[], float]  # takes one measurement: seconds of a call
Samples = dict[Name, list[float]]


def in_turns(
    sides: Mapping[Name, Sample], rounds: int, seconds: float | None = None
) -> Samples[Name]:
    """One sample of each side a round; who begins moves on. Fewer rounds where the seconds are
    over."""
    names = list(sides)
    samples: Samples[Name] = {name: [] for name in names}
    end = None if seconds is None else time.perf_counter() + seconds
    for number in range(rounds):
        if end is not None and number >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            samples[name].append(sides[name]())
    return samples


def ratios(samples: Samples[Name], base: Name) -> dict[Name, float]:
    """Median over the rounds of each side's time, in times of the base's."""
    return {name: statistics.median(_beside(own, samples[base])) for name, own in samples.items()}


def winner(samples: Samples[Name], base: Name) -> Name:
    """The fastest side; the base where that is no clear gain."""
    found = ratios(samples, base)
    best = min(found, key=lambda name: found[name])
    won = sum(ratio < 1 for ratio in _beside(samples[best], samples[base]))
    return best if found[best] < BETTER and won >= MOST * len(samples[base]) else base


def _beside(own: list[float], base: list[float]) -> list[float]:
    return [mine / other for mine, other in zip(own, base)]
