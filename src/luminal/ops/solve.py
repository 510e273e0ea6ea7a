"""Systems of linear equations with fixed sizes: elimination with the largest pivot of each column,
one step after the other. Meant for small matrices: the graph grows with the number of rows."""

from __future__ import annotations

from ..errors import ShapeError
from ..graph.dtype import f64, i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import composite, extent, full_like, positions, static
from .elementwise import abs, add, div, maximum, mul, neg, sign, sub
from .indexing import gather
from .linalg import inverse_of_lower, matmul
from .logic import eq, lt, ne, where
from .math import log, rsqrt
from .reduction import argmax, prod, reduce
from .shape import cat


def _square(a: Tensor, name: str) -> int:
    if a.ndim < 2 or extent(a, a.ndim - 1) is not extent(a, a.ndim - 2):
        raise ShapeError(f"{name} takes square matrices (..., n, n), got {a}")
    return static(extent(a, a.ndim - 1), "the size of a matrix")


def _reduced_rows(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(x with a x = b, the pivots (..., n), -1 or 1 by the exchanges of rows): Gauss and Jordan."""
    n = _square(a, "elimination")
    whole = cat([a, b], -1)
    rows = positions(whole, whole.ndim - 2)
    turned = full_like(a.select(-1, 0).select(-1, 0), 1)
    pivots = []
    for k in range(n):
        column = abs(whole.select(-1, k))
        below = where(lt(positions(column, column.ndim - 1), k), full_like(column, -1), column)
        best = argmax(below, -1, keepdim=True).unsqueeze(-1)  # (..., 1, 1)
        source = where(eq(rows, k), best, where(eq(rows, best), k, rows))
        whole = gather(whole, -2, source)
        exchanged = ne(best, k).reshape(turned.shape)
        turned = where(exchanged, neg(turned), turned)
        row = whole.narrow(-2, k, 1)
        pivot = row.narrow(-1, k, 1)
        pivots.append(pivot.squeeze(-1))
        row = div(row, pivot)
        whole = where(eq(rows, k), row, sub(whole, mul(whole.narrow(-1, k, 1), row)))
    return whole.narrow(-1, n, extent(b, b.ndim - 1)), cat(pivots, -1), turned


def solve(a: Tensor, b: Tensor) -> Tensor:
    """x with a x = b. a: (..., n, n), n fixed; b: (..., n, m) or, like the rows of a, (..., n).

    >>> a, b = cx.constant([[2.0, 0.0], [0.0, 4.0]]), cx.constant([2.0, 2.0])
    >>> ops.solve(a, b).numpy().round(3)
    array([1. , 0.5], dtype=float32)
    """
    vector = b.ndim == a.ndim - 1
    right = b.unsqueeze(-1) if vector else b
    batch = [*a.shape[:-2]]
    right = right.expand((*batch, *right.shape[-2:]))
    found = _reduced_rows(a, right)[0]
    return found.squeeze(-1) if vector else found


def inverse(a: Tensor) -> Tensor:
    """The inverse of matrices (..., n, n), n fixed; infinite or NaN for singular ones.

    >>> ops.inverse(cx.constant([[2.0, 0.0], [0.0, 4.0]])).numpy().round(3)
    array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    row, column = Index.of(f"i{a.ndim - 2}"), Index.of(f"i{a.ndim - 1}")
    unit = eq(a.graph.iota(a.shape, row - column, i64), 0).cast(a.dtype)
    return _reduced_rows(a, unit)[0]


def det(a: Tensor) -> Tensor:
    """The determinant of matrices (..., n, n), n fixed.

    >>> round(float(ops.det(cx.constant([[2.0, 0.0], [1.0, 3.0]])).numpy()), 4)
    6.0
    """
    sign_part, logarithms = _pivots(a)
    return mul(prod(logarithms, -1), sign_part)


def _pivots(a: Tensor) -> tuple[Tensor, Tensor]:
    """(-1 or 1, pivots). A pivot of 0 ends the elimination: what follows counts as 1."""
    _, pivots, turned = _reduced_rows(a, a.narrow(-1, 0, 1))
    zero = eq(pivots, 0).cast(i64)
    past = lt(sub(zero.scan("sum", pivots.ndim - 1), zero), 1)
    return turned, where(past, pivots, 1)


def slogdet(a: Tensor) -> tuple[Tensor, Tensor]:
    """(sign of the determinant, log of its absolute value).

    >>> sign, size = ops.slogdet(cx.constant([[0.0, 2.0], [1.0, 0.0]]))
    >>> float(sign.numpy()), round(float(size.numpy()), 3)
    (-1.0, 0.693)
    """
    turned, pivots = _pivots(a)
    return mul(turned, prod(sign(pivots), -1)), reduce("sum", log(abs(pivots)), pivots.ndim - 1)


def logdet(a: Tensor) -> Tensor:
    """The log of the determinant; NaN where that is below 0.

    >>> round(float(ops.logdet(cx.constant([[2.0, 0.0], [0.0, 4.0]])).numpy()), 3)
    2.079
    """
    sign_part, logarithm = slogdet(a)
    return where(lt(sign_part, 0), float("nan"), logarithm)


def matrix_power(a: Tensor, n: int) -> Tensor:
    """a a ... a, n times; of the inverse for n < 0; the unit matrix for 0.

    >>> ops.matrix_power(cx.constant([[1.0, 1.0], [0.0, 1.0]]), 5).numpy()
    array([[1., 5.],
           [0., 1.]], dtype=float32)
    """
    size = _square(a, "matrix_power")
    if n < 0:
        return matrix_power(inverse(a), -n)
    row, column = Index.of(f"i{a.ndim - 2}"), Index.of(f"i{a.ndim - 1}")
    result = eq(a.graph.iota(a.shape, row - column, i64), 0).cast(a.dtype) if size else a
    first = True
    while n:
        if n & 1:
            result, first = (a if first else matmul(result, a)), False
        n >>= 1
        a = matmul(a, a) if n else a
    return result


def matrix_exp(a: Tensor) -> Tensor:
    """1 + a + a^2 / 2 + ..., of a / 2^16 with 8 terms, then squared sixteen times, in f64.

    >>> ops.matrix_exp(cx.constant([[0.0, 1.0], [0.0, 0.0]])).numpy().round(3)
    array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    wide = div(a.cast(f64), 2.0**16)
    total = term = matrix_power(wide, 0)
    for k in range(1, 8):
        term = div(matmul(term, wide), float(k))
        total = add(total, term)
    for _ in range(16):
        total = matmul(total, total)
    return total.cast(a.dtype)


def cholesky(a: Tensor, upper: bool = False) -> Tensor:
    """The lower triangle L with L L^T = a, for symmetric positive definite (..., n, n), n fixed;
    its transpose if upper. NaN where a is not positive definite. Of a its lower triangle is read;
    the gradient is symmetric.

    >>> ops.cholesky(cx.constant([[4.0, 2.0], [2.0, 5.0]])).numpy().round(3)
    array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    n = _square(a, "cholesky")
    rows, left, columns = positions(a, a.ndim - 2).narrow(-1, 0, 1), _symmetric(a), []
    for k in range(n):
        column = mul(left.narrow(-1, k, 1), rsqrt(left.narrow(-2, k, 1).narrow(-1, k, 1)))
        column = where(lt(rows, k), full_like(column, 0), column)
        columns.append(column)
        left = sub(left, matmul(column, column.transpose(-1, -2)))
    lower = cat(columns, -1)
    return lower.transpose(-1, -2) if upper else lower


@composite
def _symmetric(a: Tensor) -> Tensor:
    above = lt(positions(a, a.ndim - 2), positions(a, a.ndim - 1))
    return where(above, a.transpose(-1, -2), a)


def cholesky_inverse(a: Tensor, upper: bool = False) -> Tensor:
    """The inverse of L L^T from the triangle L, or U^T U from U.

    >>> ops.cholesky_inverse(cx.constant([[2.0, 0.0], [0.0, 4.0]])).numpy().round(3)
    array([[0.25 , 0.   ],
           [0.   , 0.062]], dtype=float32)
    """
    inverted = inverse_of_lower(a.transpose(-1, -2) if upper else a)
    return matmul(inverted.transpose(-1, -2), inverted)


def cholesky_solve(b: Tensor, a: Tensor, upper: bool = False) -> Tensor:
    """x with L L^T x = b for the triangle a = L, or U^T U for a = U.

    >>> a, b = cx.constant([[4.0], [32.0]]), cx.constant([[2.0, 0.0], [0.0, 4.0]])
    >>> ops.cholesky_solve(a, b).numpy().round(3)
    array([[1.],
           [2.]], dtype=float32)
    """
    return matmul(cholesky_inverse(a, upper), b)


def pinverse(a: Tensor) -> Tensor:
    """The pseudo-inverse of matrices of full rank: (a^T a)^-1 a^T, or a^T (a a^T)^-1.

    >>> ops.pinverse(cx.constant([[2.0], [0.0]])).numpy().round(3)
    array([[0.5, 0. ]], dtype=float32)
    """
    wide = static(extent(a, a.ndim - 1), "columns") > static(extent(a, a.ndim - 2), "rows")
    turned = a.transpose(-1, -2)
    if wide:
        return matmul(turned, inverse(matmul(a, turned)))
    return matmul(inverse(matmul(turned, a)), turned)


def qr(a: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    """(Q, R): orthonormal columns and an upper triangle, by Gram and Schmidt, twice. PyTorch's
    signs may differ column by column: here the diagonal of R is positive. Takes rows >= columns.

    >>> q, r = ops.qr(cx.constant([[3.0, 1.0], [4.0, 2.0]]))
    >>> (q @ r).numpy().round(3)
    array([[3., 1.],
           [4., 2.]], dtype=float32)
    """
    rows = static(extent(a, a.ndim - 2), "rows")
    n = static(extent(a, a.ndim - 1), "columns")
    if not some or rows < n:
        raise ShapeError(f"qr takes at least as many rows as columns and some=True, got {a}")
    columns: list[Tensor] = []
    for k in range(n):
        v = a.narrow(-1, k, 1)
        for _ in range(2):
            for q in columns:
                v = sub(v, mul(q, reduce("sum", mul(q, v), a.ndim - 2, keepdim=True)))
        length = reduce("sum", mul(v, v), a.ndim - 2, keepdim=True)
        columns.append(mul(v, rsqrt(maximum(length, 1e-38))))
    q = cat(columns, -1)
    upper = matmul(q.transpose(-1, -2), a)
    below = lt(positions(upper, a.ndim - 1), positions(upper, a.ndim - 2))
    return q, where(below, full_like(upper, 0), upper)
