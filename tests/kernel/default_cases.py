"""Kernels of every kind as plans are lowered to them, for tests of schedules."""

from dataclasses import replace

import numpy as np

from luminal.graph.dtype import boolean, f16, f32, i8, i32, i64, u8
from luminal.graph.index import Index
from luminal.kernel.kernel import (
    Apply,
    Buffer,
    Constant,
    Guard,
    Kernel,
    Load,
    Position,
    Read,
    Reduction,
    Rewriter,
    Store,
    Value,
)

I = Index.of
LOWEST = -3.0e38


def load(name, *index, dtype=f32, slots=()):
    return Load(name, tuple(map(I, index)), dtype, slots)


def store(name, *index, **kw):
    return Store(name, tuple(map(I, index)), **kw)


def buffer(name, *shape, dtype=f32, constant=False):
    return Buffer(name, dtype, tuple(map(I, shape)), constant)


def read(name, dtype=f32, so_far=False):
    return Read(name, dtype, so_far)


def const(value, dtype=f32):
    return Constant(value, dtype)


def op(name, *args, dtype=None):
    return Apply(name, args, dtype or args[-1].dtype)


def mul(a, b):
    return op("mul", a, b)


def add(a, b):
    return op("add", a, b)


def sub(a, b):
    return add(a, mul(b, const(-1.0, b.dtype)))


def cast(a, dtype):
    return Apply("cast", (a,), dtype)


def silu(x):
    return op("div", x, add(const(1.0), op("exp2", mul(x, const(-1.4426950408889634)))))


def total(over, op="sum", **kw):
    return Reduction(op, tuple(over), **kw)


def kernel(name, buffers, axes, values, sizes=None):
    sizes = sizes or {}
    return Kernel(name, tuple(buffers), {a: I(n) for a, n in axes.items()}, tuple(values), sizes)


def value(name, axes, body, reduction=None, store=None, domain=None):
    return Value(name, tuple(axes), body, body.dtype, reduction, store, domain or {})


# ---- contractions


def gemm(m, n, k, constant=True, turned=False, batch=0, epilogue=True, sizes=None):
    b = ("b",) * bool(batch)
    lead = (batch,) * bool(batch)
    right = ("n", "k") if turned else ("k", "n")
    shape = (n, k) if turned else (k, n)
    w = load("B", *(b if not constant else ()), *right)
    out = read("acc")
    if epilogue:
        out = silu(add(out, load("bias", "n")))
    return kernel(
        "gemm",
        [buffer("A", *lead, m, k), buffer("B", *(lead if not constant else ()), *shape,
                                          constant=constant),
         buffer("bias", n, constant=True), buffer("C", *lead, m, n)],
        {**({"b": batch} if batch else {}), "m": m, "n": n, "k": k},
        [value("acc", (*b, "m", "n"), mul(load("A", *b, "m", "k"), w), total("k")),
         value("out", (*b, "m", "n"), out, store=store("C", *b, "m", "n"))],
        sizes,
    )  # fmt: skip


def joined_matmul(first, second, m, n):
    """C[m, n] = sum over k of W[k, n] times A beside B, joined along k."""
    part = Guard((I(first - 1) - I("k"),), load("A", "m", "k"), load("B", "m", I("k") - first))
    body = mul(part, load("W", "k", "n"))
    sums = value("sum", ("m", "n"), body, total(("k",)), store("C", "m", "n"))
    buffers = [buffer("A", m, first), buffer("B", m, second),
               buffer("W", first + second, n, constant=True), buffer("C", m, n)]  # fmt: skip
    return kernel("joined", buffers, {"m": I(m), "n": I(n), "k": I(first + second)}, [sums])


def gemm_int8(m, n, k):
    body = mul(cast(load("A", "m", "k", dtype=u8), i32), cast(load("B", "k", "n", dtype=i8), i32))
    return kernel(
        "gemm_int8",
        [buffer("A", m, k, dtype=u8), buffer("B", k, n, dtype=i8, constant=True),
         buffer("C", m, n, dtype=i32)],
        {"m": m, "n": n, "k": k},
        [value("acc", "mn", body, total("k")),
         value("out", "mn", read("acc", i32), store=store("C", "m", "n"))],
    )  # fmt: skip


