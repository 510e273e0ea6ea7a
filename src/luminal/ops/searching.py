"""Where values stand among sorted ones, and how often each occurs."""

from __future__ import annotations

from ..graph.dtype import i32, i64
from ..graph.tensor import Tensor
from .base import Value, extent, full_like, graph_of, literal, result_type, tensor_of
from .clamping import clamp
from .elementwise import add, div, floor_divide, minimum, mul, sub
from .indexing import gather, scatter_add
from .logic import eq, ge, gt, le, logical_and, logical_not, where
from .reduction import amax, amin, reduce


def searchsorted(
    sorted_sequence: Tensor, values: Value, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """How many elements of a sorted vector (or of rows of them) stand before each value: of equal
    ones none, or all with right=True or side="right". NaN stands after all numbers.

    sorted_sequence: (n,) or (..., n); values: any shape, or (..., m). The result has the shape of
    the values, in i64 (i32 with out_int32). sorter: (..., n), the order that sorts the sequence.

    >>> y = ops.searchsorted(cx.constant([1.0, 3.0, 5.0]), cx.constant([0.0, 4.0])).output()
    >>> cx.compile()()
    array([0, 2])
    """
    rows = sorted_sequence
    if sorter is not None:
        rows = gather(rows, -1, sorter)
    kind = result_type(rows, values)
    probes, wanted = rows.cast(kind), tensor_of(graph_of(rows), values, kind)
    search = _bisect if extent(rows, rows.ndim - 1).is_constant else _count_before
    return search(probes, wanted, right or side == "right").cast(i32 if out_int32 else i64)


def _bisect(rows: Tensor, values: Tensor, right: bool) -> Tensor:
    """PyTorch's binary search, step by step: also for rows out of order the result is its own."""
    shape, size = values.shape, int(extent(rows, rows.ndim - 1))
    if rows.ndim == 1:
        values = values.flatten()
    elif not values.ndim:
        values = values.reshape((1,) * rows.ndim)
    after = gt if right else ge
    low, high = full_like(values, 0, i64), full_like(values, size, i64)
    for _ in range(size.bit_length()):
        middle = floor_divide(add(low, high), 2)
        above = after(gather(rows, -1, clamp(middle, 0, size - 1)), values)
        still = logical_not(ge(low, high))
        low = where(logical_and(still, logical_not(above)), add(middle, 1), low)
        high = where(logical_and(still, above), middle, high)
    return low.reshape(shape)


def _count_before(rows: Tensor, values: Tensor, right: bool) -> Tensor:
    """The same for rows in order, of a length that is known only at run time."""
    rows = rows if rows.ndim == 1 else rows.unsqueeze(-2)
    after = gt if right else ge
    return reduce("sum", logical_not(after(rows, values.unsqueeze(-1))).cast(i64), -1)


def bucketize(
    values: Value, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Which interval between the sorted boundaries (n,) each value falls into.

    >>> ops.bucketize(cx.constant([0.5, 1.0, 9.0]), cx.constant([1.0, 2.0])).numpy()
    array([0, 0, 2])
    """
    return searchsorted(boundaries, values, out_int32=out_int32, right=right)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0 .. minlength - 1 occurs in a vector, or the sum of their weights; the
    static size must be said.

    >>> ops.bincount(cx.constant([0, 2, 2]), minlength=4).numpy()
    array([1, 0, 2, 0])
    """
    counted = full_like(x, 1, i64) if weights is None else weights
    start = literal(x.graph, 0, counted.dtype).expand((minlength,))
    return start._scatter(x.cast(i64), counted, 0, "sum")


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of equal bins between min and max (of the data, if equal), in
    the dtype of x. (bins,)

    >>> ops.histc(cx.constant([0.1, 0.2, 0.9]), 2, 0, 1).numpy()
    array([2., 1.], dtype=float32)
    """
    flat = x.flatten()
    first, last = (literal(x.graph, end, x.dtype) for end in (min, max))
    if min == max:
        first, last = amin(flat), amax(flat)
        same = eq(first, last)
        first, last = where(same, sub(first, 1), first), where(same, add(last, 1), last)
    place = div(mul(sub(flat, first), bins), sub(last, first))
    inside = logical_and(ge(flat, first), le(flat, last))
    at = minimum(where(inside, place, 0).cast(i64), bins - 1)
    empty = literal(x.graph, 0, i64).expand((bins,))
    return scatter_add(empty, 0, at, inside.cast(i64)).cast(x.dtype)
