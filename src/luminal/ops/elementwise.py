"""Arithmetic and rounding, with PyTorch's promotion and broadcasting."""

from __future__ import annotations

import builtins
import math

from ..errors import DTypeError
from ..graph.dtype import DType, boolean, f32
from ..graph.tensor import Tensor
from .base import (
    Value,
    binary,
    floating,
    full_like,
    graph_of,
    literal,
    operands,
    result_type,
)
from .logic import eq, isnan, isneginf, isposinf, le, logical_and, logical_or, lt, ne, where

# ---- arithmetic


def add(a: Value, b: Value, alpha: Value = 1) -> Tensor:
    """a + alpha b. Of two bools: or.

    >>> ops.add(cx.constant([1.0, 2.0]), cx.constant([10.0, 20.0]), alpha=2).numpy()
    array([21., 42.], dtype=float32)
    """
    if alpha != 1:
        b = mul(b, alpha)
    kind = result_type(a, b)
    return binary("or" if kind is boolean else "add", a, b, kind)


def mul(a: Value, b: Value) -> Tensor:
    """a b. Of two bools: and.

    >>> ops.mul(cx.constant([1.0, 2.0]), cx.constant([3.0, 4.0])).numpy()
    array([3., 8.], dtype=float32)
    """
    kind = result_type(a, b)
    return binary("and" if kind is boolean else "mul", a, b, kind)


def neg(x: Tensor) -> Tensor:
    """-x; unsigned integers wrap around.

    >>> ops.neg(cx.constant([1.0, -2.0])).numpy()
    array([-1.,  2.], dtype=float32)
    """
    _no_bool("neg", x.dtype)
    return x.graph.apply("mul", [x, full_like(x, -1)])


def sub(a: Value, b: Value, alpha: Value = 1) -> Tensor:
    """a - alpha b.

    >>> ops.sub(cx.constant([1.0, 2.0]), cx.constant([10.0, 20.0]), alpha=2).numpy()
    array([-19., -38.], dtype=float32)
    """
    if alpha != 1:
        b = mul(b, alpha)
    kind = result_type(a, b)
    _no_bool("sub", kind)
    if not isinstance(b, Tensor):
        return binary("add", a, literal(graph_of(a), -b, kind), kind)
    return binary("add", a, neg(b.cast(kind)), kind)


def rsub(a: Value, b: Value) -> Tensor:
    """b - a.

    >>> ops.rsub(cx.constant([1.0, 2.0]), 10.0).numpy()
    array([9., 8.], dtype=float32)
    """
    return sub(b, a)


def _no_bool(op: str, kind: DType) -> None:
    if kind is boolean:
        raise DTypeError(f"{op} is not defined for bool; use logical_not or cast it first")


def div(a: Value, b: Value, rounding_mode: str | None = None) -> Tensor:
    """a / b in floats; with rounding_mode "floor" or "trunc" in the common dtype.

    >>> ops.div(cx.constant([7.0, -7.0]), 2.0, rounding_mode="floor").numpy()
    array([ 3., -4.], dtype=float32)
    """
    if rounding_mode == "floor":
        return floor_divide(a, b)
    kind = result_type(a, b)
    if rounding_mode == "trunc":
        return trunc(binary("div", a, b)) if kind.is_float else _truncated_quotient(a, b)
    if rounding_mode is not None:
        raise DTypeError(f'rounding_mode is None, "floor" or "trunc", not {rounding_mode!r}')
    return binary("div", a, b, kind if kind.is_float else f32)


def _truncated_quotient(a: Value, b: Value) -> Tensor:
    """Integer division towards zero: one more than the floor where that is inexact and negative."""
    x, y = operands(a, b)
    quotient = x.graph.apply("floor_div", [x, y])
    inexact = ne(x.graph.apply("mod", [x, y]), 0)
    opposite = ne(lt(x, 0), lt(y, 0))
    return add(quotient, logical_and(inexact, opposite).cast(x.dtype))


def floor_divide(a: Value, b: Value) -> Tensor:
    """floor(a / b), exact; integers stay integers and a zero divisor gives 0 for them. A zero has
    the sign of a / b.

    >>> ops.floor_divide(cx.constant([-7, 7]), 2).numpy()
    array([-4,  3])
    """
    x, y = operands(a, b)
    if not x.dtype.is_float:
        return x.graph.apply("floor_div", [x, y])
    exact = round(x.graph.apply("div", [sub(x, modulo(x, y)), y]))
    ratio = x.graph.apply("div", [x, y])
    if isinstance(b, Tensor) or b == 0 or not math.isfinite(b):
        exact = where(eq(abs(y), float("inf")), _floor_of_tiny(x, y), exact)
        exact = where(eq(y, 0), ratio, exact)
    return where(eq(exact, 0), mul(ratio, 0.0), exact)


