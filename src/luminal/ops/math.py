"""Roots, logarithms, trigonometric and error functions, from log2, exp2, sin, sqrt and recip.

Near zero, where a difference of almost equal numbers would lose digits, a power series is used, as
long as the dtype needs. f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ..graph.dtype import f32, f64
from ..graph.tensor import Tensor
from .base import (
    composite,
    floating,
    full_like,
    magnitude,
    operands,
)
from .clamping import clamp
from .elementwise import abs, add, div, isinf, maximum, mul, neg, reciprocal, square, sub
from .logic import eq, gt, isnan, logical_and, logical_or, lt, ne, where

LOG2_E = math.log2(math.e)
LN_2 = math.log(2)


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    result = full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = add(mul(result, x), coefficient)
    return result


def _terms(x: Tensor, single: int, double: int) -> int:
    """How many terms of a series the dtype needs."""
    return double if x.dtype is f64 else single


# ---- exponentials and logarithms


@floating
def exp(x: Tensor) -> Tensor:
    """e^x = 2^(x log2 e).

    >>> ops.exp(cx.constant([0.0, 1.0])).numpy().round(3)
    array([1.   , 2.718], dtype=float32)
    """
    return x.graph.apply("exp2", [mul(x, LOG2_E)])


@floating
def exp2(x: Tensor) -> Tensor:
    """2^x.

    >>> ops.exp2(cx.constant([0.0, 3.0])).numpy()
    array([1., 8.], dtype=float32)
    """
    return x.graph.apply("exp2", [x])


@floating
@composite
def expm1(x: Tensor) -> Tensor:
    """e^x - 1, accurate near 0.

    >>> ops.expm1(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 1.718], dtype=float32)
    """
    count = _terms(x, 9, 17)
    series = mul(x, polynomial(x, [1 / math.factorial(n + 1) for n in range(count)]))
    return where(lt(magnitude(x), 0.5), series, sub(exp(x), 1.0))


@floating
def log(x: Tensor) -> Tensor:
    """The natural logarithm.

    >>> ops.log(cx.constant([1.0, np.e])).numpy().round(3)
    array([0., 1.], dtype=float32)
    """
    return mul(x.graph.apply("log2", [x]), LN_2)


@floating
def log2(x: Tensor) -> Tensor:
    """The logarithm to base 2.

    >>> ops.log2(cx.constant([1.0, 8.0])).numpy()
    array([0., 3.], dtype=float32)
    """
    return x.graph.apply("log2", [x])


@floating
def log10(x: Tensor) -> Tensor:
    """The logarithm to base 10.

    >>> ops.log10(cx.constant([1.0, 1000.0])).numpy().round(3)
    array([0., 3.], dtype=float32)
    """
    return mul(x.graph.apply("log2", [x]), math.log10(2))


@floating
@composite
def log1p(x: Tensor) -> Tensor:
    """log(1 + x), accurate near 0: there 2 artanh(s) with s = x / (2 + x).

    >>> ops.log1p(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 0.693], dtype=float32)
    """
    s = div(x, add(x, 2.0))
    odd = [2 / (2 * n + 1) for n in range(_terms(x, 7, 15))]
    near = mul(s, polynomial(square(s), odd))
    return where(lt(magnitude(x), 0.35), near, log(add(x, 1.0)))


@floating
def sqrt(x: Tensor) -> Tensor:
    """The square root; NaN below 0.

    >>> ops.sqrt(cx.constant([4.0, -1.0])).numpy()
    array([ 2., nan], dtype=float32)
    """
    return x.graph.apply("sqrt", [x])


@floating
def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x).

    >>> ops.rsqrt(cx.constant([4.0, 0.25])).numpy()
    array([0.5, 2. ], dtype=float32)
    """
    return reciprocal(x.graph.apply("sqrt", [x]))


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x limited to eps .. 1 - eps, both rounded to its dtype.

    >>> ops.logit(cx.constant([0.5, 0.9])).numpy().round(3)
    array([0.   , 2.197], dtype=float32)
    """
    if eps is not None:
        x = clamp(x if x.dtype.is_float else x.cast(f32), eps, 1 - eps)
    return _log_odds(x)


@floating
def _log_odds(x: Tensor) -> Tensor:
    return sub(log(x), log1p(neg(x)))


def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a + e^b) without overflow.

    >>> ops.logaddexp(cx.constant([0.0]), cx.constant([0.0])).numpy().round(3)
    array([0.693], dtype=float32)
    """
    return _logaddexp(*operands(a, b))


