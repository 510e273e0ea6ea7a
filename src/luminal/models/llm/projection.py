"""Matrices as modules. Narrow weights are widened where they are multiplied, so that the compiler
reads the narrow bytes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ... import nn, ops
from ...graph import Graph, Tensor
from ...graph.index import Index
from .storage import FLOATS, FORMATS, Format, Storage, quantise4, quantise8


class Dense(nn.Module):
    """x @ weight^T + bias with a weight (out, in) of some float type; computed in f32.

    stack: () or (count,): so many such weights, (count, out, in), to take `rows` of only.
    """

    def __init__(
        self, graph: Graph, inside: int, out: int, bias: bool, kind: str,
        stack: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.weight = nn.init.filled(graph, (*stack, out, inside), 0, kind)
        self.bias = nn.init.filled(graph, (out,), 0) if bias else None
        self.more: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        return _with_more(self.more, x, ops.linear(x, self.weight.cast("f32"), self.bias))

    def whole(self) -> Tensor:
        """The weight, f32."""
        return self.weight.cast("f32")

    def rows(self, index: Tensor) -> Tensor:
        """Rows of the weight, or whole ones of a stack, f32."""
        return ops.embedding(index, self.weight).cast("f32")


class Blocks(nn.Module):
    """x @ weight^T + bias with a weight in blocks of small integers: see `storage`.

    quants: u8 (out, blocks, block), or (out, blocks, block / 2) with two in a byte; numbers: by
    name, (out, blocks) or (out, units). stack: as of `Dense`. Float weights are quantised when they
    are loaded (q8 and q4 only).
    """

    def __init__(
        self, graph: Graph, inside: int, out: int, bias: bool, format: Format,
        stack: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.format, blocks = format, inside // format.block
        stored = format.block * format.bits // 8
        self.quants = nn.init.filled(graph, (*stack, out, blocks, stored), 0, "u8")
        for name, (each, kind) in format.fields.items():
            setattr(self, name, nn.init.filled(graph, (*stack, out, inside // each), 0, kind))
        self.bias = nn.init.filled(graph, (out,), 0) if bias else None
        self.more: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        return _with_more(self.more, x, ops.linear(x, self.whole(), self.bias))

    def whole(self) -> Tensor:
        """The weight, f32."""
        return self._widened(self.quants, self._numbers()).flatten(-2, -1)

    def rows(self, index: Tensor) -> Tensor:
        """Rows of the weight, or whole ones of a stack, f32."""
        numbers = {name: ops.embedding(index, value) for name, value in self._numbers().items()}
        return self._widened(ops.embedding(index, self.quants), numbers).flatten(-2, -1)

    def _numbers(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.format.fields}

    def _widened(self, quants: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        """The weights of blocks, f32: (..., blocks, block)."""
        if self.format.bits == 4:  # (..., blocks, half, byte): the low halves come first
            shifts = quants.graph.iota((2, 1), Index.of("i0") * 4).cast("u8")
            quants = ((quants.unsqueeze(-2) >> shifts) & 15).flatten(-2, -1)
        wide = quants.cast("f32")
        if self.format.shift:
            wide = wide - float(self.format.shift)
        wide = wide * self._in_units(numbers, "scales").unsqueeze(-1)
        if self.format.minima:
            wide = wide - self._in_units(numbers, "minima").unsqueeze(-1)
        return wide

    def _in_units(self, numbers: dict[str, Tensor], name: str) -> Tensor:
        """Scales or minima, f32: (..., blocks)."""
        wide = numbers[name].cast("f32")
        if not self.format.unit:
            return wide
        units = numbers[f"{name}_units"].cast("f32").unsqueeze(-1)
        return (wide.unflatten(-1, (int(units.shape[-2]), -1)) * units).flatten(-2, -1)

    def adapt_state(self, state: dict[str, np.ndarray], prefix: str) -> None:
        """Quantise a float weight."""
        weight = state.pop(f"{prefix}weight", None)
        if weight is not None:
            quantise = quantise4 if self.format.bits == 4 else quantise8
            state[f"{prefix}quants"], state[f"{prefix}scales"] = quantise(weight)


def _with_more(more: nn.Module | None, x: Tensor, y: Tensor) -> Tensor:
    """What a matrix makes of x, and what adapters add (`beside`)."""
    return y if more is None else y + more(x)


Projection: TypeAlias = Dense | Blocks


def projection(
    graph: Graph, inside: int, out: int, bias: bool, storage: Storage, name: str,
    stack: tuple[int, ...] = (),
) -> Projection:  # fmt: skip
    """The matrix of that name in a part, stored as told; stack: several below each other."""
    kind = storage.below(name).kind(inside)
    if kind in FLOATS:
        return Dense(graph, inside, out, bias, kind, stack)
    return Blocks(graph, inside, out, bias, FORMATS[kind], stack)


def projections(storage: Storage) -> Callable[..., Projection]:
    """Makes the matrices of a part: (graph, inside, out, bias, name)."""

    def made(graph: Graph, inside: int, out: int, bias: bool, name: str) -> Projection:
        return projection(graph, inside, out, bias, storage, name)

    return made
