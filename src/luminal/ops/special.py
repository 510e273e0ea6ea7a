"""Less common elementwise functions."""

from __future__ import annotations

import math

from ..graph.dtype import f32
from ..graph.tensor import Tensor
from .base import Value, composite, floating, full_like, operands, result_type
from .elementwise import abs, div, mul, neg, reciprocal, square
from .logic import eq, logical_and, logical_or, lt, where
from .math import log, log1p, sin, sqrt


def signbit(x: Tensor) -> Tensor:
    """Whether the sign bit is set, also of -0 (1 / -0 is minus infinity).

    >>> ops.signbit(cx.constant([-0.0, 0.0])).numpy()
    array([ True, False])
    """
    if not x.dtype.is_float:
        return lt(x, 0)
    return logical_or(lt(x, 0), logical_and(eq(x, 0), lt(reciprocal(x), 0)))


def copysign(size: Tensor, sign: Value) -> Tensor:
    """|size| with the sign of the other, also of -0; of integers in f32.

    >>> ops.copysign(cx.constant([1.0, 2.0]), cx.constant([-1.0, 3.0])).numpy()
    array([-1.,  2.], dtype=float32)
    """
    x, y = operands(size, sign)
    x, y = (x, y) if x.dtype.is_float else (x.cast(f32), y.cast(f32))
    return where(signbit(y), neg(abs(x)), abs(x))


def heaviside(x: Tensor, values: Tensor) -> Tensor:
    """1 above 0, `values` at 0, else 0.

    >>> ops.heaviside(cx.constant([-1.0, 0.0, 2.0]), cx.constant([0.5])).numpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return where(eq(x, 0), values, lt(0, x).cast(x.dtype))


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x^2 + y^2) without overflow.

    >>> ops.hypot(cx.constant([3.0]), cx.constant([4.0])).numpy()
    array([5.], dtype=float32)
    """
    return _hypot(*operands(x, y))


@composite
def _hypot(x: Tensor, y: Tensor) -> Tensor:
    a, b = abs(x), abs(y)
    high, low = a.graph.apply("max", [a, b]), a.graph.apply("min", [a, b])
    ratio = where(eq(high, low), full_like(high, 1), div(low, high))
    length = mul(high, sqrt(square(ratio) + 1))
    infinite = logical_or(eq(a, float("inf")), eq(b, float("inf")))
    return where(infinite, float("inf"), length)


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x log y, and 0 where x is 0 and y is a number.

    >>> ops.xlogy(cx.constant([0.0, 1.0]), cx.constant([5.0, np.e])).numpy().round(3)
    array([0., 1.], dtype=float32)
    """
    return _xlogy(*_of_floats(x, y))


def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """x log(1 + y), and 0 where x is 0 and y is a number.

    >>> ops.xlog1py(cx.constant([0.0, 1.0]), cx.constant([5.0, 1.0])).numpy().round(3)
    array([0.   , 0.693], dtype=float32)
    """
    return _xlog1py(*_of_floats(x, y))


def _of_floats(x: Tensor, y: Tensor) -> list[Tensor]:
    kind = result_type(x, y)
    return operands(x, y, kind=kind if kind.is_float else f32)


@composite
def _xlogy(x: Tensor, y: Tensor) -> Tensor:
    return _product_of_log(x, y, log(y))


@composite
def _xlog1py(x: Tensor, y: Tensor) -> Tensor:
    return _product_of_log(x, y, log1p(y))


def _product_of_log(x: Tensor, y: Tensor, logarithm: Tensor) -> Tensor:
    silent = logical_and(eq(x, 0), eq(y, y))
    return where(silent, full_like(logarithm, 0), mul(x, logarithm))


@floating
@composite
def sinc(x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0.

    >>> ops.sinc(cx.constant([0.0, 0.5])).numpy().round(3)
    array([1.   , 0.637], dtype=float32)
    """
    angle = mul(x, math.pi)
    return where(eq(x, 0.0), 1.0, div(sin(angle), angle))


@floating
def deg2rad(x: Tensor) -> Tensor:
    """Degrees to radians.

    >>> ops.deg2rad(cx.constant([180.0])).numpy().round(3)
    array([3.142], dtype=float32)
    """
    return mul(x, math.pi / 180)


@floating
def rad2deg(x: Tensor) -> Tensor:
    """Radians to degrees.

    >>> ops.rad2deg(cx.constant([np.pi])).numpy()
    array([180.], dtype=float32)
    """
    return mul(x, 180 / math.pi)


@floating
@composite
def entr(x: Tensor) -> Tensor:
    """-x log x; 0 at 0, minus infinity below.

    >>> ops.entr(cx.constant([0.0, 0.5, -1.0])).numpy().round(3)
    array([0.   , 0.347,  -inf], dtype=float32)
    """
    value = where(eq(x, 0.0), 0.0, neg(mul(x, log(x))))
    return where(lt(x, 0.0), float("-inf"), value)
