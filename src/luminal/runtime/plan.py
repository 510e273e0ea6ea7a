"""A program as the runtime sees it: buffers, and calls of kernels on them, in order.

Shapes are Indices over the run-time sizes; nothing here knows how large they are in a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ..backend.launch import Joined
from ..errors import CompileError
from ..graph.dtype import DType
from ..graph.index import Index
from ..graph.space import Range, Space
from ..kernel.kernel import Kernel
from ..kernel.program import Program
from ..kernel.ranges import Ranges
from ..kernel.schedule import Layout, Schedule
from ..once import computed_once

Touched: TypeAlias = tuple[frozenset[int], frozenset[int]]  # memories read, written
GIVEN = ("input", "parameter", "constant")


@dataclass(frozen=True)
class Memory:
    """A buffer of the program. kind: "input", "parameter", "constant", "output", "temporary", or
    "moving": a part of others, which a loop changes with each step.

    shape: the user's, for what a user sees; else that of the kernel that writes it.
    """

    name: str
    kind: str
    dtype: DType
    shape: tuple[Index, ...]
    value: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def elements(self) -> Index:
        total = Index.of(1)
        for extent in self.shape:
            total = total * extent
        return total

    def bytes(self, sizes: Mapping[str, int]) -> int:
        """Size in memory for these run-time sizes."""
        return int(self.elements.evaluate(sizes)) * self.dtype.bytes


@dataclass(frozen=True)
class Argument:
    """A buffer as a kernel takes it: shape in the kernel's dimensions, packed if laid out anew."""

    memory: int
    shape: tuple[Index, ...]
    layout: Layout | None = None


@dataclass(frozen=True)
class Call:
    """One kernel on its buffers, in the order of its program.

    constant: depends on nothing that changes from run to run: runs when parameters have been set.
    copies: only fills the buffer that a scatter behind it changes; needless if that is its source.
    ranges: the sizes for which it runs; another call does the same for the others.
    region: the number of the region that it is of.
    """

    kernel: int
    arguments: tuple[Argument, ...]
    constant: bool = False
    copies: bool = False
    ranges: Ranges = ()
    region: int = 0

    def runs(self, sizes: Mapping[str, int]) -> bool:
        """It is needed at these sizes."""
        return all(low <= sizes[name] <= high for name, low, high in self.ranges)


@dataclass(frozen=True)
class Carried:
    """Memories of what a loop carries. old and new are read and written by the calls; they lie in
    result and spare by turns, so that the last step writes the result. Where the new value is made
    in place of the old, spare is the result; where it is a row of a stack, spare is that stack, and
    the old value is the row before."""

    initial: int
    old: int
    new: int
    result: int
    spare: int


@dataclass(frozen=True)
class Loop:
    """Calls start .. stop - 1 run `length` times, or as long as the first carried value holds.

    sliced, rows: (memory, what the calls read or write of it in a step: a slice along its first
    dimension, the last one first if `reverse`).
    """

    start: int
    stop: int
    length: Index | None
    carried: tuple[Carried, ...]
    sliced: tuple[tuple[int, int], ...] = ()
    rows: tuple[tuple[int, int], ...] = ()
    reverse: bool = False
    conditional: bool = False

    @property
    def stacked(self) -> tuple[tuple[int, int], ...]:
        return self.sliced + self.rows

    @property
    def around(self) -> tuple[int, ...]:
        """The memories that must stay while it runs."""
        kept = (m for c in self.carried for m in (c.initial, c.result, c.spare))
        return tuple(dict.fromkeys((*kept, *(stack for stack, _ in self.stacked))))

    def steps(self, running: Sequence[int]) -> range:
        """The places of its calls among those that run."""
        mine = [step for step, number in enumerate(running) if self.start <= number < self.stop]
        return range(mine[0], mine[-1] + 1) if mine else range(0)

    @property
    def given(self) -> frozenset[int]:
        """What the calls read that none of them has made before."""
        return frozenset([c.old for c in self.carried] + [part for _, part in self.sliced])

    @property
    def left(self) -> frozenset[int]:
        """What is made once the loop is done."""
        return frozenset([c.result for c in self.carried] + [stack for stack, _ in self.rows])

    def count(self, sizes: Mapping[str, int]) -> int | None:
        """The most steps, None where there is no limit."""
        return None if self.length is None else int(self.length.evaluate(sizes))


@dataclass(frozen=True)
class Candidate:
    """Choices that a search has timed. seconds: of a call."""

    choices: str
    seconds: float


