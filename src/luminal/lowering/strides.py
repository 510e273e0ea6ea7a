"""How the lanes of an access lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from ..graph.index import Index
from ..kernel.program import Instruction
from .place import Lanes, lane_name

Steps = list[tuple[str, int, int]]  # (axis, size, stride in elements)


def contiguous(steps: Steps) -> bool:
    """Whether the lanes lie side by side, the innermost fastest."""
    stride = 1
    for _, size, step in reversed(steps):
        if step != stride:
            return False
        stride *= size
    return True


def in_tile(index: Index, unit: int, lanes: Lanes) -> bool:
    """Whether lanes along an axis end in the tile in which they start, and such tiles divide the
    unit to a multiple of which memory is padded: the tile begins inside, or it would not run."""
    widths = {(lane_name(axis, size),): size for axis, size in lanes}
    tile = gcd(*(c for m, c in index.terms if m and m not in widths))
    reach = sum((widths[m] - 1) * c for m, c in index.terms if m in widths)
    return tile > 1 and unit % tile == 0 and index.constant % tile + reach < tile


def lanes_of(steps: Steps) -> Lanes:
    return tuple((axis, size) for axis, size, _ in steps)


def strides(ins: Instruction, lanes: Lanes) -> Sequence[int]:
    """How far apart the lanes of each axis are in a load or store."""
    if len(ins.attrs) > 1:
        return ins.attrs[1:]
    found, step = list[int](), 1
    for _, size in reversed(lanes):
        found.append(step)
        step *= size
    return found[::-1]
