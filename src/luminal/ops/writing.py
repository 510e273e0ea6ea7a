"""Tensors with some elements replaced: at a mask, at flat places, along diagonals and slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import Unsupported
from ..graph.dtype import boolean, i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import broadcast_shapes, dim_of, extent, positions, static, tensor_of
from .clamping import clamp
from .elementwise import floor_divide, minimum, sub
from .indexing import gather, index_copy, scatter, scatter_add, scatter_reduce
from .logic import truth, where
from .remainders import remainder
from .shape import stack


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x, whose k-th true place takes the k-th element of the source.

    >>> a, b, c = cx.constant([1, 2, 3]), cx.constant([True, False, True]), cx.constant([7, 9])
    >>> ops.masked_scatter(a, b, c).numpy()
    array([7, 2, 9])
    """
    shape = broadcast_shapes(x.node.shape, mask.node.shape)
    x, wide = x.expand(shape), mask.expand(shape)
    order = sub(wide.flatten().cast(i64).scan("sum", 0), 1)
    picked = gather(source.flatten(), 0, clamp(order, 0)).reshape(x.shape)
    return where(wide, picked, x)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """x with the source written (or added) at places in its flattened form.

    >>> a, b, c = cx.constant([[1, 2], [3, 4]]), cx.constant([0, -1]), cx.constant([10, 40])
    >>> ops.put(a, b, c).numpy()
    array([[10,  2],
           [ 3, 40]])
    """
    write: Callable[..., Tensor] = scatter_add if accumulate else scatter
    return write(x.flatten(), 0, index.flatten(), source.flatten()).reshape(x.shape)


def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """x with slices of source combined in at a vector of indices: prod, mean, amax or amin.

    >>> a, b, c = cx.constant([1.0, 2.0]), cx.constant([0, 0]), cx.constant([5.0, 3.0])
    >>> ops.index_reduce(a, 0, b, c, "amax").numpy()
    array([5., 2.], dtype=float32)
    """
    dim = dim_of(x, dim)
    along = index.reshape((-1, *(1,) * (x.ndim - dim - 1))).expand(source.shape)
    return scatter_reduce(x, dim, along, source, reduce, include_self)


def diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """x with a diagonal replaced.

    >>> ops.diagonal_scatter(cx.constant([[1, 2], [3, 4]]), cx.constant([0, 9])).numpy()
    array([[0, 2],
           [3, 9]])
    """
    number = _flat_positions(x).diagonal(offset, dim1, dim2)
    return put(x, number, src.expand(number.shape))


def slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """x with x[start:end:step] along a dimension replaced.

    >>> a, b = cx.constant([1, 2, 3, 4]), cx.constant([9, 9])
    >>> ops.slice_scatter(a, b, start=1, end=3).numpy()
    array([1, 9, 9, 4])
    """
    dim = dim_of(x, dim)
    rows = np.arange(static(extent(x, dim), "a dimension that is written"))[start:end:step]
    return index_copy(x, dim, x.graph.constant(rows.astype(np.int64)), src)


def _flat_positions(x: Tensor) -> Tensor:
    flat = Index.of(0)
    for d in range(x.ndim):
        flat = flat * extent(x, d) + Index.of(f"i{d}")
    return x.graph.iota(x.shape, flat, i64)


# ---- where a condition holds: how often is data, so the caller says at most how often


def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The places of the first `size` elements that are not 0, row by row: (size, ndim).

    >>> ops.nonzero_static(cx.constant([0, 3, 0, 5]), size=3).numpy()
    array([[ 1],
           [ 3],
           [-1]])
    """
    if not x.ndim:
        return tensor_of(x.graph, fill_value, i64).expand((size, 0))
    flags = truth(x).flatten()
    out = tensor_of(x.graph, fill_value, i64).expand((size + 1,))
    rank = sub(flags.cast(i64).scan("sum", 0), 1)
    at = where(flags, minimum(rank, size), size)
    here, block, columns = positions(flags, 0), 1, list[Tensor]()
    for d in reversed(range(x.ndim)):
        length = static(extent(x, d), "a dimension")
        place = remainder(floor_divide(here, block), length)
        columns.append(scatter(out, 0, at, place).narrow(0, 0, size))
        block *= length
    return stack(columns[::-1], 1)


def nonzero(x: Tensor, *, size: int | None = None, fill: int = -1) -> Tensor:
    """As nonzero_static. Raises Unsupported without `size`: a graph has no shape for it.

    >>> ops.nonzero(cx.constant([0, 3, 0, 5]), size=3).numpy()
    array([[ 1],
           [ 3],
           [-1]])
    """
    if size is None:
        raise Unsupported(
            "nonzero: how many elements are not zero is data; give size=, or use where()"
        )
    return nonzero_static(x, size=size, fill_value=fill)


argwhere = nonzero


def masked_select(
    x: Tensor, mask: Tensor, *, size: int | None = None, fill: Any = 0
) -> Tensor:  # fmt: skip
    """The elements where the mask holds: (size,), with `fill` after the last. Raises Unsupported
    without `size`: a graph has no shape for it.

    >>> a, b = cx.constant([1, 2, 3]), cx.constant([True, False, True])
    >>> ops.masked_select(a, b, size=3, fill=-1).numpy()
    array([ 1,  3, -1])
    """
    if size is None:
        raise Unsupported(
            "masked_select: how many elements are selected is data; give size=, or use where()"
        )
    shape = broadcast_shapes(x.node.shape, mask.node.shape)
    flags = mask.expand(shape).flatten().cast(boolean)
    rank = sub(flags.cast(i64).scan("sum", 0), 1)
    empty = tensor_of(x.graph, fill, x.dtype).expand((size + 1,))
    at = where(flags, minimum(rank, size), size)
    return scatter(empty, 0, at, x.expand(shape).flatten()).narrow(0, 0, size)
