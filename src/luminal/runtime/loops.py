"""Loops of a plan at given sizes: what each thread moves and copies."""

from __future__ import annotations

from collections.abc import Mapping

from ..backend.contract import Begin, Carry, Pointer, Turns
from .plan import Plan
from .slots import Slots

Sizes = Mapping[str, int]


def begin(plan: Plan, number: int, slots: Slots, sizes: Sizes, threads: int) -> Begin:
    """The entry before the calls of a loop."""
    return Begin(tuple(_turns(plan, number, slots, sizes, t) for t in range(threads)))


def _turns(plan: Plan, number: int, slots: Slots, sizes: Sizes, thread: int) -> Turns:
    loop = plan.loops[number]
    count = loop.count(sizes)
    pointers: list[Pointer] = []
    carries = []

    def slot(memory: int) -> int:
        return slots.slot(number, memory, thread)

    def add(memory: int, start: int, other: int, beyond: int = 0, step: int = 0) -> int:
        places = slots.places(memory, thread)
        pointers.append(Pointer(slot(start), slot(other), beyond, step, places))
        return len(pointers) - 1

    for carried in loop.carried:
        first, second = carried.result, carried.spare
        if count is not None and count % 2 and not loop.conditional:
            first, second = second, first  # so that the last step writes the result
        old, new = add(carried.old, first, second), add(carried.new, second, first)
        size = plan.memories[carried.old].bytes(sizes)
        carries.append(Carry(slot(carried.initial), old, new, slot(carried.result), size))
    for stack, part in loop.sliced + loop.rows:
        step = plan.memories[part].bytes(sizes)
        last = max(0, (count or 0) - 1) * step
        beyond, step = (last, -step) if loop.reverse else (0, step)
        add(part, stack, stack, beyond, step)
    return Turns(count, tuple(pointers), tuple(carries), loop.conditional)


def waiting(plan: Plan, number: int, sizes: Sizes) -> bool:
    """A call is part of a loop that may have made no step: its pointers mean nothing."""
    around = (loop for loop in plan.loops if loop.start <= number < loop.stop)
    return any(loop.conditional or loop.count(sizes) == 0 for loop in around)
