"""Where a sequence repeats itself: the layers of a model, seen in the order of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 2  # of a pattern: one kernel twice is no layer


@dataclass(frozen=True)
class Repeat:
    """items[start : start + period] stands there `count` times in a row."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def repeats(items: Sequence[object]) -> list[Repeat]:
    """Disjoint repeats, in order: those that cover most first, of equal ones the shortest."""
    found: list[Repeat] = []
    for candidate in sorted(_candidates(items), key=lambda r: (r.start - r.end, r.period, r.start)):
        if all(candidate.end <= r.start or r.end <= candidate.start for r in found):
            found.append(candidate)
    return sorted(found, key=lambda r: r.start)


def _candidates(items: Sequence[object]) -> list[Repeat]:
    """For every period the longest stretches in which each item equals the one a period later."""
    found = []
    for period in range(LEAST, len(items) // 2 + 1):
        start = 0
        for at in range(len(items) - period + 1):
            if at + period < len(items) and items[at] == items[at + period]:
                continue
            count = (at - start) // period + 1
            if count > 1 and len(set(items[start : start + period])) > 1:
                found.append(Repeat(start, period, count))
            start = at + 1
    return found
