"""Calls that follow each other as chains: each thread runs them unit by unit, all in a row, so that
what they pass on lies in its cache and need not be written to memory.

A call is divided into units where the outermost parallel loops of its schedule walk the first
dimensions of arrays: unit u then reads and writes the u-th part of each of them. Nobody waits for
another unit as long as what the calls write is so divided for all of them that use it; and of a
temporary memory of theirs alone each thread has a part, in a block that lies in its cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from ..backend import table
from ..graph.index import Index
from ..kernel.kernel import Load, Store
from ..kernel.program import Parallel
from ..kernel.schedule import Loop
from ..kernel.target import Target
from .arena import Life, place, round_up
from .plan import Call, Compiled, Plan

Box: TypeAlias = tuple[tuple[Index, float, float], ...]  # (extent, first, last) by dimension

UNITS = 4  # for each thread, at least: claiming evens out
BETWEEN = 8  # calls that need nothing of a chain and run before it, at most
HELD = 1.0  # of what all caches of the threads hold: less is not worth a chain


@dataclass(frozen=True)
class Chain:
    """calls: their numbers, in the order of a run. units: into which each is divided. own: of their
    memories those of which a thread needs a part only."""

    calls: tuple[int, ...]
    units: int
    own: frozenset[int]

    def block(self, plan: Plan) -> tuple[dict[int, int], int]:
        """Where parts of its own memories lie in the block of a thread, and the bytes of that: what
        is never alive together shares them."""
        lives = dict[int, Life]()
        for m in sorted(self.own):
            used = [step for step, n in enumerate(self.calls) if _uses(plan, n, {m})]
            lives[m] = Life(used[0], used[-1], plan.memories[m].bytes({}) // self.units)
        found = place([*lives.values()])
        return dict(zip(lives, found.offsets)), round_up(found.bytes)

    def step(
        self, plan: Plan, entry: Callable[[int], table.Entry], words: Callable[[int], int],
        threads: int,
    ) -> table.Chain:  # fmt: skip
        """For a crew. entry, words: of a call, of its arguments."""
        parts = {m: plan.memories[m].bytes({}) // self.units for m in self.own}
        _, apart = self.block(plan)
        own = tuple(
            table.Own(number, at, apart, parts[argument.memory])
            for number, call in enumerate(self.calls)
            for at, argument in enumerate(plan.calls[call].arguments)
            if argument.memory in parts
        )
        entries, sizes = tuple(map(entry, self.calls)), tuple(map(words, self.calls))
        return table.Chain(entries, sizes, self.units, threads, own)


def chains_of(plan: Plan, running: Sequence[int], target: Target) -> list[Chain]:
    """Chains among calls that run in this order: where more is passed on than all caches of the
    threads hold, and a unit's part of it fits into one."""
    found, step, users = list[Chain](), 0, _users(plan)
    if sum(plan.memories[m].bytes({}) for m in users) <= HELD * target.l2 * target.threads:
        return found
    while step < len(running):
        near = (plan.kernels[plan.calls[n].kernel] for n in running[step : step + 2])
        choices = {units for made in near for units in _choices(made, target)}
        grown = [_grown(plan, running[step:], units, users) for units in sorted(choices)]
        paying = [chain for chain in grown if _pays(plan, chain, target)]
        best = max(paying, key=lambda chain: (len(chain.calls), chain.units), default=None)
        found += [best] if best else []
        step = running.index(best.calls[-1] if best else running[step]) + 1
    return found


def neighbours(running: Sequence[int], chains: Sequence[Chain]) -> tuple[int, ...]:
    """These calls, those of a chain behind each other: what is between them runs before."""
    inside = {n for chain in chains for n in chain.calls}
    last = {chain.calls[-1]: chain.calls for chain in chains}
    return tuple(each for n in running
                 for each in last.get(n, () if n in inside else (n,)))  # fmt: skip


def _users(plan: Plan) -> Mapping[int, set[int]]:
    """The calls that use each temporary memory of which the size is known; loops as none."""
    users: dict[int, set[int]] = {
        m: set() for m, memory in enumerate(plan.memories)
        if memory.kind == "temporary" and memory.elements.is_constant
    }  # fmt: skip
    for number, call in enumerate(plan.calls):
        for argument in call.arguments:
            if argument.memory in users:
                users[argument.memory].add(number)
    for memory in {m for loop in plan.loops for m in loop.around}:
        users.pop(memory, None)
    return users


