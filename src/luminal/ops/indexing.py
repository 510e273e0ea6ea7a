"""Reading and writing at indices that are data. Negative indices count from the end; what then lies
outside is clamped when reading and ignored when writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError, Unsupported
from ..graph.dtype import boolean, i64, u64
from ..graph.index import Index
from ..graph.tensor import Tensor
from ..graph.values import array_of
from .base import Value, broadcast, count, dim_of, extent, full_like, size_value, tensor_of
from .elementwise import add, div, minimum, mul
from .logic import eq, lt, where
from .movement import basic
from .slicing import is_basic

SCATTER_MODES = {
    "sum": "sum", "add": "sum", "prod": "prod", "multiply": "prod", "amax": "max", "amin": "min",
}  # fmt: skip


def wrap(index: Tensor, size: Index) -> Tensor:
    """Negative indices counted from the end, in i64."""
    signed = index.dtype.is_signed
    index = as_i64(index)
    if not signed:
        return index
    return where(lt(index, 0), add(index, size_value(index.graph, size, i64)), index)


def as_i64(index: Tensor) -> Tensor:
    """What is outside stays outside: the upper half of u64 does not become negative."""
    if index.dtype is boolean or index.dtype.is_float:
        raise DTypeError(f"indices must be integers, got {index.dtype}")
    return (minimum(index, i64.highest) if index.dtype is u64 else index).cast(i64)


# ---- along one dimension


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[.., i, ..] = x[.., index[.., i, ..], ..]; index may be smaller in other dimensions.

    >>> x = cx.constant([[1.0, 2.0], [3.0, 4.0]])
    >>> ops.gather(x, 1, cx.constant([[1], [0]])).numpy()
    array([[2.],
           [3.]], dtype=float32)
    """
    if x.ndim == 0:
        return x.expand(index.shape)
    dim = dim_of(x, dim)
    if index.ndim != x.ndim:
        raise ShapeError(f"gather: index {index} must have as many dimensions as {x}")
    for d in range(x.ndim):
        if d != dim and extent(x, d) is not extent(index, d):
            x = x.narrow(d, 0, extent(index, d))
    return x._gather(wrap(index, extent(x, dim)), dim)


def take_along_dim(x: Tensor, index: Tensor, dim: int | None = None) -> Tensor:
    """As gather, with broadcasting of the other dimensions; without dim in the flattened x.

    >>> y = ops.take_along_dim(cx.constant([[3.0, 1.0]]), cx.constant([[1, 0]]), 1).output()
    >>> cx.compile()()
    array([[1., 3.]], dtype=float32)
    """
    if dim is None:
        return gather(x.flatten(), 0, index.flatten())
    dim = dim_of(x, dim)
    others = [index.shape[d] if d == dim else x.shape[d] for d in range(x.ndim)]
    widened = [x.shape[d] if d == dim else index.shape[d] for d in range(x.ndim)]
    others = [w if o == 1 else o for o, w in zip(others, widened)]
    others[dim] = index.shape[dim]
    source = [x.shape[d] if d == dim else others[d] for d in range(x.ndim)]
    return gather(x.expand(source), dim, index.expand(others))


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of x at a vector of indices along a dimension.

    >>> x = cx.constant([[1.0, 2.0], [3.0, 4.0]])
    >>> ops.index_select(x, 0, cx.constant([1, 1])).numpy()
    array([[3., 4.],
           [3., 4.]], dtype=float32)
    """
    dim = dim_of(x, dim)
    if index.ndim == 0:
        index = index.reshape(1)
    return selected(x, dim, wrap(index, extent(x, dim)))


def selected(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return x._gather(_along(index, x, dim), dim)


def _along(index: Tensor, x: Tensor, dim: int) -> Tensor:
    """A vector of indices, the same at every place of the other dimensions."""
    shape = [*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :]]
    return index.reshape((-1, *(1,) * (x.ndim - dim - 1))).expand(shape)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened x.

    >>> ops.take(cx.constant([[1, 2], [3, 4]]), cx.constant([0, 3])).numpy()
    array([1, 4])
    """
    return gather(x.flatten(), 0, index.flatten()).reshape(index.shape)


