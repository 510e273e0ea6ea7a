"""Rounding to element types that we lack, in the dtype that carries them.

float8: "FP8 formats for deep learning" (Micikevicius and others, 2022) and ONNX's tables of casts;
float4 e2m1 and e8m0: the OCP microscaling formats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnx import TensorProto

from ... import ops
from ...graph.dtype import f32, f64, i8, i32, i64, u8
from ...graph.tensor import Tensor
from . import kinds


@dataclass(frozen=True)
class Format:
    """mantissa: stored bits. lowest: exponent of the smallest normal number. largest: finite.
    infinite: what lies beyond is infinity, else NaN, where nothing saturates."""

    mantissa: int
    lowest: int
    largest: float
    infinite: bool
    signed_zero: bool = True


FLOATS: dict[int, Format] = {
    TensorProto.FLOAT8E4M3FN: Format(3, -6, 448.0, False),
    TensorProto.FLOAT8E4M3FNUZ: Format(3, -7, 240.0, False, False),
    TensorProto.FLOAT8E5M2: Format(2, -14, 57344.0, True),
    TensorProto.FLOAT8E5M2FNUZ: Format(2, -15, 57344.0, False, False),
    TensorProto.FLOAT4E2M1: Format(1, 0, 6.0, False),
}
BITS = {"INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2}


def rounded(x: Tensor, kind: int, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """x with the values of an element type, in the dtype that carries it."""
    name = kinds.name_of(kind)
    if name in BITS:
        return wrapped(x, BITS[name], name.startswith("INT"))
    if name == "FLOAT8E8M0":
        return _power_of_two(x.cast(f32), saturate, round_mode)
    return _float(x.cast(f64 if x.dtype is f64 else f32), FLOATS[kind], saturate,
                  name == "FLOAT4E2M1").cast(f32)  # fmt: skip


def wrapped(x: Tensor, bits: int, signed: bool) -> Tensor:
    """The low bits of whole numbers."""
    whole = x.cast(i64 if x.dtype.bytes > 4 else i32)
    low = ops.bitwise_and(whole, (1 << bits) - 1)
    if not signed:
        return low.cast(u8)
    return ops.where(low >= 1 << (bits - 1), ops.sub(low, 1 << bits), low).cast(i8)


def _float(x: Tensor, form: Format, saturate: bool, always: bool) -> Tensor:
    """The nearest number of the format, half to even."""
    size = ops.abs(x)
    exponent = ops.floor(ops.log2(ops.where(size > 0, size, 1.0)))
    unit = ops.exp2(ops.clamp(exponent, form.lowest, 60.0))
    over = ops.ge(size, ops.mul(unit, 2.0))  # the logarithm was rounded down over a power of two
    unit = ops.where(over, ops.mul(unit, 2.0), unit)
    under = ops.logical_and(size < unit, unit > 2.0**form.lowest)
    unit = ops.where(under, ops.mul(unit, 0.5), unit)
    step = ops.mul(unit, 2.0**-form.mantissa)
    near = ops.mul(ops.round(ops.div(x, step)), step)
    beyond = ops.abs(near) > form.largest
    most = ops.copysign(ops.base.full_like(x, form.largest), x)
    if always or saturate:
        near = ops.where(ops.logical_or(beyond, ops.isinf(x)), most, near)
    else:
        out = math.inf if form.infinite else math.nan
        over = ops.copysign(ops.base.full_like(x, out), x)
        near = ops.where(ops.logical_or(beyond, ops.isinf(x)), over, near)
    if not form.signed_zero:
        near = ops.where(ops.eq(near, 0.0), 0.0, near)
    return ops.where(ops.isnan(x), math.nan, near)


def _power_of_two(x: Tensor, saturate: bool, mode: str) -> Tensor:
    """2^-127 .. 2^127; the sign is dropped, 0 becomes the smallest."""
    size = ops.abs(x)
    tiny = size <= 2.0**-127
    exponent = ops.floor(ops.log2(ops.where(tiny, 1.0, size)))
    low = ops.exp2(exponent)
    low = ops.where(low > size, ops.mul(low, 0.5), low)
    low = ops.where(size >= ops.mul(low, 2.0), ops.mul(low, 2.0), low)
    if mode == "up":
        up = size > low
    elif mode == "nearest":
        up = size >= ops.mul(low, 1.5)
    else:
        up = size < 0
    found = ops.where(up, ops.mul(low, 2.0), low)
    found = ops.where(tiny, 2.0**-127, found)
    most = 2.0**127
    over = ops.logical_or(ops.isinf(x), found > most)
    found = ops.where(over, most if saturate else math.nan, found)
    return ops.where(ops.isnan(x), math.nan, found)
