"""Elementwise operations: arithmetic, comparisons, logic, bits, transcendental functions."""

from __future__ import annotations

from typing import Any

from .... import ops
from ....graph.dtype import DType, boolean, f32, i64
from ....graph.tensor import Tensor
from ....ops.base import Value, floating, operands, result_type, tensor_of
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
same("copysign.Tensor copysign.Scalar", ops.copysign)
same("sgn.default", ops.sign)
same("gelu.default", ops.gelu)
same("clamp.default clamp.Tensor", ops.clamp)
same("clamp_min.default clamp_min.Tensor", ops.clamp)
same("clamp_max.default clamp_max.Tensor", lambda x, max: ops.clamp(x, None, max))
same("hardtanh.default", ops.hardtanh)
same("logit.default", ops.logit)
same("nan_to_num.default", ops.nan_to_num)
same("softplus.default", ops.softplus)
for _name in ("angle", "erfinv", "logaddexp2", "nextafter"):
    same(f"{_name}.default", getattr(ops, _name))
same("frexp.Tensor", ops.frexp)
same("ldexp.Tensor", ops.ldexp)


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
    value = value if wide.is_float or isinstance(value, Tensor) else int(value)  # as ATen takes it
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
