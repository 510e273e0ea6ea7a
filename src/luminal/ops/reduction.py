"""Reductions over one, several or all dimensions."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ShapeError
from ..graph.dtype import dtype as dtype_of
from ..graph.dtype import i64
from ..graph.node import Composite
from ..graph.tensor import Tensor
from .base import (
    Dims,
    composite,
    count,
    dim_of,
    dims_of,
    extent,
    floating,
    literal,
    named,
    positions,
    promoting,
    reciprocal_of_size,
    size_value,
)
from .elementwise import abs, add, isinf, maximum, minimum, mul, reciprocal, square, sub
from .logic import eq, isnan, logical_not, logical_or, ne, truth, where
from .math import LOG2_E, log, sqrt
from .powers import pow


class Extreme(NamedTuple):
    """What max, min, cummax, sort, topk ... along a dimension give.

    >>> best = ops.max(cx.constant([1.0, 5.0]), 0)
    >>> best.values.numpy(), best.indices.numpy()
    (array(5., dtype=float32), array(1))
    """

    values: Tensor
    indices: Tensor


def reduce(op: str, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """One of sum, max, min, prod over dimensions, in the dtype of x."""
    listed = tuple(sorted(dims_of(x, dims)))
    result = x.graph.apply(op, [x], attribute=listed) if listed else x
    if keepdim:
        for d in listed:
            result = result.unsqueeze(d)
    return result


def _wide(x: Tensor, kind: Any) -> Tensor:
    """x as torch adds it up: in the dtype asked for, integers in i64."""
    if kind is not None:
        return x.cast(dtype_of(kind))
    return x if x.dtype.is_float else x.cast(i64)


def sum(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum; integers and bools add up in i64.

    >>> x = cx.constant([[1.0, 2.0], [3.0, 4.0]])
    >>> ops.sum(x, 0).numpy()
    array([4., 6.], dtype=float32)
    """
    return reduce("sum", _wide(x, dtype), dim, keepdim)


