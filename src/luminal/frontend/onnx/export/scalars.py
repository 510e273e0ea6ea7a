"""Elementwise operations as operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....errors import Unsupported
from ....graph.dtype import DType, boolean, f32, f64, i32, i64, u8, u32, u64
from ....graph.node import Node
from .writer import Writer

PLAIN = {
    "add": "Add", "mul": "Mul", "sin": "Sin", "cos": "Cos", "sqrt": "Sqrt", "recip": "Reciprocal",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "max": "Max", "min": "Min", "less": "Less",
    "equal": "Equal",
}  # fmt: skip
LOGIC = {"add": "Or", "max": "Or", "or": "Or", "mul": "And", "min": "And", "and": "And",
         "xor": "Xor"}  # fmt: skip
BITS = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}
SHIFTED = {1: u8, 2: u32, 4: u32, 8: u64}  # by their bytes: onnxruntime shifts no u16


def written(out: Writer, node: Node, *operands: str) -> str:
    """The result of an elementwise node. Raises Unsupported."""
    name, kind = node.op, node.inputs[0].dtype
    if name == "cast":
        return _cast(out, operands[0], kind, node.dtype)
    if name == "less" and kind is boolean:
        return out.op("And", out.op("Not", operands[0]), operands[1])
    if kind is boolean and name in LOGIC:
        return out.op(LOGIC[name], *operands)
    if name == "select":
        condition, x, y = operands
        return out.where(condition, x, y, node.dtype)
    if name in SPECIAL:
        if kind is boolean:  # which Mod and BitShift do not take
            found = SPECIAL[name](out, u8, *(out.cast(x, u8) for x in operands))
            return out.cast(found, boolean)
        return SPECIAL[name](out, node.dtype, *operands)
    if name in BITS:
        return out.op(BITS[name], *operands)
    if name not in PLAIN:
        raise Unsupported(f"export of {name}")
    return out.op(PLAIN[name], *operands)


def _cast(out: Writer, x: str, kind: DType, wanted: DType) -> str:
    """Of floats that no integer of the dtype holds the nearest one, and 0 for NaN: what Cast makes
    of these is left open."""
    if not (kind.is_float and wanted.is_integer):
        return out.cast(x, wanted)
    wide = f64 if kind is f64 or wanted.bytes > 2 else f32
    ends = np.array([wanted.lowest, wanted.highest], wide.numpy)
    high = ends[1] if int(ends[1]) <= wanted.highest else np.nextafter(ends[1], ends[0])
    held = x if kind is wide else out.cast(x, wide)
    held = out.op("Where", out.op("IsNaN", held), out.number(0, wide), held)
    held = out.op("Max", held, out.number(float(ends[0]), wide))
    return out.cast(out.op("Min", held, out.number(float(high), wide)), wanted)


def _log2(out: Writer, kind: DType, x: str) -> str:
    return out.op("Mul", out.op("Log", x), out.number(1 / math.log(2), kind))


def _exp2(out: Writer, kind: DType, x: str) -> str:
    return out.op("Exp", out.op("Mul", x, out.number(math.log(2), kind)))


def _trunc(out: Writer, kind: DType, x: str) -> str:
    above = out.op("Less", out.number(0, kind), x)
    return out.op("Where", above, out.op("Floor", x), out.op("Ceil", x))


def _mod(out: Writer, kind: DType, x: str, y: str) -> str:
    """The sign of the divisor; an integer divisor 0 gives 0."""
    if kind.is_float:
        rest = out.op("Mod", x, y, fmod=1)  # exact, with the sign of x
        signs = out.op("Mul", out.op("Sign", rest), out.op("Sign", y))
        differ = out.op("Less", signs, out.number(0, kind))
        return out.op("Where", differ, out.op("Add", rest, y), rest)
    none, safe = _safe(out, kind, y)
    return out.where(none, out.number(0, kind), out.op("Mod", x, safe), kind)


def _safe(out: Writer, kind: DType, y: str) -> tuple[str, str]:
    none = out.op("Equal", y, out.number(0, kind))
    return none, out.where(none, out.number(1, kind), y, kind)


def _floor_div(out: Writer, kind: DType, x: str, y: str) -> str:
    """Div rounds towards 0: one less where signs differ and something remains."""
    none, safe = _safe(out, kind, y)
    zero, found = out.number(0, kind), out.op("Div", x, safe)
    if kind.is_signed:
        even = out.op("Equal", out.op("Mod", x, safe), zero)
        differ = out.op("Xor", out.op("Less", x, zero), out.op("Less", safe, zero))
        less = out.op("And", out.op("Not", even), differ)
        found = out.op("Sub", found, out.cast(less, kind))
    return out.where(none, zero, found, kind)


def _shift(direction: str) -> Callable[..., str]:
    def shifted(out: Writer, kind: DType, x: str, y: str) -> str:
        plain, sign = SHIFTED[kind.bytes], ""
        if kind.is_signed and direction == "RIGHT":  # of x < 0 what -1 - x becomes
            below = out.op("Less", x, out.number(0, kind))
            sign = out.where(below, out.number(-1, kind), out.number(0, kind), kind)
            x = out.op("BitwiseXor", x, sign)
        found = out.op("BitShift", *(out.cast(n, plain) for n in (x, y)), direction=direction)
        found = out.cast(found, kind)
        return out.op("BitwiseXor", found, sign) if sign else found

    return shifted


SPECIAL: dict[str, Callable[..., str]] = {
    "log2": _log2, "exp2": _exp2, "trunc": _trunc, "mod": _mod, "floor_div": _floor_div,
    "div": lambda out, kind, x, y: out.op("Div", x, y), "shift_left": _shift("LEFT"),
    "shift_right": _shift("RIGHT"),
}  # fmt: skip
REDUCTIONS = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}
COUNTED = {"max": "sum", "min": "prod"}  # of booleans as numbers; right of none, too


def reduced(out: Writer, node: Node, x: str) -> str:
    """A reduction over dimensions, which are dropped; of other integers in i64."""
    kind = node.dtype
    wide = kind if kind.is_float or kind in (i32, i64) else i64
    held = out.cast(x, wide) if wide is not kind else x
    axes = out.constant(np.array(node.attribute, np.int64))
    name = COUNTED.get(node.op, node.op) if kind is boolean else node.op
    turned = kind is u64 and name in ("max", "min")
    held = _turned(out, held) if turned else held
    found = out.op(REDUCTIONS[name], held, axes, keepdims=0)
    found = _turned(out, found) if turned else found
    return out.cast(found, kind) if wide is not kind else found


def _turned(out: Writer, x: str) -> str:
    """i64 with the highest bit the other way, which have the order of u64."""
    return out.op("BitwiseXor", x, out.number(i64.lowest, i64))
