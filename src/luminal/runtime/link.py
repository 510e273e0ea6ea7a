"""Calls of kernels on memories, collected into the plan of a run: equal kernels become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..graph.dtype import DType
from ..graph.index import Index
from ..graph.space import Range
from ..kernel.canonical import canonical
from ..kernel.kernel import Kernel
from ..kernel.ranges import Ranges
from .in_place import in_place
from .plan import Argument, Call, Compiled, Loop, Memory, Plan, Touched, delete_call
from .repeats import drop_repeats, make_before_loops

# for each range of sizes the kernels that run: several, where one is split, in this order
Made: TypeAlias = Sequence[tuple[Ranges, Sequence[Compiled]]]
Pieces = list[tuple[Ranges, list[int]]]  # the kernels that run in each range of sizes


@dataclass
class Linker:
    """Collects the calls of a program. made: what became of each kernel, by the text of its
    canonical form."""

    sizes: dict[str, Range]
    made: Mapping[str, Made]
    memories: list[Memory] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kernels: list[Compiled] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    _own: set[int] = field(default_factory=set)  # memories of single calls
    _pieces: dict[str, Pieces] = field(default_factory=dict)
    _linked: dict[int, tuple[Kernel, Mapping[str, str], Pieces]] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)  # of kernels, by identity

    def memory(self, made: Memory) -> int:
        """The number of a new memory."""
        self.memories.append(made)
        return len(self.memories) - 1

    def temporary(self, dtype: DType, shape: tuple[Index, ...]) -> int:
        return self.memory(Memory(f"t{len(self.memories)}", "temporary", dtype, shape))

    def call(
        self, kernel: Kernel, memories: Mapping[str, int], constant: bool, copies: bool = False,
        region: int = 0, ranges: Ranges = (),
    ) -> None:  # fmt: skip
        """Run the kernel on these memories (kernel buffer -> memory) after the calls so far.
        ranges: of sizes, for which it is."""
        if id(kernel) not in self._linked:  # equal regions bring the very same kernels
            self._linked[id(kernel)] = kernel, *self._link(kernel)
        _, names, by_range = self._linked[id(kernel)]
        for own, pieces in by_range:
            known = {names[buffer]: memory for buffer, memory in memories.items()}
            for number in pieces:
                arguments = self._arguments(self.kernels[number], known)
                self.calls.append(Call(number, arguments, constant, copies, ranges + own, region))

    def _link(self, kernel: Kernel) -> tuple[Mapping[str, str], Pieces]:
        """buffer -> its name in the pieces, and the pieces, which equal kernels share."""
        plain, names = canonical(kernel)
        key = repr(plain)
        if key not in self._pieces:
            self._pieces[key] = [
                (ranges, [self._add(one) for one in several]) for ranges, several in self.made[key]
            ]
        return names, self._pieces[key]

    def _add(self, made: Compiled) -> int:
        if id(made) not in self._numbers:
            self._numbers[id(made)] = len(self.kernels)
            self.kernels.append(made)
        return self._numbers[id(made)]

    def _arguments(self, made: Compiled, known: dict[str, int]) -> tuple[Argument, ...]:
        """Buffers that a split brought in become temporaries, shared by its pieces, the first of
        which writes them as the others have laid them out."""
        arguments = []
        for buffer in made.program.buffers:
            if buffer.name not in known:
                known[buffer.name] = self.temporary(buffer.dtype, buffer.shape)
                self._own.add(known[buffer.name])
            own = known[buffer.name] in self._own
            layout = None if own else made.program.layouts.get(buffer.name)
            arguments.append(Argument(known[buffer.name], buffer.shape, layout))
        return tuple(arguments)

    def plan(
        self,
        ports: Sequence[int | None],
        outputs: Sequence[int],
        states: Sequence[tuple[int, int]],
    ) -> Plan:
        """The finished plan, verified."""
        plan = Plan(
            self.memories, self.calls, self.kernels, self.sizes, tuple(ports), tuple(outputs),
            tuple(states), loops=tuple(self.loops),
        )  # fmt: skip
        plan.verify()
        make_before_loops(plan)
        drop_repeats(plan)
        renew_late(plan)
        share_states(plan)
        share_carried(plan)
        drop_unused_kernels(plan)
        return plan


def renew_late(plan: Plan) -> None:
    """A state is renewed behind the last reader of its old value, where nothing between needs what
    its call makes: so that the new value can replace the old one in place."""
    touched = [plan.touched(call) for call in plan.calls]
    for old, new in plan.states:
        makers = [n for n, (_, writes) in enumerate(touched) if new in writes]
        readers = [n for n, (reads, _) in enumerate(touched) if old in reads]
        if len(makers) != 1 or not readers or readers[-1] <= makers[0]:
            continue
        first, last = makers[0], readers[-1]
        reads, writes = touched[first]
        between = touched[first + 1 : last + 1]
        needed = any(writes & (a | b) or reads & b for a, b in between)
        if not needed and all(loop.stop <= first or loop.start > last for loop in plan.loops):
            plan.calls.insert(last, plan.calls.pop(first))
            touched.insert(last, touched.pop(first))


def share_states(plan: Plan) -> None:
    """A state that is only scattered into needs no copy, and one whose elements become new ones
    each by itself no second memory: the new value replaces the old one in place."""
    touched = [plan.touched(call) for call in plan.calls]
    for old, new in plan.states:
        copy = _copy_that_may_go(plan, touched, old, new)
        if any({old, new} & set(loop.around) for loop in plan.loops):
            continue
        if copy is not None:
            del touched[copy]
            delete_call(plan, copy)
        if copy is not None or _renewed_at_once(plan, touched, old, new):
            plan.in_place |= {(old, new)}


def share_carried(plan: Plan) -> None:
    """What a loop carries and only scatters into needs no copy in each step."""
    touched = [plan.touched(call) for call in plan.calls]
    for number, loop in enumerate(plan.loops):
        for place, carried in enumerate(loop.carried):
            copy = _copy_that_may_go(plan, touched, carried.old, carried.new)
            inner = any({carried.old, carried.new} & set(other.around) for other in plan.loops)
            row = any(part == carried.new for _, part in loop.rows)
            if copy is None or inner or row:
                continue
            del touched[copy]
            delete_call(plan, copy)
            loop = plan.loops[number]
            kept = [*loop.carried]
            kept[place] = replace(carried, spare=carried.result)
            changed = replace(loop, carried=tuple(kept))
            plan.loops = (*plan.loops[:number], changed, *plan.loops[number + 1 :])


def _renewed_at_once(plan: Plan, touched: Sequence[Touched], old: int, new: int) -> bool:
    """One call of each run makes the new value, and nobody reads the old one once it has begun."""
    uses = [n for n, (reads, writes) in enumerate(touched) if new in reads or new in writes]
    states = [memory for pair in plan.states for memory in pair]
    if len(uses) != 1 or old in plan.outputs or states.count(old) + states.count(new) != 2:
        return False
    other = any(loop.start <= uses[0] < loop.stop for loop in plan.loops)
    other |= plan.calls[uses[0]].constant
    if other or any(old in reads for reads, _ in touched[uses[0] + 1 :]):
        return False
    call = plan.calls[uses[0]]
    names = {
        argument.memory: buffer.name
        for buffer, argument in zip(plan.kernels[call.kernel].program.buffers, call.arguments)
    }
    made = plan.kernels[call.kernel]
    return old not in names or in_place(made.kernel, made.schedule, names[old], names[new])


def _copy_that_may_go(plan: Plan, touched: Sequence[Touched], old: int, new: int) -> int | None:
    """The call that copies a state, if nobody reads the old value once the new one is written."""
    copies = [
        n for n, call in enumerate(plan.calls) if call.copies and touched[n] == ({old}, {new})
    ]
    if len(copies) != 1 or old in plan.outputs:
        return None
    changes = [n for n, (_, writes) in enumerate(touched) if new in writes and n > copies[0]]
    if not changes or any(old in reads for reads, _ in touched[changes[0] :]):
        return None
    return copies[0]


def drop_unused_kernels(plan: Plan) -> None:
    """Kernels without a call are not compiled; the others keep their order."""
    used = sorted({call.kernel for call in plan.calls})
    numbers = {old: new for new, old in enumerate(used)}
    plan.kernels[:] = [plan.kernels[old] for old in used]
    plan.calls[:] = [replace(call, kernel=numbers[call.kernel]) for call in plan.calls]