@composite
def _logaddexp(x: Tensor, y: Tensor) -> Tensor:
    high = x.graph.apply("max", [x, y])
    rest = log1p(exp(neg(magnitude(sub(x, y)))))
    return where(logical_or(isinf(high), eq(x, y)), _equal_logs(x, y, high), add(high, rest))


def _equal_logs(x: Tensor, y: Tensor, high: Tensor) -> Tensor:
    finite = logical_and(eq(x, y), ne(abs(x), float("inf")))
    return add(high, where(finite, full_like(x, LN_2), 0.0))


@composite
def log_one_and_exp(x: Tensor) -> Tensor:
    """log(1 + e^x) without overflow."""
    return add(maximum(x, 0.0), log1p(exp(neg(magnitude(x)))))


# ---- trigonometric and hyperbolic functions


@floating
def sin(x: Tensor) -> Tensor:
    """The sine of x radians.

    >>> ops.sin(cx.constant([0.0, np.pi / 2])).numpy().round(3)
    array([0., 1.], dtype=float32)
    """
    return x.graph.apply("sin", [x])


@floating
def cos(x: Tensor) -> Tensor:
    """The cosine of x radians.

    >>> ops.cos(cx.constant([0.0, np.pi])).numpy().round(3)
    array([ 1., -1.], dtype=float32)
    """
    return x.graph.apply("cos", [x])


@floating
@composite
def tan(x: Tensor) -> Tensor:
    """sin(x) / cos(x).

    >>> ops.tan(cx.constant([0.0, np.pi / 4])).numpy().round(3)
    array([0., 1.], dtype=float32)
    """
    return div(sin(x), cos(x))


def _half_angle(x: Tensor) -> Tensor:
    """tan(a / 2) from x = tan(a)."""
    return div(x, add(sqrt(add(square(x), 1.0)), 1.0))


@floating
@composite
def atan(x: Tensor) -> Tensor:
    """The angle with this tangent: two half angles, then the series (|y| <= 0.2).

    >>> ops.atan(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 0.785], dtype=float32)
    """
    large = gt(magnitude(x), 1.0)
    y = _half_angle(_half_angle(where(large, reciprocal(x), x)))
    series = [4 * (-1) ** n / (2 * n + 1) for n in range(_terms(x, 6, 13))]
    angle = mul(y, polynomial(square(y), series))
    right = where(lt(x, 0.0), full_like(x, -math.pi / 2), math.pi / 2)
    return where(large, sub(right, angle), angle)


