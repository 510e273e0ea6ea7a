"""What few need of single numbers: inverse error function, common divisors, floats taken apart."""

from __future__ import annotations

import math
from functools import reduce as folded

from ..errors import Unsupported
from ..graph.dtype import boolean, dtype, f32, f64, i32, i64
from ..graph.tensor import Tensor
from .base import Value, composite, floating, full_like, operands, promoting
from .clamping import clamp
from .elementwise import (
    abs,
    add,
    div,
    floor,
    isfinite,
    isinf,
    maximum,
    minimum,
    mul,
    neg,
    square,
    sub,
)  # fmt: skip
from .erf import erf, erfc
from .gamma import lgamma
from .logic import eq, ge, isnan, logical_and, logical_or, lt, ne, where
from .math import exp, exp2, log1p, log2, sqrt
from .powers import pow
from .remainders import remainder
from .special import copysign


def positive(x: Tensor) -> Tensor:
    """+x.

    >>> ops.positive(cx.constant([-1.0])).numpy()
    array([-1.], dtype=float32)
    """
    return x


def isreal(x: Tensor) -> Tensor:
    """True: there are no complex tensors.

    >>> ops.isreal(cx.constant([1.0])).numpy()
    array([ True])
    """
    return full_like(x, True, boolean)


@floating
def angle(x: Tensor) -> Tensor:
    """Of a real number: 0, or pi below 0; NaN stays.

    >>> ops.angle(cx.constant([2.0, -2.0])).numpy().round(3)
    array([0.   , 3.142], dtype=float32)
    """
    return where(isnan(x), x, where(lt(x, 0), full_like(x, math.pi), 0.0))


def float_power(base: Value, exponent: Value) -> Tensor:
    """base^exponent in f64.

    >>> ops.float_power(cx.constant([2, 3]), 0.5).numpy().round(3)
    array([1.414, 1.732])
    """
    x, y = operands(base, exponent, kind=f64)
    return pow(x, y)


def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """x 2^exponent, rounded once where x is a float and the exponent an integer: in three factors,
    of which the first ones round no number that the last leaves above 0.

    >>> ops.ldexp(cx.constant([1.5]), cx.constant([3])).numpy()
    array([12.], dtype=float32)
    """
    if not x.dtype.is_float or not exponent.dtype.is_integer:
        kind = x.dtype if x.dtype.is_float else f32
        return mul(x, exp2(exponent if exponent.dtype.is_float else exponent.cast(kind)))
    most, least, step = (1023, -1022, -969) if x.dtype is f64 else (127, -126, -102)
    wide = x if x.dtype is f64 else x.cast(f32)
    left = clamp(exponent.cast(i64), 3 * least, 3 * most)
    for _ in range(2):
        part = where(lt(left, least), step, minimum(left, most))
        wide, left = mul(wide, exp2(part.cast(wide.dtype))), sub(left, part)
    return mul(wide, exp2(clamp(left, least, most).cast(wide.dtype))).cast(x.dtype)


@promoting
def logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    """log2(2^a + 2^b) without overflow.

    >>> ops.logaddexp2(cx.constant([1.0]), cx.constant([1.0])).numpy().round(3)
    array([2.], dtype=float32)
    """
    return _logaddexp2(*operands(a, b))


@composite
def _logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    high, low = maximum(a, b), minimum(a, b)
    near = add(high, mul(log1p(exp2(sub(low, high))), 1 / math.log(2)))
    return where(logical_and(isinf(high), eq(a, b)), high, near)


def mvlgamma(x: Tensor, p: int) -> Tensor:
    """The log of the multivariate gamma function of dimension p.

    >>> ops.mvlgamma(cx.constant([2.0]), 2).numpy().round(3)
    array([0.452], dtype=float32)
    """
    total = full_like(x if x.dtype.is_float else x.cast(f32), p * (p - 1) / 4 * math.log(math.pi))
    for i in range(p):
        total = add(total, lgamma(sub(x, i / 2)))
    return total


@floating
@composite
def erfinv(x: Tensor) -> Tensor:
    """Winitzki's start (0.2% off), then Newton's steps: erf'(y) = 2 / sqrt(pi) e^(-y^2).

    >>> ops.erfinv(cx.constant([0.0, 0.5])).numpy().round(3)
    array([0.   , 0.477], dtype=float32)
    """
    x64 = x.cast(f64)
    y = _winitzki(x64)
    for _ in range(3 if x.dtype is f64 else 2):
        near = lt(abs(x64), 0.5)
        tail = mul(_sign(y), sub(sub(1, abs(x64)), erfc(abs(y))))
        gap = where(near, sub(erf(y), x64), tail)
        slope = mul(exp(neg(square(y))), 2 / math.sqrt(math.pi))
        y = where(eq(gap, 0), y, sub(y, div(gap, slope)))
    y = where(eq(abs(x64), 1), mul(_sign(x64), full_like(x64, math.inf)), y)
    return where(lt(1, abs(x64)), math.nan, y).cast(x.dtype)


