"""What an optimizer remembers, in 8 bits: blocks of 256 numbers with one scale each (blocks as in
arXiv 2110.02861). A number is scale * sign(c) * (|c| / 127)^4: fourth powers reach over the eight
decades that squares of gradients take; the numbers are up to 3% apart.

A running mean moves by less than that in a step, so the rounding is up or down with the chance that
keeps the mean: a hash of place and step decides, and a resumed training repeats it. What something
is divided by is not rounded to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import ops
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.tensor import Tensor

BLOCK, MOST, LEAST = 256, 127.0, 4096  # of a block; of a code; numbers that are worth it
KNUTH, WEYL, BITS = 2654435761, 40503, 16  # a multiplicative hash: The Art of Programming, 6.4


@dataclass(frozen=True)
class Narrow:
    """codes: i8 (blocks, 256). scales: f32 (blocks, 1), the largest size of a block."""

    codes: Tensor
    scales: Tensor

    @staticmethod
    def suits(shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape is kept so: whole blocks, and enough of them."""
        return math.prod(shape) >= LEAST and math.prod(shape) % BLOCK == 0

    def read(self, shape: tuple[int, ...]) -> Tensor:
        """f32 of that shape."""
        part = self.codes.cast("f32") * (1.0 / MOST)
        square = part * part
        return (square * square * ops.sign(part) * self.scales).reshape(*shape)

    def written(self, x: Tensor, step: Tensor, divides: bool = False) -> Narrow:
        """The codes of x at the step of this number (i64). divides: only what is 0 becomes 0."""
        rows = x.reshape(-1, BLOCK)
        size = ops.abs(rows)
        largest = ops.amax(size, -1, keepdim=True)
        share = size / ops.where(largest > 0.0, largest, 1.0)
        whole = ops.sqrt(ops.sqrt(share)) * MOST
        low = ops.floor(whole)
        below, above = (ops.pow(code / MOST, 4.0) for code in (low, low + 1.0))
        chance = (share - below) / (above - below)
        code = ops.where(_drawn(x.graph, rows, step) < chance, low + 1.0, low)
        code = ops.maximum(code, 1.0) if divides else code
        return Narrow((ops.minimum(code, MOST) * ops.sign(rows)).cast("i8"), largest)


def _drawn(graph: Graph, like: Tensor, step: Tensor) -> Tensor:
    """Even in 0 .. 1, another one at each place and step."""
    place = graph.iota(like.node.shape, Index.of("i0") * BLOCK + Index.of("i1"))
    mixed = (place + step * WEYL) * KNUTH
    return ((mixed >> BITS) & ((1 << BITS) - 1)).cast("f32") * (1.0 / (1 << BITS))