def gated(m, n, k):
    x = load("A", "m", "k")
    factor = op("recip", op("sqrt", add(mul(read("squares"), const(1.0 / k)), const(1e-5))))
    normed = mul(x, read("factor"))
    up, gate = mul(read("up"), const(1.0)), silu(add(read("gate"), load("bias", "n")))
    return kernel(
        "gated",
        [buffer("A", m, k), buffer("G", k, n, constant=True), buffer("U", k, n, constant=True),
         buffer("bias", n, constant=True), buffer("C", m, n)],
        {"m": m, "n": n, "k": k},
        [value("squares", "m", mul(x, x), total("k")), value("factor", "m", factor),
         value("gate", "mn", mul(normed, load("G", "k", "n")), total("k")),
         value("up", "mn", mul(normed, load("U", "k", "n")), total("k")),
         value("out", "mn", mul(gate, up), store=store("C", "m", "n"))],
    )  # fmt: skip


def gemv(n, k, constant=True):
    return kernel(
        "gemv",
        [buffer("W", n, k, constant=constant), buffer("X", k), buffer("Y", n)],
        {"n": n, "k": k},
        [value("acc", "n", mul(load("W", "n", "k"), load("X", "k")), total("k")),
         value("out", "n", read("acc"), store=store("Y", "n"))],
    )  # fmt: skip


def gemv_q4(n, g, j=16):
    """One row times digits of bytes, a scale for each group, in f32."""
    four = Position(load("W", "q").index[0] * 4, u8)
    digits = op("shift_right", load("W", "n", "g", "j", dtype=u8), four, dtype=u8)
    wide = cast(op("and", digits, const(15, u8), dtype=u8), f32)
    body = mul(mul(load("X", "g", "q", "j"), wide), cast(load("S", "n", "g", dtype=f16), f32))
    return kernel(
        "gemv_q4",
        [buffer("W", n, g, j, dtype=u8, constant=True), buffer("X", g, 2, j),
         buffer("S", n, g, dtype=f16, constant=True), buffer("Y", n)],
        {"n": n, "g": g, "q": 2, "j": j},
        [value("acc", "n", body, total("gqj"), store("Y", "n"))],
    )  # fmt: skip


def gemv_q8(n, g):
    body = mul(cast(load("W", "n", "g", "q", "j", dtype=u8), i32),
               cast(load("X", "g", "q", "j", dtype=i8), i32))  # fmt: skip
    scaled = mul(cast(read("dot", i32), f32), mul(load("S", "n", "g"), load("XS", "g")))
    start = load("XO", "g", dtype=i32)
    return kernel(
        "gemv_q8",
        [buffer("W", n, g, 8, 4, dtype=u8, constant=True), buffer("S", n, g, constant=True),
         buffer("X", g, 8, 4, dtype=i8), buffer("XS", g), buffer("XO", g, dtype=i32),
         buffer("Y", n)],
        {"n": n, "g": g, "q": 8, "j": 4},
        [value("dot", "ng", body, total("qj", start=start)),
         value("acc", "n", scaled, total("g")),
         value("out", "n", read("acc"), store=store("Y", "n"))],
    )  # fmt: skip


# ---- rows


def softmax(m, k, sizes=None):
    e = op("exp2", sub(load("X", "m", "k"), read("top")))
    return kernel(
        "softmax", [buffer("X", m, k), buffer("Y", m, k)], {"m": m, "k": k},
        [value("top", "m", load("X", "m", "k"), total("k", "max")), value("e", "mk", e),
         value("sum", "m", read("e"), total("k")), value("scale", "m", op("recip", read("sum"))),
         value("out", "mk", mul(read("e"), read("scale")), store=store("Y", "m", "k"))],
        sizes,
    )  # fmt: skip


