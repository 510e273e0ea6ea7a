"""Bessel functions: Chebyshev fits of their integral, made when first used, or closed forms."""

from __future__ import annotations

from functools import cache

import numpy as np

from ..graph.tensor import Tensor
from .base import composite, full_like
from .elementwise import abs, add, div, isinf, mul, neg, reciprocal, sub
from .gamma import doubled
from .logic import eq, gt, lt, where
from .math import exp, sin, sqrt

POINTS = 4000  # of the trapezoid rule; for periodic integrands it converges exponentially
MIDDLE = 16.0  # where the fit over x gives way to the one over 1 / x
DEGREE = 40


def _scaled(x: np.ndarray, order: int) -> np.ndarray:
    """e^-x I_n(x): 1/pi times the integral over 0 .. pi of e^(x (cos a - 1)) cos(n a)."""
    angles = (np.arange(POINTS) + 0.5) * np.pi / POINTS
    inside = np.exp(np.multiply.outer(x, np.cos(angles) - 1)) * np.cos(order * angles)
    return inside.mean(-1)


@cache
def _coefficients(order: int, near: bool) -> tuple[float, ...]:
    """Chebyshev's, of e^-x I_n(x) over x in 0 .. MIDDLE, or of sqrt(x) times that over
    1 / x in 0 .. 1 / MIDDLE."""
    from numpy.polynomial.chebyshev import chebinterpolate

    def value(t: np.ndarray) -> np.ndarray:
        if near:
            return _scaled((t + 1) * MIDDLE / 2, order)
        x = 2 * MIDDLE / (t + 1)
        return np.sqrt(x) * _scaled(x, order)

    fit: np.ndarray = chebinterpolate(value, DEGREE if near else 14)
    return tuple(map(float, fit))


def _clenshaw(t: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """The sum of c_n T_n(t)."""
    ahead, second = full_like(t, 0), full_like(t, 0)
    first, *rest = coefficients
    for value in reversed(rest):
        ahead, second = add(sub(mul(mul(t, 2.0), ahead), second), value), ahead
    return add(sub(mul(t, ahead), second), first)


def _both(x: Tensor, order: int) -> Tensor:
    """e^-|x| I_n(|x|)."""
    size = abs(x)
    far = gt(size, MIDDLE)
    near = _clenshaw(
        sub(mul(where(far, MIDDLE, size), 2 / MIDDLE), 1.0), _coefficients(order, True)
    )
    inverse = reciprocal(where(far, size, MIDDLE))
    beyond = _clenshaw(sub(mul(inverse, 2 * MIDDLE), 1.0), _coefficients(order, False))
    return where(far, mul(beyond, sqrt(inverse)), near)


@doubled
def i0e(x: Tensor) -> Tensor:
    """e^-|x| I0(x), the modified Bessel function."""
    return _both(x, 0)


@composite
@doubled
def i1e(x: Tensor) -> Tensor:
    """e^-|x| I1(x)."""
    value = _both(x, 1)
    return where(lt(x, 0), neg(value), value)


@composite
@doubled
def i0(x: Tensor) -> Tensor:
    """The modified Bessel function of order 0.

    >>> ops.i0(cx.constant([0.0, 1.0])).numpy().round(3)
    array([1.   , 1.266], dtype=float32)
    """
    return mul(exp(abs(x)), i0e(x))


@composite
@doubled
def i1(x: Tensor) -> Tensor:
    """The modified Bessel function of order 1."""
    return mul(exp(abs(x)), i1e(x))


@doubled
def spherical_j0(x: Tensor) -> Tensor:
    """The spherical Bessel function of order 0: sin x / x, 1 at 0."""
    value = where(eq(x, 0), 1.0, div(sin(x), x))
    return where(isinf(x), 0.0, value)