def _winitzki(x: Tensor) -> Tensor:
    w, a = neg(log1p(neg(square(x)))), 0.147
    half = add(mul(w, -0.5), 2 / (math.pi * a))
    far = sqrt(sub(sqrt(add(square(half), mul(w, 1 / a))), half))
    return where(lt(abs(x), 0.1), mul(x, math.sqrt(math.pi) / 2), copysign(far, x))


def _sign(x: Tensor) -> Tensor:
    return where(lt(x, 0), full_like(x, -1), full_like(x, 1))


# bits of the fraction, exponents of the smallest and the largest number
SPACING = {"f32": (23, -149, 127), "f16": (10, -24, 15), "bf16": (7, -133, 127)}


def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """The neighbour of x on the side of y: a step of 0.7 to 1.4 spacings, in f64, rounded.

    >>> ops.nextafter(cx.constant([0.0]), cx.constant([1.0])).numpy()
    array([1.e-45], dtype=float32)
    """
    x, y = operands(x, y)
    if x.dtype.name not in SPACING:
        raise Unsupported(f"the neighbour of {x.dtype}")
    bits, smallest, greatest = SPACING[x.dtype.name]
    start, end = x.cast(f64), y.cast(f64)
    largest = (2 - 2.0**-bits) * 2.0**greatest
    finite = clamp(start, -largest, largest)
    step = maximum(mul(abs(finite), 0.7 * 2.0**-bits), 0.7 * 2.0**smallest)
    moved = where(lt(start, end), add(finite, step), sub(finite, step))
    near = where(isinf(start), finite, moved).cast(x.dtype)
    missing = logical_or(isnan(x), isnan(y))
    return where(missing, math.nan, where(eq(x, y), y, near))


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """(fractions from 1/2 to 1, exponents of 2, i32); x and 0 where x is 0 or not finite.

    >>> fraction, exponent = ops.frexp(cx.constant([6.0]))
    >>> fraction.numpy(), exponent.numpy()
    (array([0.75], dtype=float32), array([3], dtype=int32))
    """
    if x.dtype is f64:
        raise Unsupported("the exponent of f64")
    plain = logical_and(isfinite(x), ne(x, 0))
    wide = where(plain, x.cast(f64), 1.0)
    power = add(floor(log2(abs(wide))), 1.0)
    fraction = mul(wide, exp2(neg(power)))
    above, below = ge(abs(fraction), 1), lt(abs(fraction), 0.5)
    fraction = where(above, mul(fraction, 0.5), fraction)
    fraction = where(below, mul(fraction, 2.0), fraction)
    power = add(power, sub(above.cast(f64), below.cast(f64)))
    return where(plain, fraction.cast(x.dtype), x), where(plain, power, 0.0).cast(i32)


def gcd(a: Tensor, b: Tensor) -> Tensor:
    """Euclid's: the last remainder that is not 0, of as many as the slowest pair of the dtype
    (Fibonacci's numbers) has. Each has the sign of its dividend, so that two signs take turns: they
    matter for the most negative number, whose absolute value is itself.

    >>> ops.gcd(cx.constant([12, 7]), 18).numpy()
    array([6, 1])
    """
    parts = [abs(part) for part in operands(a, b)]
    kind = parts[0].dtype
    rests = [part.cast(dtype(kind.name.replace("i", "u"))) for part in parts]
    for _ in range(int(kind.bytes * 8 * 1.4403) + 1):
        rests.append(remainder(rests[-2], rests[-1]))  # 0 where the divisor is 0
    found = [folded(minimum, (sub(rest, 1) for rest in rests[n::2])) for n in (0, 1)]
    signed = [
        mul(add(least, 1).cast(kind), where(lt(part, 0), -1, 1).cast(kind))
        for least, part in zip(found, parts)
    ]
    return where(lt(found[1], found[0]), signed[1], signed[0])


def lcm(a: Tensor, b: Tensor) -> Tensor:
    """|a / gcd b|; 0 where one is 0.

    >>> ops.lcm(cx.constant([4, 0]), 6).numpy()
    array([12,  0])
    """
    x, y = operands(a, b)
    divisor = gcd(x, y)
    part = div(x, where(eq(divisor, 0), 1, divisor), rounding_mode="trunc")
    return mul(abs(part), abs(y))
