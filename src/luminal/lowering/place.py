"""Where the walk over the loops stands, and how its lanes lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import gcd, prod

from ..graph.dtype import DType
from ..graph.index import Index
from ..kernel.layout import Storage
from ..kernel.program import Instruction, Val

Lanes = tuple[tuple[str, int], ...]
Steps = list[tuple[str, int, int]]  # (axis, size, stride in elements)


@cache
def lane_name(axis: str, size: int) -> str:
    """The variable that counts the lanes of an axis inside an index."""
    return f"~{axis}.{size}"


@dataclass(slots=True, eq=False)
class Place:
    """A point, or a tile, of the kernel's axes.

    index: axis -> where it stands, over loop counters, sizes and lanes. span: axis -> how much of
    it is still to walk, from there. lanes: the vector axes that are open, outermost first.
    collapsed: those of them that an instruction sums. partial: which of its own accumulators an
    unrolled reduced axis uses. ends: axes whose index may pass the end of the tile in which it
    walks, and where that is (beyond it another thread may be at work). unrolled: axis -> (position
    in a written-out block, size of the block). facts: indices known to be >= 0. masks: conditions
    under which expressions are looked at. spelled: axes whose loops are written out here, whatever
    their kind. behind: in a tile, behind the ends of what is computed.
    """

    index: dict[str, Index]
    span: dict[str, Index]
    lanes: Lanes = ()
    collapsed: frozenset[str] = frozenset()
    partial: tuple[int, ...] = ()
    ends: dict[str, Index] = field(default_factory=dict)
    unrolled: dict[str, tuple[int, int]] = field(default_factory=dict)
    facts: tuple[Index, ...] = ()
    masks: tuple[Val, ...] = ()
    spelled: frozenset[str] = frozenset()
    behind: bool = False

    def copy(self) -> Place:
        return Place(
            self.index, self.span, self.lanes, self.collapsed, self.partial, self.ends,
            self.unrolled, self.facts, self.masks, self.spelled, self.behind,
        )  # fmt: skip

    def at(
        self, axis: str, offset: Index | int, span: Index | int, guarded: bool = False
    ) -> Place:
        """Further along an axis, with less of it to walk."""
        other = self.copy()
        other.index = {**self.index, axis: self.index[axis] + offset}
        other.span = {**self.span, axis: Index.of(span)}
        if guarded and not (axis in self.ends and self.span[axis].is_constant):
            other.ends = {**self.ends, axis: self.index[axis] + self.span[axis]}
        if axis in self.unrolled:
            other.unrolled = {a: u for a, u in self.unrolled.items() if a != axis}
        return other

    def whole(self, axis: str, offset: Index, step: int) -> Place:
        """At a full step of what is left to walk: no index of it passes the end, if it is known how
        much is left. Lanes that may be outside have constant spans."""
        other = self.at(axis, offset, step)
        if not self.span[axis].is_constant:
            other.ends = {a: end for a, end in self.ends.items() if a != axis}
        return other

    def with_lanes(
        self, axis: str, size: int, collapsed: bool, guarded: bool, step: int = 1
    ) -> Place:
        """With a vector over the rest of an axis, in steps that further lanes of it divide;
        collapsed lanes are the innermost."""
        other = self.at(axis, Index.of(lane_name(axis, size)) * step, step, guarded)
        if collapsed:
            other.collapsed = self.collapsed | {axis}
        lanes = self.lanes + ((axis, size),)
        other.lanes = tuple(sorted(lanes, key=lambda lane: lane[0] in other.collapsed))
        return other

    def moved(self, axis: str, offset: int) -> Place:
        """The same place, with the index of one axis moved."""
        other = self.copy()
        other.index = {**self.index, axis: self.index[axis] + offset}
        return other

    def plain(self, axes: frozenset[str]) -> Place:
        """Without the lanes of these axes, and without accumulators of its own."""
        lanes = tuple(lane for lane in self.lanes if lane[0] not in axes)
        scalars = {axis: self.scalar(axis) for axis, _ in self.lanes if axis in axes}
        return replace(self, lanes=lanes, index=self.index | scalars, partial=())

    def under(self, *masks: Val) -> Place:
        """Looked at only where these hold."""
        other = self.copy()
        other.masks = self.masks + masks
        return other

    def scalar(self, axis: str) -> Index:
        """The index of an axis at its first lane."""
        index = self.index[axis]
        for name, size in self.lanes:
            if name == axis:
                lane = lane_name(axis, size)
                index = index - Index.of(lane) * index.coefficient(lane)
        return index


# ---- memory, and how the lanes of an access lie in it


@dataclass(eq=False)
class Memory:
    """A buffer or tile as accesses see it."""

    name: str
    dtype: DType
    storage: Storage
    start: Val
    shape: tuple[Index, ...] = ()  # of a buffer, without padding


def contiguous(steps: Steps) -> bool:
    """Whether the lanes lie side by side, the innermost fastest."""
    return [step for *_, step in steps] == row_major(lanes_of(steps))


def in_tile(index: Index, unit: int, lanes: Lanes) -> bool:
    """Whether lanes along an axis end in the tile in which they start, and such tiles divide the
    unit to a multiple of which memory is padded: the tile begins inside, or it would not run."""
    tile = tile_of(index, lanes)
    return tile > 1 and unit % tile == 0


def tile_of(index: Index, lanes: Lanes) -> int:
    """Steps of loops along an axis, if its lanes end in the tile in which they start; else 0."""
    widths = {(lane_name(axis, size),): size for axis, size in lanes}
    tile = gcd(*(c for m, c in index.terms if m and m not in widths))
    reach = sum((widths[m] - 1) * c for m, c in index.terms if m in widths)
    return tile if tile and index.constant % tile + reach < tile else 0


def lanes_of(steps: Steps) -> Lanes:
    return tuple((axis, size) for axis, size, _ in steps)


def row_major(lanes: Lanes) -> list[int]:
    """How far apart the lanes of each axis are where they lie side by side."""
    sizes = [size for _, size in lanes]
    return [prod(sizes[n + 1 :]) for n in range(len(sizes))]


def strides(ins: Instruction, lanes: Lanes) -> Sequence[int]:
    """How far apart the lanes of each axis are in a load or store."""
    return ins.attrs[1:] if len(ins.attrs) > 1 else row_major(lanes)
