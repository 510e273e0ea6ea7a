"""Rotary positions in a graph."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...graph import Graph, Tensor
from ...nn.attention import turned
from .cache import Cache
from .config import DecoderConfig, Rope
from .rope import switch, tables


class Rotary:
    """Tables of one kind of rotary positions, shared by all layers that use it."""

    def __init__(self, graph: Graph, config: DecoderConfig, kind: str, context: int) -> None:
        rope = config.ropes[kind]
        self.interleaved = rope.interleaved
        cos, sin = tables(rope, config, context)
        self.cos, self.sin = graph.constant(cos), graph.constant(sin)
        self.context, self.most = context, switch(rope, config, context)
        self.axes = graph.constant(axes(rope, cos.shape[1])) if config.placed else None

    def turn(self, x: Tensor, cache: Cache) -> Tensor:
        """x (heads, tokens, head_dim)."""
        cos, sin = self._rows(self.cos, cache), self._rows(self.sin, cache)
        return turned(x, cos, sin, self.interleaved)

    def _rows(self, table: Tensor, cache: Cache) -> Tensor:
        """At the tokens' positions, or at their times, rows and columns (tokens, 3). Where there is
        a switch, as `rows_at` says; a cache that knows no prompts (training) has long sequences."""
        if self.most is not None:
            if cache.places is not None:
                return table.index_select(0, cache.places)
            return cache.rows(table.narrow(0, self.most, self.context))
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
