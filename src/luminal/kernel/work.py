"""How much a kernel does: operations and bytes at its usual sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ..graph.index import Index
from ..graph.space import USUAL
from .kernel import Apply, Buffer, Kernel, Value, walk


@dataclass(frozen=True)
class Work:
    """What one call of a kernel does."""

    flops: int
    bytes: int


def usual_sizes(kernel: Kernel, usual: int = USUAL) -> dict[str, int]:
    """Every run-time size at its hint, or at the usual one within its bounds."""
    return kernel.space().usual(usual)


def extents_at(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The extents of the axes for these sizes."""
    return {axis: _number(extent, sizes) for axis, extent in kernel.axes.items()}


def work(kernel: Kernel, sizes: Mapping[str, int] | None = None) -> Work:
    """Arithmetic operations, and bytes of all buffers once, as far as they can be reached; at the
    usual sizes if none are given."""
    sizes = usual_sizes(kernel) if sizes is None else sizes
    extents = extents_at(kernel, sizes)
    flops = sum(int(_operations(v) * _points(v, extents, sizes)) for v in kernel.values)
    moved = sum(
        min(prod(_number(n, sizes) for n in b.shape), _reached(kernel, b, extents)) * b.dtype.bytes
        for b in kernel.buffers
    )
    return Work(flops, moved)


def _reached(kernel: Kernel, buffer: Buffer, extents: Mapping[str, int]) -> int:
    """At most so many elements of a buffer are touched: a gather reads few rows of a table."""
    return sum(
        prod(extents[a] for a in value.points)
        for value in kernel.values
        if (value.store and value.store.buffer == buffer.name)
        or any(e.buffer == buffer.name for e in value.loads)
    )


def _points(value: Value, extents: Mapping[str, int], sizes: Mapping[str, int]) -> float:
    """Points of a value; those of a domain as they are in the middle of the other axes."""
    middle = {**sizes, **{axis: n // 2 for axis, n in extents.items()}}
    points = 1.0
    for axis in value.points:
        low, high = value.domain.get(axis, (None, None))
        first = 0 if low is None else int(low.evaluate(middle))
        end = extents[axis] if high is None else int(high.evaluate(middle))
        points *= max(0, min(end, extents[axis]) - max(0, first))
    return points


def _operations(value: Value) -> int:
    arithmetic = sum(isinstance(e, Apply) and e.op != "cast" for e in walk(value.body))
    return arithmetic + (1 if value.reduction else 0)


def _number(extent: Index, sizes: Mapping[str, int]) -> int:
    return max(0, int(extent.evaluate(sizes)))
