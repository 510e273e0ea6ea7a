"""Powers: exact for whole numbers, in f32 or f64 by logarithms else."""

from __future__ import annotations

import math

from ..graph.dtype import boolean, f64
from ..graph.tensor import Tensor
from .base import Value, composite, floating, full_like, literal, operands, result_type
from .bits import bitwise_and, bitwise_right_shift
from .elementwise import abs, add, floor, isinf, modulo, mul, neg, reciprocal, round, square, sub
from .logic import eq, ge, logical_and, logical_not, logical_or, lt, ne, where
from .math import exp2, rsqrt, sign_of, sqrt

# bytes of an integer -> k: 2^k is at least the number of its bits, and so is 3 (k + 2)
LOW_BITS = {1: 3, 2: 4, 4: 9, 8: 20}


def pow(base: Value, exponent: Value) -> Tensor:
    """base^exponent: integers exactly, negative bases for whole exponents, else NaN.

    >>> ops.pow(cx.constant([2.0, -2.0]), 3).numpy()
    array([ 8., -8.], dtype=float32)
    """
    kind = result_type(base, exponent)
    if isinstance(base, Tensor) and not isinstance(exponent, Tensor):
        return _pow_number(base.cast(kind), exponent)
    x, y = operands(base, exponent)
    if kind.is_float and not isinstance(base, Tensor) and base == 2:
        return exp2(y)
    return _pow_integer(x, y) if not kind.is_float else _pow_float(x, y)


def _pow_number(x: Tensor, exponent: float) -> Tensor:
    if exponent == int(exponent) if math.isfinite(exponent) else False:
        whole = int(exponent)
        if builtin_abs(whole) <= 8 or (not x.dtype.is_float and whole >= 0):
            return _repeated_squaring(x, whole) if whole >= 0 else _pow_below_zero(x, whole)
    if exponent in (0.5, -0.5) and x.dtype.is_float:
        return sqrt(x) if exponent > 0 else rsqrt(x)
    return pow(x, literal(x.graph, exponent, x.dtype))


@composite
def _pow_below_zero(x: Tensor, exponent: int) -> Tensor:
    return reciprocal(_repeated_squaring(x, -exponent))


def builtin_abs(value: int) -> int:
    """The absolute value of a Python integer (this module has an `abs` of tensors)."""
    return -value if value < 0 else value


def _repeated_squaring(x: Tensor, exponent: int) -> Tensor:
    result = None
    while exponent:
        if exponent & 1:
            result = x if result is None else mul(result, x)
        exponent >>= 1
        x = square(x) if exponent else x
    return full_like(x, 1) if result is None else result


def _pow_integer(x: Tensor, y: Tensor) -> Tensor:
    """Square and multiply by the lowest bits of y, and by the others at once; for y < 0 the whole
    part of 1 / x^|y|."""
    result, power, one = full_like(x, 1), x, full_like(y, 1)
    low = 1 if x.dtype is boolean else LOW_BITS[x.dtype.bytes]
    for bit in range(low):
        mask = full_like(y, 1 << bit)
        result = where(ne(bitwise_and(y, mask), 0), mul(result, power), result)
        power = square(power)
    if x.dtype is not boolean:
        result = mul(result, _power_of_near_one(power, bitwise_right_shift(y, low)))
    if not x.dtype.is_signed:
        return result
    odd = ne(bitwise_and(y, one), 0)
    of_minus_one = where(odd, full_like(x, -1), full_like(x, 1))
    inverse = where(eq(x, 1), x, where(eq(x, -1), of_minus_one, full_like(x, 0)))
    return where(lt(y, 0), inverse, result)


def _power_of_near_one(x: Tensor, n: Tensor) -> Tensor:
    """x^n where x is b^(2^k), k of LOW_BITS: 0 for an even b, else 1 + u where 2^(k + 2) divides u,
    so that u^3 = 0: (1 + u)^n = 1 + n u + n (n - 1) u^2 / 2."""
    u = sub(x, 1)
    first = mul(n, u)
    second = mul(mul(first, sub(n, 1)), bitwise_right_shift(u, 1))
    return where(logical_and(eq(x, 0), ne(n, 0)), 0, add(add(first, second), 1))


@floating
@composite
def _pow_float(x: Tensor, y: Tensor) -> Tensor:
    """2^(y log2 |x|), with the sign of x for odd y."""
    size = x.graph.apply("exp2", [mul(y, x.graph.apply("log2", [abs(x)]))])
    size = _exact_whole(x, y, size)
    whole = logical_or(eq(floor(y), y), isinf(y))
    odd = logical_and(eq(modulo(y, 2.0), 1.0), whole)
    negative = lt(sign_of(x), 0.0)  # also of -0
    signed = where(logical_and(odd, negative), neg(size), size)
    undefined = logical_and(lt(x, 0.0), logical_not(logical_or(whole, isinf(x))))
    result = where(undefined, float("nan"), signed)
    plain = logical_or(eq(y, 0.0), eq(x, 1.0))
    return where(logical_or(plain, logical_and(eq(x, -1.0), isinf(y))), 1.0, result)


def _exact_whole(x: Tensor, y: Tensor, power: Tensor) -> Tensor:
    """Whole powers of whole numbers are whole: what the logarithm lost is rounded back, as long as
    it is less than a half (up to 2^17 in f32, 2^46 in f64)."""
    limit = 2.0 ** (46 if x.dtype is f64 else 17)
    wholes = logical_and(eq(floor(x), x), eq(floor(y), y))
    close = logical_and(ge(y, 0.0), lt(power, limit))
    return where(logical_and(wholes, close), round(power), power)
