"""The argument blocks of all calls, in one array of 8-byte slots.

The block of a call: one pointer per buffer, the claim counters, the workspace, the bytes that each
thread has of it, one number per run-time size. Where no barrier stands between two calls, threads
are in different kernels at once, so a thread's piece of the workspace lies at one place in all. A
*place* is something that a pointer points to: a memory of the plan, or, after those, a packed copy.
When an array moves or a size changes, its slots are patched; nothing is made anew. In a loop each
thread has blocks of its own, whose pointers it moves itself; a loop has a block of pointers to what
lies around it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .arena import round_up
from .memory import Allocate, Block
from .plan import Argument, Plan, packed_arguments


class Slots:
    """counters: bytes that each kernel of the plan needs of them. workspace: bytes of a thread."""

    def __init__(
        self, plan: Plan, allocate: Allocate, counters: list[int], workspace: int,
        threads: int = 1,
    ) -> None:  # fmt: skip
        self.packed = {
            argument: len(plan.memories) + number
            for number, argument in enumerate(packed_arguments(plan))
        }
        self.workspace = Block(allocate, workspace * threads)
        self._starts: list[int] = []
        self._words: list[int] = []
        self._apart: list[int] = []  # positions between the blocks of two threads
        self._moving: dict[tuple[int, int], list[int]] = {}  # (place, thread) -> positions
        self._around: dict[tuple[int, int, int], int] = {}  # (loop, place, thread) -> position
        looping = {n for loop in plan.loops for n in range(loop.start, loop.stop)}
        moving = {n for n, memory in enumerate(plan.memories) if memory.kind == "moving"}
        pointers: list[tuple[int, int]] = []  # position, place
        sizes: dict[str, list[int]] = {}  # positions
        counted: list[tuple[int, int]] = []  # position, offset
        working: list[int] = []
        end = offset = 0

        def point(place: int, thread: int) -> None:
            nonlocal end
            if place in moving:
                self._moving.setdefault((place, thread), []).append(end)
            else:
                pointers.append((end, place))
            end += 1

        for number, call in enumerate(plan.calls):
            self._starts.append(end)
            for thread in range(threads if number in looping else 1):
                for argument in call.arguments:
                    point(self.place(argument), thread)
                counted.append((end, offset))
                working.append(end + 1)
                end += 3
                for name in plan.kernels[call.kernel].program.sizes:
                    sizes.setdefault(name, []).append(end)
                    end += 1
            self._words.append(end - self._starts[-1])
            own = (end - self._starts[-1]) // threads
            self._apart.append(own if number in looping else 0)
            offset += round_up(counters[call.kernel])
        for number, loop in enumerate(plan.loops):
            for thread in range(threads):
                for memory in loop.around:
                    self._around[number, memory, thread] = end
                    point(memory, thread)
        self._counters = Block(allocate, offset)
        self._counters.array_of_bytes()[:] = 0
        self._values = np.zeros(max(end, 1), np.int64)
        self._sizes = {name: np.array(positions) for name, positions in sizes.items()}
        self._positions = _positions(pointers)
        for position, start in counted:
            self._values[position] = self._counters.address + start
        self._values[working] = self.workspace.address
        self._values[[position + 1 for position in working]] = workspace

    def place(self, argument: Argument) -> int:
        """Where the pointer of an argument points to."""
        return argument.memory if argument.layout is None else self.packed[argument]

    def address(self, call: int) -> int:
        """The address of the argument block of a call."""
        return self._address_of(self._starts[call])

    def words(self, call: int) -> int:
        """Slots of the argument block of a call, which no loop has."""
        return self._words[call]

    def apart(self, call: int) -> int:
        """Bytes between the argument blocks of two threads."""
        return 8 * self._apart[call]

    def slot(self, loop: int, memory: int, thread: int) -> int:
        """Where a thread finds the address of a memory around a loop."""
        return self._address_of(self._around[loop, memory, thread])

    def places(self, memory: int, thread: int) -> tuple[int, ...]:
        """The addresses at which a thread's blocks hold a moving memory."""
        return tuple(map(self._address_of, self._moving.get((memory, thread), ())))

    def _address_of(self, position: int) -> int:
        return int(self._values.ctypes.data) + 8 * position

    def point(self, place: int, address: int) -> None:
        """A place lies at this address from now on."""
        positions = self._positions.get(place)
        if positions is not None:
            self._values[positions] = address

    def set_sizes(self, sizes: Mapping[str, int]) -> None:
        """The run-time sizes from now on."""
        for name, positions in self._sizes.items():
            self._values[positions] = sizes[name]


def _positions(pointers: list[tuple[int, int]]) -> dict[int, np.ndarray | int]:
    """place -> its slots; a plain integer where there is one (patched faster)."""
    found: dict[int, list[int]] = {}
    for position, place in pointers:
        found.setdefault(place, []).append(position)
    return {
        place: positions[0] if len(positions) == 1 else np.array(positions)
        for place, positions in found.items()
    }
