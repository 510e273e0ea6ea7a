"""Where temporary buffers lie: those that are never alive together share memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64  # a cache line: kernels may use aligned vectors


@dataclass(frozen=True)
class Life:
    """A buffer is alive from the step that first writes it to the last that uses it, inclusive."""

    first: int
    last: int
    bytes: int


@dataclass(frozen=True)
class Placement:
    """Byte offsets of the buffers inside one block of `bytes`."""

    offsets: tuple[int, ...]
    bytes: int


def round_up(size: int) -> int:
    """Whole cache lines, and never nothing: a pointer always points to memory."""
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


def place(lives: Sequence[Life]) -> Placement:
    """Offsets for all buffers: the largest first, each into the tightest gap that is free then."""
    order = sorted(range(len(lives)), key=lambda i: (-lives[i].bytes, lives[i].first, i))
    offsets = [0] * len(lives)
    placed: list[int] = []
    for number in order:
        life = lives[number]
        neighbours = sorted(
            (offsets[other], offsets[other] + round_up(lives[other].bytes))
            for other in placed
            if lives[other].first <= life.last and life.first <= lives[other].last
        )
        offsets[number] = _tightest_gap(neighbours, round_up(life.bytes))
        placed.append(number)
    ends = (offset + round_up(life.bytes) for offset, life in zip(offsets, lives))
    return Placement(tuple(offsets), max(ends, default=0))


def _tightest_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size` bytes, else the end of what is taken."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best is None or gap < best[0]):
            best = gap, end
        end = max(end, stop)
    return end if best is None else best[1]
