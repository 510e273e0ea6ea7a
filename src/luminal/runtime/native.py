"""A plan as native code: memory is placed, argument blocks are filled, one call runs everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ..backend.contract import Backend, Code
from ..backend.table import Begin, Entry, Step, Table
from ..progress import tracked
from . import loops
from .binding import Binding, Bindings, Bytes
from .chains import Chain
from .constants import Constants
from .contract import Piece, Spill
from .inspection import Inspected, Placed, sources
from .memory import Block, Lent
from .order import spans_of, steps
from .plan import Plan
from .slots import Slots
from .trace import Span, least, spans, unchanged
from .watch import pieces, watcher

if TYPE_CHECKING:
    from ..search.compare import Difference

MAPPED = 256 << 10  # bytes from which what was made is read where it lies in its file
LARGE = 4 << 20  # bytes from which a table is not copied that a run reads a few rows of


class Native:
    """The engine of compiled programs (see `executable.Engine`)."""

    def __init__(self, plan: Plan, codes: Sequence[Code], backend: Backend, threads: int,
                 flushes: bool = False) -> None:  # fmt: skip
        """codes: one for each kernel of the plan, in order. flushes: see `Target`."""
        programs = [made.program for made in plan.kernels]
        self._plan, self._backend, self._threads, self._flushes = plan, backend, threads, flushes
        self._functions = [c.address(p.name) for c, p in zip(codes, programs, strict=True)]
        self._codes = codes  # keeps the machine code alive
        self._crew = backend.crew(threads)
        counters = [backend.counter_bytes(p, threads) for p in programs]
        workspace = max(map(backend.workspace_bytes, programs), default=0)
        self._slots = Slots(plan, backend.empty, counters, workspace, threads)
        self._constants = Constants(plan, self._slots, backend.empty, threads)
        persistent = self._persistent = plan.persistent()
        self._running = [n for n, call in enumerate(plan.calls) if not call.constant]
        self._looked_up = {n for n in plan.looked_up() if plan.memories[n].kind == "parameter"}
        self._kept = {m for m, made in enumerate(plan.memories) if made.kind != "input"}
        self._states, self.states = dict(plan.states), plan.states_of_ports
        self._state_shapes: dict[int, tuple[int, ...]] = {}
        self._shared = {new: old for old, new in plan.in_place}
        self._repeated = {n for n, memory in enumerate(plan.outputs) if memory in plan.outputs[:n]}
        elsewhere = persistent | self._shared.keys()
        self._results = [m for m in self._result_memories() if m not in elsewhere]
        swapped = {new: old for old, new in plan.states if new in self._results}
        self._swapped = [(old, new) for new, old in swapped.items()]
        rest = set(plan.states) - {*self._swapped, *plan.in_place}
        self._copied = sorted(rest)  # their new value replaces another state too, or stays
        self._blocks: dict[int, Block] = {}  # of results and states
        self._lent = Lent(backend.empty)  # inputs that are read in place
        self._given_away: dict[int, int] = {}  # bytes of parameters that nobody else holds
        self._bindings = Bindings(plan, self._running, persistent, backend.target(threads))
        self._apart = Bindings(plan, self._running, persistent)  # without chains
        self._sizes: dict[str, int] = {}
        self._arena: Block | None = None
        self._placed: Binding | None = None  # in that arena
        self._binding: Binding | None = None
        self._moves: list[tuple[int, Block]] = []  # where states lie after a run

    def _result_memories(self) -> list[int]:
        new = [output for _, output in self._plan.states]
        return sorted(set(self._plan.outputs) | set(new))

    # ---- Engine

    def set(self, port: int, array: np.ndarray) -> None:
        memory = self._plan.ports[port]
        assert memory is not None
        if memory in self._states:
            block = Block(self._backend.empty, array.nbytes)
            block.array(self._plan.memories[memory].dtype, array.shape)[...] = array
            self._lay_state(memory, array.shape, block)
            return
        self._point(memory, array)
        if memory in self._kept:
            self._constants.give(memory, array)

    def clear(self, port: int, zeros: np.ndarray) -> None:
        memory = self._plan.ports[port]
        if memory not in self._states:
            self.set(port, zeros)
            return
        self._lay_state(memory, zeros.shape, Block(self._backend.zeros, zeros.nbytes))

    def _point(self, memory: int, array: np.ndarray) -> None:
        self._slots.point(memory, self._lent.take(memory, array))

    def give_away(self, port: int, array: np.ndarray, spill: Spill | None) -> None:
        memory = self._plan.ports[port]
        assert memory is not None
        packed = memory not in self._states and self._constants.pack(memory, array)
        if packed and not self._constants.reads(memory):
            return
        array = np.require(array, requirements=["C", "A"])
        if memory not in self._states:
            if spill is not None and self._stays(memory, array.nbytes):
                array = spill(memory, array)
            else:
                self._given_away[memory] = array.nbytes
        if not packed:
            self.set(port, array)
            return
        self._point(memory, array)
        self._constants.hold(memory, array)

    def _stays(self, place: int, size: int) -> bool:
        """Better mapped than copied: large, a parameter, and hardly read."""
        return size >= LARGE and place in self._looked_up

    @property
    def key_of_made(self) -> str | None:
        return self._constants.key

    def made(self) -> Mapping[int, np.ndarray] | None:
        if self._constants.key is None:
            return None
        self._constants.refresh(self._run_call)
        return self._constants.pieces()

    def take(self, made: Mapping[int, Piece]) -> None:
        blocks = dict[int, Block]()
        large = {n: piece for n, piece in made.items() if piece.nbytes >= MAPPED}
        for n, piece in ((n, piece) for n, piece in made.items() if n not in large):
            blocks[n] = Block(self._constants.pool, piece.nbytes)
            piece.read(blocks[n].array_of_bytes()[: piece.nbytes])
        with ThreadPoolExecutor(self._crew.threads) as readers:
            arrays = dict(zip(large, readers.map(lambda piece: piece.mapped(), large.values())))
        mapped = {n: array for n, array in arrays.items() if self._stays(n, array.nbytes)}
        blocks |= {n: Block.lying(array) for n, array in arrays.items() if n not in mapped}
        self._constants.take(blocks, mapped)

    def bind(self, sizes: Mapping[str, int]) -> None:
        self._settle()
        before, self._sizes, self._binding = self._sizes, dict(sizes), None
        try:
            binding = self._bindings.find(self._sizes, self._table)
            self._make_room(binding.arena_bytes)
            blocks = {memory: self._block_of_result(memory) for memory in self._results}
        except BaseException:  # no memory: what the last run made stays readable
            self._sizes = before
            raise
        self._slots.set_sizes(sizes)
        self._place(binding)
        for memory, block in blocks.items():
            self._lay(memory, block)
        self._constants.bind(sizes)
        self._binding = binding

    @property
    def can_launch(self) -> bool:
        outputs = self._plan.outputs
        alone = len(set(outputs)) == len(outputs) and set(outputs) == set(self._results)
        return alone and not self._states

    @property
    def memory(self) -> str:
        return "cpu"

    def launch(
        self, ports: Sequence[int], inputs: Sequence[int], outputs: Sequence[int],
        stream: int | None = None,
    ) -> None:  # fmt: skip
        assert self._binding is not None
        for port, address in zip(ports, inputs):
            memory = self._plan.ports[port]
            assert memory is not None
            self._slots.point(memory, address)
        for memory, address in zip(self._plan.outputs, outputs):
            self._slots.point(memory, address)
        if self._constants.stale:
            self._constants.refresh(self._run_call)
        self._execute(self._binding)

    def run(self) -> None:
        self._execute(self._prepared())
        self._settle()

    def trace(self) -> list[Span]:
        calls = self._plan.calls
        with unchanged(self._written_states()), self._one_by_one() as binding:
            times = self._crew.trace(self._steps_of(binding))
        names = [self._plan.kernels[calls[number].kernel].name for number in binding.running]
        return spans(names, times)

    def _written_states(self) -> list[np.ndarray]:
        """What a run writes in place; other states are replaced only after it."""
        return [self._array(old) for old in self._shared.values() if old in self._states]

    def _prepared(self) -> Binding:
        """What is made of parameters is new, and results have memory that nobody holds."""
        self._settle()
        self._lent.renew()
        if self._constants.stale:
            self._constants.refresh(self._run_call)
        for memory in self._results:
            if self._blocks[memory].held:
                self._lay(memory, self._new_block(memory))
        assert self._binding is not None
        return self._binding

    @contextmanager
    def _one_by_one(self) -> Iterator[Binding]:
        """Inside, calls may run each alone: none is of a chain, and temporaries are whole."""
        binding = mine = self._prepared()
        if mine.chains:
            binding = self._apart.find(self._sizes, self._table)
            self._make_room(binding.arena_bytes)
            self._place(binding)
        try:
            yield binding
        finally:
            self._place(mine)

    def _settle(self) -> None:
        """Each state has its new value once a run has ended, also where an interrupt came before
        this: all of it may be done twice."""
        table = self._binding.table if self._binding and self._states else None
        if table is None or not table.ran:
            return
        if not self._moves:
            for old, new in self._copied:
                self._array(old)[...] = self._value(new)
            blocks = self._blocks
            self._moves = [(m, blocks[n]) for pair in self._swapped for m, n in (pair, pair[::-1])]
        for memory, block in self._moves:
            self._lay(memory, block)
        table.ran = False
        self._moves = []

    def output(self, number: int) -> np.ndarray:
        self._settle()
        memory = self._plan.outputs[number]
        replaced = [old for old, new in self._swapped if new == memory]
        if replaced:
            return self._array(replaced[0]).copy()
        copied = memory in self._persistent or memory in self._shared or number in self._repeated
        return self._value(memory).copy() if copied else self._array(memory)

    def state(self, port: int) -> np.ndarray:
        memory = self._plan.ports[port]
        assert memory is not None
        self._settle()
        return self._array(memory).copy()

    @property
    def peak_bytes(self) -> int:
        own = sum(block.bytes for block in self._blocks.values()) + self._lent.bytes
        own += sum(self._given_away.values())
        arena = self._binding.arena_bytes if self._binding else 0
        return own + arena + self._constants.bytes + self._slots.workspace.bytes

    # ---- memory

    def _array(self, memory: int) -> np.ndarray:
        made, shape = self._plan.memories[memory], self._state_shapes.get(memory)
        if shape is None:
            shape = tuple(int(extent.evaluate(self._sizes)) for extent in made.shape)
        return self._blocks[memory].array(made.dtype, shape)

    def _value(self, memory: int) -> np.ndarray:
        """What a run has computed, wherever it lies, before states are swapped."""
        if memory in self._persistent:
            return self._constants.array(memory)
        return self._array(self._shared.get(memory, memory))

    def _make_room(self, arena_bytes: int) -> None:
        if self._arena is None or self._arena.bytes < arena_bytes:
            self._arena = self._placed = None  # free the old one first
            self._arena = Block(self._backend.empty, arena_bytes)

    def _place(self, binding: Binding) -> None:
        """Temporary memories lie where the binding says, unless they do already."""
        assert self._arena is not None
        for memory, offset in binding.offsets.items() if binding is not self._placed else ():
            self._slots.point(memory, self._arena.address + offset)
        self._placed = binding

    def _block_of_result(self, memory: int) -> Block:
        """Memory for an output: kept if it is large enough, not wasteful, and nobody holds it."""
        size = self._plan.memories[memory].bytes(self._sizes)
        block = self._blocks.get(memory)
        if block is None or not size <= block.bytes <= 2 * size + 4096 or block.held:
            return self._new_block(memory)
        return block

    def _new_block(self, memory: int) -> Block:
        return Block(self._backend.empty, self._plan.memories[memory].bytes(self._sizes))

    def _lay(self, memory: int, block: Block) -> None:
        """A memory lies in this block from now on."""
        self._blocks[memory] = block
        self._slots.point(memory, block.address)

    def _lay_state(self, memory: int, shape: tuple[int, ...], block: Block) -> None:
        """A state lives in memory of ours: it is written, the user's array is not."""
        self._settle()
        self._state_shapes[memory] = shape
        self._lay(memory, block)
        if self._shared.get(self._states[memory]) == memory:
            self._slots.point(self._states[memory], block.address)

    # ---- order

    def _entry(self, number: int, barrier: bool = False) -> Entry:
        function = self._functions[self._plan.calls[number].kernel]
        return Entry(function, self._slots.address(number), barrier, self._slots.apart(number))

    def _table(
        self, running: Sequence[int], offsets: Bytes, rooms: Bytes, chains: Sequence[Chain]
    ) -> Table:
        return self._backend.table(self._steps(running, offsets, rooms, chains))

    def _steps(
        self, running: Sequence[int], offsets: Bytes, rooms: Bytes, chains: Sequence[Chain] = ()
    ) -> list[Step]:
        spaces = spans_of(self._plan, offsets, rooms)
        made = {chain.calls[0]: (chain.calls, chain.step(self._plan, self._entry,
                self._slots.words, self._threads)) for chain in chains}  # fmt: skip
        return steps(self._plan, running, spaces, self._entry, self._begin, made)

    def _steps_of(self, binding: Binding) -> list[Step]:
        return self._steps(binding.running, binding.offsets, binding.rooms)

    def _begin(self, loop: int) -> Begin:
        return loops.begin(self._plan, loop, self._slots, self._sizes, self._threads)

    def _execute(self, binding: Binding) -> None:
        watch = watcher()
        if watch is None:
            self._crew.run(binding.table)
            return
        plan = self._plan
        with self._one_by_one() as alone:
            names = [plan.kernels[plan.calls[number].kernel].name for number in alone.running]
            for name, piece in pieces(self._steps_of(alone), names):
                made = self._backend.table(piece)
                with watch(name):
                    self._crew.run(made)
        binding.table.ran = True

    # ---- single calls

    def _run_call(self, number: int) -> None:
        self._crew.run(self._backend.table([self._entry(number, True)]))

    def check(self) -> list[Difference]:
        from ..search.compare import compare_kernels

        kernels, threads = zip(self._plan.kernels, self._codes), self._crew.threads
        return compare_kernels(kernels, self._backend, threads, self._flushes)

    def time_calls(self, repeat: int) -> list[tuple[str, float]]:
        """Seconds of each call of a run, alone and warm: the best of `repeat`; of a call in a loop
        those of one step, 0 where there may be none. Run once before."""
        if self._binding is None:
            return []
        with unchanged(self._written_states()), self._one_by_one() as binding:
            if binding is not self._binding:
                self._crew.run(binding.table)  # what the calls read is there
            return [self._timed(n, repeat) for n in tracked("timing call", binding.running)]

    def _timed(self, number: int, repeat: int) -> tuple[str, float]:
        name = self._plan.kernels[self._plan.calls[number].kernel].name
        if loops.waiting(self._plan, number, self._sizes):
            return name, 0.0
        made = self._backend.table([self._entry(number, True)])
        return name, least(lambda: self._crew.run(made), repeat)

    def sources(self) -> dict[str, str]:
        return sources(self._plan, self._backend, self._crew.threads, self._flushes)

    def inspected(self) -> Inspected:
        binding, plan = self._binding, self._plan
        running = binding.running if binding else ()
        together = [chain.calls for chain in binding.chains] if binding else []
        lives = plan.lives(running, self._persistent, together)
        placed = [
            Placed(m, at, min(binding.rooms[m], plan.memories[m].bytes(self._sizes)), *lives[m])
            for m, at in binding.offsets.items()
        ] if binding else []  # fmt: skip
        return Inspected(plan, self._backend, self._crew.threads, dict(self._sizes), running,
                         placed, self._flushes)  # fmt: skip
