"""Reading and writing at indices that are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import boolean, i64
from ....graph.tensor import Tensor
from ....ops.base import Value, dim_of, extent, full_like, result_type, static, tensor_of
from .base import rule, same

Indices = Sequence[Tensor | None]

same("index_select.default", ops.index_select)
same("take.default", ops.take)
same("masked_fill.Scalar masked_fill.Tensor", ops.masked_fill)


@rule("embedding.default")
def embedding(
    weight: Tensor, index: Tensor, padding: int = -1, scaled: bool = False, sparse: bool = False
) -> Tensor:
    return ops.embedding(index, weight)


@rule("gather.default")
def gather(x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    if 0 in index.shape:
        return full_like(x, 0).reshape(-1)[:0].reshape(index.shape) if 0 in x.shape else (
            tensor_of(x.graph, 0, x.dtype).expand(index.shape)
        )
    if not x.ndim or not index.ndim:
        return ops.gather(x.reshape(-1), 0, index.reshape(-1)).reshape(index.shape)
    return ops.gather(x, dim, index)


@rule("index.Tensor", "_unsafe_index.Tensor")
def index_of(x: Tensor, indices: Indices) -> Tensor:
    return ops.index(x, _key(x, indices))


def _key(x: Tensor, indices: Indices) -> tuple[Any, ...]:
    """None stands for a whole dimension. How many a mask selects is data."""
    if any(index is not None and index.dtype is boolean for index in indices):
        raise Unsupported("how many elements a bool mask selects is data")
    return tuple(slice(None) if index is None else index for index in indices)


@rule("index_put.default", "_unsafe_index_put.default")
def index_put(
    x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    masks = [index for index in indices if index is not None and index.dtype is boolean]
    if masks:
        return _masked_put(x, indices, masks[0], values, accumulate)
    return ops.index_put(x, list(_key(x, indices)), values, accumulate)


def _masked_put(
    x: Tensor, indices: Indices, mask: Tensor, values: Tensor, accumulate: bool
) -> Tensor:
    """One value at all places of a mask."""
    values = values.reshape(()) if all(size == 1 for size in values.shape) else values
    if values.ndim or indices[0] is not mask or len(indices) > 1:
        raise Unsupported("how many elements a bool mask selects is data")
    return ops.index_put(x, mask, values, accumulate)


@rule("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def scatter(x: Tensor, dim: int, index: Tensor, source: Value, reduce: str | None = None) -> Tensor:
    if 0 in index.shape:
        return x
    return _scalar_safe(ops.scatter, x, dim, index, source, reduce)


@rule("scatter_add.default")
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    if 0 in index.shape:
        return x
    return _scalar_safe(ops.scatter_add, x, dim, index, source)


@rule("scatter_reduce.two")
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    if 0 in index.shape:
        return x
    return _scalar_safe(ops.scatter_reduce, x, dim, index, source, reduce, include_self)


def _scalar_safe(
    function: Any, x: Tensor, dim: int, index: Tensor, source: Value, *rest: Any
) -> Tensor:
    """A scalar counts as a vector of one element, whichever operand it is."""
    if x.ndim and index.ndim:
        return function(x, dim, index, source, *rest)
    if isinstance(source, Tensor):
        source = source.reshape(-1)
    return function(x.reshape(-1), 0, index.reshape(-1), source, *rest).reshape(x.shape)


@rule("index_add.default")
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    if not x.ndim or index.ndim != 1:
        flat = index.reshape(-1)
        if x.ndim:
            return ops.index_add(x, dim, flat, source.reshape(_slices(x, dim, flat)), alpha)
        return ops.index_add(x.reshape(1), 0, flat, source.reshape(-1), alpha).reshape(())
    return ops.index_add(x, dim, index, source, alpha)


def _slices(x: Tensor, dim: int, index: Tensor) -> list[Any]:
    return [index.shape[0] if d == dim % x.ndim else size for d, size in enumerate(x.shape)]


@rule("index_reduce.default")
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    if not x.ndim:
        x, source = x.reshape(1), source.reshape(-1)
        return index_reduce(x, 0, index.reshape(-1), source, reduce, include_self).reshape(())
    if 0 in index.shape:
        return x
    dim = dim_of(x, dim)
    along = index.reshape((-1, *(1,) * (x.ndim - dim - 1)))
    mode = "mean" if reduce == "mean" else reduce
    return ops.scatter_reduce(x, dim, along.expand(source.shape), source, mode, include_self)


@rule("put.default")
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Into the flattened x."""
    flat, places = x.reshape(-1), index.reshape(-1)
    write = ops.scatter_add if accumulate else ops.scatter
    return write(flat, 0, places, source.reshape(-1)).reshape(x.shape)


@rule("masked_scatter.default")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The k-th true place takes the k-th element of the source."""
    wide = mask.expand(x.shape)
    order = ops.sub(ops.cumsum(wide.reshape(-1).cast(i64), 0), 1)
    picked = ops.gather(source.reshape(-1), 0, ops.clamp(order, 0)).reshape(x.shape)
    return ops.where(wide, picked, x)


@rule("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    x: Value, boundaries: Tensor, out_int32: bool = False, right: bool = False
) -> Tensor:
    values = x if isinstance(x, Tensor) else tensor_of(boundaries.graph, x, boundaries.dtype)
    return _search(boundaries, values, right)


@rule("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    rows: Tensor, values: Value, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    if sorter is not None:
        rows = ops.gather(rows, -1, sorter)
    if not isinstance(values, Tensor):
        values = tensor_of(rows.graph, values, rows.dtype)
    return _search(rows, values, right or side == "right")


def _search(rows: Tensor, values: Tensor, right: bool) -> Tensor:
    """ATen's binary search, step by step: the result is its own for rows out of order, too."""
    kind = result_type(rows, values)
    shape, size = values.shape, static(extent(rows, rows.ndim - 1), "the boundaries")
    if rows.ndim == 1:
        values = values.reshape(-1)
    elif not values.ndim:
        values = values.reshape((1,) * rows.ndim)
    probes, wanted = rows.cast(kind), values.cast(kind)
    before = ops.gt if right else ops.ge
    low, high = full_like(values, 0, i64), full_like(values, size, i64)
    for _ in range(size.bit_length()):
        middle = ops.floor_divide(ops.add(low, high), 2)
        probe = ops.gather(probes, -1, ops.clamp(middle, 0, size - 1))
        open_ = ops.lt(low, high)
        above = ops.logical_and(open_, before(probe, wanted))
        below = ops.logical_and(open_, ops.logical_not(before(probe, wanted)))
        low, high = ops.where(below, ops.add(middle, 1), low), ops.where(above, middle, high)
    return low.reshape(shape)
