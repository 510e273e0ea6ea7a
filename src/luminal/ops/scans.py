"""Running reductions along a dimension."""

from __future__ import annotations

from typing import Any

from ..graph.dtype import dtype as dtype_of
from ..graph.dtype import i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import dim_of, extent, floating, full_like, positions
from .elementwise import add, isinf, sub
from .logic import eq, isnan, logical_or, lt, where
from .math import exp, log
from .reduction import Extreme, reduce


def _running(op: str, x: Tensor, dim: int, dtype: Any) -> Tensor:
    if dtype is not None:
        x = x.cast(dtype_of(dtype))
    elif not x.dtype.is_float:
        x = x.cast(i64)
    return x.scan(op, dim_of(x, dim)) if x.ndim else x


def cumsum(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The sum of all elements up to each; integers in i64.

    >>> ops.cumsum(cx.constant([1.0, 2.0, 3.0]), 0).numpy()
    array([1., 3., 6.], dtype=float32)
    """
    return _running("sum", x, dim, dtype)


def cumprod(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The product of all elements up to each; integers in i64.

    >>> ops.cumprod(cx.constant([1.0, 2.0, 3.0]), 0).numpy()
    array([1., 2., 6.], dtype=float32)
    """
    return _running("prod", x, dim, dtype)


def cummax(x: Tensor, dim: int) -> Extreme:
    """The largest element up to each, and where it stands last.

    >>> values, indices = ops.cummax(cx.constant([1.0, 3.0, 2.0]), 0)
    >>> values.numpy(), indices.numpy()
    (array([1., 3., 3.], dtype=float32), array([0, 1, 1]))
    """
    return _extreme_so_far("max", x, dim)


def cummin(x: Tensor, dim: int) -> Extreme:
    """The smallest element up to each, and where it stands last.

    >>> values, indices = ops.cummin(cx.constant([2.0, 3.0, 1.0]), 0)
    >>> values.numpy(), indices.numpy()
    (array([2., 2., 1.], dtype=float32), array([0, 0, 2]))
    """
    return _extreme_so_far("min", x, dim)


def _extreme_so_far(op: str, x: Tensor, dim: int) -> Extreme:
    if not x.ndim:
        return Extreme(x, full_like(x, 0, i64))
    dim = dim_of(x, dim)
    best = x.scan(op, dim)
    hit = eq(x, best)
    if x.dtype.is_float:
        hit = logical_or(hit, isnan(x))
    return Extreme(best, where(hit, positions(x, dim), 0).scan("max", dim))


@floating
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """log of the running sum of e^x: for each element a sum over those up to it, relative to the
    largest of them.

    >>> ops.logcumsumexp(cx.constant([0.0, 0.0, 0.0]), 0).numpy().round(3)
    array([0.   , 0.693, 1.099], dtype=float32)
    """
    dim = dim_of(x, dim)
    last = x.movedim(dim, -1)
    highest = last.scan("max", last.ndim - 1)
    level = where(isinf(highest), 0.0, highest)
    terms = exp(sub(last.unsqueeze(-2), level.unsqueeze(-1)))
    here, other = Index.of(f"i{last.ndim - 1}"), Index.of(f"i{last.ndim}")
    ahead = lt(x.graph.iota(terms.shape, here - other), 0)
    total = reduce("sum", where(ahead, 0.0, terms), last.ndim)
    return add(log(total), level).movedim(-1, dim)


def diff(x: Tensor, n: int = 1, dim: int = -1) -> Tensor:
    """Differences of neighbours, n times.

    >>> ops.diff(cx.constant([1.0, 4.0, 9.0])).numpy()
    array([3., 5.], dtype=float32)
    """
    dim = dim_of(x, dim)
    for _ in range(n):
        size = extent(x, dim) - 1
        x = sub(x.narrow(dim, 1, size), x.narrow(dim, 0, size))
    return x
