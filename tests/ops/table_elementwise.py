"""Cases: arithmetic, comparisons, mathematics, activations, dtypes."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from luminal import ops

from .cases import BF16, booleans, case, integers, normal, pairs, positive, special, unit

FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": BF16}
INTEGERS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8}

# ---- two operands

BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "div": torch.div,
}
for name, theirs in BINARY.items():
    ours = getattr(ops, name)
    case(f"{name} broadcast", ours, theirs, normal(3, 1, 5), normal(4, 1))
    case(f"{name} empty", ours, theirs, normal(0, 3), normal(1, 3))
    case(f"{name} special", ours, theirs, *pairs())
    case(f"{name} scalar tensor", ours, theirs, normal(4), np.float64(2.5)[...])
    case(f"{name} i32 f16", ours, theirs, integers(5, dtype=np.int32), normal(5, dtype=np.float16))
    for kind in ("f64", "f16", "bf16"):
        case(
            f"{name} {kind}", ours, theirs, *(normal(9, dtype=FLOATS[kind], seed=s) for s in (1, 2))
        )
    for kind, dtype in INTEGERS.items():
        low = 1 if kind == "u8" else -100
        a, b = (
            integers(40, low=low, high=100, dtype=dtype),
            integers(40, low=1, high=50, dtype=dtype),
        )
        case(f"{name} {kind}", ours, theirs, a, b)
    if name != "sub":
        case(f"{name} bool", ours, theirs, booleans(9), booleans(3, 9))

for mode in ("floor", "trunc"):
    for kind in ("f32", "i32", "i8"):
        a = (
            normal(30) * 9
            if kind == "f32"
            else integers(30, low=-40, high=40, dtype=INTEGERS[kind])
        )
        b = normal(30) if kind == "f32" else np.where(integers(30) == 0, 3, integers(30))
        b = b.astype(a.dtype)
        case(
            f"div {mode} {kind}",
            lambda x, y, mode=mode: ops.div(x, y, rounding_mode=mode),
            lambda x, y, mode=mode: torch.div(x, y, rounding_mode=mode),
            a,
            b,
        )
for name in ("remainder", "fmod"):
    a, b = integers(30, low=-40, high=40), np.where(integers(30) == 0, 3, integers(30))
    case(f"{name} i64", getattr(ops, name), getattr(torch, name), a, b)
    case(
        f"{name} f32", getattr(ops, name), getattr(torch, name), normal(30) * 5, normal(30, seed=3)
    )
for name in ("fmax", "fmin", "logaddexp"):
    case(f"{name} special", getattr(ops, name), getattr(torch, name), *pairs())
case("atan2", ops.atan2, torch.atan2, normal(50), normal(50, seed=1))
case("atan2 special", ops.atan2, torch.atan2, *pairs())
case("floor_divide", ops.floor_divide, torch.floor_divide, normal(20) * 9, normal(20, seed=1))
case("floor_divide special", ops.floor_divide, torch.floor_divide, *pairs())
first, second = pairs()
near = np.abs(first) != np.float32(3e38)  # 3e38 / 1e-7 overflows in PyTorch
for name in ("remainder", "fmod"):
    case(f"{name} special", getattr(ops, name), getattr(torch, name), first[near], second[near])
case(
    "add alpha",
    lambda x, y: ops.add(x, y, alpha=3),
    lambda x, y: torch.add(x, y, alpha=3),
    integers(5),
    integers(5, high=30),
)
case(
    "lerp",
    lambda x, y: ops.lerp(x, y, 0.3),
    lambda x, y: torch.lerp(x, y, 0.3),
    normal(9),
    normal(9, seed=1),
)
case(
    "lerp far",
    lambda x, y: ops.lerp(x, y, 0.9),
    lambda x, y: torch.lerp(x, y, 0.9),
    normal(9),
    normal(9, seed=1),
)
case(
    "addcmul",
    lambda x, y, z: ops.addcmul(x, y, z, 0.5),
    lambda x, y, z: torch.addcmul(x, y, z, value=0.5),
    normal(9),
    normal(9, seed=1),
    normal(9, seed=2),
)

# ---- Python numbers, operators

case("int + float", lambda x: x + 1.5, lambda x: x + 1.5, integers(5))
case("u8 - 1", lambda x: x - 1, lambda x: x - 1, integers(5, low=0, dtype=np.uint8))
case("2 - x", lambda x: 2 - x, lambda x: 2 - x, integers(5, dtype=np.int8))
case("bool * 2", lambda x: x * 2, lambda x: x * 2, booleans(5))
case("1 / x", lambda x: 1 / x, lambda x: 1 / x, special())
case("f16 + 1e-3", lambda x: x + 1e-3, lambda x: x + 1e-3, normal(9, dtype=np.float16))
case("bf16 * pi", lambda x: x * 3.141592, lambda x: x * 3.141592, normal(9, dtype=BF16))
case("x // 3", lambda x: x // 3, lambda x: x // 3, integers(20, low=-20, high=20))
case("-x % 5", lambda x: -x % 5, lambda x: -x % 5, integers(20, low=-20, high=20))
case("~x & 6 | 1", lambda x: (~x & 6) | 1, lambda x: (~x & 6) | 1, integers(20, dtype=np.int32))
case("~bool", lambda x: ~x, lambda x: ~x, booleans(9))
case("x << 2 >> 1", lambda x: x << 2 >> 1, lambda x: x << 2 >> 1, integers(20, dtype=np.int16))
case("xor", ops.bitwise_xor, torch.bitwise_xor, integers(20), integers(20, high=40))
case("abs large", abs, abs, np.array([-(2**63), 2**62 + 1, -5, 0]))
case("i64 sum exact", lambda x: x + (2**53 + 1), lambda x: x + (2**53 + 1), integers(5))

for name in ("logical_and", "logical_or", "logical_xor"):
    case(name, getattr(ops, name), getattr(torch, name), integers(20, low=0, high=2), booleans(20))
case("logical_not", ops.logical_not, torch.logical_not, special())
case("where", ops.where, torch.where, booleans(4, 5), normal(5), normal(4, 1))
case("where promote", ops.where, torch.where, booleans(4), integers(4), normal(4))
case(
    "where number",
    lambda c, x: ops.where(c, x, float("-inf")),
    lambda c, x: torch.where(c, x, float("-inf")),
    booleans(4, 5),
    normal(5),
)
case(
    "masked_fill",
    lambda x, m: x.masked_fill(m, -1e9),
    lambda x, m: x.masked_fill(m, -1e9),
    normal(4, 5),
    booleans(5),
)
case("clamp", lambda x: ops.clamp(x, -0.5, 1), lambda x: torch.clamp(x, -0.5, 1), special())
case("clamp min", lambda x: ops.clamp(x, min=2), lambda x: torch.clamp(x, min=2), integers(9))
case("isclose", ops.isclose, torch.isclose, *pairs())
case("nan_to_num", ops.nan_to_num, torch.nan_to_num, special())
case("nan_to_num f16", ops.nan_to_num, torch.nan_to_num, special(np.float16))

# ---- casts

KINDS = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
for name, kind in KINDS.items():
    case(
        f"f32 to {name}",
        lambda x, n=name: x.to(n),
        lambda x, k=kind: x.to(k),
        np.array([0.0, -0.0, 1.5, 100.75, 0.3, 7.99], np.float32),
    )
    case(
        f"i64 to {name}",
        lambda x, n=name: x.to(n),
        lambda x, k=kind: x.to(k),
        np.array([0, 1, 127, 300, 2**20 + 1, 70000]),
    )
    case(f"bool to {name}", lambda x, n=name: x.to(n), lambda x, k=kind: x.to(k), booleans(6))

# ---- one operand

UNARY = (
    "neg",
    "abs",
    "sign",
    "square",
    "floor",
    "ceil",
    "trunc",
    "round",
    "frac",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "erf",
    "erfc",
    "sigmoid",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "acosh",
    "asin",
    "acos",
    "atanh",
    "logit",
)
LOOSE = {"exp": 8, "exp2": 8, "sinh": 8, "cosh": 8, "erfc": 30, "tan": 10, "log1p": 2, "expm1": 4}
DOMAIN = {
    "log": positive,
    "log2": positive,
    "log10": positive,
    "sqrt": positive,
    "rsqrt": positive,
    "asin": unit,
    "acos": unit,
    "atanh": unit,
    "logit": unit,
}
for name in UNARY:
    ours, theirs, scale = getattr(ops, name), getattr(torch, name), LOOSE.get(name, 1)
    make = DOMAIN.get(name, normal)
    for kind, dtype in FLOATS.items():
        x = make(40, dtype=dtype) * dtype(1 if make is unit else 2)
        x = x + 1 if name == "acosh" else x
        case(
            f"{name} {kind}",
            ours,
            theirs,
            np.abs(x).astype(dtype) if name == "acosh" else x,
            scale=scale,
        )
    hostile = special() if name not in ("sin", "cos", "tan") else np.delete(special(), 8)
    case(f"{name} special", ours, theirs, hostile, scale=scale * (4 if name != "exp" else 1))
    small = np.array([1e-3, -1e-4, 1e-6, 3e-2, -0.24, 0.26, 0.3, -0.34], np.float32)
    if name not in ("acosh", "acos"):
        case(
            f"{name} small",
            ours,
            theirs,
            np.abs(small) if make is positive else small,
            scale=scale,
            floor=1e-9,
        )
for name in ("exp", "sqrt", "tanh", "sigmoid", "log1p"):
    case(
        f"{name} i32",
        getattr(ops, name),
        getattr(torch, name),
        integers(6, low=0, dtype=np.int32),
        scale=4,
    )
case("acosh far below", ops.acosh, torch.acosh, -np.logspace(0, 38, 39).astype(np.float32))
case("asinh sign", lambda x: ops.signbit(x.asinh()), lambda x: torch.signbit(x.asinh()), special())
case("round decimals", lambda x: ops.round(x, 2), lambda x: torch.round(x, decimals=2), normal(20))
case("round half", ops.round, torch.round, np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32))
case("erf tail", ops.erf, torch.erf, np.linspace(-6, 6, 401).astype(np.float32), floor=1e-9)
case("erf tail f64", ops.erf, torch.erf, np.linspace(-7, 7, 401), floor=1e-9)
case(
    "erfc tail",
    ops.erfc,
    torch.erfc,
    np.linspace(-6, 9, 301).astype(np.float32),
    scale=40,
    floor=1e-30,
)
case("erfc tail f64", ops.erfc, torch.erfc, np.linspace(-6, 20, 301), scale=2, floor=1e-200)
case("tanh wide", ops.tanh, torch.tanh, np.linspace(-10, 10, 401).astype(np.float32), floor=1e-9)
case("tanh wide f64", ops.tanh, torch.tanh, np.linspace(-20, 20, 401), floor=1e-9)

# ---- powers

for exponent in (0, 1, 2, 3, 5, -1, -2, 0.5, -0.5, 1.7, 10):
    case(
        f"pow {exponent}",
        lambda x, e=exponent: x**e,
        lambda x, e=exponent: x**e,
        normal(30),
        scale=8,
    )
    case(
        f"pow {exponent} special",
        lambda x, e=exponent: x**e,
        lambda x, e=exponent: x**e,
        special(),
        scale=8,
    )
case("pow int", lambda x: x**3, lambda x: x**3, integers(9, dtype=np.int32))
case("2 ** x", lambda x: 2**x, lambda x: 2**x, normal(9), scale=4)
case("2 ** int", lambda x: 2**x, lambda x: 2**x, integers(9, low=0, high=40))
case("pow tensors", ops.pow, torch.pow, normal(30), normal(30, seed=4), scale=8)
for kind, highest in ((np.float32, 5.0), (np.float64, 13.0)):  # exact, not only close
    case(
        f"pow of whole numbers {np.dtype(kind)}",
        ops.pow,
        torch.pow,
        np.arange(-10, 11).astype(kind)[:, None],
        np.arange(highest + 1).astype(kind),
        scale=0,
    )
case(
    "pow whole",
    ops.pow,
    torch.pow,
    normal(30),
    integers(30, low=-4, high=5).astype(np.float32),
    scale=8,
)
case("pow special", ops.pow, torch.pow, *pairs(), scale=60)
case("pow of zeros", lambda x: x**-3, lambda x: x**-3, np.array([-0.0, 0.0], np.float32))
odd = np.array([-3, -13, 3, 13, -np.inf, -1, -2, 0.5], np.float32)
for power in ("pow", "signbit of pow"):
    ours = ops.pow if power == "pow" else lambda x, y: ops.signbit(ops.pow(x, y))
    theirs = torch.pow if power == "pow" else lambda x, y: torch.signbit(torch.pow(x, y))
    case(f"{power} of -0", ours, theirs, np.full(8, -0.0, np.float32), odd)
for kind in (np.int16, np.int32, np.int64):
    high = np.iinfo(kind).max
    far = np.array([64, 127, 128, 129, 514, 1023, 2049, high - 1, high], kind)
    near = np.array([3, -3, 6, 5, 7, -7, 21, -128, high], kind)[:, None]
    case(f"pow of far {np.dtype(kind)}", ops.pow, torch.pow, near, far)
case("pow i64", ops.pow, torch.pow, integers(30, low=-4, high=5), integers(30, low=0, high=70))
case(
    "pow i8 negative",
    ops.pow,
    torch.pow,
    integers(30, low=-2, high=3, dtype=np.int8),
    integers(30, low=-3, high=9, dtype=np.int8),
)

# ---- activations

ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "logsigmoid": F.logsigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
}
for name, theirs in ACTIVATIONS.items():
    for kind, dtype in FLOATS.items():
        case(f"{name} {kind}", getattr(ops, name), theirs, (normal(60) * 4).astype(dtype), scale=2)
    hostile = special()
    if name in ("silu", "gelu", "mish", "tanhshrink", "softsign", "hardswish"):
        hostile = hostile[np.abs(hostile) < 1e30]  # -inf sigmoid(-inf): no agreed value
    case(f"{name} special", getattr(ops, name), theirs, hostile, scale=4)
case(
    "gelu tanh",
    lambda x: ops.gelu(x, "tanh"),
    lambda x: F.gelu(x, approximate="tanh"),
    normal(50) * 3,
    scale=2,
)
case("relu int", ops.relu, F.relu, integers(9))
case("prelu", ops.prelu, F.prelu, normal(2, 3, 4), positive(3))
case("glu", lambda x: ops.glu(x, 1), lambda x: F.glu(x, 1), normal(3, 8))
case("threshold", lambda x: ops.threshold(x, 0, 20), lambda x: F.threshold(x, 0, 20), special())
