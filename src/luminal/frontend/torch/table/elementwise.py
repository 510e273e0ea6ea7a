"""Elementwise operations: arithmetic, comparisons, logic, bits, transcendental functions."""

from __future__ import annotations

import math
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import DType, boolean, f32, f64, i64
from ....graph.tensor import Tensor
from ....ops.base import Value, floating, full_like, operands, result_type, tensor_of
from .base import rule, same

UNARY = """abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc exp exp2 expm1
floor frac isinf isnan isfinite log log10 log1p log2 logical_not neg reciprocal relu round
rsqrt sigmoid sign signbit silu sin sinh sqrt square tan tanh trunc isposinf isneginf mish
hardswish hardsigmoid relu6 selu sinc deg2rad rad2deg"""
for _name in UNARY.split():
    same(f"{_name}.default", getattr(ops, _name))

BINARY = """atan2.default fmax.default fmin.default fmod.Tensor
fmod.Scalar hypot.default maximum.default minimum.default mul.Tensor mul.Scalar remainder.Tensor
remainder.Scalar remainder.Scalar_Tensor logical_and.default logical_or.default
logical_xor.default floor_divide.default floor_divide.Scalar heaviside.default logaddexp.default
bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_or.Tensor
bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_xor.Tensor bitwise_xor.Scalar
bitwise_xor.Scalar_Tensor"""
for _name in BINARY.split():
    same(_name, getattr(ops, _name.split(".")[0]))

for _side, _short in (("left", "lshift"), ("right", "rshift")):
    _name = f"bitwise_{_side}_shift"
    _names = f"{_name}.Tensor {_name}.Tensor_Scalar __{_short}__.Scalar __{_short}__.Tensor"
    same(_names, getattr(ops, _name))

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    same(f"{_name}.Tensor {_name}.Scalar", getattr(ops, _name))

same("pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar", ops.pow)
same("div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode", ops.div)
same("true_divide.Tensor", ops.div)
same("round.decimals", ops.round)
same("sgn.default", ops.sign)
same("gelu.default", ops.gelu)
same("clamp.default clamp.Tensor", ops.clamp)
same("clamp_min.default clamp_min.Tensor", ops.maximum)
same("clamp_max.default clamp_max.Tensor", ops.minimum)
same("hardtanh.default", ops.hardtanh)
same("logit.default", ops.logit)
same("nan_to_num.default", ops.nan_to_num)
same("softplus.default", ops.softplus)


@rule("add.Tensor", "add.Scalar")
def add(x: Value, y: Value, alpha: Value = 1) -> Tensor:
    return _scaled(ops.add, x, y, alpha)


@rule("sub.Tensor", "sub.Scalar")
def sub(x: Value, y: Value, alpha: Value = 1) -> Tensor:
    return _scaled(ops.sub, x, y, alpha)


@rule("rsub.Tensor", "rsub.Scalar")
def rsub(x: Value, y: Value, alpha: Value = 1) -> Tensor:
    return _scaled(ops.sub, y, x, alpha)


def _scaled(function: Any, x: Value, y: Value, alpha: Value) -> Tensor:
    """x +- alpha y, in f32 throughout for narrow floats: they are rounded once."""
    kind = result_type(x, y)
    wide = f32 if alpha != 1 and kind.is_float and kind.bytes < 4 else kind
    a, b = operands(x, y, kind=wide)
    return function(a, b, alpha).cast(kind)


