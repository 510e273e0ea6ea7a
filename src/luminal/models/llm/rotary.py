"""Rotary positions in a graph."""

from __future__ import annotations

from ... import ops
from ...graph import Graph, Tensor
from .cache import Cache
from .config import DecoderConfig
from .rope import tables


class Rotary:
    """Tables of one kind of rotary positions, shared by all layers that use it."""

    def __init__(self, graph: Graph, config: DecoderConfig, kind: str, context: int) -> None:
        self.interleaved = config.ropes[kind].interleaved
        cos, sin = tables(config.ropes[kind], config, context)
        self.cos, self.sin = graph.constant(cos), graph.constant(sin)

    def turn(self, x: Tensor, cache: Cache) -> Tensor:
        """x (heads, tokens, head_dim); those features beyond the turning ones stay. Of interleaved
        pairs the first ones come first then, in queries and keys alike: no product changes."""
        half = int(self.cos.shape[1])
        cos, sin = cache.rows(self.cos), cache.rows(self.sin)
        if self.interleaved:
            first, second = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
        else:
            first, second = x.narrow(-1, 0, half), x.narrow(-1, half, half)
        parts = [first * cos - second * sin, second * cos + first * sin]
        if x.shape[-1] != 2 * half:
            parts.append(x[..., 2 * half :])
        return ops.cat(parts, -1)