def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y), in -pi .. pi, with the sign of y.

    >>> ops.atan2(cx.constant([1.0, -1.0]), cx.constant([-1.0, -1.0])).numpy().round(3)
    array([ 2.356, -2.356], dtype=float32)
    """
    return _atan2(*operands(y, x))


@composite
def _atan2(a: Tensor, b: Tensor) -> Tensor:
    both = logical_and(isinf(a), isinf(b))
    steep = where(both, mul(sign_of(a), sign_of(b)), div(a, b))
    angle = where(logical_and(eq(a, 0.0), eq(b, 0.0)), a, atan(steep))
    behind = lt(sign_of(b), 0.0)
    return where(behind, add(angle, mul(sign_of(a), math.pi)), angle)


def sign_of(x: Tensor) -> Tensor:
    """1 or -1, also for both zeros; NaN stays."""
    signed = where(eq(x, 0.0), reciprocal(x), x)
    return where(isnan(x), x, where(lt(signed, 0.0), full_like(x, -1), full_like(x, 1)))


@floating
@composite
def asin(x: Tensor) -> Tensor:
    """2 atan(x / (1 + sqrt(1 - x^2))).

    >>> ops.asin(cx.constant([0.0, 0.5, 1.0])).numpy().round(3)
    array([0.   , 0.524, 1.571], dtype=float32)
    """
    root = sqrt(mul(sub(1.0, x), add(x, 1.0)))
    return mul(atan(div(x, add(root, 1.0))), 2.0)


@floating
@composite
def acos(x: Tensor) -> Tensor:
    """2 atan(sqrt((1 - x) / (1 + x))).

    >>> ops.acos(cx.constant([1.0, 0.0, -1.0])).numpy().round(3)
    array([0.   , 1.571, 3.142], dtype=float32)
    """
    return mul(atan(div(sqrt(sub(1.0, x)), sqrt(add(x, 1.0)))), 2.0)


@floating
@composite
def sinh(x: Tensor) -> Tensor:
    """(e^x - e^-x) / 2, a series near 0.

    >>> ops.sinh(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 1.175], dtype=float32)
    """
    series = [1 / math.factorial(2 * n + 1) for n in range(_terms(x, 6, 10))]
    near = mul(x, polynomial(square(x), series))
    return where(lt(magnitude(x), 1.0), near, sub(_half_exp(x), _half_exp(neg(x))))


@floating
@composite
def cosh(x: Tensor) -> Tensor:
    """(e^x + e^-x) / 2.

    >>> ops.cosh(cx.constant([0.0, 1.0])).numpy().round(3)
    array([1.   , 1.543], dtype=float32)
    """
    return add(_half_exp(x), _half_exp(neg(x)))


def _half_exp(x: Tensor) -> Tensor:
    """e^x / 2, which overflows later than e^x."""
    return x.graph.apply("exp2", [sub(mul(x, LOG2_E), 1.0)])


def _tanh_series(count: int) -> list[float]:
    """tanh x = x (t0 + t1 x^2 + ...), from tanh' = 1 - tanh^2."""
    t = [Fraction(1)]
    while len(t) < count:
        n = len(t)
        t.append(-sum(t[i] * t[n - 1 - i] for i in range(n)) / (2 * n + 1))  # type: ignore[arg-type]
    return [float(value) for value in t]


@floating
@composite
def tanh(x: Tensor) -> Tensor:
    """1 - 2 / (1 + e^2x), a series near 0.

    >>> ops.tanh(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 0.762], dtype=float32)
    """
    near = mul(x, polynomial(square(x), _tanh_series(_terms(x, 6, 13))))
    power = x.graph.apply("exp2", [mul(x, 2 * LOG2_E)])
    far = sub(1.0, mul(reciprocal(add(power, 1.0)), 2.0))
    return where(lt(magnitude(x), 0.25), near, far)


@floating
@composite
def asinh(x: Tensor) -> Tensor:
    """sign(x) log(|x| + sqrt(x^2 + 1)).

    >>> ops.asinh(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 0.881], dtype=float32)
    """
    size = abs(x)
    root = add(sqrt(add(square(size), 1.0)), 1.0)
    near = log1p(add(size, div(square(size), root)))
    result = where(gt(size, 1e6), add(log(size), LN_2), near)
    signed = where(lt(x, 0.0), neg(result), result)
    return where(eq(x, 0.0), x, signed)  # -0 stays


@floating
@composite
def acosh(x: Tensor) -> Tensor:
    """log(x + sqrt(x^2 - 1)), for x >= 1.

    >>> ops.acosh(cx.constant([1.0, 2.0])).numpy().round(3)
    array([0.   , 1.317], dtype=float32)
    """
    t = sub(x, 1.0)
    near = log1p(add(t, sqrt(mul(t, add(t, 2.0)))))
    result = where(gt(x, 1e6), add(log(x), LN_2), near)
    return where(lt(x, 1.0), float("nan"), result)


@floating
@composite
def atanh(x: Tensor) -> Tensor:
    """log((1 + x) / (1 - x)) / 2.

    >>> ops.atanh(cx.constant([0.0, 0.5])).numpy().round(3)
    array([0.   , 0.549], dtype=float32)
    """
    return mul(sub(log1p(x), log1p(neg(x))), 0.5)