@dataclass(frozen=True)
class Compiled:
    """A prepared kernel, its schedule, its program.

    notes: how it was made, for people. tried: timed by a search, the chosen first. label: its name
    in the program that it is of, where that is not its function's.
    """

    kernel: Kernel
    schedule: Schedule
    program: Program
    notes: tuple[str, ...] = ()
    tried: tuple[Candidate, ...] = ()
    label: str = ""

    @property
    def name(self) -> str:
        return self.label or self.program.name

    @computed_once
    def uses(self) -> tuple[frozenset[str], frozenset[str]]:
        """The buffers that it reads, and those it writes (a store that combines also reads)."""
        stores = [value.store for value in self.kernel.values if value.store]
        combined = {store.buffer for store in stores if store.mode != "set"}
        made = {store.buffer for store in stores if store.mode == "set"}
        reads = {load.buffer for value in self.kernel.values for load in value.loads}
        return frozenset((reads - made) | (combined - made)), frozenset(combined | made)


@dataclass(frozen=True)
class Joint:
    """Kernels that one launch may run: see `Joined`, whose text has this name."""

    name: str
    kernels: tuple[int, ...]
    meets: tuple[bool, ...]
    group: int
    held: int = 1

    def program(self, plan: Plan) -> Joined:
        parts = tuple(plan.kernels[number].program for number in self.kernels)
        return Joined(self.name, parts, self.meets, self.group, self.held)


@dataclass(frozen=True)
class Launch:
    """Calls that are one launch, of a joint by its number. ranges: the sizes for which it is.
    seconds, apart: by a model at usual sizes, as it is and with a launch for each call."""

    joint: int
    calls: tuple[int, ...]
    ranges: Ranges = ()
    seconds: float = 0.0
    apart: float = 0.0


