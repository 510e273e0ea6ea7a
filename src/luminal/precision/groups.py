"""A dimension of a contraction in groups, and groups in units."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.index import Index
from ..graph.node import Shape, View
from ..graph.views import place


class Groups:
    """Dimension `dim` of a shape as digits: units, groups in a unit (nested: several), and what
    is inside a group.

    split: the view of the shape with these digits; middle: without the last one; outer: with units
    only.
    """

    def __init__(self, shape: Shape, dim: int, group: int, unit: int) -> None:
        self.shape, self.dim, self.unit, self.nested = shape, dim, unit, unit > group
        size = shape[dim].constant
        self.steps = (unit, group, 1) if self.nested else (unit, 1)
        self.extents = [Index.of(n // s) for n, s in zip((size, *self.steps), self.steps)]
        self.digits = tuple(range(dim + 1, dim + len(self.steps)))  # inside units
        self.split, self.middle = self._level(len(self.steps)), self._level(len(self.steps) - 1)
        self.outer = self._level(1)

    def _level(self, count: int) -> View:
        """With the first digits, so many."""
        shape, dim = self.shape, self.dim
        digits = (place(dim + n) * step for n, step in enumerate(self.steps[:count]))
        behind = map(place, range(dim + count, len(shape) + count - 1))
        index = (*map(place, range(dim)), sum(digits, Index.of(0)), *behind)
        return View((*shape[:dim], *self.extents[:count], *shape[dim + 1 :]), index)


def without(dims: Sequence[int], lost: Sequence[int]) -> Shape:
    """Positions along dims where those that are lost are not counted."""
    return tuple(place(d - sum(e < d for e in lost)) for d in dims if d not in lost)
