"""exp2, log2, sin, cos of f32 and f64 vectors, over their whole range, without branches or calls.

Polynomials are Chebyshev interpolants in extended precision, coefficients lowest power first.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from .emitter import Emitter, Operand

# (2^r - 1) / r on [-1/2, 1/2]: relative error of 2^r below 5e-9, 9e-18
EXP2_F32 = (
    0.6931471880262288, 0.24022650760568126, 0.055503571142190775,
    0.009618082557277844, 0.0013390863364671239, 0.00015453162945122594,
)  # fmt: skip
EXP2_F64 = (
    0.6931471805599453, 0.24022650695910097, 0.05550410866482218, 0.009618129107606874,
    0.0013333558146285322, 0.00015403530441760377, 1.5252733950495382e-05,
    1.3215442573264229e-06, 1.017801404964177e-07, 7.0725887622392864e-09, 4.462017500494351e-10,
)  # fmt: skip
# log2(1 + f) / f on [1/sqrt(2) - 1, sqrt(2) - 1]: 5e-9
LOG2_F32 = (
    1.4426950399991885, -0.7213473544789053, 0.4808985203240642, -0.36069654180750527,
    0.28855256143746794, -0.23960812190956965, 0.20485764778620996, -0.19138837656674323,
    0.18476033365187114, -0.10749789418085536,
)  # fmt: skip
# 2 / ln 2 * artanh(s) / s in s^2, s = f / (2 + f): 2e-18
LOG2_F64 = (
    2.8853900817779268, 0.9617966939259897, 0.5770780163456372, 0.41219858580812463,
    0.32059853883051076, 0.26233412530122474, 0.2209193896211455, 0.2135919021084207,
)  # fmt: skip
# sin(pi/2 r) / r and (cos(pi/2 r) - 1) / r^2 in r^2, |r| <= 1/2
SIN_F32 = (1.5707963267881, -0.6459640961467954, 0.07969258272563062,
           -0.004681266256726206, 0.00015820630355633768)  # fmt: skip
SIN_F64 = (
    1.5707963267948966, -0.6459640975062463, 0.07969262624616621, -0.0046817541352993895,
    0.0001604411845608681, -3.5988417657383183e-06, 5.691649614416372e-08, -6.595180738633278e-10,
)  # fmt: skip
COS_F32 = (-1.2337005493742192, 0.2536694103571085, -0.02086152834220004, 0.0009067398984034854)
COS_F64 = (
    -1.2337005501361697, 0.2536695079010478, -0.020863480763341206, 0.0009192602745534695,
    -2.520203907580874e-05, 4.710680020189612e-07, -6.329601809515095e-09,
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """A float format. `magic`: 1.5 * 2^mantissa; a sum with it has a rounded integer at its end."""

    mantissa: int
    bias: int
    magic: float
    lowest: float  # 2^x is below half of the smallest subnormal number
    exp2: tuple[float, ...]


FORMATS = {
    "float": Format(23, 127, 1.5 * 2.0**23, -150.0, EXP2_F32),
    "double": Format(52, 1023, 1.5 * 2.0**52, -1075.0, EXP2_F64),
}


def polynomial(e: Emitter, x: Operand, coefficients: tuple[float, ...]) -> Operand:
    """Horner's rule."""
    total = e.constant(coefficients[-1], x)
    for coefficient in coefficients[-2::-1]:
        total = e.fma(total, x, e.constant(coefficient, x))
    return total


def _smaller(e: Emitter, x: Operand, limit: float) -> Operand:
    """min(x, limit) that keeps NaN."""
    bound = e.constant(limit, x)
    return e.select(e.compare("fcmp ogt", x, bound), bound, x)


def _larger(e: Emitter, x: Operand, limit: float) -> Operand:
    bound = e.constant(limit, x)
    return e.select(e.compare("fcmp olt", x, bound), bound, x)


# ---- exp2


def exp2(e: Emitter, x: Operand) -> Operand:
    """2^x = 2^n p(x - n), |x - n| <= 1/2. Lanes whose result is 0 (masked keys of attention) do no
    arithmetic that underflows: that would cost a microcode assist each."""
    form = FORMATS[x.element]
    keep = e.compare("fcmp uge", x, e.constant(form.lowest, x))
    high = _smaller(e, x, form.bias + 2.0)
    scalef = _scalef_width(e, x)
    low = high if scalef else _larger(e, high, form.lowest - 1)
    shifted = e.binary("fadd", low, e.constant(form.magic, x))
    n = e.binary("fsub", shifted, e.constant(form.magic, x))
    r = e.binary("fsub", low, n)
    p = e.fma(polynomial(e, r, form.exp2), r, e.constant(1.0, x))
    if scalef:
        return e.in_pieces(x.width, scalef, lambda *a: _scalef(e, *a), p, n, keep)
    return _scale(e, form, p, shifted, keep)


