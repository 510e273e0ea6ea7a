"""How the elements of a buffer lie in memory: row-major, or as mixed-radix digits of its
dimensions.

A layout ((1, 32), (0, 1), (1, 1)) stores blocks of 32 of dimension 1, inside them dimension 0,
inside that the 32 single elements. A dimension that its outermost digit does not divide is padded
with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Illegal
from ..graph.index import Index
from ..graph.space import Space
from .schedule import Layout, layout_text


@dataclass(frozen=True)
class Digit:
    """One digit: floor((index mod `above`) / `step`), worth `stride` elements. `above` None: no
    mod."""

    dimension: int
    step: int
    above: int | None
    stride: Index


class Storage:
    """The extents of a buffer (or tile) and its layout; () is row-major. units: for each dimension
    what its extent is padded to a multiple of."""

    def __init__(self, extents: Sequence[Index], layout: Layout = ()) -> None:
        self.layout = layout
        if layout:
            check_layout(layout, len(extents))
        blocks = outermost(layout)
        self.units = [blocks.get(d, 1) for d in range(len(extents))]
        self.extents = tuple(e.ceil_div(unit) * unit for e, unit in zip(extents, self.units))
        self.digits, self.size = _digits(self.extents, layout)

    def offset(self, index: Sequence[Index], space: Space) -> Index:
        """The element offset of a position."""
        total = Index.of(0)
        for digit in self.digits:
            part = index[digit.dimension]
            if digit.above is not None:
                part = space.mod(part, digit.above)
            if digit.step != 1:
                part = space.floor(part, digit.step)
            total = total + part * digit.stride
        return total


def check_layout(layout: Layout, rank: int) -> None:
    """Raise Illegal unless each dimension has digits of shrinking steps that divide, down to 1."""
    last: dict[int, int] = {}
    for dimension, step in layout:
        if not 0 <= dimension < rank or step < 1:
            raise Illegal(f"layout {layout_text(layout)}: no dimension {dimension} of {rank}")
        if dimension in last and (last[dimension] % step or last[dimension] == step):
            raise Illegal(f"layout {layout_text(layout)}: {step} does not divide {last[dimension]}")
        last[dimension] = step
    if any(last.get(d) != 1 for d in range(rank)):
        raise Illegal(f"layout {layout_text(layout)}: a dimension of {rank} has no single steps")


def outermost(layout: Layout) -> dict[int, int]:
    """The step of the outermost digit of each dimension."""
    return {d: step for d, step in reversed(layout)}


def counts(extents: Sequence[Index], layout: Layout) -> list[Index]:
    """The number of values of each digit."""
    above: dict[int, Index] = {}
    found = []
    for dimension, step in layout:
        found.append(above.get(dimension, extents[dimension]).ceil_div(step))
        above[dimension] = Index.of(step)
    return found


def _digits(extents: tuple[Index, ...], layout: Layout) -> tuple[tuple[Digit, ...], Index]:
    digits = layout or tuple((d, 1) for d in range(len(extents)))
    result: list[Digit] = []
    stride = Index.of(1)
    for (dimension, step), count in reversed([*zip(digits, counts(extents, digits))]):
        outer = [s for d, s in digits if d == dimension and s > step]
        result.append(Digit(dimension, step, min(outer, default=None), stride))
        stride = stride * count
    return tuple(reversed(result)), stride


def packed_shape(shape: Sequence[int], layout: Layout) -> tuple[int, ...]:
    """The shape of the packed array: the number of values of each digit."""
    return tuple(map(int, counts(list(map(Index.of, shape)), layout)))


def pack(array: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """The array in this layout, contiguous, padded with zeros; an empty layout is row-major."""
    return np.ascontiguousarray(laid_out(array, layout)) if layout else np.asarray(array, order="C")


def laid_out(array: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """The array with one axis for each digit of the layout, in its order: a view, but for what must
    be padded with zeros. Copied row-major it is packed."""
    check_layout(layout, array.ndim)
    values = packed_shape(array.shape, layout)
    blocks = outermost(layout)
    spare = [(0, -size % blocks[d]) for d, size in enumerate(array.shape)]
    if any(after for _, after in spare):
        array = np.pad(array, spare)
    places = [[i for i, (d, _) in enumerate(layout) if d == dim] for dim in range(array.ndim)]
    split = array.reshape([values[i] for group in places for i in group])
    return split.transpose(np.argsort([i for group in places for i in group]))
