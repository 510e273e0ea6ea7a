"""Rotary positions in a graph."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...graph import Graph, Tensor
from .cache import Cache
from .config import DecoderConfig, Rope
from .rope import tables


class Rotary:
    """Tables of one kind of rotary positions, shared by all layers that use it."""

    def __init__(self, graph: Graph, config: DecoderConfig, kind: str, context: int) -> None:
        rope = config.ropes[kind]
        self.interleaved = rope.interleaved
        cos, sin = tables(rope, config, context)
        self.cos, self.sin = graph.constant(cos), graph.constant(sin)
        self.axes = graph.constant(axes(rope, cos.shape[1])) if config.placed else None

    def turn(self, x: Tensor, cache: Cache) -> Tensor:
        """x (heads, tokens, head_dim); those features beyond the turning ones stay. Of interleaved
        pairs the first ones come first then, in queries and keys alike: no product changes."""
        half = int(self.cos.shape[1])
        cos, sin = self._rows(self.cos, cache), self._rows(self.sin, cache)
        if self.interleaved:
            first, second = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
        else:
            first, second = x.narrow(-1, 0, half), x.narrow(-1, half, half)
        parts = [first * cos - second * sin, second * cos + first * sin]
        if x.shape[-1] != 2 * half:
            parts.append(x[..., 2 * half :])
        return ops.cat(parts, -1)

    def _rows(self, table: Tensor, cache: Cache) -> Tensor:
        """At the tokens' positions, or at their times, rows and columns (tokens, 3)."""
        if self.axes is None or cache.places is None:
            return cache.rows(table)
        time, row, column = (table.index_select(0, cache.places.select(1, n)) for n in range(3))
        return ops.where(self.axes == 0, time, ops.where(self.axes == 1, row, column))


def axes(rope: Rope, pairs: int) -> np.ndarray:
    """(pairs,) i64: 0, 1, 2 for those that turn with the time, the row, the column."""
    found = np.zeros(pairs, np.int64)
    for axis, count in enumerate(rope.sections):
        start = sum(rope.sections[:axis])
        if axis:
            found[slice(axis, 3 * count, 3) if rope.woven else slice(start, start + count)] = axis
    return found