def prod(x: Tensor, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The product; integers and bools multiply in i64.

    >>> ops.prod(cx.constant([[1, 2], [3, 4]]), 1).numpy()
    array([ 2, 12])
    """
    return reduce("prod", _wide(x, dtype), dim, keepdim)


def nansum(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The sum of what is no NaN.

    >>> ops.nansum(cx.constant([1.0, float("nan"), 3.0])).numpy()
    array(4., dtype=float32)
    """
    return sum(where(isnan(x), 0, x) if x.dtype.is_float else x, dim, keepdim)


@floating
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The sum over the number of elements.

    >>> x = cx.constant([[1.0, 2.0], [3.0, 4.0]])
    >>> ops.mean(x, -1, keepdim=True).numpy()
    array([[1.5],
           [3.5]], dtype=float32)
    """
    total = reduce("sum", x, dim, keepdim)
    return mul(total, reciprocal_of_size(x.graph, count(x, dims_of(x, dim)), x.dtype))


@floating
def nanmean(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The mean of what is no NaN.

    >>> ops.nanmean(cx.constant([1.0, float("nan"), 3.0])).numpy()
    array(2., dtype=float32)
    """
    present = logical_not(isnan(x)).cast(x.dtype)
    return nansum(x, dim, keepdim) / reduce("sum", present, dim, keepdim)


def _check_extreme(name: str, x: Tensor, dims: Dims) -> None:
    for d in dims_of(x, dims):
        if extent(x, d) == 0:
            raise ShapeError(f"{name} over dimension {d}, which is empty, has no value")


def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The largest element; NaN if there is one.

    >>> ops.amax(cx.constant([[1.0, 5.0], [7.0, 2.0]]), 1).numpy()
    array([5., 7.], dtype=float32)
    """
    _check_extreme("amax", x, dim)
    return reduce("max", x, dim, keepdim)


def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The smallest element; NaN if there is one.

    >>> ops.amin(cx.constant([[1.0, 5.0], [7.0, 2.0]]), 1).numpy()
    array([1., 2.], dtype=float32)
    """
    _check_extreme("amin", x, dim)
    return reduce("min", x, dim, keepdim)


def aminmax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(amin, amax).

    >>> least, most = ops.aminmax(cx.constant([3.0, 1.0, 2.0]))
    >>> float(least.numpy()), float(most.numpy())
    (1.0, 3.0)
    """
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


def max(x: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Any:
    """As `torch.max`: the largest; (values, indices) along a dim; maximum of two tensors.

    >>> x = cx.constant([[1.0, 5.0], [7.0, 2.0]])
    >>> values, indices = ops.max(x, 1)
    >>> values.numpy(), indices.numpy()
    (array([5., 7.], dtype=float32), array([1, 0]))
    """
    if isinstance(dim, Tensor):
        return maximum(x, dim)
    if dim is None:
        return amax(x)
    return _extreme("max", x, dim, keepdim)


def min(x: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Any:
    """As `torch.min`: the smallest; (values, indices) along a dim; minimum of two tensors.

    >>> x = cx.constant([[1.0, 2.0], [3.0, 0.0]])
    >>> values, indices = ops.min(x, 1)
    >>> values.numpy(), indices.numpy()
    (array([1., 0.], dtype=float32), array([0, 1]))
    """
    if isinstance(dim, Tensor):
        return minimum(x, dim)
    if dim is None:
        return amin(x)
    return _extreme("min", x, dim, keepdim)


def _extreme(op: str, x: Tensor, dim: int, keepdim: bool) -> Extreme:
    """Other than that of amax, the slope is all that of the element at the index."""
    dim = dim_of(x, dim)
    _check_extreme(op, x, dim)
    values = reduce(op, x, dim)
    if x.dtype.is_float and x.ndim:
        values = named(values, Composite("first", (x.node,), ((dim,),)))
    values = values.unsqueeze(dim) if keepdim and x.ndim else values
    return Extreme(values, _first_extreme(op, x, dim, keepdim))


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the largest element (or a NaN) stands first; without dim, in the flattened x.

    >>> ops.argmax(cx.constant([[1.0, 5.0], [7.0, 2.0]]), 1).numpy()
    array([1, 0])
    """
    return _first_extreme("max", x, dim, keepdim)


def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the smallest element (or a NaN) stands first; without dim, in the flattened x.

    >>> ops.argmin(cx.constant([[1.0, 5.0], [7.0, 2.0]]), 1).numpy()
    array([0, 1])
    """
    return _first_extreme("min", x, dim, keepdim)


def _first_extreme(op: str, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if dim is None:
        index = _first_extreme(op, x.flatten(), 0, False)
        return index.reshape((1,) * x.ndim) if keepdim else index
    if x.ndim == 0:
        return literal(x.graph, 0, i64)
    dim = dim_of(x, dim)
    _check_extreme(f"arg{op}", x, dim)
    hit = eq(x, reduce(op, x, dim, keepdim=True))
    if x.dtype.is_float:
        hit = logical_or(hit, isnan(x))
    last = size_value(x.graph, extent(x, dim) - 1, i64)
    return reduce("min", where(hit, positions(x, dim), last), dim, keepdim)


def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """One element is not zero.

    >>> ops.any(cx.constant([[0, 0], [0, 4]]), 1).numpy()
    array([False,  True])
    """
    return reduce("max", truth(x), dim, keepdim)


def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """No element is zero.

    >>> ops.all(cx.constant([[1, 2], [0, 3]]), 1).numpy()
    array([ True, False])
    """
    return reduce("min", truth(x), dim, keepdim)


def count_nonzero(x: Tensor, dim: Dims = None) -> Tensor:
    """How many elements are not zero.

    >>> int(ops.count_nonzero(cx.constant([0, 3, 0, 5])).numpy())
    2
    """
    return reduce("sum", truth(x).cast(i64), dim)


@floating
def _variance(x: Tensor, dim: Dims, correction: int, keepdim: bool) -> Tensor:
    dims = dims_of(x, dim)
    centered = sub(x, mean(x, dims, keepdim=True))
    total = reduce("sum", square(centered), dims, keepdim)
    number = count(x, dims) - correction
    return mul(total, reciprocal_of_size(x.graph, number.maximum(0), x.dtype))


def _spread(dim: Dims, unbiased: bool | int, correction: int | None) -> tuple[Dims, int]:
    """(dimensions, correction): var(x, False) is var(x, unbiased=False)."""
    if isinstance(dim, bool):
        return None, int(dim) if correction is None else correction
    return dim, int(unbiased) if correction is None else correction


def var(
    x: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean square distance to the mean, with n - correction (1, or 0 if not unbiased) in place
    of n.

    >>> float(ops.var(cx.constant([1.0, 2.0, 3.0, 4.0]), correction=0).numpy())
    1.25
    """
    return _variance(x, *_spread(dim, unbiased, correction), keepdim)


def std(
    x: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: int | None = None,
) -> Tensor:  # fmt: skip
    """The square root of the variance.

    >>> float(ops.std(cx.constant([1.0, 2.0, 3.0])).numpy())
    1.0
    """
    return _deviation(x, *_spread(dim, unbiased, correction), keepdim)


@floating
def _deviation(x: Tensor, dim: Dims, correction: int, keepdim: bool) -> Tensor:
    return _root(_variance(x, dim, correction, keepdim))


def var_mean(
    x: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(variance, mean).

    >>> spread, middle = ops.var_mean(cx.constant([1.0, 2.0, 3.0]))
    >>> float(spread.numpy()), float(middle.numpy())
    (1.0, 2.0)
    """
    dim, number = _spread(dim, unbiased, correction)
    return _variance(x, dim, number, keepdim), mean(x, dim, keepdim)


def std_mean(
    x: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(standard deviation, mean).

    >>> spread, middle = ops.std_mean(cx.constant([1.0, 2.0, 3.0]))
    >>> float(spread.numpy()), float(middle.numpy())
    (1.0, 2.0)
    """
    dim, number = _spread(dim, unbiased, correction)
    return _deviation(x, dim, number, keepdim), mean(x, dim, keepdim)


@floating
def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """log(sum e^x) without overflow; exact for infinite maxima.

    >>> round(float(ops.logsumexp(cx.constant([0.0, 0.0]), 0).numpy()), 4)
    0.6931
    """
    dims = dims_of(x, dim)
    highest = reduce("max", x, dims, keepdim=True)
    power = x.graph.apply("exp2", [mul(sub(x, highest), LOG2_E)])
    finite = add(log(reduce("sum", power, dims, keepdim=True)), highest)
    result = where(isinf(highest), highest, finite)
    return result if keepdim else squeeze_dims(result, dims)


def squeeze_dims(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Without these dimensions of size 1 (counted from the front)."""
    for d in sorted(dims, reverse=True):
        x = x.squeeze(d)
    return x


@floating
def norm(x: Tensor, p: float | str = "fro", dim: Dims = None, keepdim: bool = False) -> Tensor:
    """(sum |x|^p)^(1/p); for p infinite the largest |x|, for 0 how many are not zero.

    >>> ops.norm(cx.constant([3.0, 4.0])).numpy()
    array(5., dtype=float32)
    """
    if p == "fro" or p == 2:
        return _root(reduce("sum", square(x), dim, keepdim))
    if not isinstance(p, (int, float)):
        raise ShapeError(f'norm: p is a number or "fro", not {p!r}')
    if p in (float("inf"), float("-inf")):
        return reduce("max" if p > 0 else "min", abs(x), dim, keepdim)
    if p == 0:
        return reduce("sum", ne(x, 0).cast(x.dtype), dim, keepdim)
    if p == 1:
        return reduce("sum", abs(x), dim, keepdim)
    return powered(reduce("sum", powered(abs(x), float(p)), dim, keepdim), 1.0 / p)


@composite
def _root(total: Tensor) -> Tensor:
    """Of a sum of squares: the derivative is 0 where all of them are."""
    return sqrt(total)


def powered(size: Tensor, p: float) -> Tensor:
    """size^p, with a derivative of 0 at 0."""
    flat = eq(size, 0)
    return where(flat, 0.0 if p > 0 else float("inf"), pow(where(flat, 1.0, size), p))


@floating
def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm(x), eps).

    >>> ops.normalize(cx.constant([[3.0, 4.0]])).numpy().round(3)
    array([[0.6, 0.8]], dtype=float32)
    """
    return mul(x, reciprocal(maximum(norm(x, p, dim, keepdim=True), eps)))


@promoting
def dist(a: Tensor, b: Tensor, p: float = 2.0) -> Tensor:
    """The norm of a - b.

    >>> ops.dist(cx.constant([0.0, 0.0]), cx.constant([3.0, 4.0])).numpy()
    array(5., dtype=float32)
    """
    return norm(sub(a, b), p)
