"""Calls that make again what is in memory: another call has made it, or the step before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace

from .plan import Call, Compiled, Plan, delete_call


def drop_repeats(plan: Plan) -> None:
    """Takes out calls that make what an earlier one has made, as two readers of an operand ask for
    it in one layout each."""
    found = _Repeats(plan)
    for number in range(len(plan.calls) - 1, 0, -1):
        first = found.before(number)
        if first is not None:
            found.read_instead(number, first)


def make_before_loops(plan: Plan) -> None:
    """What each step of a loop would make of what all of them find alike is made before it."""
    for place in range(len(plan.loops)):  # inner ones first
        number = plan.loops[place].start
        while number < plan.loops[place].stop:
            if plan.loops[place].start + 1 < plan.loops[place].stop and _alike(plan, place, number):
                _put_before(plan, place, number)
            number += 1


def _alike(plan: Plan, place: int, number: int) -> bool:
    """A call makes the same in each step: temporaries of its own."""
    loop, touched = plan.loops[place], [plan.touched(call) for call in plan.calls]
    reads, writes = touched[number]
    others = set[int]().union(*(w for n, (_, w) in enumerate(touched) if n != number))
    inside = (each.left for each in plan.loops[:place]
              if loop.start <= each.start and each.stop <= loop.stop)  # fmt: skip
    mine = set(loop.given).union(*(w for _, w in touched[loop.start : loop.stop]), *inside)
    around = {m for each in plan.loops for m in each.around}
    inner = any(each.start <= number < each.stop for each in plan.loops[:place])
    own = all(plan.memories[m].kind == "temporary" for m in writes)
    moving = any(plan.memories[m].kind == "moving" for m in reads)
    return own and not (inner or moving or reads & mine or writes & (others | around))


def _put_before(plan: Plan, place: int, number: int) -> None:
    loop = plan.loops[place]
    plan.calls.insert(loop.start, plan.calls.pop(number))
    loops = list(plan.loops)
    for n, each in enumerate(loops[:place]):
        if loop.start <= each.start and each.stop <= number:
            loops[n] = replace(each, start=each.start + 1, stop=each.stop + 1)
    loops[place] = replace(loop, start=loop.start + 1)
    plan.loops = tuple(loops)


@dataclass
class _Repeats:
    plan: Plan

    def __post_init__(self) -> None:
        plan = self.plan
        self.touched = [plan.touched(call) for call in plan.calls]
        self.writers = Counter(m for _, writes in self.touched for m in writes)
        self.around = {m for loop in plan.loops for m in loop.around}
        self.same = dict[Hashable, list[int]]()
        for number, call in enumerate(plan.calls):
            self.same.setdefault(self._read(call), []).append(number)

    def before(self, number: int) -> int | None:
        """The last earlier call that does the same with what is the same still."""
        for first in reversed(self.same[self._read(self.plan.calls[number])]):
            alike = first < number and _equal(self._made(first), self._made(number))
            if alike and self._alone(first) and self._alone(number):
                return None if self._changed(number, first) else first
        return None

    def _changed(self, number: int, first: int) -> bool:
        """Something between the two calls writes what they read."""
        between = (self.touched[n][1] for n in range(first + 1, number))
        ended = (loop.left for loop in self.plan.loops if first + 1 < loop.stop <= number)
        return not self.touched[number][0].isdisjoint(frozenset().union(*between, *ended))

    def _made(self, number: int) -> Compiled:
        return self.plan.kernels[self.plan.calls[number].kernel]

    def read_instead(self, number: int, first: int) -> None:
        """Without the call: who read what it made reads what the first one made."""
        plan, writes = self.plan, self.touched[number][1]
        pairs = zip(plan.calls[number].arguments, plan.calls[first].arguments)
        became = {a.memory: b.memory for a, b in pairs if a.memory in writes}
        for n in range(number + 1, len(plan.calls)):
            if writes & self.touched[n][0]:
                call = plan.calls[n]
                arguments = [replace(a, memory=became.get(a.memory, a.memory))
                             for a in call.arguments]  # fmt: skip
                plan.calls[n] = replace(call, arguments=tuple(arguments))
                self.touched[n] = plan.touched(plan.calls[n])
        delete_call(plan, number)
        del self.touched[number]

    def _alone(self, number: int) -> bool:
        """It stands in no loop, and nothing else writes what it writes: temporaries."""
        (reads, writes), plan = self.touched[number], self.plan
        own = all(plan.memories[m].kind == "temporary" and self.writers[m] == 1 for m in writes)
        inside = any(loop.start <= number < loop.stop for loop in plan.loops)
        return own and not inside and writes.isdisjoint(reads | self.around)

    def _read(self, call: Call) -> Hashable:
        """What must be the same of the same kernel: the arguments that it reads, and how those lie
        that it writes."""
        made = self.plan.kernels[call.kernel]
        names = (buffer.name for buffer in made.program.buffers)
        arguments = [
            (argument.shape, argument.layout) if name in made.uses[1] else argument
            for name, argument in zip(names, call.arguments)
        ]
        return call.constant, call.copies, call.ranges, tuple(arguments)


def _equal(one: Compiled, two: Compiled) -> bool:
    same = one is two or replace(one.kernel, name="") == replace(two.kernel, name="")
    return same and one.schedule == two.schedule and one.program.layouts == two.program.layouts
