"""A plan on a device with memory of its own: arrays are copied there, kernels run in order.

A temporary buffer serves the next one as soon as no later call reads what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..backend.contract import Accelerator
from ..errors import InputError
from ..kernel.layout import laid_out
from ..progress import tracked
from .arena import ALIGNMENT, round_up
from .contract import Copying, Spill
from .inspection import Inspected, Placed, sources
from .order import marked
from .plan import Argument, Launch, Loop, Plan

if TYPE_CHECKING:
    from ..search.compare import Difference

Item: TypeAlias = "int | tuple[int, list[Item]]"  # a call, or a loop and what is inside
QUEUED = 8  # calls that are timed together
WASTE = 2  # a buffer is used again for what needs at least this share of it


class Offloaded(Copying):
    """The engine of programs on an accelerator (see `contract.Engine`)."""

    def __init__(self, plan: Plan, codes: Sequence[bytes], device: Accelerator) -> None:
        """codes: one for each kernel of the plan, in order, then for each joint."""
        programs = [made.program for made in plan.kernels]
        joined = [joint.program(plan) for joint in plan.joints]
        self._plan, self._device = plan, device
        self._kernels = device.kernels(codes[: len(programs)], programs)
        self._joined = joined
        self._joined_kernels = device.joined_kernels(codes[len(programs) :], joined)
        self._launches: dict[int, Launch] = {}  # of several calls, by each of them
        self._counter: Any = None  # where the groups of such a launch meet
        self._workspace_bytes = max((device.workspace_bytes(p) for p in programs), default=0)
        self._bytes: dict[int, int] = {}  # of each buffer, by identity
        self._workspace: Any = None
        self._runs = 0  # since a buffer was last allocated, or the sizes changed
        self._again: Callable[[], None] | None = None
        self._running = [n for n, call in enumerate(plan.calls) if not call.constant]
        self._making = [n for n, call in enumerate(plan.calls) if call.constant]
        self._moving = [n for n, memory in enumerate(plan.memories) if memory.kind == "moving"]
        self._packed: dict[Argument, Any] = {}
        self._buffers: dict[int, Any] = {}  # of memories
        self._waiting: dict[int, np.ndarray] = {}  # set, and not on the device yet
        self._streamed: dict[Argument, Any] = {}  # packings of what was given away
        self._given: dict[int, np.ndarray] = {}  # parameters, inputs that packings are made of
        self._stale = True  # what depends on parameters only
        self._sizes: dict[str, int] = {}
        self._shapes: dict[int, tuple[int, ...]] = {}  # of states, as they were set
        loops = plan.loops
        self._copied = {  # whole, beside what kernels read
            *plan.outputs, *(m for pair in plan.states for m in pair),
            *(stack for loop in loops for stack, _ in (*loop.sliced, *loop.rows)),
            *(c.initial for loop in loops for c in loop.carried),
        }  # fmt: skip
        self.states = plan.states_of_ports
        self._replaced = [pair for pair in plan.states if pair not in plan.in_place]

    # ---- buffers

    def _new(self, size: int) -> Any:
        self._runs, self._again = 0, None
        buffer = self._device.allocate(round_up(size))
        self._bytes[id(buffer)] = round_up(size)
        return buffer

    def _room(self, memory: int, size: int) -> Any:
        """The buffer of a memory that keeps what it holds."""
        buffer = self._buffers.get(memory)
        if buffer is None or self._bytes[id(buffer)] < size:
            self._drop(memory)
            buffer = self._buffers[memory] = self._new(size)
        return buffer

    def _drop(self, memory: int) -> None:
        buffer = self._buffers.pop(memory, None)
        if buffer is not None and not any(b is buffer for b in self._buffers.values()):
            del self._bytes[id(buffer)]

    def _shape(self, memory: int) -> tuple[int, ...]:
        shape = self._plan.memories[memory].shape
        return tuple(int(extent.evaluate(self._sizes)) for extent in shape)

    def _read(self, memory: int, shape: tuple[int, ...] | None = None) -> np.ndarray:
        shape = self._shape(memory) if shape is None else shape
        array = np.empty(shape, self._plan.memories[memory].dtype.numpy)
        if array.size:
            self._device.read(self._buffers[memory], array)
        return array

    # ---- Engine

    def set(self, port: int, array: np.ndarray) -> None:
        memory = self._plan.ports[port]
        assert memory is not None
        array = self._waiting[memory] = np.ascontiguousarray(array)
        self._shapes[memory] = array.shape
        if self._plan.memories[memory].kind != "input":
            self._given[memory], self._stale = array, True
            for argument in [a for a in self._streamed if a.memory == memory]:
                self._forget(argument)

    def give_away(self, port: int, array: np.ndarray, spill: Spill | None) -> None:
        """It goes to the device at once and is not held here; packed if nothing else is read."""
        memory = self._plan.ports[port]
        assert memory is not None
        uses = {a for call in self._plan.calls for a in call.arguments if a.memory == memory}
        self.set(port, array)
        if not all(n.is_constant for a in uses for n in a.shape):
            return
        del self._given[memory], self._waiting[memory]
        if uses and all(a.layout for a in uses) and memory not in self._copied:
            self._drop(memory)
            self._streamed |= {a: self._packed_of(a, array) for a in uses}
        elif array.size:
            self._device.write(self._room(memory, array.nbytes), np.ascontiguousarray(array))

    def _forget(self, argument: Argument) -> None:
        buffer = self._streamed.pop(argument, None)
        if buffer is not None:
            del self._bytes[id(buffer)]

    def _write(self) -> None:
        """What was set since the last run goes to the device."""
        for memory, array in [*self._waiting.items()]:
            room = self._room(memory, array.nbytes)
            if array.size:
                self._device.write(room, array)
            del self._waiting[memory]

    @property
    def memory(self) -> str:
        return self._device.memory

    @property
    def can_launch(self) -> bool:
        outputs, given = self._plan.outputs, set(self._plan.ports)
        alone = len(set(outputs)) == len(outputs) and not given.intersection(outputs)
        return bool(self.memory) and alone and not self._plan.states

    def launch(
        self, ports: Sequence[int], inputs: Sequence[int], outputs: Sequence[int],
        stream: int | None = None,
    ) -> None:  # fmt: skip
        """The buffers of others stand for the memories, as long as the run is queued."""
        places = dict(zip(self._plan.outputs, outputs, strict=True))
        for port, address in zip(ports, inputs, strict=True):
            memory = self._plan.ports[port]
            assert memory is not None
            places[memory] = address
        if any(address % ALIGNMENT for address in places.values()):
            raise InputError(f"memory of a device that begins at no multiple of {ALIGNMENT} bytes")
        with self._device.queued_in(stream):
            self._write()
            for memory, address in places.items():
                self._drop(memory)
                size = self._plan.memories[memory].bytes(self._sizes)
                self._buffers[memory] = self._device.borrowed(address, size)
            try:
                if self._stale:
                    self._make()
                self._run()
            finally:
                for memory in places:
                    del self._buffers[memory]

    def bind(self, sizes: Mapping[str, int]) -> None:
        self._write()
        changed = self._sizes != dict(sizes)
        self._sizes, self._runs, self._again = dict(sizes), 0, None
        if self._workspace is None:
            self._workspace = self._new(self._workspace_bytes)
        kept = {*self._plan.outputs, *self._plan.persistent(), *(n for _, n in self._plan.states)}
        for memory in sorted(kept.union(self._moving)):
            self._room(memory, self._plan.memories[memory].bytes(self._sizes))
        for old, new in self._plan.in_place:
            self._buffers[new] = self._buffers[old]
        for carried in (c for loop in self._plan.loops for c in loop.carried):
            if carried.spare == carried.result:
                self._buffers[carried.new] = self._buffers[carried.old]
        if self._joined and self._counter is None:
            self._counter = self._new(ALIGNMENT)
            self._device.write(self._counter, np.zeros(ALIGNMENT, np.uint8))
        self._place(kept)
        self._stale = self._stale or changed

    def _now(self) -> list[int]:
        """The calls of a run at the present sizes."""
        return self._plan.needed(self._running, self._sizes)

    def _place(self, kept: Container[int]) -> None:
        """A buffer for each temporary memory, from its first use to its last."""
        calls, persistent = self._now(), self._plan.persistent()
        launches = self._plan.launched(calls, self._sizes)
        self._launches = {number: launch for launch in launches for number in launch.calls}
        lives = self._plan.lives(calls, persistent, [launch.calls for launch in launches])
        used = {m: life for m, life in lives.items() if m not in kept}
        old = [m for m in self._buffers if self._plan.memories[m].kind == "temporary"]
        pool = [self._buffers.pop(m) for m in old if m not in kept]
        free = list({id(buffer): buffer for buffer in pool}.values())
        for step in range(len(calls)):
            for memory in (m for m, life in used.items() if life[0] == step):
                size = round_up(self._plan.memories[memory].bytes(self._sizes))
                fits = [b for b in free if size <= self._bytes[id(b)] <= WASTE * size]
                found = min(fits, key=lambda b: self._bytes[id(b)], default=None)
                if found is not None:
                    free = [buffer for buffer in free if buffer is not found]
                self._buffers[memory] = self._new(size) if found is None else found
            free += [self._buffers[m] for m, life in used.items() if life[1] == step]
        for buffer in free:
            if not any(b is buffer for b in self._buffers.values()):
                del self._bytes[id(buffer)]

    def run(self) -> None:
        self._write()
        if self._stale:
            self._make()
        if self._again is None and self._runs and self._is_straight:
            self._again = self._device.recorded(self._run)
        if self._again is None:
            self._run()
        else:
            self._again()
        self._runs += 1
        for old, new in self._replaced:
            self._shapes[old] = self._shape(new)

    @property
    def _is_straight(self) -> bool:
        """No part of a run depends on what another has computed."""
        return not any(loop.conditional for loop in self._plan.loops)

    def _run(self) -> None:
        self._execute(self._now())
        for old, new in self._replaced:
            self._room(old, self._size(new))
            self._copy(old, new, self._size(new))

    def _make(self) -> None:
        """What depends on parameters only: packings, constant calls."""
        for buffer in self._packed.values():
            del self._bytes[id(buffer)]
        self._packed.clear()
        self._execute(self._making)
        self._stale = False

    def _execute(self, running: Sequence[int]) -> None:
        """These calls, and the loops around them."""
        opened: list[tuple[int, list[Item]]] = [(-1, [])]
        for number, loop in marked(self._plan, running):
            if number is not None:
                opened[-1][1].append(number)
            elif loop is not None:
                opened.append((loop, []))
            else:
                inner = opened.pop()
                opened[-1][1].append(inner)
        self._items(opened[0][1])

    def _items(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, int):
                self._launch(item)
            else:
                self._loop(self._plan.loops[item[0]], item[1])

    def _loop(self, loop: Loop, items: Sequence[Item]) -> None:
        """The two memories of what is carried change their buffers with each step."""
        for c in loop.carried:
            self._copy(c.old, c.initial, self._size(c.old))
        count, step = loop.count(self._sizes), 0
        while (count is None or step < count) and self._goes_on(loop):
            turn = step if not loop.reverse else (count or 0) - 1 - step
            for stack, part in loop.sliced:
                self._copy(part, stack, self._size(part), source_at=turn * self._size(part))
            self._items(items)
            for stack, part in loop.rows:
                self._copy(stack, part, self._size(part), target_at=turn * self._size(part))
            for c in loop.carried:
                before, now = self._buffers[c.old], self._buffers[c.new]
                self._buffers[c.old], self._buffers[c.new] = now, before
            step += 1
        for c in loop.carried:
            self._copy(c.result, c.old, self._size(c.old))

    def _goes_on(self, loop: Loop) -> bool:
        return not loop.conditional or bool(self._read(loop.carried[0].old).all())

    def _size(self, memory: int) -> int:
        return self._plan.memories[memory].bytes(self._sizes)

    def _copy(
        self, target: int, source: int, size: int, target_at: int = 0, source_at: int = 0
    ) -> None:
        pair = self._buffers[target], self._buffers[source]
        if size and (pair[0] is not pair[1] or target_at != source_at):
            self._device.copy(*pair, size, target_at, source_at)

    def _launch(self, number: int) -> None:
        """A call, or with the first of several that are one launch all of them."""
        launch = self._launches.get(number)
        if launch is None:
            self._call(number)
        elif number == launch.calls[0]:
            calls = [self._plan.calls[each] for each in launch.calls]
            buffers = [self._argument(a) for call in calls for a in call.arguments]
            sizes = [self._sizes[name] for name in self._joined[launch.joint].sizes]
            kernel = self._joined_kernels[launch.joint]
            self._device.launch(kernel, [*buffers, self._counter], sizes, self._workspace)

    def _call(self, number: int) -> None:
        call = self._plan.calls[number]
        sizes = [self._sizes[name] for name in self._plan.kernels[call.kernel].program.sizes]
        buffers = [self._argument(argument) for argument in call.arguments]
        self._device.launch(self._kernels[call.kernel], buffers, sizes, self._workspace)

    def _argument(self, argument: Argument) -> Any:
        if argument.layout is None:
            return self._buffers[argument.memory]
        if argument in self._streamed:
            return self._streamed[argument]
        if argument not in self._packed:
            self._packed[argument] = self._pack(argument)
        return self._packed[argument]

    def _pack(self, argument: Argument) -> Any:
        array = self._given.get(argument.memory)
        return self._packed_of(argument, self._read(argument.memory) if array is None else array)

    def _packed_of(self, argument: Argument, array: np.ndarray) -> Any:
        shape = tuple(int(extent.evaluate(self._sizes)) for extent in argument.shape)
        assert argument.layout is not None
        packed = np.ascontiguousarray(laid_out(array.reshape(shape), argument.layout))
        buffer = self._new(packed.nbytes)
        if packed.size:
            self._device.write(buffer, packed)
        return buffer

    def check(self) -> list[Difference]:
        return []  # they are compared as parts of the program

    def sources(self) -> dict[str, str]:
        return sources(self._plan, self._device)

    def time_calls(self, repeat: int) -> list[tuple[str, float]]:
        """Seconds of each call of a run: the best of `repeat`, each of several behind each other,
        since the host takes longer to launch one than many a kernel takes."""
        each, times = 1 if self._device.steady else QUEUED, list[tuple[str, float]]()
        states = {old: self._read(old) for old, _ in self._plan.in_place}  # others: after a run
        for number in tracked("timing call", list(self._now())):
            again = self._device.recorded(partial(self._calls, [number] * each))
            best = min(self._device.seconds(again) for _ in range(repeat)) / each
            times.append((self._plan.kernels[self._plan.calls[number].kernel].name, best))
        for old, array in states.items():
            if array.size:
                self._device.write(self._buffers[old], array)
        return times

    def _calls(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._call(number)

    def inspected(self) -> Inspected:
        running = self._now() if self._runs else []
        starts: dict[int, int] = {}  # of each buffer, as if they lay behind each other
        lives = self._plan.lives(running, self._plan.persistent())
        placed, end = [], 0
        for memory, life in lives.items():
            buffer = self._buffers.get(memory)
            if buffer is not None:
                if id(buffer) not in starts:
                    starts[id(buffer)], end = end, end + self._bytes[id(buffer)]
                size = self._plan.memories[memory].bytes(self._sizes)
                placed.append(Placed(memory, starts[id(buffer)], size, *life))
        return Inspected(self._plan, self._device, 1, dict(self._sizes), running, placed)

    def output(self, number: int) -> np.ndarray:
        return self._read(self._plan.outputs[number])

    def state(self, port: int) -> np.ndarray:
        memory = self._plan.ports[port]
        assert memory is not None
        self._write()
        return self._read(memory, self._shapes[memory])

    @property
    def peak_bytes(self) -> int:
        return sum(self._bytes.values())