def _floor_of_tiny(x: Tensor, y: Tensor) -> Tensor:
    """floor(x / y) for an infinite y: -1 where the signs differ, else 0; NaN for infinite x."""
    opposite = logical_and(ne(x, 0), ne(lt(x, 0), lt(y, 0)))
    return sub(mul(x, 0.0), opposite.cast(x.dtype))


def modulo(a: Value, b: Value) -> Tensor:
    """a modulo b with the sign of b, of a zero too."""
    return binary("mod", a, b)


def reciprocal(x: Tensor) -> Tensor:
    """1 / x.

    >>> ops.reciprocal(cx.constant([2.0, 4.0])).numpy()
    array([0.5 , 0.25], dtype=float32)
    """
    x = x if x.dtype.is_float else x.cast(f32)
    return x.graph.apply("recip", [x])


def maximum(a: Value, b: Value) -> Tensor:
    """The larger; NaN if either is.

    >>> ops.maximum(cx.constant([1.0, 5.0]), 3.0).numpy()
    array([3., 5.], dtype=float32)
    """
    return binary("max", a, b)


def minimum(a: Value, b: Value) -> Tensor:
    """The smaller; NaN if either is.

    >>> ops.minimum(cx.constant([1.0, 5.0]), 3.0).numpy()
    array([1., 3.], dtype=float32)
    """
    return binary("min", a, b)


def fmax(a: Value, b: Value) -> Tensor:
    """The larger, the first of equal ones; a NaN counts as missing.

    >>> ops.fmax(cx.constant([1.0, float("nan")]), cx.constant([2.0, 3.0])).numpy()
    array([2., 3.], dtype=float32)
    """
    x, y = operands(a, b)
    return where(logical_or(isnan(x), lt(x, y)), y, x)


def fmin(a: Value, b: Value) -> Tensor:
    """The smaller, the first of equal ones; a NaN counts as missing.

    >>> ops.fmin(cx.constant([1.0, float("nan")]), cx.constant([2.0, 3.0])).numpy()
    array([1., 3.], dtype=float32)
    """
    x, y = operands(a, b)
    return where(logical_or(isnan(x), lt(y, x)), y, x)