def _scalef_width(e: Emitter, x: Operand) -> int:
    """Lanes of the instruction that scales by 2^n; 0 where there is none for this vector."""
    width = 64 // (4 if x.element == "float" else 8)
    fits = x.width % width == 0 and e.machine.has("avx512f")
    return width if fits else 0


def _scalef(e: Emitter, p: Operand, n: Operand, keep: Operand) -> Operand:
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if p.element == 'float' else 'pd'}.512"
    mask = e.let(f"bitcast {keep.typed} to i{keep.width}", f"i{keep.width}")
    result = e.call(name, p, p, n, f"{p.type} zeroinitializer", mask, "i32 4")
    assert result is not None
    return result


def _scale(e: Emitter, form: Format, p: Operand, shifted: Operand, keep: Operand) -> Operand:
    """p * 2^n in two factors, each of which is a normal number; 0 exactly where not `keep`."""
    bits = e.bits(shifted)
    n = e.binary("sub", bits, e.bits_of(form.magic, shifted))
    first = e.binary("ashr", n, e.constant(1, n))
    second = e.binary("sub", n, first)
    a, b = (_power(e, form, part, p.element) for part in (first, second))
    b = e.select(keep, b, e.constant(0.0, p))
    return e.binary("fmul", e.binary("fmul", p, a), b)


def _power(e: Emitter, form: Format, n: Operand, element: str) -> Operand:
    """2^n from an integer, as a float of its size."""
    biased = e.binary("add", n, e.constant(form.bias, n))
    return e.convert("bitcast", e.binary("shl", biased, e.constant(form.mantissa, n)), element)


# ---- log2


def log2(e: Emitter, x: Operand) -> Operand:
    """log2(m 2^k) = k + log2(m), m in [1/sqrt(2), sqrt(2))."""
    form = FORMATS[x.element]
    tiny = e.compare("fcmp olt", x, e.constant(2.0 ** (1 - form.bias), x))
    lifted = e.binary("fmul", x, e.constant(2.0 ** (form.mantissa + 1), x))
    bits = e.bits(e.select(tiny, lifted, x))
    above = e.binary("sub", bits, e.bits_of(2.0**-0.5, x))
    exponent = e.binary("ashr", above, e.constant(form.mantissa, bits))
    mantissa = e.binary("sub", bits, e.binary("shl", exponent, e.constant(form.mantissa, bits)))
    f = e.binary("fsub", e.convert("bitcast", mantissa, x.element), e.constant(1.0, x))
    drop = e.select(tiny, e.constant(form.mantissa + 1, bits), e.constant(0, bits))
    k = e.convert("sitofp", e.binary("sub", exponent, drop), x.element)
    result = e.binary("fadd", k, _log2_near_one(e, f))
    return _log2_special(e, x, result)


def _log2_near_one(e: Emitter, f: Operand) -> Operand:
    if f.element == "float":
        return e.binary("fmul", f, polynomial(e, f, LOG2_F32))
    s = e.binary("fdiv", f, e.binary("fadd", f, e.constant(2.0, f)))
    return e.binary("fmul", s, polynomial(e, e.binary("fmul", s, s), LOG2_F64))


def _log2_special(e: Emitter, x: Operand, result: Operand) -> Operand:
    """log2(0) = -inf, log2(inf) = inf, NaN below zero."""
    infinity, zero = e.constant(float("inf"), x), e.constant(0.0, x)
    result = e.select(e.compare("fcmp oeq", x, infinity), infinity, result)
    rest = e.select(
        e.compare("fcmp oeq", x, zero),
        e.constant(float("-inf"), x),
        e.constant(float("nan"), x),
    )
    return e.select(e.compare("fcmp ogt", x, zero), result, rest)


# ---- sin, cos


def sin(e: Emitter, x: Operand) -> Operand:
    """sin((k + r) pi/2), |r| <= 1/2: sin or cos of r by the last bit of k, its sign by the next."""
    odd, flip, r = _quadrant(e, x, 0)
    sign = e.binary("and", e.bits(x), e.bits_of(-0.0, x))
    return _by_quadrant(e, odd, e.binary("xor", flip, sign), r)


def cos(e: Emitter, x: Operand) -> Operand:
    """cos(x) = sin(|x| + pi/2)."""
    odd, flip, r = _quadrant(e, x, 1)
    return _by_quadrant(e, odd, flip, r)


def _by_quadrant(e: Emitter, odd: Operand, sign: Operand, r: Operand) -> Operand:
    wide = r.element == "double"
    square = e.binary("fmul", r, r)
    sine = e.binary("fmul", r, polynomial(e, square, SIN_F64 if wide else SIN_F32))
    cosine = e.fma(polynomial(e, square, COS_F64 if wide else COS_F32), square, e.constant(1.0, r))
    bits = e.binary("xor", e.bits(e.select(odd, cosine, sine)), sign)
    return e.convert("bitcast", bits, r.element)


