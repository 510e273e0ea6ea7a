"""The gamma function's relatives and scaled error functions, computed in f64, rounded once.

Sums and series are those of Abramowitz & Stegun, chapters 6, 7 and 23.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from ..graph.dtype import f32, f64
from ..graph.tensor import Tensor
from .base import composite, full_like
from .clamping import clamp
from .coefficients import ERFC
from .elementwise import (
    abs,
    add,
    div,
    floor,
    isinf,
    mul,
    neg,
    reciprocal,
    round,
    square,
    sub,
)  # fmt: skip
from .logic import eq, gt, isnan, le, logical_and, logical_or, lt, ne, where
from .math import exp, log, log1p, polynomial, sin, sqrt, tan
from .powers import pow

SHIFT = 8  # how far the asymptotic series are taken out; their error there is below 1e-14
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
NEWTON_STEPS = 3
RATIONAL = (2.515517, 0.802853, 0.010328), (1.0, 1.432788, 0.189269, 0.001308)


def doubled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Tensors come in f64; the result has the dtype of the first (f32 for integers)."""

    @wraps(function)
    def wrapped(*arguments: Any) -> Tensor:
        first = next(a for a in arguments if isinstance(a, Tensor))
        kind = first.dtype if first.dtype.is_float else f32
        wide = [a.cast(f64) if isinstance(a, Tensor) else a for a in arguments]
        return function(*wide).cast(kind)

    return wrapped


def _is_pole(x: Tensor) -> Tensor:
    """0, -1, -2, ..."""
    return logical_and(le(x, 0), eq(x, floor(x)))


def _sin_pi(x: Tensor) -> Tensor:
    """|sin(pi x)|, of tiny x too."""
    return sin(mul(abs(sub(x, round(x))), math.pi))


@composite
@doubled
def lgamma(x: Tensor) -> Tensor:
    """log |gamma(x)|: Stirling's series at x + 8, less the log of x (x + 1) ... (x + 7); for
    x < 1/2 the reflection log(pi / |sin pi x|) - lgamma(1 - x).

    >>> ops.lgamma(cx.constant([3.0, 5.0])).numpy().round(3)
    array([0.693, 3.178], dtype=float32)
    """
    low = lt(x, 0.5)
    z = where(low, sub(1, x), x)
    near = lt(z, 32)
    product = full_like(z, 1)
    for n in range(SHIFT):
        product = mul(product, add(where(near, z, 1.0), n))
    far = where(near, add(z, SHIFT), z)
    inverse = reciprocal(far)
    terms = [b / (2 * n * (2 * n - 1)) for n, b in enumerate(BERNOULLI, 1)]
    series = mul(polynomial(square(inverse), terms), inverse)
    stirling = add(sub(mul(sub(far, 0.5), log(far)), far), 0.5 * math.log(2 * math.pi))
    right = add(sub(stirling, where(near, log(product), 0.0)), series)
    whole = where(low, sub(math.log(math.pi), add(log(_sin_pi(x)), right)), right)
    return where(logical_or(isinf(x), _is_pole(x)), math.inf, whole)


@composite
@doubled
def digamma(x: Tensor) -> Tensor:
    """The derivative of lgamma, by the same shift and reflection; -+inf at +-0, NaN at -1, ...

    >>> ops.digamma(cx.constant([1.0, 2.0])).numpy().round(3)
    array([-0.577,  0.423], dtype=float32)
    """
    low = lt(x, 0)
    z = where(low, sub(1, x), x)
    steps = full_like(z, 0)
    for n in range(SHIFT):
        steps = add(steps, reciprocal(add(z, n)))
    inverse = reciprocal(add(z, SHIFT))
    terms = [b / (2 * n) for n, b in enumerate(BERNOULLI, 1)]
    series = mul(polynomial(square(inverse), terms), square(inverse))
    right = sub(sub(sub(log(add(z, SHIFT)), mul(inverse, 0.5)), series), steps)
    fraction = sub(x, round(x))
    mirrored = sub(right, div(math.pi, tan(mul(fraction, math.pi))))
    whole = where(low, where(_is_pole(x), math.nan, mirrored), right)
    return where(eq(x, 0), neg(reciprocal(x)), whole)


@doubled
def zeta(s: Tensor, q: Tensor) -> Tensor:
    """Hurwitz's: the sum over k of (k + q)^-s. For q < 0 it takes whole s, as those of the terms
    below 0 are (-1)^s (-k - q)^-s; infinite where k + q is 0."""
    low, size = lt(q, 0), abs(q)
    part = sub(size, floor(size))
    above = _zeta(s, where(low, sub(1, part), q))
    below = sub(_zeta(s, part), _zeta(s, add(size, 1)))
    odd = ne(mul(floor(mul(s, 0.5)), 2), s)
    whole = where(low, add(above, where(odd, neg(below), below)), above)
    value = where(logical_and(low, ne(s, floor(s))), math.nan, whole)
    value = where(_is_pole(q), math.inf, value)
    return where(eq(s, 1), math.inf, where(lt(s, 1), math.nan, value))