def one_hot(index: Tensor, num_classes: int) -> Tensor:
    """1 at the index along a new last dimension, else 0.

    >>> ops.one_hot(cx.constant([2, 0]), 3).numpy()
    array([[0, 0, 1],
           [1, 0, 0]])
    """
    if num_classes < 0:
        raise Unsupported("one_hot: give num_classes; a static graph cannot know the largest index")
    last = index.graph.iota((*index.shape, num_classes), f"i{index.ndim}")
    return eq(index.cast(i64).unsqueeze(-1), last).cast(i64)


# ---- writing along one dimension


def _padded_index(x: Tensor, dim: int, index: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """index and values as large as x in the other dimensions: -1 there writes nothing."""
    for d in range(x.ndim):
        if extent(values, d) is not extent(index, d):
            values = values.narrow(d, 0, extent(index, d))
    index = wrap(index, extent(x, dim))
    widths = [(0, 0) if d == dim else (0, extent(x, d) - extent(index, d)) for d in range(x.ndim)]
    if all(after == 0 for _, after in widths):
        return index, values
    return index.pad(widths, -1), values.pad(widths, 0)


def _scatter(x: Tensor, dim: int, index: Tensor, source: Value, mode: str) -> Tensor:
    if x.ndim == 0:
        return _scatter(x.reshape(1), 0, index.reshape(1), source, mode).reshape(())
    dim = dim_of(x, dim)
    if isinstance(source, Tensor):
        given = source
    else:
        given = tensor_of(x.graph, source, x.dtype).expand(index.shape)
    if given.dtype is not x.dtype:
        raise DTypeError(f"scatter: values must have the dtype of the tensor, {x} and {given}")
    places, values = _padded_index(x, dim, index, given)
    return x._scatter(places, values, dim, mode)


def scatter(x: Tensor, dim: int, index: Tensor, src: Value, reduce: str | None = None) -> Tensor:
    """x with src written at index along a dimension; of several at one place the last stays.

    >>> x = cx.constant([0.0, 0.0, 0.0])
    >>> ops.scatter(x, 0, cx.constant([2, 0]), cx.constant([5.0, 6.0])).numpy()
    array([6., 0., 5.], dtype=float32)
    """
    return _scatter(x, dim, index, src, "set" if reduce is None else SCATTER_MODES[reduce])


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """x with src added at index along a dimension.

    >>> a, b, c = cx.constant([0.0, 0.0]), cx.constant([0, 0, 1]), cx.constant([1.0, 2.0, 3.0])
    >>> ops.scatter_add(a, 0, b, c).numpy()
    array([3., 3.], dtype=float32)
    """
    return _scatter(x, dim, index, src, "sum")


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    """x with src combined in: sum, prod, mean, amax or amin.

    >>> a, b, c = cx.constant([1.0, 1.0]), cx.constant([0, 0]), cx.constant([5.0, 3.0])
    >>> ops.scatter_reduce(a, 0, b, c, "amax").numpy()
    array([5., 1.], dtype=float32)
    """
    if not include_self:
        touched = _scatter(full_like(x, 0), dim, index, full_like(src, 1), "max")
        x = where(eq(touched, 0), x, _neutral(x, reduce))
    if reduce != "mean":
        return _scatter(x, dim, index, src, SCATTER_MODES[reduce])
    total = _scatter(x, dim, index, src, "sum")
    number = _scatter(full_like(x, 1 if include_self else 0), dim, index, full_like(src, 1), "sum")
    number = where(eq(number, 0), 1, number) if not include_self else number
    return div(total, number, rounding_mode=None if x.dtype.is_float else "floor")


def _neutral(x: Tensor, reduce: str) -> Tensor:
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": x.dtype.lowest, "amin": x.dtype.highest}
    return full_like(x, start[reduce])


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    """x with slices of source added at a vector of indices.

    >>> x, i = cx.constant([0.0, 0.0]), cx.constant([1, 1])
    >>> ops.index_add(x, 0, i, cx.constant([5.0, 6.0])).numpy()
    array([ 0., 11.], dtype=float32)
    """
    source = source if alpha == 1 else mul(source, alpha)
    return _scatter(x, dim, _along(index, source, dim_of(x, dim)), source, "sum")


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """x with slices of source written at a vector of indices.

    >>> a, b, c = cx.constant([1, 2, 3]), cx.constant([2, 0]), cx.constant([30, 10])
    >>> ops.index_copy(a, 0, b, c).numpy()
    array([10,  2, 30])
    """
    return _scatter(x, dim, _along(index, source, dim_of(x, dim)), source, "set")


def index_fill(x: Tensor, dim: int, index: Tensor, value: Value) -> Tensor:
    """x with a value in the slices at a vector of indices.

    >>> ops.index_fill(cx.constant([1, 2, 3]), 0, cx.constant([0, 2]), 9).numpy()
    array([9, 2, 9])
    """
    dim = dim_of(x, dim)
    slices = [*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :]]
    values = tensor_of(x.graph, value, x.dtype).expand(slices)
    return index_copy(x, dim, index, values)


