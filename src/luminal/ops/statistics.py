"""Frequencies and moments: mode, middle of the numbers, covariance, distinct elements."""

from __future__ import annotations

from typing import Any

from ..errors import Unsupported
from ..graph.dtype import i64
from ..graph.node import Composite
from ..graph.tensor import Tensor
from .base import Value, dim_of, extent, full_like, literal, positions, static, tensor_of
from .clamping import clamp
from .elementwise import add, div, floor_divide, isclose, minimum, mul, sub
from .indexing import gather, scatter
from .linalg import matmul
from .logic import eq, isnan, logical_not, logical_or, lt, ne, where
from .math import sqrt
from .reduction import Extreme, amax, amin, mean, norm, reduce
from .sorting import as_middle, sort


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Extreme:
    """(the smallest of the most frequent elements along a dimension, where it stands last).

    >>> value, place = ops.mode(cx.constant([2, 1, 2]))
    >>> int(value.numpy()), int(place.numpy())
    (2, 2)
    """
    if not x.ndim:
        return Extreme(x, full_like(x, 0, i64))
    dim = dim_of(x, dim)
    last = x.movedim(dim, -1)
    number = reduce("sum", eq(last.unsqueeze(-1), last.unsqueeze(-2)).cast(i64), last.ndim)
    frequent = eq(number, amax(number, -1, keepdim=True))
    value = amin(where(frequent, last, full_like(last, last.dtype.highest)), -1)
    hit = eq(last, value.unsqueeze(-1))
    here = amax(where(hit, positions(last, last.ndim - 1), -1), -1)
    x.graph.composites.setdefault(value.node, Composite("picked", (last.node, here.node), ()))
    found = (value, here)
    return Extreme(*([part.unsqueeze(dim) for part in found] if keepdim else found))


