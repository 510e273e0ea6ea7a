"""The argument blocks of all calls, in one array of 8-byte slots.

The block of a call: one pointer per buffer, the claim counters, the workspace, one number per
run-time size. A *place* is something that a pointer points to: a memory of the plan, or, after
those, a packed copy. When an array moves or a size changes, its slots are patched; nothing is made
anew.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .arena import round_up
from .memory import Allocate, Block
from .plan import Argument, Plan, packed_arguments


class Slots:
    """counters and workspaces: bytes that each kernel of the plan needs of them."""

    def __init__(
        self, plan: Plan, allocate: Allocate, counters: list[int], workspaces: list[int]
    ) -> None:
        self.packed = {
            argument: len(plan.memories) + number
            for number, argument in enumerate(packed_arguments(plan))
        }
        self.workspace = Block(allocate, max(workspaces, default=0))
        self._starts: list[int] = []
        pointers: list[tuple[int, int]] = []  # position, place
        sizes: list[tuple[int, str]] = []
        counted: list[tuple[int, int]] = []  # position, offset
        workspace: list[int] = []
        end = offset = 0
        for call in plan.calls:
            self._starts.append(end)
            for argument in call.arguments:
                pointers.append((end, self.place(argument)))
                end += 1
            counted.append((end, offset))
            offset += round_up(counters[call.kernel])
            workspace.append(end + 1)
            end += 2
            for name in plan.kernels[call.kernel].program.sizes:
                sizes.append((end, name))
                end += 1
        self._counters = Block(allocate, offset)
        self._counters.array_of_bytes()[:] = 0
        self._values = np.zeros(max(end, 1), np.int64)
        self._sizes = sizes
        self._positions = _positions(pointers)
        for position, start in counted:
            self._values[position] = self._counters.address + start
        self._values[workspace] = self.workspace.address

    def place(self, argument: Argument) -> int:
        """Where the pointer of an argument points to."""
        return argument.memory if argument.layout is None else self.packed[argument]

    def address(self, call: int) -> int:
        """The address of the argument block of a call."""
        return int(self._values.ctypes.data) + 8 * self._starts[call]

    def point(self, place: int, address: int) -> None:
        """A place lies at this address from now on."""
        positions = self._positions.get(place)
        if positions is not None:
            self._values[positions] = address

    def set_sizes(self, sizes: Mapping[str, int]) -> None:
        """The run-time sizes from now on."""
        for position, name in self._sizes:
            self._values[position] = sizes[name]


def _positions(pointers: list[tuple[int, int]]) -> dict[int, np.ndarray | int]:
    """place -> its slots; a plain integer where there is one (patched faster)."""
    found: dict[int, list[int]] = {}
    for position, place in pointers:
        found.setdefault(place, []).append(position)
    return {
        place: positions[0] if len(positions) == 1 else np.array(positions)
        for place, positions in found.items()
    }
