"""Matrices as modules. Narrow weights are widened where they are multiplied, so that the compiler
reads the narrow bytes only."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ... import nn, ops
from ...graph import Graph, Tensor
from ...graph.index import Index
from .storage import FLOATS, FORMATS, Format, Storage, quantise4, quantise8


class Dense(nn.Module):
    """x @ weight^T + bias with a weight (out, in) of some float type; computed in f32."""

    def __init__(self, graph: Graph, inside: int, out: int, bias: bool, kind: str) -> None:
        super().__init__()
        self.weight = nn.init.filled(graph, (out, inside), 0, kind)
        self.bias = nn.init.filled(graph, (out,), 0) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight.cast("f32"), self.bias)

    def rows(self, index: Tensor) -> Tensor:
        """Rows of the weight, f32."""
        return ops.embedding(index, self.weight).cast("f32")


class Blocks(nn.Module):
    """x @ weight^T + bias with a weight in blocks of small integers: see `storage`.

    quants: u8 (out, blocks, block), or (out, blocks, block / 2) with two in a byte; scales and
    minima: (out, blocks). Float weights are quantised when they are loaded (q8 and q4 only).
    """

    def __init__(self, graph: Graph, inside: int, out: int, bias: bool, format: Format) -> None:
        super().__init__()
        self.format, blocks = format, inside // format.block
        stored = format.block * format.bits // 8
        self.quants = nn.init.filled(graph, (out, blocks, stored), 0, "u8")
        self.scales = nn.init.filled(graph, (out, blocks), 0, format.scale)
        filled = nn.init.filled(graph, (out, blocks), 0, format.scale)
        self.minima = filled if format.minima else None
        self.bias = nn.init.filled(graph, (out,), 0) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        weight = self._widened(self.quants, self.scales, self.minima)  # (out, blocks, block)
        return ops.linear(x, weight.flatten(1, 2), self.bias)

    def rows(self, index: Tensor) -> Tensor:
        """Rows of the weight, f32."""
        stored = int(self.quants.shape[2])
        quants = ops.embedding(index, self.quants.flatten(1, 2)).unflatten(-1, (-1, stored))
        scales = ops.embedding(index, self.scales)
        minima = None if self.minima is None else ops.embedding(index, self.minima)
        return self._widened(quants, scales, minima).flatten(-2, -1)

    def _widened(self, quants: Tensor, scales: Tensor, minima: Tensor | None) -> Tensor:
        """The weights of blocks, f32: (rows, blocks, block)."""
        if self.format.bits == 4:  # (rows, blocks, half, byte): the low halves come first
            shifts = quants.graph.iota((2, 1), Index.of("i0") * 4).cast("u8")
            quants = ((quants.unsqueeze(-2) >> shifts) & 15).flatten(-2, -1)
        wide = quants.cast("f32")
        if self.format.shift:
            wide = wide - float(self.format.shift)
        wide = wide * scales.cast("f32").unsqueeze(-1)
        return wide if minima is None else wide - minima.cast("f32").unsqueeze(-1)

    def adapt_state(self, state: dict[str, np.ndarray], prefix: str) -> None:
        """Quantise a float weight."""
        weight = state.pop(f"{prefix}weight", None)
        if weight is not None:
            quantise = quantise4 if self.format.bits == 4 else quantise8
            state[f"{prefix}quants"], state[f"{prefix}scales"] = quantise(weight)


Projection: TypeAlias = Dense | Blocks


def projection(
    graph: Graph, inside: int, out: int, bias: bool, storage: Storage, name: str
) -> Projection:
    """The matrix of that name in a part, stored as told."""
    kind = storage.below(name).kind(inside)
    if kind in FLOATS:
        return Dense(graph, inside, out, bias, kind)
    return Blocks(graph, inside, out, bias, FORMATS[kind])
