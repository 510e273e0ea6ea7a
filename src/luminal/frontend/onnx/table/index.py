"""Reading and writing at places that are data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import ops
from ....graph.dtype import i64
from ....graph.tensor import Tensor
from ....ops.base import count, dim_of, extent, size_value
from ....ops.indexing import wrap
from ..known import Unknown
from .base import op

if TYPE_CHECKING:
    from ..record import Recorder

REDUCTIONS = {"none": None, "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("Gather", moves=True)
def gather(at: Recorder, x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    dim = dim_of(x, axis)
    if not index.ndim:
        place = _known(at, index)
        if place is not None:
            return x.select(dim, place)
    rows = ops.index_select(x, dim, index.reshape(-1))
    return rows.reshape((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]))


def _known(at: Recorder, index: Tensor) -> Any:
    """A place that is known now: a view reads it."""
    try:
        return at.size(index)
    except Unknown:
        return None


@op("GatherElements", moves=True)
def gather_elements(at: Recorder, x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    return ops.gather(x, dim_of(x, axis), index)


@op("GatherND", moves=True)
def gather_nd(at: Recorder, x: Tensor, index: Tensor, batch_dims: int = 0) -> Tensor:
    """index: (batch.., places.., k): the slices of x at k coordinates after the batch."""
    depth = ops.base.static(extent(index, index.ndim - 1), "the last size of indices")
    flat = _flat_places(x, index, batch_dims, depth)  # (batch.., places..)
    batch, rest = x.shape[:batch_dims], x.shape[batch_dims + depth :]
    rows = count(x, range(batch_dims))
    inner = count(x, range(batch_dims, batch_dims + depth))
    table = x.reshape((rows, inner, count(x, range(batch_dims + depth, x.ndim))))
    places = flat.reshape((rows, -1, 1)).expand((rows, count(flat, range(batch_dims, flat.ndim)),
                                                 extent(table, 2)))  # fmt: skip
    found = ops.gather(table, 1, places)
    return found.reshape((*batch, *flat.shape[batch_dims:], *rest))


def _flat_places(x: Tensor, index: Tensor, first: int, depth: int) -> Tensor:
    """Coordinates as places in the flattened dimensions first .. first + depth - 1."""
    total = None
    for k in range(depth):
        size = extent(x, first + k)
        here = wrap(index.select(-1, k), size)
        total = (
            here if total is None else ops.add(ops.mul(total, size_value(x.graph, size, i64)), here)
        )
    assert total is not None
    return total


@op("Scatter", "ScatterElements", moves=True)
def scatter_elements(
    at: Recorder, x: Tensor, index: Tensor, updates: Tensor, axis: int = 0,
    reduction: str = "none",
) -> Tensor:  # fmt: skip
    mode = REDUCTIONS[reduction]
    return ops.scatter(x, dim_of(x, axis), index, updates, mode)


@op("ScatterND", moves=True)
def scatter_nd(
    at: Recorder, x: Tensor, index: Tensor, updates: Tensor, reduction: str = "none"
) -> Tensor:
    depth = ops.base.static(extent(index, index.ndim - 1), "the last size of indices")
    flat = _flat_places(x, index, 0, depth).reshape(-1)
    rows, width = count(x, range(depth)), count(x, range(depth, x.ndim))
    places = flat.unsqueeze(1).expand((extent(flat, 0), width))
    mode = REDUCTIONS[reduction]
    table = x.reshape((rows, width))
    written = updates.reshape((extent(flat, 0), width))
    return ops.scatter(table, 0, places, written, mode).reshape(x.shape)


@op("TensorScatter", moves=True)
def tensor_scatter(
    at: Recorder, past: Tensor, update: Tensor, start: Tensor | None = None, *, axis: int = -2,
    mode: str = "linear",
) -> Tensor:  # fmt: skip
    """A cache with the update written from `start` on, for each of the batch."""
    dim = dim_of(past, axis)
    here = ops.base.positions(update, dim)
    if start is not None:
        here = ops.add(here, start.cast(i64).reshape((-1, *(1,) * (past.ndim - 1))))
    if mode == "circular":
        here = ops.remainder(here, size_value(past.graph, extent(past, dim), i64))
    return ops.scatter(past, dim, here, update)


@op("OneHotEncoder", domain="ai.onnx.ml")
def one_hot_encoder(
    at: Recorder, x: Tensor, cats_int64s: Any = None, cats_strings: Any = None, zeros: int = 1
) -> Tensor:
    import numpy as np

    wanted = at.graph.constant(np.array(cats_int64s, np.int64))
    return ops.eq(x.cast(i64).unsqueeze(-1), wanted).cast("f32")


@op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(at: Recorder, x: Tensor, index: Tensor) -> Tensor:
    return ops.index_select(x, x.ndim - 1, index.reshape(-1))
