"""Functions that generated text calls: what C leaves undefined, and two-byte floats.

f16 and bf16 travel as their bits; every other dtype as what the dialect calls it. A text has those
functions only that it calls.
"""

from __future__ import annotations

import math

from ...graph.dtype import BY_NAME, DType


def unsigned(dtype: DType) -> str:
    """The type in which sums, products and shifts wrap around (narrow ones are widened to int)."""
    return f"u{max(32, 8 * dtype.bytes)}"


def helper(name: str) -> tuple[str, tuple[str, ...]]:
    """(text of a function, those it calls), by a name such as "mod_i32" or "sat_f32_u8"."""
    if name in FIXED:
        return FIXED[name]
    kind, _, rest = name.rpartition("_")
    if kind.startswith("sat_"):
        return _saturate(kind[4:], BY_NAME[rest]), ()
    dtype = BY_NAME[rest]
    table = FLOAT if dtype.is_float else SIGNED if dtype.kind == "int" else UNSIGNED
    text = table[kind].replace("$W", unsigned(dtype)).replace("$U", f"u{8 * dtype.bytes}")
    return text.replace("$T", rest).replace("$N", str(8 * dtype.bytes)), ()


SIGNED = {
    "floor_div": "$T floor_div_$T($T a, $T b) { if (b == 0) return 0;"
                 " if (b == -1) return ($T)(0 - ($W)a); $T q = a / b;"
                 " return (a % b != 0 && (a ^ b) < 0) ? q - 1 : q; }",
    "mod": "$T mod_$T($T a, $T b) { if (b == 0 || b == -1) return 0; $T r = a % b;"
           " return (r != 0 && (r ^ b) < 0) ? r + b : r; }",
    "shift_left": "$T shift_left_$T($T a, $T b)"
                  " { return ($U)b < $N ? ($T)(($W)a << b) : ($T)0; }",
    "shift_right": "$T shift_right_$T($T a, $T b) { return a >> (($U)b < $N ? ($U)b : $N - 1); }",
}  # fmt: skip
UNSIGNED = {
    "floor_div": "$T floor_div_$T($T a, $T b) { return b == 0 ? ($T)0 : ($T)(a / b); }",
    "mod": "$T mod_$T($T a, $T b) { return b == 0 ? ($T)0 : ($T)(a % b); }",
    "shift_left": SIGNED["shift_left"],
    "shift_right": "$T shift_right_$T($T a, $T b) { return b < $N ? ($T)(a >> b) : ($T)0; }",
}
FLOAT = {
    "mod": "$T mod_$T($T a, $T b) { $T r = @fmod(a, b);"
           " if (r == 0) return @copysign(($T)0, b); return (r < 0) != (b < 0) ? r + b : r; }",
    "max": "$T max_$T($T a, $T b) { return a > b ? a : a != a ? a : b; }",
    "min": "$T min_$T($T a, $T b) { return a < b ? a : a != a ? a : b; }",
}  # fmt: skip


def bounds(dtype: DType) -> tuple[int, int, str, str]:
    """(lowest, highest, the float from which on all is beyond, that below)."""
    low, high = int(dtype.lowest), int(dtype.highest)
    return low, high, repr(2.0 ** math.ceil(math.log2(high))), repr(float(low))


def _saturate(source: str, dtype: DType) -> str:
    """Beyond the last number that fits, that one; NaN is 0."""
    low, high, above, below = bounds(dtype)
    least = f"({dtype.name}){low}" if low > -(1 << 63) else f"(-({dtype.name}){high} - 1)"
    most = f"({dtype.name}){high}" + "u" * (dtype.kind != "int")
    return (
        f"{dtype.name} sat_{source}_{dtype.name}({source} a) {{ if (a != a) return 0;"
        f" if (a >= ({source}){above}) return {most}; if (a <= ({source}){below}) return {least};"
        f" return ({dtype.name})a; }}"
    )


FIXED: dict[str, tuple[str, tuple[str, ...]]] = {
    "f32_of_bf16": ("f32 f32_of_bf16(u16 a) { return f32_of((u32)a << 16); }", ()),
    "bf16_of_f32": (
        "u16 bf16_of_f32(f32 a) { u32 b = bits_f32(a), high = b >> 16;"
        " return (u16)(a != a ? high | 0x40 : (b + 0x7fff + (high & 1)) >> 16); }",
        (),
    ),
    "f32_of_f16": (
        "f32 f32_of_f16(u16 a) { u32 sign = (u32)(a & 0x8000) << 16, e = (a >> 10) & 31;"
        " u32 m = a & 1023; f32 tiny = (f32)m * 5.9604644775390625e-8f;"
        " if (e == 0) return sign ? -tiny : tiny;"
        " return f32_of(sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13); }",
        (),
    ),
    "f16_of_f32": (
        "u16 f16_of_f32(f32 a) { u32 b = bits_f32(a), rest = b & 0x7fffffff;"
        " u16 sign = (u16)((b ^ rest) >> 16);"
        " if (rest > 0x7f800000u) return sign | 0x7e00;"
        " if (rest >= 0x47800000u) return sign | 0x7c00;"
        " if (rest < 0x38800000u) return sign | (u16)(bits_f32(f32_of(rest) + 0.5f) - 0x3f000000u);"
        " return sign | (u16)((rest - 0x38000000u + 0xfff + ((rest >> 13) & 1)) >> 13); }",
        (),
    ),
    "f16_of_f64": (  # by way of an f32 that is odd where it is inexact: rounded once
        "u16 f16_of_f64(f64 a) { f32 near = (f32)a; f64 back = (f64)near; u32 b = bits_f32(near);"
        " if (back != a && a == a) b = (b - (@fabs(back) > @fabs(a))) | 1;"
        " return f16_of_f32(f32_of(b)); }",
        ("f16_of_f32",),
    ),
}
