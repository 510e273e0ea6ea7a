"""What depends on parameters only: computed and packed when they have been set, not in each run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from ..kernel.layout import laid_out
from .memory import Allocate, Block, Pool, copy
from .plan import Argument, Plan
from .slots import Slots

RunCall = Callable[[int], None]  # runs one call of the plan now


class Constants:
    """Parameters as given, memories that constant calls write, packed copies."""

    def __init__(self, plan: Plan, slots: Slots, allocate: Allocate, threads: int) -> None:
        self._plan, self._slots, self._allocate = plan, slots, allocate
        self.pool = Pool(allocate)  # for packed copies: they are overwritten, never replaced
        self._threads = threads
        self._calls = [n for n, call in enumerate(plan.calls) if call.constant]
        self._written = sorted(plan.persistent())
        self._given: dict[int, np.ndarray] = {}
        self._blocks: dict[int, Block] = {}  # by place
        self._stale = set(range(len(plan.memories)))
        self._sizes: Mapping[str, int] = {}
        self._symbolic = self._depends_on_sizes()
        self._packed: dict[int, list[Argument]] = {}  # by the memory that each is a copy of
        for argument in slots.packed:
            self._packed.setdefault(argument.memory, []).append(argument)
        self._plain = {a.memory for c in plan.calls for a in c.arguments if a.layout is None}
        self._computed = {a.memory for n in self._calls for a in plan.calls[n].arguments}
        read = (a for call in plan.calls if not call.constant for a in call.arguments)
        ends = {*plan.outputs, *(new for _, new in plan.states)}
        self._lasting = ends.union(map(slots.place, read), *(loop.around for loop in plan.loops))

    def _depends_on_sizes(self) -> bool:
        plan = self._plan
        kernels = (plan.kernels[plan.calls[n].kernel] for n in self._calls)
        shapes = (argument.shape for argument in self._slots.packed)
        return any(k.program.sizes for k in kernels) or any(
            not extent.is_constant for shape in shapes for extent in shape
        )

    @property
    def bytes(self) -> int:
        return sum(block.bytes for block in self._blocks.values())

    def give(self, memory: int, array: np.ndarray) -> None:
        """New values of a parameter or constant."""
        self._given[memory] = array
        self._stale.add(memory)

    def pack(self, memory: int, array: np.ndarray) -> bool:
        """Pack the values of a parameter at once, if nothing else must be computed of them."""
        if self._symbolic or memory in self._computed:
            return False
        self._given[memory], done = array, set[Argument]()
        for argument in self._packed.get(memory, ()):
            self._repack(argument, {memory}, done)
        del self._given[memory]
        self._stale.discard(memory)
        return True

    def reads(self, memory: int) -> bool:
        """Some call reads a parameter as it was given."""
        return memory in self._plain

    def hold(self, memory: int, array: np.ndarray) -> None:
        """As `give`, of values that are packed already."""
        self._given[memory] = array

    # ---- all that was made, as bytes

    @property
    def key(self) -> str | None:
        """What the places mean, besides the values of the parameters; None if sizes of a run
        matter."""
        plan = self._plan
        if self._symbolic:
            return None
        given = [
            (place, m.name, str(m.dtype), m.shape)
            for place, m in enumerate(plan.memories) if m.kind == "parameter"
        ]  # fmt: skip
        calls = [(plan.calls[n], plan.kernels[plan.calls[n].kernel].kernel) for n in self._calls]
        meaning = given, calls, list(self._slots.packed.items())
        return hashlib.sha256(repr(meaning).encode()).hexdigest()

    def pieces(self) -> dict[int, np.ndarray]:
        """Bytes by place: packed copies, results of constant calls, parameters that are read as
        they are."""
        found = {place: block.array_of_bytes() for place, block in self._blocks.items()}
        for memory, array in self._given.items():
            if self._plan.memories[memory].kind == "parameter":
                found[memory] = array
        return found

    def take(self, blocks: Mapping[int, Block], mapped: Mapping[int, np.ndarray]) -> None:
        """Instead of making anything: what `pieces` once was, in blocks or as given."""
        for place, block in blocks.items():
            self._blocks[place] = block
            self._slots.point(place, block.address)
        for memory, array in mapped.items():
            self._given[memory] = array
            self._slots.point(memory, array.ctypes.data)
        self._stale.clear()

    def bind(self, sizes: Mapping[str, int]) -> None:
        """The sizes of the runs to come; what depends on them is made anew."""
        self._sizes = sizes
        if self._symbolic:
            self._stale.update(range(len(self._plan.memories)))

    @property
    def stale(self) -> bool:
        """Something was set since the last `refresh`."""
        return bool(self._stale)

    def refresh(self, run: RunCall) -> None:
        """Run the constant calls and packings whose sources have changed. What only these read is
        given back."""
        stale, packed = set(self._stale), set[Argument]()
        needed = self._needed(stale)
        for memory in self._written:
            self._place_written(memory)
        for number in needed:
            call = self._plan.calls[number]
            for argument in call.arguments:
                gone = argument.layout and self._slots.place(argument) not in self._blocks
                self._repack(argument, {argument.memory} if gone else stale, packed)
            for memory in self._plan.touched(call)[1]:
                self._make_writable(memory)
            run(number)
        for argument in self._slots.packed:
            if self._slots.place(argument) in self._lasting:
                self._repack(argument, stale, packed)
        self._stale.clear()
        if not self._symbolic:  # those are made again and again
            for place in self._blocks.keys() - self._lasting:
                del self._blocks[place]

    def _needed(self, stale: set[int]) -> list[int]:
        """The constant calls that touch what is stale, and those that make what these read and is
        no longer there. What they write becomes stale too."""
        touched = {number: self._plan.touched(self._plan.calls[number]) for number in self._calls}
        for reads, writes in touched.values():
            if stale & (reads | writes):
                stale |= writes
        needed, missing = list[int](), set[int]()
        for number in reversed(self._calls):
            reads, writes = touched[number]
            if stale & (reads | writes) or missing & writes:
                needed.append(number)
                missing |= reads.intersection(self._written) - self._blocks.keys()
                stale |= writes
        return needed[::-1]

    def _place_written(self, memory: int) -> None:
        """Memory for what a constant call writes, at the present sizes."""
        size = self._plan.memories[memory].bytes(self._sizes)
        block = self._blocks.get(memory)
        if block is None or block.bytes < size or block.held:
            block = self._blocks[memory] = Block(self._allocate, size)
            self._slots.point(memory, block.address)

    def _make_writable(self, memory: int) -> None:
        """What lies in a file is replaced before it is made anew."""
        block = self._blocks.get(memory)
        if block is not None and not block.writable:
            block = self._blocks[memory] = Block(self._allocate, block.bytes)
            self._slots.point(memory, block.address)

    def _repack(self, argument: Argument, stale: set[int], done: set[Argument]) -> None:
        if argument.layout is None or argument.memory not in stale or argument in done:
            return
        done.add(argument)
        dtype = self._plan.memories[argument.memory].dtype
        shape = tuple(int(extent.evaluate(self._sizes)) for extent in argument.shape)
        view = laid_out(self.array(argument.memory).reshape(shape), argument.layout)
        place, size = self._slots.packed[argument], view.size * dtype.bytes
        block = self._blocks.get(place)
        if block is None or block.bytes < size or not block.writable:
            allocate = self.pool if place in self._lasting else self._allocate
            block = self._blocks[place] = Block(allocate, size)
            self._slots.point(place, block.address)
        copy(block.array(dtype, view.shape), view, self._threads)

    def array(self, memory: int) -> np.ndarray:
        """The present contents of a parameter, a constant, or what was made of them."""
        given = self._given.get(memory)
        if given is not None:
            return given
        made = self._plan.memories[memory]
        shape = tuple(int(extent.evaluate(self._sizes)) for extent in made.shape)
        return self._blocks[memory].array(made.dtype, shape)
