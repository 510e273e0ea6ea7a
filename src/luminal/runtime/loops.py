"""Loops of a plan at given sizes: what each thread moves and copies."""

from __future__ import annotations

from collections.abc import Mapping

from ..backend.table import Begin, Carry, Pointer, Turns
from .plan import Loop, Plan
from .slots import Slots

Sizes = Mapping[str, int]
Walk = tuple[int, int]


def begin(plan: Plan, number: int, slots: Slots, sizes: Sizes, threads: int) -> Begin:
    """The entry before the calls of a loop."""
    return Begin(tuple(_turns(plan, number, slots, sizes, t) for t in range(threads)))


def _turns(plan: Plan, number: int, slots: Slots, sizes: Sizes, thread: int) -> Turns:
    loop = plan.loops[number]
    count = loop.count(sizes)
    walked = {part: _walk(plan, loop, stack, part, sizes) for stack, part in loop.stacked}
    pointers: dict[int, Pointer] = {}  # by the memory that they are of
    carries = []

    def slot(memory: int) -> int:
        return slots.slot(number, memory, thread)

    def add(
        memory: int, start: int, other: int, walk: Walk = (0, 0), follows: bool = False
    ) -> None:
        places, behind = slots.places(memory, thread), len(pointers) + 1
        pointers[memory] = Pointer(
            slot(start), slot(other), *walk, places, behind if follows else None
        )

    for c in loop.carried:
        first, second = c.result, c.spare
        if c.new in walked:  # the last row is what is carried
            add(c.old, c.initial, c.initial, follows=True)
            add(c.new, c.spare, c.spare, walked.pop(c.new))
        else:
            if count is not None and count % 2 and not loop.conditional:
                first, second = second, first  # so that the last step writes the result
            add(c.old, first, second)
            add(c.new, second, first)
        size = plan.memories[c.old].bytes(sizes)
        new = len(pointers) - 1
        carries.append(Carry(slot(c.initial), slot(first), new, slot(c.result), size))
    for stack, part in loop.stacked:
        if part in walked:
            add(part, stack, stack, walked[part])
    return Turns(count, tuple(pointers.values()), tuple(carries), loop.conditional)


def _walk(plan: Plan, loop: Loop, stack: int, part: int, sizes: Sizes) -> Walk:
    """Bytes from the start of a stack to the first slice, and from each to the next."""
    step = plan.memories[part].bytes(sizes)
    last = max(0, (loop.count(sizes) or 0) - 1) * step
    return (last, -step) if loop.reverse else (0, step)


def waiting(plan: Plan, number: int, sizes: Sizes) -> bool:
    """A call is part of a loop that may have made no step: its pointers mean nothing."""
    around = (loop for loop in plan.loops if loop.start <= number < loop.stop)
    return any(loop.conditional or loop.count(sizes) == 0 for loop in around)
