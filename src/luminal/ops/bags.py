"""Rows of a table, as they are or added up in bags."""

from __future__ import annotations

from ..errors import InputError, ShapeError
from ..graph.dtype import f32, i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import composite, count, extent, full_like, literal, positions, size_value
from .clamping import clamp
from .elementwise import add, div, mul, sub
from .indexing import as_i64, scatter_add, scatter_reduce, selected
from .logic import eq, ge, ne, where
from .reduction import reduce


def embedding(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of weight (rows, ...) at indices of any shape. That of padding_idx has no gradient.

    >>> table = cx.constant([[0.0, 0.5], [1.0, 1.5]])
    >>> ops.embedding(cx.constant([1, 0, 1]), table).numpy()
    array([[1. , 1.5],
           [0. , 0.5],
           [1. , 1.5]], dtype=float32)
    """
    flat = as_i64(index).flatten()
    if padding_idx is None:
        rows = selected(weight, 0, flat)
    else:
        rows = _padded_embedding(weight, flat, padding_idx)
    return rows.reshape((*index.shape, *weight.shape[1:]))


@composite
def _padded_embedding(weight: Tensor, index: Tensor, padding: int) -> Tensor:
    return selected(weight, 0, index)


def spared_embedding(weight: Tensor, index: Tensor, padding: int) -> Tensor:
    """The rows, of which that of padding passes no derivative."""
    rows = selected(weight, 0, index)
    held = rows.graph.apply("cast", [rows], rows.dtype)
    row = add(size_value(weight.graph, extent(weight, 0), i64), padding) if padding < 0 else padding
    return where(eq(index, row).reshape((-1, *(1,) * (rows.ndim - 1))), held, rows)


def embedding_bag(
    index: Tensor, weight: Tensor, offsets: Tensor | None = None, *, mode: str = "mean",
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean or maximum of the rows of each bag: (bags, width), 0 for an empty one.

    index: (bags, each), or a vector whose bags start at offsets (bags,), with include_last_offset
    (bags + 1,). per_sample_weights: like index, for sums. padding_idx does not count.

    >>> ops.embedding_bag(cx.constant([[0, 1], [1, 1]]), cx.constant([[1.0], [3.0]])).numpy()
    array([[2.],
           [3.]], dtype=float32)
    """
    if per_sample_weights is not None and mode != "sum":
        raise InputError(f'embedding_bag: per_sample_weights go with mode "sum", not {mode!r}')
    if index.ndim == 2 and offsets is not None:
        raise ShapeError("embedding_bag: offsets go with a vector of indices, not with a matrix")
    if index.ndim == 2:
        each = extent(index, 1)
        offsets = index.graph.iota((index.shape[0],), Index.of("i0") * each, i64)
        factors = None if per_sample_weights is None else per_sample_weights.flatten()
        rest = {"mode": mode, "per_sample_weights": factors, "padding_idx": padding_idx}
        return embedding_bag(index.flatten(), weight, offsets, **rest)  # type: ignore[arg-type]
    if offsets is None:
        raise ShapeError("embedding_bag: a vector of indices needs offsets")
    if include_last_offset:
        offsets = offsets.narrow(0, 0, extent(offsets, 0) - 1)
    return bags(index, weight, offsets, mode, per_sample_weights, padding_idx)[0]


def bags(
    index: Tensor, weight: Tensor, starts: Tensor, mode: str, factors: Tensor | None = None,
    padding: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(the result, the bag of each index, how many indices count in each bag). Narrow floats are
    multiplied and added up in f32, rounded once."""
    bag = bag_of(index, starts)
    counts = ne(index, -1 if padding is None else padding % int(extent(weight, 0)))
    rows, total = embedding(index, weight), extent(starts, 0)
    number = scatter_add(full_like(starts, 0, i64), 0, bag, counts.cast(i64))
    along = bag.unsqueeze(1).expand(rows.shape)
    width = count(weight, [1])
    if mode == "max":
        empty = literal(weight.graph, 0, weight.dtype).expand((total, width))
        real = where(counts.unsqueeze(1), rows, full_like(rows, weight.dtype.lowest))
        most = scatter_reduce(empty, 0, along, real, "amax", include_self=False)
        return where(eq(number, 0).unsqueeze(1), full_like(most, 0), most), bag, number
    wide = rows.cast(f32) if rows.dtype.bytes < 4 else rows
    if factors is not None:
        wide = mul(wide, factors.cast(wide.dtype).unsqueeze(1))
    kept = where(counts.unsqueeze(1), wide, full_like(wide, 0))
    empty = literal(weight.graph, 0, wide.dtype).expand((total, width))
    result = scatter_add(empty, 0, along, kept)
    if mode == "mean":
        result = div(result, clamp(number, 1).cast(wide.dtype).unsqueeze(1))
    return result.cast(weight.dtype), bag, number


def bag_of(index: Tensor, starts: Tensor) -> Tensor:
    """The bag of each index: how many bags have started, less one."""
    started = ge(positions(index, 0).unsqueeze(1), starts.unsqueeze(0))
    return sub(reduce("sum", started.cast(i64), 1), 1)