def _grown(
    plan: Plan, running: Sequence[int], units: int, users: Mapping[int, set[int]]
) -> Chain:
    """The first of the calls, and those behind it that may be a chain with it: what lies between
    them and needs nothing of theirs may run before."""
    same, between = {new: old for old, new in plan.in_place}, 0
    calls, written, read, touched = list[int](), set[int](), set[int](), set[int]()
    writers = dict[int, list[int]]()  # of a memory
    parted = set[int]()  # memories that each call so far has used by its own parts alone
    for number in running:
        call = plan.calls[number]
        made = plan.kernels[call.kernel]
        reads, writes = ({same.get(m, m) for m in each} for each in plan.touched(call))
        before = calls and reads.isdisjoint(written) and touched.isdisjoint(writes)
        between += bool(before)
        if between > BETWEEN or any(loop.start <= number < loop.stop for loop in plan.loops):
            break
        if before:
            continue
        loops = _divided(made, units)
        mine = (reads | writes) - {same.get(m, m) for m in _not_in_parts(made, call, loops)}
        shared = (written & (reads | writes)) | (touched & writes)
        shared -= {m for m in shared - read - reads
                   if _apart([_box(plan, n, m) for n in (*writers[m], number)])}  # fmt: skip
        if not loops or not shared <= mine & parted:
            break
        parted = (parted - (reads | writes)) | (mine & (parted | (mine - touched)))
        for m in writes:
            writers.setdefault(m, []).append(number)
        written, read, touched = written | writes, read | reads, touched | reads | writes
        calls.append(number)
    own = frozenset(m for m in parted if m in users and users[m] <= {*calls})
    last = max((place for place, n in enumerate(calls) if _uses(plan, n, own)), default=-1)
    return Chain(tuple(calls[: last + 1]), units, own)


def _box(plan: Plan, number: int, memory: int) -> Box:
    """Of a memory's shape, the first and last index that a call writes along each dimension."""
    call = plan.calls[number]
    made = plan.kernels[call.kernel]
    names = {b.name: b for b, a in zip(made.program.buffers, call.arguments) if a.memory == memory}
    stores = [v.store for v in made.kernel.values if v.store and v.store.buffer in names]
    if len(names) != 1 or len(stores) != 1 or stores[0].slots:
        return ()
    space, shape = made.kernel.space(), names[stores[0].buffer].shape
    return tuple((extent, *space.bounds(i)) for extent, i in zip(shape, stores[0].index))


def _apart(boxes: Sequence[Box]) -> bool:
    """The last one has no element in common with any other."""
    last, shape = boxes[-1], [extent for extent, _, _ in boxes[-1]]
    return all(
        shape == [extent for extent, _, _ in box]
        and any(a[2] < b[1] or b[2] < a[1] for a, b in zip(box, last)) for box in boxes[:-1]
    )  # fmt: skip


def _uses(plan: Plan, number: int, memories: Set[int]) -> bool:
    return any(argument.memory in memories for argument in plan.calls[number].arguments)


def _pays(plan: Plan, chain: Chain, target: Target) -> bool:
    size = sum(plan.memories[m].bytes({}) for m in chain.own)
    return size > HELD * target.l2 * target.threads and size // chain.units <= target.l2


# ---- units


def _choices(made: Compiled, target: Target) -> Iterator[int]:
    """Into how many units a kernel may be divided: those of its outermost parallel loops."""
    loops, units = _parallel(made), 1
    for loop in loops:
        units *= _turns(made, loop)
        if units >= UNITS * target.threads:
            yield units
        if loop.step != 1:
            return


def _divided(made: Compiled, units: int) -> tuple[Loop, ...]:
    """The loops of which each turn, or so many turns of the one, is a unit; none if it is not
    divided so."""
    loops, turns = _parallel(made), 1
    if loops and _turns(made, loops[0]) % units == 0:
        return loops[:1]
    for number, loop in enumerate(loops):
        turns *= _turns(made, loop)
        if turns == units:
            return loops[: number + 1]
        if loop.step != 1:
            break
    return ()


def _parallel(made: Compiled) -> tuple[Loop, ...]:
    """The parallel loops of a kernel: one nest, with whole turns of which the number is known."""
    paths = list(made.schedule.paths.values())
    loops = tuple(loop for loop in paths[0] if loop.kind == "parallel") if paths else ()
    if any(path[: len(loops)] != loops for path in paths):
        return ()
    units = [each.count for each in made.program.body if isinstance(each, Parallel)]
    turns = prod(_turns(made, loop) for loop in loops)
    known = [count for count in units if count.literal and int(count.name) == turns]
    return loops if len(known) == len(units) == 1 else ()


def _turns(made: Compiled, loop: Loop) -> int:
    """Of a loop; 0 where the last is not whole, or the number is not known."""
    extent = made.kernel.axes[loop.axis]
    whole = extent.is_constant and extent.constant % loop.step == 0
    return extent.constant // loop.step if whole else 0


def _not_in_parts(made: Compiled, call: Call, loops: Iterable[Loop]) -> Iterator[int]:
    """The memories of which a unit reads or writes more than its own part: it has that part alone
    where the loops walk the first dimensions of an array that is not laid out anew."""
    axes = [loop.axis for loop in loops]
    sizes, places = [made.kernel.axes[a] for a in axes], list(map(Index.of, axes))
    for buffer, argument in zip(made.program.buffers, call.arguments):
        layout = buffer.layout or made.program.layouts.get(buffer.name)
        plain = not layout or list(layout[: len(axes)]) == [(d, 1) for d in range(len(axes))]
        first = list(buffer.shape[: len(axes)]) == sizes
        walked = all(not x.slots and list(x.index[: len(axes)]) == places
                     for x in _accesses(made, buffer.name))  # fmt: skip
        if not (plain and first and walked):
            yield argument.memory


def _accesses(made: Compiled, buffer: str) -> Iterator[Load | Store]:
    for value in made.kernel.values:
        yield from (load for load in value.loads if load.buffer == buffer)
        if value.store and value.store.buffer == buffer:
            yield value.store