def _quadrant(e: Emitter, x: Operand, ahead: int) -> tuple[Operand, Operand, Operand]:
    """(k + ahead odd?, its second bit as a sign, r) with |x| 2/pi = k + r modulo 4."""
    is_f32 = x.element == "float"
    wide = e.intrinsic("fabs", e.convert("fpext", x, "double"))
    terms = _turns_of_f32(e, wide) if is_f32 else _turns_of_f64(e, wide)
    magic = FORMATS["double"].magic
    total = terms[0]
    for term in terms[1:]:
        total = e.binary("fadd", total, term)
    shifted = e.binary("fadd", total, e.constant(magic, total))
    k = e.binary("fsub", shifted, e.constant(magic, total))
    r = e.binary("fsub", terms[0], k)
    for term in terms[1:]:
        r = e.binary("fadd", r, term)
    number = e.binary("add", e.bits(shifted), e.constant(ahead, e.bits_of(magic, total)))
    odd = e.convert("trunc", number, "i1")
    second = e.binary("lshr", number, e.constant(1, number))
    if is_f32:
        r, second = e.convert("fptrunc", r, "float"), e.convert("trunc", second, "i32")
    top = e.binary("shl", second, e.constant(31 if is_f32 else 63, second))
    return odd, top, r


def _modulo_4(e: Emitter, product: Operand) -> Operand:
    """Exact."""
    quarter = e.binary("fmul", product, e.constant(0.25, product))
    turns = e.intrinsic("floor", quarter)
    return e.binary("fsub", product, e.binary("fmul", turns, e.constant(4.0, product)))


def _turns_of_f32(e: Emitter, x: Operand) -> list[Operand]:
    """x 2/pi modulo 4 as a sum. 24 bits of x times 29 bits of 2/pi are exact in f64."""
    digits = two_over_pi(29, 7)
    return [
        _modulo_4(e, e.binary("fmul", x, e.constant(digit * 2.0 ** (-29 * (i + 1)), x)))
        for i, digit in enumerate(digits)
    ]


def _turns_of_f64(e: Emitter, x: Operand) -> list[Operand]:
    """As for f32 with x in two halves, from the first 24-bit digit of 2/pi that matters on: the
    `skipped` ones before it contribute multiples of 4 for large x."""
    bits = e.bits(x)
    exponent = e.binary("lshr", bits, e.constant(52, bits))
    steps = e.binary("sub", exponent, e.constant(1023 + 78 - 24, bits))
    steps = e.select(e.compare("icmp slt", steps, e.constant(0, bits)), e.constant(0, bits), steps)
    skipped = e.binary("udiv", steps, e.constant(24, bits))
    power = e.binary("sub", e.constant(1023, bits), e.binary("mul", skipped, e.constant(24, bits)))
    scale = e.convert("bitcast", e.binary("shl", power, e.constant(52, bits)), "double")
    x = e.binary("fmul", x, scale)
    high = e.binary("and", e.bits(x), e.constant(-1 << 27, bits))
    high = e.convert("bitcast", high, "double")
    terms = []
    for i in range(9):
        digit = _digit(e, e.binary("add", skipped, e.constant(i, bits)))
        digit = e.binary("fmul", digit, e.constant(2.0 ** (-24 * (i + 1)), x))
        for half in (high, e.binary("fsub", x, high)):
            terms.append(_modulo_4(e, e.binary("fmul", half, digit)))
    return terms


def _digit(e: Emitter, index: Operand) -> Operand:
    """24 bits of 2/pi from the table, for each lane."""
    digits = two_over_pi(24, 50)
    inside = ", ".join(e.number(d, "double").typed for d in digits)
    e.globals["two_over_pi"] = f"[{len(digits)} x double] [{inside}]"
    kind = f"<{index.width} x ptr>" if index.width > 1 else "ptr"
    address = e.let(f"getelementptr double, ptr @two_over_pi, {index.typed}", "ptr", index.width)
    if index.width == 1:
        return e.let(f"load double, ptr {address.text}", "double")
    like = Operand("", "double", index.width)
    every = e.number(1, "i1", index.width)
    passing = f"{like.type} zeroinitializer"
    name = f"llvm.masked.gather.v{index.width}f64.v{index.width}p0"
    result = e.call(name, like, f"{kind} align 8 {address.text}", every, passing)
    assert result is not None
    return result


@functools.cache
def two_over_pi(bits: int, count: int) -> tuple[int, ...]:
    """The first digits of 2/pi after the point, in base 2^bits."""
    precision = bits * count + 64
    scaled = (2 << (2 * precision)) // _pi(precision)
    scaled >>= precision - bits * count
    mask = (1 << bits) - 1
    return tuple(scaled >> (bits * (count - 1 - i)) & mask for i in range(count))


def _pi(precision: int) -> int:
    """pi * 2^precision by Machin's formula."""
    one = 1 << (precision + 16)
    return 4 * (4 * _arctan_inverse(5, one) - _arctan_inverse(239, one)) >> 16


def _arctan_inverse(n: int, one: int) -> int:
    power, total, i = one // n, 0, 1
    while power:
        total += power // i if i % 4 == 1 else -(power // i)
        power //= n * n
        i += 2
    return total
