"""The error function, by quotients of polynomials."""

from __future__ import annotations

from ..graph.tensor import Tensor
from .base import composite, floating, full_like, magnitude
from .clamping import clamp
from .coefficients import ERF, ERFC
from .elementwise import abs, add, div, isinf, mul, neg, square, sub
from .logic import lt, where
from .math import exp, polynomial


@floating
@composite
def erf(x: Tensor) -> Tensor:
    """The error function: x p(x^2) / q(x^2) where it differs from 1 and -1.

    >>> ops.erf(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 0.843], dtype=float32)
    """
    limit, numerator, denominator = ERF[x.dtype.name]
    u = square(x)
    ratio = div(mul(x, polynomial(u, numerator)), polynomial(u, denominator))
    return where(lt(magnitude(x), limit), ratio, clamp(x, -1.0, 1.0))


@floating
@composite
def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), accurate in the tail: e^(-x^2) p(2 / (2 + x)).

    >>> ops.erfc(cx.constant([0.0, 1.0])).numpy().round(3)
    array([1.   , 0.157], dtype=float32)
    """
    size = abs(x)
    t = div(full_like(x, 2), add(size, 2.0))
    tail = mul(exp(neg(square(size))), polynomial(t, ERFC[x.dtype.name]))
    tail = where(isinf(size), 0.0, tail)
    return where(lt(x, 0.0), sub(2.0, tail), tail)
