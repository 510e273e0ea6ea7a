"""Reading and writing at indices that are data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import boolean, i64
from ....graph.tensor import Tensor
from ....ops.bags import bags
from ....ops.base import (
    Value,
    extent,
    full_like,
    tensor_of,
)
from . import places
from .base import rule, same, source

if TYPE_CHECKING:
    from ..record import Recorder

Indices = Sequence[Tensor | None]

same("take.default", ops.take)
same("put.default", ops.put)
same("masked_scatter.default", ops.masked_scatter)
same("masked_fill.Scalar masked_fill.Tensor", ops.masked_fill)


@rule("embedding.default")
def embedding(
    weight: Tensor, index: Tensor, padding: int = -1, scaled: bool = False, sparse: bool = False
) -> Tensor:
    rows = places.read(weight, [index])
    return ops.embedding(index, weight) if rows is None else rows


@rule("embedding_renorm.default")
def embedding_renorm(weight: Tensor, index: Tensor, most: float, order: float) -> Tensor:
    """The rows that are asked for, scaled down to a norm of `most` where theirs is larger."""
    here = index.reshape(-1)
    nobody = full_like(weight.select(1, 0), False, boolean)
    asked = ops.scatter(nobody, 0, here, full_like(here, True, boolean)).unsqueeze(1)
    length = ops.norm(weight, order, 1, keepdim=True)
    factor = ops.div(most, ops.add(length, 1e-7))
    return ops.where(ops.logical_and(asked, ops.gt(length, most)), ops.mul(weight, factor), weight)


MEAN, MAXIMUM = 1, 2  # of bags, else their sum
MODES = ("sum", "mean", "max")


@source("_embedding_bag_forward_only.default", "_embedding_bag.default")
def embedding_bag(
    at: Recorder, weight: Tensor, index: Tensor, offsets: Tensor, scaled: bool = False,
    mode: int = 0, sparse: bool = False, factors: Tensor | None = None, last_offset: bool = False,
    padding: int = -1,
) -> Any:  # fmt: skip
    """(the sum, mean or maximum of each bag, the bag of each index, how many count in each bag,
    where the maxima come from). Indices equal to `padding` do not count."""
    starts = offsets.narrow(0, 0, extent(offsets, 0) - 1) if last_offset else offsets
    ignored = padding if padding >= 0 else None
    result, bag, number = bags(index, weight, starts, MODES[mode], factors, ignored)
    if mode == MAXIMUM:
        return result, bag, number, None
    kept_too = [_as_kept(at, place, part) for place, part in enumerate((bag, number, number), 1)]
    return result, *kept_too


def _as_kept(at: Recorder, place: int, part: Tensor) -> Tensor:
    """What ATen keeps for the gradient of sums and means, of which it often keeps nothing."""
    size = at.node.meta["val"][place].shape[0] if at.node is not None else None
    return part.narrow(0, 0, 0) if isinstance(size, int) and size == 0 else part


STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@rule("segment_reduce.default")
def segment_reduce(
    x: Tensor, reduce: str, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean, product or extreme of each segment along an axis, which ends where the running
    sum of the lengths, or the next offset, says; what lies beyond the last does not count."""
    if lengths is None:
        assert offsets is not None and indices is None
        ends = offsets.narrow(axis, 1, extent(offsets, axis) - 1)
        lengths = ops.sub(ends, offsets.narrow(axis, 0, extent(ends, axis)))
    else:
        ends = ops.cumsum(lengths, axis)
    segments = extent(ends, axis)
    here = ops.base.positions(x, axis)
    for d in range(axis + 1, x.ndim):
        ends, lengths = ends.unsqueeze(d), lengths.unsqueeze(d)
    sizes = [segments if d == axis else size for d, size in enumerate(x.shape)]
    passed = ops.ge(here.unsqueeze(axis), ends.unsqueeze(axis + 1))
    segment = ops.sum(passed.cast(i64), axis)
    start = tensor_of(x.graph, STARTS[reduce] if initial is None else initial, x.dtype)
    blank = start.expand([segments + 1 if d == axis else size for d, size in enumerate(x.shape)])
    mode = {"mean": "sum", "max": "amax", "min": "amin"}.get(reduce, reduce)
    total = ops.scatter_reduce(blank, axis, segment, x, mode).narrow(axis, 0, segments)
    if reduce != "mean":
        return total
    number = lengths.expand(sizes)
    empty = tensor_of(x.graph, math.nan if initial is None else initial, x.dtype)
    share = ops.div(total, ops.clamp(number, 1).cast(x.dtype))
    return ops.where(ops.eq(number, 0), empty, share)


@rule("index_select.default")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    rows = index.reshape(-1)
    if not x.ndim:
        return ops.index_select(x.reshape(1), 0, rows).reshape(())
    view = places.read(x, [*[None] * (dim % x.ndim), rows])
    return ops.index_select(x, dim, rows) if view is None else view


@rule("nonzero_static.default")
def nonzero_static(x: Tensor, size: int, fill_value: int = -1) -> Tensor:
    return ops.nonzero_static(x, size=size, fill_value=fill_value)


@rule("gather.default")
def gather(x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    if 0 in index.shape:
        return (
            full_like(x, 0).reshape(-1)[:0].reshape(index.shape)
            if 0 in x.shape
            else (tensor_of(x.graph, 0, x.dtype).expand(index.shape))
        )
    if not x.ndim or not index.ndim:
        return ops.gather(x.reshape(-1), 0, index.reshape(-1)).reshape(index.shape)
    return ops.gather(x, dim, index)


@rule("index.Tensor", "_unsafe_index.Tensor")
def index_of(x: Tensor, indices: Indices) -> Tensor:
    view = places.read(x, indices)
    return ops.index(x, _key(x, indices)) if view is None else view


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
    """At the true places of a mask over the first dimensions: the k-th takes the k-th row of the
    values, or all take the same."""
    if indices[0] is not mask or any(index is not None for index in indices[1:]):
        raise Unsupported("a bool mask among other indices")
    rest = x.ndim - mask.ndim
    wide = mask.reshape((*mask.shape, *(1,) * rest)).expand(x.shape)
    if values.ndim > rest and values.shape[0] != 1:
        rank = ops.sub(ops.cumsum(mask.reshape(-1).cast(i64), 0), 1)
        rows = ops.index_select(values, 0, ops.clamp(rank, 0))
        values = rows.reshape((*mask.shape, *rows.shape[1:]))
    elif values.ndim > rest:
        values = values.squeeze(0)
    written = values.cast(x.dtype).expand(x.shape)
    return ops.where(wide, ops.add(x, written) if accumulate else written, x)


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
    return ops.index_reduce(x, dim, index, source, reduce, include_self=include_self)


@rule("bucketize.Tensor", "bucketize.Scalar")
def bucketize(x: Value, boundaries: Tensor, out_int32: bool = False, right: bool = False) -> Tensor:
    return ops.bucketize(x, boundaries, out_int32=out_int32, right=right)


same("searchsorted.Tensor searchsorted.Scalar", ops.searchsorted)