def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """x with one slice along a dimension replaced.

    >>> ops.select_scatter(cx.constant([[1, 2], [3, 4]]), cx.constant([9, 9]), 0, 1).numpy()
    array([[1, 2],
           [9, 9]])
    """
    place = x.graph.constant(np.asarray([index], np.int64))
    return index_copy(x, dim, place, src.unsqueeze(dim_of(x, dim)))


# ---- several index tensors at once


def index(x: Tensor, key: Any) -> Tensor:
    """x[key], as NumPy and PyTorch read it; keys may contain integer tensors, arrays, and bool
    masks whose values are known.

    >>> ops.index(cx.constant([[1, 2], [3, 4]]), (slice(None), -1)).numpy()
    array([2, 4])
    """
    key = key if is_basic(key) else _masks_as_places(key)
    if is_basic(key):
        return basic(x, key)
    x, dims, indices, adjacent = _advanced(x, key)
    merged, flat = _merge(x, dims, indices)
    shape = indices[0].shape
    result = selected(merged, 0, flat.flatten())  # (picked, *rest)
    result = result.reshape((*shape, *merged.shape[1:]))
    if adjacent and dims[0]:
        n, first = len(shape), dims[0]
        order = [*range(n, n + first), *range(n), *range(n + first, result.ndim)]
        result = result.permute(order)
    return result


def index_put(x: Tensor, key: Any, values: Value, accumulate: bool = False) -> Tensor:
    """x with values written (or added) at x[key]. A single bool mask takes a scalar value.

    >>> a, b, c = cx.constant([1, 2, 3]), cx.constant([0, 2]), cx.constant([10, 30])
    >>> ops.index_put(a, (b,), c, accumulate=True).numpy()
    array([11,  2, 33])
    """
    items = key if isinstance(key, (tuple, list)) else (key,)
    if len(items) == 1 and isinstance(items[0], Tensor) and items[0].dtype is boolean:
        return _masked_put(x, items[0], values, accumulate)
    source, dims, indices, adjacent = _advanced(x, tuple(items), whole=True)
    merged, flat = _merge(source, dims, indices)
    shape, rest = indices[0].shape, merged.shape[1:]
    new = tensor_of(x.graph, values, x.dtype)
    if adjacent and dims[0] and new.ndim > len(rest[dims[0] :]):
        first, n = dims[0], len(shape)
        new = new.expand((*rest[:first], *shape, *rest[first:]))
        order = [*range(first, first + n), *range(first), *range(first + n, new.ndim)]
        new = new.permute(order)
    new = new.expand((*shape, *rest)).reshape((-1, *rest))
    places = _along(flat.flatten(), merged, 0)
    written = merged._scatter(places, new, 0, "sum" if accumulate else "set")
    order = dims + [d for d in range(x.ndim) if d not in dims]
    written = written.reshape([x.shape[d] for d in order])
    return written.permute([order.index(d) for d in range(x.ndim)])