def layer_norm(m, k, sizes=None):
    x, mean = load("X", "m", "k"), read("mean")
    scale = op("recip", op("sqrt", add(mul(read("squares"), const(1.0 / k)), const(1e-5))))
    out = add(mul(mul(sub(x, mean), read("scale")), load("G", "k")), load("H", "k"))
    return kernel(
        "layer_norm",
        [buffer("X", m, k), buffer("G", k, constant=True), buffer("H", k, constant=True),
         buffer("Y", m, k)],
        {"m": m, "k": k},
        [value("total", "m", x, total("k")),
         value("mean", "m", mul(read("total"), const(1.0 / k))),
         value("squares", "m", mul(sub(x, mean), sub(x, mean)), total("k")),
         value("scale", "m", scale), value("out", "mk", out, store=store("Y", "m", "k"))],
        sizes,
    )  # fmt: skip


def column_sum(m, k):
    return kernel(
        "columns", [buffer("X", m, k), buffer("Y", k)], {"k": k, "m": m},
        [value("acc", "k", load("X", "m", "k"), total("m"), store=store("Y", "k"))],
    )  # fmt: skip


def chain(m, k):
    a, b, c = (load(n, "m", "k") for n in "ABC")
    body = op("max", add(mul(silu(a), b), mul(c, const(0.5))), const(0.0))
    return kernel(
        "chain", [buffer(n, m, k) for n in "ABCY"], {"m": m, "k": k},
        [value("out", "mk", body, store=store("Y", "m", "k"))],
    )  # fmt: skip


def transpose(m, k):
    return kernel(
        "transpose", [buffer("X", m, k), buffer("Y", k, m)], {"m": m, "k": k},
        [value("out", "km", load("X", "m", "k"), store=store("Y", "k", "m"))],
    )  # fmt: skip


# ---- attention


def attention(h, q, k, d, causal=True, groups=1, sizes=None):
    """Online softmax; queries of `groups` heads share keys and values."""
    top, natural = read("top", so_far=True), 1.4426950408889634 / d**0.5
    scaled = mul(read("score"), const(natural))
    masked = Guard((I("q") - I("k"),), scaled, const(-np.inf)) if causal else scaled
    heads = ("h", "g") if groups > 1 else ("h",)
    lead = (h, groups) if groups > 1 else (h,)
    at = (*heads, "q")
    p = read("p")
    return kernel(
        "attention",
        [buffer("Q", *lead, q, d), buffer("K", h, k, d), buffer("V", h, k, d),
         buffer("O", *lead, q, d)],
        {**dict(zip(heads, lead)), "q": q, "k": k, "d": d, "e": d},
        [value("score", (*at, "k"), mul(load("Q", *at, "d"), load("K", "h", "k", "d")),
               total("d")),
         value("masked", (*at, "k"), masked), value("before", at, top),
         value("top", at, read("masked"), total("k", "max", start=const(LOWEST))),
         value("shrink", at, op("exp2", sub(read("before"), top))),
         value("p", (*at, "k"), op("exp2", sub(read("masked"), top))),
         value("sum", at, p, total("k", rescale=read("shrink"))),
         value("mix", (*at, "e"), mul(p, load("V", "h", "k", "e")),
               total("k", rescale=read("shrink"))),
         value("out", (*at, "e"), mul(read("mix"), op("recip", read("sum"))),
               store=store("O", *at, "e"))],
        sizes,
    )  # fmt: skip


# ---- convolutions


def rotated_attention(heads, s, groups, d, **kw):
    """Causal attention whose queries (s, heads groups d) are turned by tables (s, d / 2)."""
    half = d // 2

    def turned(e):
        if not isinstance(e, Load) or e.buffer != "Q":
            return e
        h, g, q, at = e.index

        def pair(shift):
            cos, sin = (load(t, q, at - half * (shift < 0)) for t in ("C", "S"))
            row = (h * groups + g) * d + at
            return add(mul(load("Q", q, row), cos), mul(load("Q", q, row + shift), sin))

        return Guard((half - 1 - at,), pair(half), pair(-half))

    plain = attention(heads, s, s, d, groups=groups, **kw)
    tables = [buffer("Q", s, heads * groups * d), buffer("C", s, half), buffer("S", s, half)]
    rewriter = Rewriter(turned)
    values = tuple(rewriter.value(v) for v in plain.values)
    return replace(plain, buffers=(*tables, *plain.buffers[1:]), values=values)