@rule("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(condition: Tensor, x: Value, y: Value) -> Tensor:
    return ops.where(ops.cast(condition, boolean), x, y)


@rule("leaky_relu.default")
@floating
def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    return ops.where(ops.gt(x, 0), x, ops.mul(x, slope))


@rule("elu.default")
@floating
def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    below = ops.mul(ops.expm1(ops.mul(x, input_scale)), alpha * scale)
    return ops.where(ops.gt(x, 0), ops.mul(x, scale), below)


@rule("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")
def xlogy(x: Value, y: Value) -> Tensor:
    kind = result_type(x, y)
    return ops.xlogy(*operands(x, y, kind=kind if kind.is_float else f32))


@rule("copysign.Tensor", "copysign.Scalar")
@floating
def copysign(size: Tensor, sign: Value) -> Tensor:
    if isinstance(sign, Tensor) and not sign.dtype.is_float:
        sign = sign.cast(f32)
    return ops.copysign(size, sign)


@rule("logaddexp2.default")
@floating
def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    high, low = ops.maximum(x, y), ops.minimum(x, y)
    near = ops.add(high, ops.mul(ops.log1p(ops.exp2(ops.sub(low, high))), 1 / math.log(2)))
    return ops.where(ops.logical_and(ops.isinf(high), ops.eq(x, y)), high, near)


@rule("lerp.Tensor", "lerp.Scalar")
@floating
def lerp(start: Tensor, end: Tensor, weight: Value) -> Tensor:
    """From the nearer end, as ATen computes it."""
    gap = ops.sub(end, start)
    if not isinstance(weight, Tensor):
        weight = tensor_of(start.graph, weight, start.dtype)
    near = ops.add(start, ops.mul(gap, weight))
    far = ops.sub(end, ops.mul(gap, ops.sub(1, weight)))
    return ops.where(ops.lt(ops.abs(weight), 0.5), near, far)


@rule("addcmul.default")
def addcmul(x: Tensor, a: Tensor, b: Tensor, value: Value = 1) -> Tensor:
    return _multiply_add(ops.mul, x, a, b, value)


@rule("prims.fma.default")
def fma(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    return _multiply_add(ops.mul, x, a, b, 1)


@rule("addcdiv.default")
def addcdiv(x: Tensor, a: Tensor, b: Tensor, value: Value = 1) -> Tensor:
    return _multiply_add(ops.div, x, a, b, value)


def _multiply_add(function: Any, x: Tensor, a: Tensor, b: Tensor, value: Value) -> Tensor:
    kind = result_type(x, a, b)
    wide = f32 if kind.is_float and kind.bytes < 4 else kind
    x, a, b = operands(x, a, b, kind=wide)
    scaled = a if value == 1 else ops.mul(a, value)
    return ops.add(x, function(scaled, b)).cast(kind)


@rule("_to_copy.default", "prims.convert_element_type.default")
def to_copy(x: Tensor, dtype: DType | None = None) -> Tensor:
    """Floats to narrow integers go through i64 and wrap, as they do in PyTorch on x86."""
    if dtype is None:
        return x
    if x.dtype.is_float and dtype.is_integer and dtype.bytes < 4:
        x = x.cast(i64)
    return x.cast(dtype)


@rule("angle.default")
@floating
def angle(x: Tensor) -> Tensor:
    """Of a real number: 0 or pi; NaN stays."""
    return ops.where(ops.isnan(x), x, ops.where(ops.lt(x, 0), full_like(x, math.pi), 0.0))


@rule("erfinv.default")
@floating
def erfinv(x: Tensor) -> Tensor:
    """Winitzki's start (0.2% off), then Newton's steps: erf'(y) = 2 / sqrt(pi) e^(-y^2)."""
    x64 = x.cast(f64)
    w = ops.neg(ops.log1p(ops.neg(ops.square(x64))))
    start = ops.mul(x64, math.sqrt(math.pi) / 2)
    a = 0.147
    half = ops.add(ops.mul(w, -0.5), 2 / (math.pi * a))
    far = ops.sqrt(ops.sub(ops.sqrt(ops.add(ops.square(half), ops.mul(w, 1 / a))), half))
    y = ops.where(ops.lt(ops.abs(x64), 0.1), start, ops.copysign(far, x64))
    for _ in range(3 if x.dtype is f64 else 2):
        gap = ops.where(
            ops.lt(ops.abs(x64), 0.5),
            ops.sub(ops.erf(y), x64),
            ops.mul(_sign(y), ops.sub(ops.sub(1, ops.abs(x64)), ops.erfc(ops.abs(y)))),
        )
        slope = ops.mul(ops.exp(ops.neg(ops.square(y))), 2 / math.sqrt(math.pi))
        step = ops.div(gap, slope)
        y = ops.where(ops.eq(gap, 0), y, ops.sub(y, step))
    ends = ops.mul(_sign(x64), full_like(x64, math.inf))
    y = ops.where(ops.eq(ops.abs(x64), 1), ends, y)
    return ops.where(ops.gt(ops.abs(x64), 1), math.nan, y).cast(x.dtype)


def _sign(x: Tensor) -> Tensor:
    return ops.where(ops.lt(x, 0), full_like(x, -1), full_like(x, 1))


# bits of the fraction, exponents of the smallest and the largest number
SPACING = {"f32": (23, -149, 127), "f16": (10, -24, 15), "bf16": (7, -133, 127)}


@rule("nextafter.default")
def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """The neighbour of x on the side of y: a step of 0.7 to 1.4 spacings, in f64, rounded."""
    if x.dtype.name not in SPACING:
        raise Unsupported(f"the neighbour of {x.dtype}")
    bits, smallest, greatest = SPACING[x.dtype.name]
    start, end = x.cast(f64), y.cast(f64)
    largest = (2 - 2.0**-bits) * 2.0**greatest
    finite = ops.clamp(start, -largest, largest)
    step = ops.maximum(ops.mul(ops.abs(finite), 0.7 * 2.0**-bits), 0.7 * 2.0**smallest)
    moved = ops.where(ops.lt(start, end), ops.add(finite, step), ops.sub(finite, step))
    near = ops.where(ops.isinf(start), finite, moved).cast(x.dtype)
    missing = ops.logical_or(ops.isnan(x), ops.isnan(y))
    return ops.where(missing, math.nan, ops.where(ops.eq(x, y), y, near))


@rule("frexp.Tensor")
def frexp(x: Tensor) -> Any:
    """(fractions from 1/2 to 1, exponents of 2); x and 0 where x is 0 or not finite."""
    if x.dtype is f64:
        raise Unsupported("the exponent of f64")
    plain = ops.logical_and(ops.isfinite(x), ops.ne(x, 0))
    wide = ops.where(plain, x.cast(f64), 1.0)
    power = ops.add(ops.floor(ops.log2(ops.abs(wide))), 1.0)
    fraction = ops.mul(wide, ops.exp2(ops.neg(power)))
    above, below = (ops.ge(ops.abs(fraction), 1), ops.lt(ops.abs(fraction), 0.5))
    fraction = ops.where(above, ops.mul(fraction, 0.5), fraction)
    fraction = ops.where(below, ops.mul(fraction, 2.0), fraction)
    power = ops.add(power, ops.sub(above.cast(f64), below.cast(f64)))
    return ops.where(plain, fraction.cast(x.dtype), x), ops.where(plain, power, 0.0)