@dataclass
class Plan:
    """sizes: run-time size -> bounds. ports: the memory of each of the user's inputs, None if it is
    not needed. outputs: the memory of each of the user's outputs. states: (input memory, output
    memory) pairs: after a run the input holds what the output was. in_place: those of them that are
    one piece of memory. loops: inner ones first. joints, launches: calls that a device runs in one
    launch; all others are one each.
    """

    memories: list[Memory]
    calls: list[Call]
    kernels: list[Compiled]
    sizes: dict[str, Range]
    ports: tuple[int | None, ...] = ()
    outputs: tuple[int, ...] = ()
    states: tuple[tuple[int, int], ...] = ()
    in_place: frozenset[tuple[int, int]] = frozenset()
    loops: tuple[Loop, ...] = ()
    joints: tuple[Joint, ...] = ()
    launches: tuple[Launch, ...] = ()

    def launched(self, running: Sequence[int], sizes: Mapping[str, int]) -> list[Launch]:
        """Those of several calls, where these follow each other among the calls that run."""
        places, found = {number: step for step, number in enumerate(running)}, list[Launch]()
        taken: set[int] = set()
        for launch in self.launches:
            first = places.get(launch.calls[0], len(running))
            here = tuple(running[first : first + len(launch.calls)]) == launch.calls
            inside = all(low <= sizes[name] <= high for name, low, high in launch.ranges)
            if here and inside and taken.isdisjoint(launch.calls):
                taken.update(launch.calls)
                found.append(launch)
        return found

    def touched(self, call: Call) -> Touched:
        """The memories that a call reads, and those it writes."""
        made = self.kernels[call.kernel]
        named = list(zip((b.name for b in made.program.buffers), call.arguments))
        reads, writes = (
            frozenset(a.memory for name, a in named if name in used) for used in made.uses
        )
        return reads, writes

    @property
    def states_of_ports(self) -> frozenset[int]:
        """The ports that hold states."""
        held = dict(self.states)
        return frozenset(port for port, memory in enumerate(self.ports) if memory in held)

    def persistent(self) -> frozenset[int]:
        """Memories that keep their contents between runs: what constant calls write."""
        return frozenset(m for c in self.calls if c.constant for m in self.touched(c)[1])

    def lives(
        self, running: Sequence[int], persistent: frozenset[int],
        together: Iterable[Sequence[int]] = (),
    ) -> dict[int, tuple[int, int]]:  # fmt: skip
        """Temporary memory -> the first and last of these calls that uses it. What a loop finds or
        leaves in memory is used by all of its steps. together: neighbours that run side by side,
        of which each uses what any of them uses."""
        uses: dict[int, set[int]] = {}
        for step, number in enumerate(running):
            for argument in self.calls[number].arguments:
                uses.setdefault(argument.memory, set()).add(step)
        spans = [(loop, mine) for loop in self.loops if (mine := loop.steps(running))]
        for loop, mine in spans:
            for memory in loop.around:
                uses.setdefault(memory, set()).update((mine[0], mine[-1]))
        for _, mine in spans:
            for steps in uses.values():
                if not steps.isdisjoint(mine) and not steps <= set(mine):
                    steps.update((mine[0], mine[-1]))
        for calls in together:
            first = running.index(calls[0])
            last = first + len(calls) - 1
            for steps in uses.values():
                if not steps.isdisjoint(range(first, last + 1)):
                    steps.update((first, last))
        return {
            memory: (min(steps), max(steps)) for memory, steps in uses.items()
            if self.memories[memory].kind == "temporary" and memory not in persistent
        }  # fmt: skip

    def looked_up(self) -> frozenset[int]:
        """Memories of which a run reads a few rows only: those that its data name."""
        found: set[int] = set()
        others: set[int] = set()
        for call in self.calls:
            made = self.kernels[call.kernel]
            loads = [load for value in made.kernel.values for load in value.loads]
            for buffer, argument in zip(made.program.buffers, call.arguments):
                mine = [load for load in loads if load.buffer == buffer.name]
                named = mine and all(load.slots for load in mine)
                if argument.layout is None:  # else it is the packed copy that is read
                    (found if named else others).add(argument.memory)
        return frozenset(found - others)

    def needed(self, calls: Iterable[int], sizes: Mapping[str, int]) -> list[int]:
        """Those of the calls that have something to do at these sizes."""

        def empty(memory: int) -> bool:
            return any(extent.evaluate(sizes) == 0 for extent in self.memories[memory].shape)

        idle = {n for n, writes in self._doubtful.items() if all(map(empty, writes))}
        return [n for n in calls if n not in idle and self.calls[n].runs(sizes)]

    @property
    def deciding(self) -> set[str]:
        """The sizes that decide which calls have something to do."""
        doubtful = (m for writes in self._doubtful.values() for m in writes)
        names = {name for m in doubtful for extent in self.memories[m].shape
                 for name in extent.names()}  # fmt: skip
        return names | {name for call in self.calls for name, _, _ in call.ranges}

    @computed_once
    def _doubtful(self) -> dict[int, frozenset[int]]:
        """What calls write that may write nothing. Asked for when the plan is finished."""
        space = Space(self.sizes)
        may = {n for n, memory in enumerate(self.memories)
               if any(space.bounds(extent)[0] <= 0 for extent in memory.shape)}  # fmt: skip
        written = ((n, self.touched(call)[1]) for n, call in enumerate(self.calls))
        return {n: writes for n, writes in written if writes <= may}

    def running(self) -> list[Call]:
        """The calls of every run."""
        return [call for call in self.calls if not call.constant]

    def verify(self) -> None:
        """Every buffer is written before it is read; constants are made of constants only; kernels
        ask for no size that the program does not have."""
        for made in self.kernels:
            for name in set(made.program.sizes) - self.sizes.keys():
                raise CompileError(f"{made.name} asks for a size {name!r}: there is none")
        given = {n for n, memory in enumerate(self.memories) if memory.kind in GIVEN}
        fixed = {n for n in given if self.memories[n].kind != "input"}
        known = given.union(*(loop.given for loop in self.loops))
        for number, call in enumerate(self.calls):
            reads, writes = self.touched(call)
            known = known.union(*(loop.left for loop in self.loops if loop.stop <= number))
            self._refuse(call, reads - known, "reads '{}' before it is made")
            self._refuse(call, writes & given, "writes the input '{}'")
            packed = {a.memory for a in call.arguments if a.layout}
            if call.constant:
                self._refuse(call, reads - fixed - writes, "is constant, but reads '{}'")
                fixed |= writes
            self._refuse(call, packed - fixed, "wants '{}' packed, which is no constant")
            known |= writes
        known = known.union(*(loop.left for loop in self.loops))
        for number in self.outputs:
            if number not in known - given:
                name = self.memories[number].name
                raise CompileError(f"output '{name}' is written by no kernel")

    def _refuse(self, call: Call, memories: Iterable[int], fault: str) -> None:
        for number in memories:
            what = fault.format(self.memories[number].name)
            raise CompileError(f"a call of {self.kernels[call.kernel].name} {what}")


def packed_arguments(plan: Plan) -> Iterator[Argument]:
    """The distinct (buffer, shape, layout) that must be packed before the calls that use them."""
    yield from dict.fromkeys(
        argument for call in plan.calls for argument in call.arguments if argument.layout
    )


def delete_call(plan: Plan, number: int) -> None:
    """Take a call out of a plan."""
    del plan.calls[number]

    def moved(end: int) -> int:
        return end - (number < end)

    plan.loops = tuple(
        replace(loop, start=moved(loop.start), stop=moved(loop.stop)) for loop in plan.loops
    )