def _masked_put(x: Tensor, mask: Tensor, values: Value, accumulate: bool) -> Tensor:
    if isinstance(values, Tensor) and values.ndim:
        raise Unsupported("index_put with a bool mask takes a scalar; how many are true is data")
    for _ in range(x.ndim - mask.ndim):
        mask = mask.unsqueeze(-1)
    new = tensor_of(x.graph, values, x.dtype)
    return where(mask, add(x, new) if accumulate else new, x)


def _advanced(
    x: Tensor, key: Any, whole: bool = False
) -> tuple[Tensor, list[int], list[Tensor], bool]:
    """The basic part of a key applied, then: which dimensions have index tensors, those tensors
    (broadcast, not negative), and whether the dimensions are adjacent."""
    items = list(key) if isinstance(key, tuple) else [key]
    used = sum(item is not None and item is not Ellipsis for item in items)
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    at = next(i for i, item in enumerate(items) if item is Ellipsis)
    items[at : at + 1] = [slice(None)] * (x.ndim - used)
    tensors = {n: t for n, item in enumerate(items) if (t := _index_tensor(x, item)) is not None}
    if whole and len(tensors) + sum(_is_full(item) for item in items) < len(items):
        raise Unsupported("index_put: mix index tensors with full slices only")
    basic = tuple(slice(None) if n in tensors else item for n, item in enumerate(items))
    dropped = [n for n, item in enumerate(basic) if isinstance(item, (int, Index, str))]
    dims = [n - sum(d < n for d in dropped) for n in tensors]
    adjacent = list(tensors) == list(range(min(tensors), min(tensors) + len(tensors)))
    x = x if all(_is_full(item) for item in basic) else x[basic]
    indices = [wrap(t, extent(x, d)) for t, d in zip(tensors.values(), dims)]
    return x, dims, broadcast(*indices), adjacent


def _is_full(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _masks_as_places(key: Any) -> Any:
    """A bool mask whose values are known as the places where it is true."""
    items = list(key) if isinstance(key, tuple) else [key]
    found: list[Any] = []
    for item in items:
        known = _known_mask(item)
        found += [item] if known is None else list(np.nonzero(known))
    return tuple(found) if isinstance(key, tuple) or len(found) != 1 else found[0]


def _known_mask(item: Any) -> np.ndarray | None:
    if isinstance(item, Tensor):
        constant = item.node.op == "input" and item.node.attribute.kind == "constant"
        return item.node.attribute.value if constant and item.dtype is boolean else None
    if item is None or item is Ellipsis or isinstance(item, (slice, int, str, Index)):
        return None
    array = array_of(item)
    return array if array.dtype == np.bool_ else None


def _index_tensor(x: Tensor, item: Any) -> Tensor | None:
    if item is None or (isinstance(item, (slice, int, str, Index)) and not isinstance(item, bool)):
        return None
    tensor = item if isinstance(item, Tensor) else x.graph.constant(array_of(item))
    if tensor.dtype is boolean:
        raise Unsupported(
            "x[mask]: how many elements a bool mask selects is data; a static graph has no shape"
            " for it; use where(), masked_fill() or index_put()"
        )
    return tensor


def _merge(x: Tensor, dims: list[int], indices: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """x with the indexed dimensions merged into the first, and one index into that."""
    order = dims + [d for d in range(x.ndim) if d not in dims]
    moved = x.permute(order)
    merged = moved.reshape((count(moved, range(len(dims))), *moved.shape[len(dims) :]))
    flat = indices[0]
    for d, more in zip(dims[1:], indices[1:]):
        flat = add(mul(flat, size_value(x.graph, extent(x, d), i64)), more)
    return merged, flat