def _zeta(s: Tensor, q: Tensor) -> Tensor:
    """Of q >= 0 and s > 1, by Euler and Maclaurin from k = 20 on."""
    steps = 2 * SHIFT + 4
    total = full_like(s, 0)
    for n in range(steps):
        total = add(total, pow(add(q, n), neg(s)))
    a = add(q, steps)
    tail = pow(a, neg(s))
    total = add(total, add(div(mul(tail, a), sub(s, 1)), mul(tail, 0.5)))
    rising, power = s, div(tail, a)
    for n, bernoulli in enumerate(BERNOULLI, 1):
        total = add(total, mul(mul(rising, power), bernoulli / math.factorial(2 * n)))
        rising = mul(rising, mul(add(s, 2 * n - 1), add(s, 2 * n)))
        power = div(power, square(a))
    return where(eq(q, 0), math.inf, total)


def polygamma(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x).

    >>> ops.polygamma(1, cx.constant([1.0])).numpy().round(3)
    array([1.645], dtype=float32)
    """
    if n == 0:
        return digamma(x)
    return _polygamma(x, n)


@composite
@doubled
def _polygamma(x: Tensor, n: int) -> Tensor:
    """Below 0 by reflection: (-1)^n of 1 - x, less the n-th derivative of pi cot(pi x)."""
    low = logical_and(lt(x, 0), ne(x, floor(x)))
    size = (-1.0) ** (n + 1) * math.factorial(n)
    right = where(_is_pole(x), 0.0, where(low, sub(1, x), x))
    value = mul(_zeta(full_like(x, n + 1), right), size)
    cotangent = reciprocal(tan(mul(sub(x, round(x)), math.pi)))
    change = mul(polynomial(cotangent, _of_cotangent(n)), math.pi ** (n + 1))
    whole = where(low, sub(mul(value, (-1.0) ** n), change), value)
    return where(eq(x, math.inf), 0.0, whole) if n == 1 else whole  # else NaN, as in PyTorch


def _of_cotangent(n: int) -> list[float]:
    """The n-th derivative of the cotangent as a polynomial of it: cot' = -(1 + cot^2)."""
    powers = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(powers)][1:]
        powers = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope])]
    return powers


# ---- error functions of the tails


@composite
@doubled
def erfcx(x: Tensor) -> Tensor:
    """e^(x^2) erfc(x), by the series in 1 / x^2 where x is large."""
    size = abs(x)
    tail = polynomial(div(full_like(x, 2), add(size, 2.0)), ERFC["f64"])
    inverse = reciprocal(square(size))
    series = polynomial(inverse, [1, -0.5, 0.75, -1.875, 6.5625, -29.53125])
    far = div(mul(series, 1 / math.sqrt(math.pi)), size)
    right = where(gt(size, 50), far, tail)
    return where(lt(x, 0), sub(mul(exp(square(x)), 2.0), right), right)


@composite
@doubled
def log_ndtr(x: Tensor) -> Tensor:
    """The log of the normal distribution function."""
    left = sub(log(mul(erfcx(mul(x, -math.sqrt(0.5))), 0.5)), mul(square(x), 0.5))
    mirrored = log1p(mul(erfcx(mul(x, math.sqrt(0.5))), mul(exp(mul(square(x), -0.5)), -0.5)))
    return where(lt(x, 0), left, where(isinf(x), 0.0, mirrored))


@composite
@doubled
def ndtri(p: Tensor) -> Tensor:
    """The inverse of the normal distribution function: Newton on its logarithm, on the side below
    1/2, from formula 26.2.23 of Abramowitz & Stegun, which errs by less than 4.5e-4."""
    low = lt(p, 0.5)
    wanted = where(low, log(p), log1p(neg(p)))
    t = sqrt(clamp(mul(wanted, -2.0), 0))
    ratio = div(polynomial(t, RATIONAL[0]), polynomial(t, RATIONAL[1]))
    x = sub(ratio, t)
    for _ in range(NEWTON_STEPS):
        scaled = erfcx(mul(x, -math.sqrt(0.5)))
        value = sub(log(mul(scaled, 0.5)), mul(square(x), 0.5))
        x = sub(x, mul(mul(sub(value, wanted), scaled), math.sqrt(math.pi / 2)))
    x = where(isinf(wanted), -math.inf, x)
    x = where(eq(p, 0.5), 0.0, where(low, x, neg(x)))
    return where(isnan(wanted), math.nan, x)
