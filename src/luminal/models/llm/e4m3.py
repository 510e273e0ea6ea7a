"""Eight-bit floats, E4M3FN, as bytes: a sign, four bits of exponent, three of mantissa.

The format is of "FP8 formats for deep learning" (Micikevicius and others, 2022): sizes up to 448,
normal from 2^-6 on, 2^-9 apart below, 0x7F is NaN.
"""

from __future__ import annotations

import math

from ... import ops
from ...graph import Tensor

LARGEST, NAN = 448.0, 0x7F
NORMAL = -6  # exponent of the smallest normal number


def encoded(x: Tensor) -> Tensor:
    """The bytes, u8, of the nearest numbers, half to even; what is larger becomes the largest."""
    size = ops.clamp(ops.abs(x), max=LARGEST)
    exponent = ops.floor(ops.log2(ops.clamp(size, min=2.0**NORMAL)))
    # Eighths of a power of two: sixteen are the next one's eight, so a logarithm may be rounded.
    code = ops.round(size * ops.exp2(3 - exponent)) + (exponent - NORMAL) * 8
    code = ops.where(ops.isnan(x), float(NAN), code)
    return (code + ops.where(x < 0, 128.0, 0.0)).cast("u8")


def decoded(code: Tensor) -> Tensor:
    """Bytes as f32, exactly."""
    whole = code.cast("i32")
    low = whole & 0x7F
    exponent, mantissa = low >> 3, low & 7
    normal = ops.bitwise_left_shift(mantissa + 8, exponent)
    size = ops.where(exponent > 0, normal, mantissa + mantissa).cast("f32") * 2.0**-10
    size = ops.where(low == NAN, math.nan, size)
    return ops.where(whole > 0x7F, -size, size)
