"""From kernels on buffers to a plan: memories are numbered, equal kernels become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..graph.dtype import DType
from ..graph.index import Index
from ..graph.space import Range
from ..kernel.canonical import canonical
from ..kernel.kernel import Kernel, Load, walk
from ..kernel.program import Program
from ..kernel.schedule import Schedule
from ..scheduling.ranges import Ranges, Settled, kernels_by_range
from .plan import Argument, Call, Compiled, Memory, Plan


@dataclass(frozen=True)
class Lowered:
    """A prepared kernel, its schedule, its program."""

    kernel: Kernel
    schedule: Schedule
    program: Program


Lower = Callable[[Kernel, Settled], Sequence[Lowered]]  # several, where one is split: in this order

Pieces = list[tuple[Ranges, list[int]]]  # the kernels that run in each range of sizes


@dataclass
class Linker:
    """Collects the calls of a program. `lower` compiles a kernel that has not been seen before.
    usual: sizes that get kernels for several ranges (see `kernels_by_range`)."""

    sizes: dict[str, Range]
    lower: Lower
    usual: Mapping[str, Sequence[int]] = field(default_factory=dict)
    memories: list[Memory] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kernels: list[Compiled] = field(default_factory=list)
    _pieces: dict[str, Pieces] = field(default_factory=dict)
    _linked: dict[int, tuple[Kernel, Mapping[str, str], Pieces]] = field(default_factory=dict)

    def memory(self, made: Memory) -> int:
        """The number of a new memory."""
        self.memories.append(made)
        return len(self.memories) - 1

    def temporary(self, dtype: DType, shape: tuple[Index, ...]) -> int:
        return self.memory(Memory(f"t{len(self.memories)}", "temporary", dtype, shape))

    def call(
        self, kernel: Kernel, memories: Mapping[str, int], constant: bool, copies: bool = False
    ) -> None:
        """Run the kernel on these memories (kernel buffer -> memory) after the calls so far."""
        if id(kernel) not in self._linked:  # equal regions bring the very same kernels
            self._linked[id(kernel)] = kernel, *self._link(kernel)
        _, names, by_range = self._linked[id(kernel)]
        for ranges, pieces in by_range:
            known = {names[buffer]: memory for buffer, memory in memories.items()}
            for number in pieces:
                arguments = self._arguments(self.kernels[number], known)
                self.calls.append(Call(number, arguments, constant, copies, ranges))

    def _link(self, kernel: Kernel) -> tuple[Mapping[str, str], Pieces]:
        """buffer -> its name in the pieces, and the pieces, which equal kernels share."""
        plain, names = canonical(kernel)
        key = repr(plain)
        if key not in self._pieces:
            self._pieces[key] = self._lower(plain)
        return names, self._pieces[key]

    def _lower(self, plain: Kernel) -> Pieces:
        """The pieces for each range of sizes. All read constants as the first one lays them out."""
        settled = Settled()
        return [
            (ranges, [self._add(lowered) for lowered in self.lower(canonical(each)[0], settled)])
            for ranges, each in kernels_by_range(plain, self.usual)
        ]

    def _add(self, lowered: Lowered) -> int:
        reads, writes = uses(lowered.kernel)
        self.kernels.append(
            Compiled(lowered.kernel, lowered.schedule, lowered.program, reads, writes)
        )
        return len(self.kernels) - 1

    def _arguments(self, made: Compiled, known: dict[str, int]) -> tuple[Argument, ...]:
        """Buffers that a split brought in become temporaries, shared by its pieces."""
        arguments = []
        for buffer in made.program.buffers:
            if buffer.name not in known:
                known[buffer.name] = self.temporary(buffer.dtype, buffer.shape)
            layout = made.program.layouts.get(buffer.name)
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
            tuple(states),
        )  # fmt: skip
        plan.verify()
        share_states(plan)
        drop_unused_kernels(plan)
        share_workspace(plan)
        return plan


def share_states(plan: Plan) -> None:
    """A state that is only scattered into needs no copy: the new value replaces it in place."""
    for old, new in plan.states:
        copy = _copy_that_may_go(plan, old, new)
        if copy is not None:
            plan.calls.remove(copy)
            plan.in_place |= {(old, new)}


def _copy_that_may_go(plan: Plan, old: int, new: int) -> Call | None:
    """The call that copies a state, if nobody reads the old value once the new one is written."""
    touched = [plan.touched(call) for call in plan.calls]
    copies = [
        n for n, call in enumerate(plan.calls) if call.copies and touched[n] == ({old}, {new})
    ]
    if len(copies) != 1 or old in plan.outputs:
        return None
    changes = [n for n, (_, writes) in enumerate(touched) if new in writes and n > copies[0]]
    if not changes or any(old in reads for reads, _ in touched[changes[0] :]):
        return None
    return plan.calls[copies[0]]


def drop_unused_kernels(plan: Plan) -> None:
    """Kernels without a call are not compiled; the others keep their order."""
    used = sorted({call.kernel for call in plan.calls})
    numbers = {old: new for new, old in enumerate(used)}
    plan.kernels[:] = [plan.kernels[old] for old in used]
    plan.calls[:] = [replace(call, kernel=numbers[call.kernel]) for call in plan.calls]


def share_workspace(plan: Plan) -> None:
    """One workspace a thread for all kernels: where no barrier stands between two calls, threads
    are in different kernels at once, so a thread's piece must lie at one place in all of them."""
    most = max((made.program.workspace for made in plan.kernels), default=0)
    plan.kernels[:] = [
        replace(made, program=replace(made.program, workspace=most)) for made in plan.kernels
    ]


def uses(kernel: Kernel) -> tuple[frozenset[str], frozenset[str]]:
    """Buffers that a kernel reads, and those it writes (a store that combines also reads)."""
    writes = frozenset(kernel.outputs)
    reads = {
        expression.buffer
        for value in kernel.values
        for root in value.expressions()
        for expression in walk(root)
        if isinstance(expression, Load)
    }
    combined = {v.store.buffer for v in kernel.values if v.store and v.store.mode != "set"}
    made = {v.store.buffer for v in kernel.values if v.store and v.store.mode == "set"}
    return frozenset((reads - made) | (combined - made)), writes
