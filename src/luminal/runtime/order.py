"""The calls of a run as entries for the crew: barriers, and where loops begin and end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..backend.table import Begin, Chain, End, Entry, Step
from .plan import Plan

NO_CHAINS: Mapping[int, tuple[Sequence[int], Chain]] = {}


@dataclass(frozen=True)
class Span:
    """Bytes start .. end - 1 of a space."""

    space: int
    start: int
    end: int


def spans_of(plan: Plan, offsets: Mapping[int, int], rooms: Mapping[int, int]) -> list[Span]:
    """The bytes of each memory: of its room in the arena, or of a space of its own."""
    spans = [Span(memory, 0, 1) for memory in range(len(plan.memories))]
    for memory, offset in offsets.items():
        spans[memory] = Span(-1, offset, offset + max(1, rooms[memory]))
    carried = [(c.new, c.old) for loop in plan.loops for c in loop.carried if c.spare == c.result]
    for new, old in [*((new, old) for old, new in plan.in_place), *carried]:
        spans[new] = spans[old]
    return spans


def steps(
    plan: Plan, running: Sequence[int], spans: Sequence[Span], entry: Callable[[int], Entry],
    begin: Callable[[int], Begin], chains: Mapping[int, tuple[Sequence[int], Chain]] = NO_CHAINS,
) -> list[Step]:  # fmt: skip
    """One entry a call, or a chain of them; a barrier only where the next needs what is not
    finished, and where a loop begins or a step of it is done. entry, begin: of a call, of a loop.
    chains: by the first of their calls, all of these and their step."""
    found: list[Step] = []
    reading: list[Span] = []
    writing: list[Span] = []
    behind = {n for calls, _ in chains.values() for n in calls[1:]}
    for number, loop in marked(plan, running):
        if number is None:
            _wait(found)
            found.append(End() if loop is None else begin(loop))
            reading, writing = [], []
            continue
        if number in behind:
            continue
        calls, chain = chains.get(number, ((number,), None))
        touched = [plan.touched(plan.calls[n]) for n in calls]
        read, written = ([spans[m] for each in part for m in each] for part in zip(*touched))
        if _clash(read, writing) or _clash(written, writing) or _clash(written, reading):
            _wait(found)
            reading, writing = [], []
        found.append(chain or entry(number))
        reading, writing = reading + read, writing + written
    return found


def marked(plan: Plan, running: Sequence[int]) -> Iterator[tuple[int | None, int | None]]:
    """(call, None) for these calls in order; (None, loop) before those of a loop, outer loops
    first, and (None, None) behind them."""
    first: dict[int, list[int]] = {}
    last: Counter[int] = Counter()
    for number in reversed(range(len(plan.loops))):
        mine = plan.loops[number].steps(running)
        if mine:
            first.setdefault(mine[0], []).append(number)
            last[mine[-1]] += 1
    for step, call in enumerate(running):
        yield from ((None, loop) for loop in first.get(step, ()))
        yield call, None
        yield from [(None, None)] * last[step]


def _wait(entries: list[Step]) -> None:
    """A barrier behind the last entry; loops have theirs."""
    if entries and isinstance(entries[-1], Entry | Chain):
        entries[-1] = replace(entries[-1], barrier=True)


def _clash(these: list[Span], those: list[Span]) -> bool:
    return any(
        a.space == b.space and a.start < b.end and b.start < a.end for a in these for b in those
    )
