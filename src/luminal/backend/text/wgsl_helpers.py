"""Functions that WGSL text calls; a text has those only that it calls."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...graph.dtype import BY_NAME, DType
from .helpers import bounds

SUFFIXES = {"f32": ".0f", "f64": ".0lf", "i32": "i", "u32": "u", "i64": "li", "u64": "lu"}


def helper(name: str) -> tuple[str, tuple[str, ...]]:
    """(text of a function, those it calls), by a name such as "mod_i32" or "sat_f32_u8"."""
    if name in FIXED:
        text, calls = FIXED[name]
        return f"fn {name}{text}", calls
    kind, _, rest = name.rpartition("_")
    if kind.startswith("sat_"):
        return _saturate(kind[4:], BY_NAME[rest]), ()
    dtype = BY_NAME[rest]
    table = FLOAT if dtype.is_float else SIGNED if dtype.kind == "int" else UNSIGNED
    long = dtype.bytes == 8
    exponent, mantissa = ("0x7ff0000000000000lu", "0xffffffffffffflu") if long else \
        ("0x7f800000u", "0x7fffffu")  # fmt: skip
    text = table[kind].replace("$N", str(8 * dtype.bytes)).replace("$U", f"u{8 * dtype.bytes}")
    text = text.replace("$E", exponent).replace("$M", mantissa)
    for number in "012":
        text = text.replace(f"${number}", number + SUFFIXES[rest])
    return f"fn {name}(a: {rest}, b: {rest}) -> {rest} {{ {text} }}".replace("$T", rest), ()


_LEFT = "if ($U(b) >= $U($N)) { return $0; } return a << u32(b);"
SIGNED = {
    "floor_div": "if (b == $0) { return $0; } if (b == -$1) { return $0 - a; } let q = a / b;"
                 " return select(q, q - $1, (a % b != $0) & ((a ^ b) < $0));",
    "mod": "if ((b == $0) | (b == -$1)) { return $0; } let r = a % b;"
           " return select(r, r + b, (r != $0) & ((r ^ b) < $0));",
    "shift_left": _LEFT,
    "shift_right": "return a >> select(u32(b), $Nu - 1u, $U(b) >= $U($N));",
}  # fmt: skip
UNSIGNED = {
    "floor_div": "if (b == $0) { return $0; } return a / b;",
    "mod": "if (b == $0) { return $0; } return a % b;",
    "shift_left": _LEFT,
    "shift_right": "if (b >= $U($N)) { return $0; } return a >> u32(b);",
}
FLOAT = {
    # from the remainder, multiples of b by powers of two are taken away: all of that is exact
    "mod": "if ((b == $0) | !(b == b) | ((bitcast<$U>(a) & $E) == $E))"
           " { return bitcast<$T>(bitcast<$U>(b) | $E | $M); }"
           " let y = abs(b); var r = abs(a); while (r >= y) {"
           " let t = bitcast<$T>((bitcast<$U>(y) & $M) | (bitcast<$U>(r) & $E));"
           " r -= select(t, t / $2, t > r); }"
           " if (r == $0) { return select($0, -$0, b < $0); } r = select(r, -r, a < $0);"
           " return select(r, r + b, (r < $0) != (b < $0));",
    "max": "if ((a > b) | !(a == a)) { return a; } return b;",
    "min": "if ((a < b) | !(a == a)) { return a; } return b;",
}  # fmt: skip


def _saturate(source: str, dtype: DType) -> str:
    """Beyond the last number that fits, that one; NaN is 0."""
    kind = dtype.name if dtype.bytes >= 4 else "i32" if dtype.kind == "int" else "u32"
    (low, high, above, below), end = bounds(dtype), SUFFIXES[source].lstrip(".0")
    s = SUFFIXES[kind]
    least = f"{low + 1}{s} - 1{s}" if low else f"0{s}"
    return (
        f"fn sat_{source}_{dtype}(a: {source}) -> {kind} {{ if (!(a == a)) {{ return 0{s}; }}"
        f" if (a >= {above}{end}) {{ return {high}{s}; }} if (a <= {below}{end}) {{ return {least};"
        f" }} return {kind}(a); }}"
    )


def _series(x: str, terms: Iterable[float]) -> str:
    """The sum of so much of x^0, x^1, ..."""
    *others, text = [f"{term!r}lf" for term in terms]
    for term in reversed(others):
        text = f"({term} + {x} * {text})"
    return text


_LN_2 = math.log(2.0)
_SINE = _series("z", [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(9)])
_COSINE = _series("z", [(-1.0) ** n / math.factorial(2 * n) for n in range(10)])
_ATANH = _series("z", [1.0 / n for n in range(1, 25, 2)])
_TURN = (  # pi / 2 in three parts: the number of quarters, times the first, is exact
    " if (!(abs(a) < 1e300lf)) { return f64(bitcast<f32>(infinity | 0x400000u)); }"
    " let q = round(a * 0.6366197723675814lf); let x = a - q * 1.5707963267341256lf"
    " - q * 6.077100506303966e-11lf - q * 2.0222662487959506e-21lf; let z = x * x;"
    f" let s = x * {_SINE}; let c = {_COSINE};"
)


FIXED: dict[str, tuple[str, tuple[str, ...]]] = {
    "f32_of_bf16": ("(a: u32) -> f32 { return bitcast<f32>(a << 16u); }", ()),
    "bf16_of_f32": (
        "(a: f32) -> u32 { let b = bitcast<u32>(a); let high = b >> 16u;"
        " if ((b & 0x7fffffffu) > 0x7f800000u) { return high | 0x40u; }"
        " return (b + 0x7fffu + (high & 1u)) >> 16u; }",
        (),
    ),
    "f32_of_f16": ("(a: u32) -> f32 { return unpack2x16float(a).x; }", ()),
    "f16_of_f32": (
        "(a: f32) -> u32 { let b = bitcast<u32>(a); let rest = b & 0x7fffffffu;"
        " let sign = (b ^ rest) >> 16u;"
        " if (rest > 0x7f800000u) { return sign | 0x7e00u; }"
        " if (rest >= 0x47800000u) { return sign | 0x7c00u; }"
        " if (rest < 0x38800000u)"
        " { return sign | (bitcast<u32>(bitcast<f32>(rest) + 0.5f) - 0x3f000000u); }"
        " return sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13u) & 1u)) >> 13u); }",
        (),
    ),
    "f16_of_f64": (  # by way of an f32 that is odd where it is inexact: rounded once
        "(a: f64) -> u32 { let near = f32(a); let back = f64(near); var b = bitcast<u32>(near);"
        " if ((back != a) & (a == a)) { b = (b - u32(abs(back) > abs(a))) | 1u; }"
        " return f16_of_f32(bitcast<f32>(b)); }",
        ("f16_of_f32",),
    ),
    "exp2_f32": (  # drivers take exp2(x * log2(y)) for a power that is wrong at 0 and NaN
        "(a: f32) -> f32"
        " { return exp2(bitcast<f32>(bitcast<u32>(a) | bitcast<u32>(sizes.zero))); }",
        (),
    ),
    # the language has these for f32 only
    "exp2_f64": (
        "(a: f64) -> f64 { if (!(a == a)) { return a; } let b = clamp(a, -1100.0lf, 1100.0lf);"
        " let n = round(b); let x = b - n; let half = i64(n) / 2li;"
        f" let p = {_series('x', [_LN_2**n / math.factorial(n) for n in range(15)])};"
        " return p * bitcast<f64>((half + 1023li) << 52u)"
        " * bitcast<f64>((i64(n) - half + 1023li) << 52u); }",
        (),
    ),
    "log2_f64": (
        "(a: f64) -> f64 { let b = bitcast<i64>(a); if (((b >> 52u) == 0li) & (b != 0li))"
        " { return log2_normal(a * 18014398509481984.0lf) - 54.0lf; } return log2_normal(a); }",
        ("log2_normal",),
    ),
    "log2_normal": (
        "(a: f64) -> f64 { if (!(a > 0.0lf)) { return f64(bitcast<f32>(select(infinity | 0x400000u,"
        " infinity | 0x80000000u, a == 0.0lf))); } let b = bitcast<i64>(a);"
        " if (b >= 0x7ff0000000000000li) { return a; } var e = (b >> 52u) - 1023li;"
        " var m = bitcast<f64>((b & 0xfffffffffffffli) | 0x3ff0000000000000li);"
        " if (m > 1.4142135623730951lf) { m *= 0.5lf; e += 1li; }"
        " let s = (m - 1.0lf) / (m + 1.0lf); let z = s * s;"
        f" return f64(e) + {2.0 / _LN_2!r}lf * s * {_ATANH}; }}",
        (),
    ),
    "sin_f64": (
        f"(a: f64) -> f64 {{{_TURN} let n = i64(q) & 3li;"
        " let y = select(s, c, (n & 1li) == 1li); return select(y, -y, n > 1li); }",
        (),
    ),
    "cos_f64": (
        f"(a: f64) -> f64 {{{_TURN} let n = (i64(q) + 1li) & 3li;"
        " let y = select(s, c, (n & 1li) == 1li); return select(y, -y, n > 1li); }",
        (),
    ),
}
