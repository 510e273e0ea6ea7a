"""Casts between all dtypes. f16 and bf16 are bits in registers and are converted exactly here."""

from __future__ import annotations

import numpy as np

from ...graph.dtype import DType, f32
from .emitter import BITS, ELEMENTS, Emitter, Operand


def cast(e: Emitter, a: Operand, source: DType, target: DType) -> Operand:
    """As `graph.scalars.convert`: floats to integers saturate and NaN becomes 0."""
    if source is target:
        return a
    if target.kind == "bool":
        return _to_bool(e, a, source)
    if _is_half(source):
        return cast(e, widen(e, a, source), f32, target)
    if _is_half(target):
        if source.name == "f64" and target.name == "f16":
            return narrow(e, _round_to_odd(e, a), target)
        return narrow(e, cast(e, a, source, f32), target)
    if source.is_float and target.is_float:
        name = "fpext" if target.bytes > source.bytes else "fptrunc"
        return e.convert(name, a, ELEMENTS[target.name])
    if source.is_float and e.machine.is_x86 and a.width > 1:
        return _saturate_lanes(e, a, source, target)
    if source.is_float:
        return _saturate(e, a, target)
    if target.is_float:
        name = "sitofp" if source.kind == "int" else "uitofp"
        return e.convert(name, a, ELEMENTS[target.name])
    return _resize(e, a, source, target)


def _is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bytes == 2


def _to_bool(e: Emitter, a: Operand, source: DType) -> Operand:
    if _is_half(source):  # all bits but the sign
        a = e.binary("and", a, e.constant(0x7FFF, a))
        return e.compare("icmp ne", a, e.constant(0, a))
    return e.compare("fcmp une" if source.is_float else "icmp ne", a, e.constant(0, a))


def _resize(e: Emitter, a: Operand, source: DType, target: DType) -> Operand:
    element = ELEMENTS[target.name]
    if BITS[element] < BITS[a.element]:
        return e.convert("trunc", a, element)
    return e.convert("sext" if source.kind == "int" else "zext", a, element)


def _saturate(e: Emitter, a: Operand, target: DType) -> Operand:
    name = "fptosi.sat" if target.kind == "int" else "fptoui.sat"
    like = Operand("", ELEMENTS[target.name], a.width)
    lanes = f"v{a.width}" if a.width > 1 else ""
    kinds = f"{lanes}{like.element}.{lanes}f{BITS[a.element]}"
    result = e.call(f"llvm.{name}.{kinds}", like, a)
    assert result is not None
    return result


def _saturate_lanes(e: Emitter, a: Operand, source: DType, target: DType) -> Operand:
    """The same on x86, where LLVM takes saturating vectors apart into their elements."""
    signed, wide = target.kind == "int", target.bytes >= 4
    kept = a
    if signed:  # else the comparison with 0 turns NaN into it
        kept = e.select(e.compare("fcmp ord", a, a), a, e.constant(0.0, a))
    low, high = e.constant(float(target.lowest), a), source.numpy.type(target.highest)
    if int(high) > target.highest:
        high = np.nextafter(high, source.numpy.type(0))
    top = e.constant(float(high), a)
    kept = e.select(e.compare("fcmp ogt", kept, low), kept, low)
    kept = e.select(e.compare("fcmp olt", kept, top), kept, top)
    whole = e.convert("fptosi" if signed or not wide else "fptoui", kept,
                      ELEMENTS[target.name] if wide else "i32")  # fmt: skip
    if not wide:
        return e.convert("trunc", whole, ELEMENTS[target.name])
    if int(high) == target.highest:
        return whole
    above = e.compare("fcmp ogt", a, top)
    return e.select(above, e.constant(target.highest, whole), whole)


# ---- two-byte floats


def widen(e: Emitter, a: Operand, dtype: DType) -> Operand:
    """Bits of bf16 or f16 to f32: exact."""
    if dtype.name == "bf16":
        wide = e.convert("zext", a, "i32")
        return e.convert("bitcast", e.binary("shl", wide, e.constant(16, wide)), "float")
    if _has_f16(e):
        return e.convert("fpext", e.convert("bitcast", a, "half"), "float")
    return _widen_f16(e, e.convert("zext", a, "i32"))


