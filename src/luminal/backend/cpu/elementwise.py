"""One row of IR for each elementwise operation of `graph.scalars`."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import Unsupported
from ...graph.dtype import DType, f32, i8, u8
from . import elementary, integer
from .convert import cast, narrow, widen
from .emitter import Emitter, Operand

Rule = Callable[..., Operand]


def apply(e: Emitter, op: str, dtype: DType, args: list[Operand]) -> Operand:
    """The operation on operands of this dtype (select: of its last two). f16 and bf16 are computed
    in f32 and rounded once."""
    if op == "select":
        return e.select(*args)
    if dtype.is_float and dtype.bytes == 2:
        wide = apply(e, op, f32, [widen(e, a, dtype) for a in args])
        return wide if wide.element == "i1" else narrow(e, wide, dtype)
    if dtype.kind == "bool":
        return _boolean(e, op, dtype, args)
    rule = (FLOAT if dtype.is_float else INTEGER).get(op)
    if rule is None:
        raise Unsupported(f"{op} of {dtype} has no code for the CPU")
    return rule(e, *args) if dtype.is_float else rule(e, dtype.kind == "int", *args)


def fma(e: Emitter, dtype: DType, acc: Operand, a: Operand, b: Operand) -> Operand:
    """acc + a * b."""
    if not dtype.is_float:
        return e.binary("add", acc, e.binary("mul", a, b))
    if dtype.bytes == 2:
        wide = (widen(e, x, dtype) for x in (a, b, acc))
        return narrow(e, e.fma(*wide), dtype)
    return e.fma(a, b, acc)


# ---- floats


def _binary(name: str) -> Rule:
    return lambda e, a, b: e.binary(name, a, b)


def _compare(test: str) -> Rule:
    return lambda e, a, b: e.compare(test, a, b)


def _intrinsic(name: str) -> Rule:
    return lambda e, a: e.intrinsic(name, a)


def _recip(e: Emitter, a: Operand) -> Operand:
    return e.binary("fdiv", e.constant(1.0, a), a)


def _extremum(test: str, name: str) -> Rule:
    """NaN wins. x86: max and min give their second operand where either is NaN, so that only a NaN
    in the first one is left to look after; a constant there needs no look."""

    def rule(e: Emitter, a: Operand, b: Operand) -> Operand:
        if not e.machine.is_x86:
            return e.intrinsic(name, a, b)
        if _is_number(b):
            a, b = b, a
        if _is_number(a):
            return e.select(e.compare(test, a, b), a, b)
        chosen = e.select(e.compare(test, a, b), a, b)
        return e.select(e.compare("fcmp uno", a, a), a, chosen)

    return rule


def _is_number(a: Operand) -> bool:
    """A float constant that is not NaN."""
    return "0x" in a.text and "0x7FF8" not in a.text


def _mod(e: Emitter, a: Operand, b: Operand) -> Operand:
    """The remainder with the sign of the divisor."""
    rest, zero = e.binary("frem", a, b), e.constant(0.0, a)
    negative = e.compare("fcmp olt", rest, zero)
    turned = e.binary("xor", negative, e.compare("fcmp olt", b, zero))
    moved = e.select(turned, e.binary("fadd", rest, b), rest)
    is_zero = e.compare("fcmp oeq", rest, zero)
    return e.select(is_zero, e.intrinsic("copysign", zero, b), moved)


FLOAT: dict[str, Rule] = {
    "add": _binary("fadd"),
    "mul": _binary("fmul"),
    "div": _binary("fdiv"),
    "mod": _mod,
    "recip": _recip,
    "sqrt": _intrinsic("sqrt"),
    "exp2": elementary.exp2,
    "log2": elementary.log2,
    "sin": elementary.sin,
    "cos": elementary.cos,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"),
    "max": _extremum("fcmp ogt", "maximum"),
    "min": _extremum("fcmp olt", "minimum"),
    "less": _compare("fcmp olt"),
    "equal": _compare("fcmp oeq"),
}

# ---- integers


def _plain(name: str) -> Rule:
    return lambda e, signed, a, b: e.binary(name, a, b)


def _by_sign(name: str) -> Rule:
    return lambda e, signed, a, b: e.intrinsic(("s" if signed else "u") + name, a, b)


def _less(e: Emitter, signed: bool, a: Operand, b: Operand) -> Operand:
    return e.compare("icmp slt" if signed else "icmp ult", a, b)


def _equal(e: Emitter, signed: bool, a: Operand, b: Operand) -> Operand:
    return e.compare("icmp eq", a, b)


INTEGER: dict[str, Rule] = {
    "add": _plain("add"),
    "mul": _plain("mul"),
    "mod": integer.mod,
    "floor_div": integer.floor_div,
    "and": _plain("and"),
    "or": _plain("or"),
    "xor": _plain("xor"),
    "shift_left": integer.shift_left,
    "shift_right": integer.shift_right,
    "max": _by_sign("max"),
    "min": _by_sign("min"),
    "less": _less,
    "equal": _equal,
}

# ---- truth values: or, and are their sum and product, as in NumPy

BOOLEAN = {
    "add": "or", "or": "or", "max": "or", "mul": "and", "and": "and", "min": "and", "xor": "xor",
}  # fmt: skip


def _boolean(e: Emitter, op: str, dtype: DType, args: list[Operand]) -> Operand:
    if op in BOOLEAN:
        return e.binary(BOOLEAN[op], *args)
    if op == "equal":
        return e.compare("icmp eq", *args)
    if op == "less":
        return e.compare("icmp ult", *args)
    byte = i8 if op.startswith("shift") else u8
    return cast(e, apply(e, op, byte, [cast(e, a, dtype, byte) for a in args]), byte, dtype)