def abs(x: Tensor) -> Tensor:
    """|x|. The most negative integer stays as it is.

    >>> ops.abs(cx.constant([-2.0, 3.0])).numpy()
    array([2., 3.], dtype=float32)
    """
    size = maximum(x, neg(x)) if x.dtype.is_signed else x
    return add(size, 0.0) if x.dtype.is_float else size  # 0 even where the larger one is -0


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; 0 for NaN.

    >>> ops.sign(cx.constant([-2.0, 0.0, 3.0])).numpy()
    array([-1.,  0.,  1.], dtype=float32)
    """
    if not x.dtype.is_signed:
        return ne(x, 0).cast(x.dtype)
    return sub(lt(0, x).cast(x.dtype), lt(x, 0).cast(x.dtype))


def square(x: Tensor) -> Tensor:
    """x x.

    >>> ops.square(cx.constant([-3.0])).numpy()
    array([9.], dtype=float32)
    """
    return mul(x, x)


def floor(x: Tensor) -> Tensor:
    """The largest whole number that is not above x.

    >>> ops.floor(cx.constant([1.7, -1.2])).numpy()
    array([ 1., -2.], dtype=float32)
    """
    return x.graph.apply("floor", [x]) if x.dtype.is_float else x


def ceil(x: Tensor) -> Tensor:
    """The smallest whole number that is not below x.

    >>> ops.ceil(cx.constant([1.2, -1.2])).numpy()
    array([ 2., -1.], dtype=float32)
    """
    return x.graph.apply("ceil", [x]) if x.dtype.is_float else x


def trunc(x: Tensor) -> Tensor:
    """x without its fraction.

    >>> ops.trunc(cx.constant([1.7, -1.7])).numpy()
    array([ 1., -1.], dtype=float32)
    """
    return x.graph.apply("trunc", [x]) if x.dtype.is_float else x


def frac(x: Tensor) -> Tensor:
    """x - trunc(x).

    >>> ops.frac(cx.constant([1.5, -1.5])).numpy()
    array([ 0.5, -0.5], dtype=float32)
    """
    return sub(x, trunc(x))


def round(x: Tensor, decimals: int = 0) -> Tensor:
    """To the nearest whole number, half to even; or to `decimals` digits.

    >>> ops.round(cx.constant([0.5, 1.5, 2.345]), 0).numpy()
    array([0., 2., 2.], dtype=float32)
    """
    if not x.dtype.is_float:
        return x
    if decimals == 0:
        return x.graph.apply("round", [x])
    return _round_digits(x, decimals)


@floating
def _round_digits(x: Tensor, decimals: int) -> Tensor:
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return div(round(mul(x, scale)), scale)
    return mul(round(div(x, scale)), scale)


def lerp(start: Tensor, end: Tensor, weight: Value) -> Tensor:
    """start + weight (end - start), exact at both ends.

    >>> ops.lerp(cx.constant([0.0, 10.0]), cx.constant([10.0, 20.0]), 0.5).numpy()
    array([ 5., 15.], dtype=float32)
    """
    difference = sub(end, start)
    near_end = sub(end, mul(difference, sub(full_like(difference, 1), weight)))
    near_start = add(start, mul(difference, weight))
    if not isinstance(weight, Tensor):
        return near_start if -0.5 < weight < 0.5 else near_end
    return where(lt(abs(weight), 0.5), near_start, near_end)


def addcmul(x: Tensor, a: Tensor, b: Tensor, value: Value = 1) -> Tensor:
    """x + value a b.

    >>> a, b, c = cx.constant([1.0]), cx.constant([2.0]), cx.constant([3.0])
    >>> ops.addcmul(a, b, c, value=10).numpy()
    array([61.], dtype=float32)
    """
    return add(x, mul(mul(a, b), value))


def addcdiv(x: Tensor, a: Tensor, b: Tensor, value: Value = 1) -> Tensor:
    """x + value a / b.

    >>> a, b, c = cx.constant([1.0]), cx.constant([6.0]), cx.constant([3.0])
    >>> ops.addcdiv(a, b, c, value=10).numpy()
    array([21.], dtype=float32)
    """
    return add(x, mul(div(a, b), value))


# ---- what is not finite


def isinf(x: Tensor) -> Tensor:
    """x is plus or minus infinity.

    >>> ops.isinf(cx.constant([1.0, float("-inf")])).numpy()
    array([False,  True])
    """
    return eq(abs(x), float("inf")) if x.dtype.is_float else full_like(x, False, boolean)


def isfinite(x: Tensor) -> Tensor:
    """x is neither infinite nor NaN.

    >>> ops.isfinite(cx.constant([1.0, float("inf"), float("nan")])).numpy()
    array([ True, False, False])
    """
    return lt(abs(x), float("inf")) if x.dtype.is_float else full_like(x, True, boolean)


def isclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """|a - b| <= atol + rtol |b|, or equal.

    >>> ops.isclose(cx.constant([1.0, 2.0]), cx.constant([1.0 + 1e-7, 2.1])).numpy()
    array([ True, False])
    """
    distance = abs(sub(a, b))
    near = logical_and(isfinite(distance), le(distance, add(mul(abs(b), rtol), atol)))
    near = logical_or(eq(a, b), near)
    return logical_or(near, logical_and(isnan(a), isnan(b))) if equal_nan else near


def nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and the infinities replaced; by default by 0 and the largest finite numbers.

    >>> ops.nan_to_num(cx.constant([float("nan"), float("inf")]), posinf=9.0).numpy()
    array([0., 9.], dtype=float32)
    """
    if not x.dtype.is_float:
        return x
    largest = _largest_finite(x.dtype)
    x = where(isnan(x), nan, x)
    x = where(isposinf(x), largest if posinf is None else posinf, x)
    return where(isneginf(x), -largest if neginf is None else neginf, x)


def _largest_finite(kind: DType) -> float:
    exponent, fraction = {"f64": (1024, 53), "f32": (128, 24), "f16": (16, 11), "bf16": (128, 8)}[
        kind.name
    ]
    return (2.0 - 2.0 ** (1 - fraction)) * 2.0 ** (exponent - 1)