def narrow(e: Emitter, a: Operand, dtype: DType) -> Operand:
    """f32 to the bits of bf16 or f16: nearest, ties to even, NaN stays NaN."""
    if dtype.name == "bf16":
        return _narrow_bf16(e, a)
    if _has_f16(e):
        return e.convert("bitcast", e.convert("fptrunc", a, "half"), "i16")
    return _narrow_f16(e, a)


def _has_f16(e: Emitter) -> bool:
    return not e.machine.is_x86 or e.machine.has("f16c")


def _narrow_bf16(e: Emitter, a: Operand) -> Operand:
    """In integers: the machine's own instruction loses subnormal numbers."""
    bits = e.bits(a)
    high = e.binary("lshr", bits, e.constant(16, bits))
    odd = e.binary("and", high, e.constant(1, bits))
    up = e.binary("add", bits, e.constant(0x7FFF, bits))
    rounded = e.binary("lshr", e.binary("add", up, odd), e.constant(16, bits))
    quiet = e.binary("or", high, e.constant(0x40, bits))
    return e.convert("trunc", e.select(e.compare("fcmp uno", a, a), quiet, rounded), "i16")


def _widen_f16(e: Emitter, bits: Operand) -> Operand:
    """2^112 times the number that exponent and mantissa make in f32; infinity and NaN apart."""
    sign = e.binary("and", bits, e.constant(0x8000, bits))
    sign = e.binary("shl", sign, e.constant(16, bits))
    rest = e.binary("and", bits, e.constant(0x7FFF, bits))
    shifted = e.binary("shl", rest, e.constant(13, bits))
    number = e.convert("bitcast", shifted, "float")
    number = e.bits(e.binary("fmul", number, e.constant(2.0**112, number)))
    special = e.binary("or", shifted, e.constant(0x7F800000, bits))
    is_special = e.compare("icmp uge", rest, e.constant(0x7C00, bits))
    result = e.select(is_special, special, number)
    return e.convert("bitcast", e.binary("or", result, sign), "float")


def _narrow_f16(e: Emitter, a: Operand) -> Operand:
    bits = e.bits(a)
    rest = e.binary("and", bits, e.constant(0x7FFFFFFF, bits))
    sign = e.binary("lshr", e.binary("xor", bits, rest), e.constant(16, bits))
    # normal numbers: exponent rebased, 13 bits rounded off
    odd = e.binary("and", e.binary("lshr", rest, e.constant(13, bits)), e.constant(1, bits))
    based = e.binary("add", rest, e.constant(((15 - 127) << 23) + 0xFFF, bits))
    normal = e.binary("lshr", e.binary("add", based, odd), e.constant(13, bits))
    # subnormal ones: adding 1/2 leaves the wanted bits at the bottom, rounded
    half = e.convert("bitcast", rest, "float")
    moved = e.bits(e.binary("fadd", half, e.constant(0.5, half)))
    tiny = e.binary("sub", moved, e.constant(0x3F000000, bits))
    is_tiny = e.compare("icmp ult", rest, e.constant(0x38800000, bits))
    result = e.select(is_tiny, tiny, normal)
    is_large = e.compare("icmp uge", rest, e.constant(0x47800000, bits))
    result = e.select(is_large, e.constant(0x7C00, bits), result)
    is_nan = e.compare("icmp ugt", rest, e.constant(0x7F800000, bits))
    result = e.select(is_nan, e.constant(0x7E00, bits), result)
    return e.convert("trunc", e.binary("or", result, sign), "i16")


def _round_to_odd(e: Emitter, a: Operand) -> Operand:
    """f64 to f32 towards zero with the last bit set where inexact: rounding once more is then
    as good as rounding once."""
    near = e.convert("fptrunc", a, "float")
    back = e.convert("fpext", near, "double")
    bits = e.bits(near)
    over = e.compare("fcmp ogt", e.intrinsic("fabs", back), e.intrinsic("fabs", a))
    cut = e.binary("sub", bits, e.convert("zext", over, "i32"))
    odd = e.binary("or", cut, e.constant(1, bits))
    inexact = e.compare("fcmp one", back, a)
    return e.convert("bitcast", e.select(inexact, odd, bits), "float")