def nanmedian(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle one (the lower of two) of the numbers; NaN, and where the first stands, if there
    is none. With dim: (values, indices).

    >>> ops.nanmedian(cx.constant([1.0, float("nan"), 3.0])).numpy()
    array(1., dtype=float32)
    """
    if dim is None:
        return as_middle(nanmedian(x.flatten(), 0).values, x)
    if not x.ndim:
        return Extreme(x, full_like(x, 0, i64))
    dim = dim_of(x, dim)
    ordered = sort(x, dim)
    numbers = reduce("sum", logical_not(isnan(x)).cast(i64), dim, keepdim=True)
    middle = clamp(floor_divide(sub(numbers, 1), 2), 0)
    found = [gather(part, dim, middle) for part in ordered]
    return Extreme(*(found if keepdim else [part.squeeze(dim) for part in found]))


def nanquantile(x: Tensor, q: float, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The q-quantile of the numbers, interpolated linearly; NaN if there is none.

    >>> ops.nanquantile(cx.constant([1.0, float("nan"), 3.0]), 0.5).numpy()
    array(2., dtype=float32)
    """
    if dim is None:
        return nanquantile(x.flatten(), q, 0)
    dim = dim_of(x, dim)
    ordered = sort(x, dim).values
    last = sub(reduce("sum", logical_not(isnan(x)).cast(i64), dim, keepdim=True), 1)
    at = mul(clamp(last, 0).cast(x.dtype), q)
    low = at.cast(i64)
    first = gather(ordered, dim, low)
    second = gather(ordered, dim, minimum(add(low, 1), clamp(last, 0)))
    value = add(first, mul(sub(second, first), sub(at, low.cast(x.dtype))))
    return value if keepdim else value.squeeze(dim)


def cov(x: Tensor, *, correction: int = 1) -> Tensor:
    """The covariances of the rows of a matrix: (rows, rows); of a vector its variance.

    >>> ops.cov(cx.constant([[1.0, 2.0, 3.0], [1.0, 1.0, 4.0]])).numpy().round(3)
    array([[1. , 1.5],
           [1.5, 3. ]], dtype=float32)
    """
    rows = x if x.ndim == 2 else x.reshape((1, -1))
    centred = sub(rows, mean(rows, 1, keepdim=True))
    number = static(extent(rows, 1), "the number of observations") - correction
    found = div(matmul(centred, centred.transpose(0, 1)), float(max(number, 0)))
    return found if x.ndim == 2 else found.reshape(())


def corrcoef(x: Tensor) -> Tensor:
    """The correlations of the rows of a matrix, in -1 .. 1.

    >>> ops.corrcoef(cx.constant([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).numpy().round(3)
    array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    found = cov(x)
    if not found.ndim:
        return div(found, found)
    spread = sqrt(found.diagonal())
    return clamp(div(div(found, spread.unsqueeze(1)), spread.unsqueeze(0)), -1, 1)


def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The slices along a dimension, scaled down to a norm of maxnorm where theirs is larger.

    >>> ops.renorm(cx.constant([[3.0, 4.0], [0.0, 0.5]]), 2, 0, 1.0).numpy().round(3)
    array([[0.6, 0.8],
           [0. , 0.5]], dtype=float32)
    """
    dim = dim_of(x, dim)
    others = tuple(d for d in range(x.ndim) if d != dim)
    length = norm(x, p, others, keepdim=True)
    factor = div(maxnorm, add(length, 1e-7))
    return where(lt(maxnorm, length), mul(x, factor), x)


# ---- distinct elements: how many is data, so the caller says at most how many are wanted


def unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None, *, size: int | None = None, fill: Value = 0,
) -> Any:  # fmt: skip
    """The distinct elements, ascending: (size,), with `fill` after the last; NaN is distinct from
    all. With return_inverse also where each element of x is among them, with return_counts how
    often each occurs. Raises Unsupported without `size`: a graph has no shape for it.

    >>> ops.unique(cx.constant([3, 1, 3]), size=3, fill=-1).numpy()
    array([ 1,  3, -1])
    """
    if dim is not None:
        raise Unsupported("unique along a dimension")
    ordered = sort(x.flatten())
    values, number = _distinct(ordered.values, size, fill)
    found: list[Tensor] = [values]
    if return_inverse:
        found.append(scatter(full_like(number, 0), 0, ordered.indices, number).reshape(x.shape))
    if return_counts:
        found.append(_counts(number, size))
    return found[0] if len(found) == 1 else tuple(found)


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None,
    *, size: int | None = None, fill: Value = 0,
) -> Any:  # fmt: skip
    """The first of each run of equal elements, as `unique`.

    >>> ops.unique_consecutive(cx.constant([1, 1, 2, 1]), size=4, fill=-1).numpy()
    array([ 1,  2,  1, -1])
    """
    if dim is not None:
        raise Unsupported("unique_consecutive along a dimension")
    values, number = _distinct(x.flatten(), size, fill)
    found: list[Tensor] = [values]
    if return_inverse:
        found.append(number.reshape(x.shape))
    if return_counts:
        found.append(_counts(number, size))
    return found[0] if len(found) == 1 else tuple(found)


def _distinct(flat: Tensor, size: int | None, fill: Value) -> tuple[Tensor, Tensor]:
    """(the first of each run, the number of each element's run)."""
    if size is None:
        raise Unsupported("unique: how many elements are distinct is data; give size=")
    earlier = flat.pad([(1, 0)]).narrow(0, 0, extent(flat, 0))
    new = logical_or(ne(flat, earlier), eq(positions(flat, 0), 0))
    number = sub(new.cast(i64).scan("sum", 0), 1)
    empty = tensor_of(flat.graph, fill, flat.dtype).expand((size + 1,))
    at = minimum(where(new, number, size), size)
    return scatter(empty, 0, at, flat).narrow(0, 0, size), number


def _counts(number: Tensor, size: int | None) -> Tensor:
    empty = literal(number.graph, 0, i64).expand((size or 0,))
    return empty._scatter(number, full_like(number, 1), 0, "sum")


def equal(a: Tensor, b: Tensor) -> Tensor:
    """One shape and all elements equal, as a bool tensor ().

    >>> ops.equal(cx.constant([1, 2]), cx.constant([1, 2])).numpy()
    array(True)
    """
    if a.node.shape != b.node.shape:
        return literal(a.graph, False, a.graph.literal(True).dtype)
    return reduce("min", eq(a, b))


def allclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """All elements are close, as a bool tensor ().

    >>> ops.allclose(cx.constant([1.0]), cx.constant([1.0 + 1e-7])).numpy()
    array(True)
    """
    return reduce("min", isclose(a, b, rtol, atol, equal_nan))
