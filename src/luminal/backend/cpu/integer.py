"""Integer division, remainder and shifts, defined for every operand: nothing traps."""

from __future__ import annotations

from .emitter import BITS, Emitter, Operand


def constant_of(a: Operand) -> int | None:
    """The number that an operand is, where it is one."""
    text = a.text
    if text.startswith("splat ("):
        text = text[:-1].split()[-1]
    try:
        return int(text)
    except ValueError:
        return None


def floor_div(e: Emitter, signed: bool, a: Operand, b: Operand) -> Operand:
    """floor(a / b); 0 where b is 0."""
    number = constant_of(b)
    if number is not None and number > 0:
        return _by_constant(e, signed, a, b, number)
    if not signed:
        safe, is_zero = _nonzero(e, b)
        return e.select(is_zero, e.constant(0, a), e.binary("udiv", a, safe))
    quotient, rest, is_zero = _divide(e, a, b)
    quotient = e.binary("sub", quotient, e.convert("zext", _apart(e, rest, b), a.element))
    return e.select(is_zero, e.constant(0, a), quotient)


def mod(e: Emitter, signed: bool, a: Operand, b: Operand) -> Operand:
    """The remainder with the sign of the divisor; 0 where b is 0."""
    number = constant_of(b)
    if number is not None and number > 0:
        if number & (number - 1) == 0:
            return e.binary("and", a, e.constant(number - 1, a))
        return e.binary("sub", a, e.binary("mul", _by_constant(e, signed, a, b, number), b))
    if not signed:
        safe, is_zero = _nonzero(e, b)
        return e.select(is_zero, e.constant(0, a), e.binary("urem", a, safe))
    _, rest, is_zero = _divide(e, a, b)
    rest = e.select(_apart(e, rest, b), e.binary("add", rest, b), rest)
    return e.select(is_zero, e.constant(0, a), rest)


def shift_left(e: Emitter, signed: bool, a: Operand, b: Operand) -> Operand:
    """0 where all bits are shifted out."""
    inside = e.compare("icmp ult", b, e.constant(BITS[a.element], b))
    amount = e.select(inside, b, e.constant(0, b))
    return e.select(inside, e.binary("shl", a, amount), e.constant(0, a))


def shift_right(e: Emitter, signed: bool, a: Operand, b: Operand) -> Operand:
    """Only the sign is left where all bits are shifted out."""
    if signed:
        amount = e.intrinsic("umin", b, e.constant(BITS[a.element] - 1, b))
        return e.binary("ashr", a, amount)
    inside = e.compare("icmp ult", b, e.constant(BITS[a.element], b))
    amount = e.select(inside, b, e.constant(0, b))
    return e.select(inside, e.binary("lshr", a, amount), e.constant(0, a))


def _by_constant(e: Emitter, signed: bool, a: Operand, b: Operand, number: int) -> Operand:
    """floor(a / number), number > 0: a shift, or what LLVM makes of a constant divisor."""
    if number & (number - 1) == 0:
        shift = e.constant(number.bit_length() - 1, a)
        return e.binary("ashr" if signed else "lshr", a, shift)
    if not signed:
        return e.binary("udiv", a, b)
    sign = e.binary("ashr", a, e.constant(BITS[a.element] - 1, a))  # -1 for negative a
    quotient = e.binary("sdiv", e.binary("xor", a, sign), b)  # of -1 - a, which is not negative
    return e.binary("xor", quotient, sign)


def _nonzero(e: Emitter, b: Operand) -> tuple[Operand, Operand]:
    is_zero = e.compare("icmp eq", b, e.constant(0, b))
    return e.select(is_zero, e.constant(1, b), b), is_zero


def _divide(e: Emitter, a: Operand, b: Operand) -> tuple[Operand, Operand, Operand]:
    """Quotient towards zero and remainder, and where b is 0. Division by -1 is negation:
    dividing the smallest integer by it would trap."""
    safe, is_zero = _nonzero(e, b)
    is_minus = e.compare("icmp eq", b, e.constant(-1, b))
    safe = e.select(is_minus, e.constant(1, b), safe)
    quotient = e.binary("sdiv", a, safe)
    rest = e.binary("sub", a, e.binary("mul", quotient, safe))
    negated = e.binary("sub", e.constant(0, a), quotient)
    return e.select(is_minus, negated, quotient), rest, is_zero


def _apart(e: Emitter, rest: Operand, b: Operand) -> Operand:
    """The remainder is not zero and its sign is not that of the divisor."""
    some = e.compare("icmp ne", rest, e.constant(0, rest))
    signs = e.compare("icmp slt", e.binary("xor", rest, b), e.constant(0, rest))
    return e.binary("and", some, signs)