def convolution(c, hw, o, size, stride=1, groups=False, last=False, batch=1):
    """NCHW (or channels last), padded by half the window; `groups`: depthwise."""
    pad = size // 2
    out = (hw + 2 * pad - size) // stride + 1
    y, x = I("y") * stride + "r" - pad, I("x") * stride + "s" - pad
    inside = (y, I(hw) - y - 1, x, I(hw) - x - 1)
    channel = "o" if groups else "c"

    def order(n, c, y, x):
        return (n, y, x, c) if last else (n, c, y, x)

    image = Guard(inside, load("X", *order("b", channel, y, x)), const(0.0))
    if size == 1 and stride == 1:
        image = load("X", *order("b", channel, y, x))
    weights = ("o", "r", "s") if groups else ("o", "c", "r", "s")
    shape = (o, size, size) if groups else (o, c, size, size)
    over = ("r", "s") if groups else ("c", "r", "s")
    kept = order("b", "o", "y", "x")
    axes = {"b": batch, "o": o, "y": out, "x": out, "c": c, "r": size, "s": size}
    if groups:
        del axes["c"]
    body = op("max", add(read("acc"), load("bias", "o")), const(0.0))
    return kernel(
        "convolution",
        [buffer("X", *order(batch, o if groups else c, hw, hw)),
         buffer("W", *shape, constant=True), buffer("bias", o, constant=True),
         buffer("Y", *order(batch, o, out, out))],
        axes,
        [value("acc", kept, mul(image, load("W", *weights)), total(over)),
         value("out", kept, body, store=store("Y", *kept))],
    )  # fmt: skip


# ---- data-dependent


def embedding(s, vocabulary, d):
    slot = (("$0", load("I", "s", dtype=i64)),)
    body = add(load("T", "$0", "d", slots=slot), load("P", "s", "d"))
    return kernel(
        "embedding",
        [buffer("I", s, dtype=i64), buffer("T", vocabulary, d, constant=True),
         buffer("P", s, d), buffer("Y", s, d)],
        {"s": s, "d": d}, [value("out", "sd", body, store=store("Y", "s", "d"))],
    )  # fmt: skip


def scatter(n, m, d, mode="sum"):
    slot = (("$0", load("I", "i", dtype=i64)),)
    return kernel(
        "scatter",
        [buffer("I", n, dtype=i64), buffer("V", n, d), buffer("Y", m, d)], {"i": n, "d": d},
        [value("out", "id", load("V", "i", "d"),
               store=store("Y", "$0", "d", slots=slot, mode=mode, ordered=("i",)))],
    )  # fmt: skip


def cumsum(m, k, axis="k", separate=True):
    scan = total(axis, scan=True)
    out = store("Y", "m", "k")
    first = value("acc", "mk", load("X", "m", "k"), scan, None if separate else out)
    rest = [value("out", "mk", mul(read("acc"), const(2.0)), store=out)] if separate else []
    return kernel("cumsum", [buffer("X", m, k), buffer("Y", m, k)], {"m": m, "k": k},
                  [first, *rest])  # fmt: skip


def causal_mask(n):
    less = op("less", Position(I("j")), Position(I("i") + 1), dtype=boolean)
    body = op("select", less, const(1.0), const(0.0))
    return kernel("mask", [buffer("Y", n, n)], {"i": n, "j": n},
                  [value("out", "ij", body, store=store("Y", "i", "j"))])  # fmt: skip


def arrays(k, rng, sizes=None):
    """Random contents for every buffer of a kernel."""
    sizes, found = sizes or {}, {}
    for b in k.buffers:
        shape = [int(n.evaluate(sizes)) for n in b.shape]
        if b.dtype.is_float:
            found[b.name] = rng.standard_normal(shape).astype(b.dtype.numpy)
        else:
            most = 5 if b.dtype is i64 else 100
            found[b.name] = rng.integers(0, most, shape).astype(b.dtype.numpy)
    return found
