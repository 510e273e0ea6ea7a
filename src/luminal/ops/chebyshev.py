"""Chebyshev's polynomials of four kinds, by their closed forms, computed in f64, rounded once.

With x = cos a: T = cos(n a), U = sin((n + 1) a) / sin a, V = cos((n + 1/2) a) / cos(a / 2) and
W = sin((n + 1/2) a) / sin(a / 2); beyond 1 the same with hyperbolic functions (Mason & Handscomb,
Chebyshev Polynomials, chapter 1).
"""

from __future__ import annotations

from ..graph.dtype import f32
from ..graph.tensor import Tensor
from .base import Value, operands, result_type
from .elementwise import abs, div, maximum, minimum, modulo, mul, sub, trunc
from .gamma import doubled
from .logic import eq, ge, gt, lt, where
from .math import acos, acosh, cos, cosh, sin, sinh


def chebyshev(kind: str, x: Value, n: Value) -> Tensor:
    """The polynomial of kind "t", "u", "v" or "w" and degree n (truncated; 0 below 0) at x. A NaN
    stays, but for degree 0."""
    common = result_type(x, n)
    return _polynomial(*operands(x, n, kind=common if common.is_float else f32), kind)


@doubled
def _polynomial(x: Tensor, n: Tensor, kind: str) -> Tensor:
    n, size = trunc(n), abs(x)
    sign = where(lt(x, 0), sub(1.0, mul(modulo(n, 2.0), 2.0)), 1.0)
    if kind == "t":
        value = mul(sign, _even(size, n, 0.0))
    elif kind == "u":
        value = mul(sign, _odd(size, n + 1.0, 1.0))
    else:  # one kind at x is the other at -x
        even, odd = _even(size, n + 0.5, 0.5), _odd(size, n + 0.5, 0.5)
        value = mul(sign, where(ge(x, 0) if kind == "v" else lt(x, 0), even, odd))
    return where(lt(n, 0), 0.0, where(eq(n, 0), 1.0, value))


def _even(size: Tensor, order: Tensor, divisor: float) -> Tensor:
    """cos(order a) / cos(divisor a)."""
    inner, outer = acos(minimum(size, 1.0)), acosh(maximum(size, 1.0))
    inside = div(cos(mul(order, inner)), cos(mul(inner, divisor)))
    return where(gt(size, 1), div(cosh(mul(order, outer)), cosh(mul(outer, divisor))), inside)


def _odd(size: Tensor, order: Tensor, divisor: float) -> Tensor:
    """sin(order a) / sin(divisor a); their limit at 1."""
    inner, outer = acos(minimum(size, 1.0)), acosh(maximum(size, 1.0))
    inside = div(sin(mul(order, inner)), sin(mul(inner, divisor)))
    beyond = div(sinh(mul(order, outer)), sinh(mul(outer, divisor)))
    return where(eq(size, 1), div(order, divisor), where(gt(size, 1), beyond, inside))
