"""Lowered kernels of every family against the meaning of the kernel: verified and interpreted.

The same cases run as native code where the backend is at hand (`test_native`).
"""

from __future__ import annotations

import numpy as np
import pytest
from lower_cases import (
    Case,
    attention,
    attention_schedule,
    axes,
    buffer,
    cast,
    convolution,
    exp,
    gemm,
    ix,
    layer_norm,
    load,
    minus,
    mul,
    num,
    op,
    read,
    run,
    schedule,
    softmax,
    stored,
    total,
)

from luminal.graph.dtype import bf16, f32, f64, i8, i16, i32, i64, u8, u64
from luminal.kernel.kernel import Guard, Kernel, Position, Reduction, Store, Value

SIZE = {"s": (0, 4096)}
ROW = "m/1@ k/64 k/16* k/1#"
MAP = "m/1@ k/64 k/16! k/1#"
SOFTMAX = {"top": ROW, "e": MAP, "total": ROW, "scale": "m/1@", "out": MAP}
NORM = {"total": ROW, "mean": "m/1@", "squares": ROW, "scale": "m/1@", "out": MAP}


def tile(lanes: int = 16, pair: int = 1, width: int = 32, tails: str = "peel"):
    c = " k/1$" if pair > 1 else ""
    inside = f"m/1! n/{lanes}! n/1#"
    layout = f"1/{width} 0/{pair} 1/1" + (" 0/1" if pair > 1 else "")
    return schedule(
        {
            "acc": f"n/{width}@ m/6 k/{4 * pair} k/{pair}! {inside}{c}",
            "out": f"n/{width}@ m/6 {inside}",
        },
        layouts={"B": layout},
        tails={"m": tails},
    )


def one(name: str, kernel_axes, body, *buffers, y, path: str, **more) -> Case:
    """One stored value over axes of one letter."""
    store = Store("Y", tuple(ix(i) for i in y))
    value = Value("out", tuple(kernel_axes), body, body.dtype, store=store)
    return Case(
        Kernel(name, buffers, axes(**kernel_axes), (value,), more.pop("ranges", {})),
        schedule({"out": path}, **more.pop("extra", {})), **more,
    )  # fmt: skip


def scan(reduce: str, dtype, path: str) -> Case:
    x = load("X", "m", "k", dtype=dtype)
    reduction = Reduction(reduce, ("k",), scan=True)
    value = Value("acc", ("m", "k"), x, dtype, reduction, Store("Y", (ix("m"), ix("k"))))
    buffers = (buffer("X", dtype, 7, 35), buffer("Y", dtype, 7, 35))
    return Case(Kernel("scan", buffers, axes(m=7, k=35), (value,)), schedule({"acc": path}))


def reduced(dtype, reduce: str, path: str, tolerance: float = 1e-6) -> Case:
    value = Value("acc", ("m",), load("X", "m", "k", dtype=dtype), dtype,
                  Reduction(reduce, ("k",)), Store("Y", (ix("m"),)))  # fmt: skip
    buffers = (buffer("X", dtype, 3, 21), buffer("Y", dtype, 3))
    kernel = Kernel("reduce", buffers, axes(m=3, k=21), (value,))
    return Case(kernel, schedule({"acc": path}), tolerance=tolerance)


INDEX = np.array([3, -5, 29, 30, 99, 0, 7])


def gather(path: str, count: int = 7) -> Case:
    row = load("T", "$0", "d", slots=(("$0", load("I", "r", dtype=i64)),))
    return one("gather", {"r": "s", "d": 40}, row, buffer("I", i64, "s"), buffer("T", f32, 30, 40),
               buffer("Y", f32, "s", 40), y="rd", path=path, ranges=SIZE, sizes={"s": count},
               arrays={"I": INDEX[:count]})  # fmt: skip


def scatter(mode: str, dtype, path: str) -> Case:
    store = Store("Y", (ix("$0"), ix("d")), (("$0", load("I", "i", dtype=i64)),), mode, ("i",))
    value = Value("out", ("i", "d"), load("V", "i", "d", dtype=dtype), dtype, store=store)
    buffers = (buffer("I", i64, 9), buffer("V", dtype, 9, 20), buffer("Y", dtype, 6, 20))
    kernel = Kernel("scatter", buffers, axes(i=9, d=20), (value,))
    places = np.array([3, 3, -1, 0, 6, 5, 3, 1, 0])
    return Case(kernel, schedule({"out": path}), arrays={"I": places})


def transpose(m: int, k: int, path: str, dtype=f32) -> Case:
    return one("transpose", {"k": k, "m": m}, load("X", "m", "k", dtype=dtype),
               buffer("X", dtype, m, k), buffer("Y", dtype, k, m), y="km", path=path)  # fmt: skip


def concat(path: str) -> Case:
    body = Guard((ix(4) - "i",), load("A", "i"), load("B", ix("i") - 5))
    return one("concat", {"i": 35}, body, buffer("A", f32, 5), buffer("B", f32, 30),
               buffer("Y", f32, 35), y="i", path=path)  # fmt: skip


def pad(path: str, **extra) -> Case:
    inside = (ix("i") - 2, ix(7) - "i", ix("j") - 1, ix("s") - "j")
    body = Guard(inside, load("X", ix("i") - 2, ix("j") - 1), num(7.0))
    return one("pad", {"i": 10, "j": ix("s") + 3}, body, buffer("X", f32, 6, "s"),
               buffer("Y", f32, 10, ix("s") + 3), y="ij", path=path, extra=extra,
               ranges=SIZE, sizes={"s": 10})  # fmt: skip


def upsample(path: str) -> Case:
    body = load("X", ix("y") // 2, (ix("x") + 1) // 2)
    return one("upsample", {"y": 13, "x": 17}, body, buffer("X", f32, 7, 9),
               buffer("Y", f32, 13, 17), y="yx", path=path)  # fmt: skip


def split_of_symbols(path: str) -> Case:
    body = load("X", ix("z") // "t", ix("z") % "t")
    return one("split", {"z": ix("s") * "t"}, body, buffer("X", f32, "s", "t"),
               buffer("Y", f32, ix("s") * "t"), y="z", path=path,
               ranges={"s": (0, 50), "t": (1, 50)}, sizes={"s": 5, "t": 7})  # fmt: skip


def online(m: int, k: int, lanes: str, single: str) -> Case:
    """Softmax whose sum runs with its maximum; `lanes` and `single`: how blocks are walked."""
    x, top, low = load("X", "m", "k"), read("top", so_far=True), -3e38
    p = op("exp2", minus(x, top))
    values = (
        Value("before", ("m",), top, f32),
        total("top", "m", x, "k", "max", start=num(low)),
        Value("shrink", ("m",), op("exp2", minus(read("before"), top)), f32),
        total("sum", "m", p, "k", rescale=read("shrink")),
        stored("out", "mk", mul(op("exp2", minus(x, read("top"))), op("recip", read("sum"))), "Y"),
    )
    block = {"before": single, "top": lanes, "shrink": single, "sum": lanes}
    buffers = (buffer("X", f32, m, k), buffer("Y", f32, m, k))
    path = lanes.split()[0] + (" m/1#" if "m/1#" in single else " m/1") + " k/1"
    if "m/1#" in single:
        path = single.split()[0] + " k/1 m/1#"
    return Case(Kernel("online", buffers, axes(m=m, k=k), values), schedule({**block, "out": path}))


def band(path: str) -> Case:
    """Sums over a band of a matrix: a domain with two ends."""
    body = Guard((ix("q") - "k", ix("k") - "q" + 5), load("X", "q", "k"), num(0.0))
    value = Value("acc", ("q",), body, f32, Reduction("sum", ("k",)), Store("Y", (ix("q"),)),
                  domain={"k": (ix("q") - 5, ix("q") + 1)})  # fmt: skip
    buffers = (buffer("X", f32, 20, 20), buffer("Y", f32, 20))
    return Case(Kernel("band", buffers, axes(q=20, k=20), (value,)), schedule({"acc": path}))


def triangle(e: str, total_: str) -> Case:
    """A tile with a domain, written and read by loops of other steps and other tiles."""
    limit = {"k": (None, ix("q") + 1)}
    body = Guard((ix("q") - "k",), exp(load("X", "q", "k")), num(0.0))
    values = (
        Value("e", ("q", "k"), body, f32, domain=limit),
        Value("sum", ("q",), read("e"), f32, Reduction("sum", ("k",)), domain=limit),
        stored("out", "q", op("recip", read("sum")), "Y"),
    )
    buffers = (buffer("X", f32, 21, 21), buffer("Y", f32, 21))
    paths = {"e": e, "sum": total_, "out": "q/8@ q/1!"}
    return Case(Kernel("triangle", buffers, axes(q=21, k=21), values), schedule(paths))


def dequantised() -> Case:
    weight = cast(bf16, mul(cast(f32, load("Q", "g", "u", "n", dtype=i8)), load("S", "g", "n")))
    a = cast(f32, load("A", "m", ix("g") * 8 + "u", dtype=bf16))
    values = (
        Value("w", ("g", "u", "n"), weight, bf16),
        total("acc", "mn", mul(a, cast(f32, read("w", bf16))), "gu"),
        stored("out", "mn", read("acc"), "C"),
    )
    buffers = (buffer("A", bf16, 13, 40), buffer("Q", i8, 5, 8, 70, constant=True),
               buffer("S", f32, 5, 70, constant=True), buffer("C", f32, 13, 70))  # fmt: skip
    inside = "m/1! n/16! n/1#"
    paths = {
        "w": "n/32@ g/1 u/2! n/16! n/1# u/1#",
        "acc": f"n/32@ m/8 g/1 u/4 u/2! {inside} u/1$",
        "out": f"n/32@ m/8 {inside}",
    }
    layouts = {"Q": "2/32 0/1 1/2 2/1 1/1", "S": "1/32 0/1 1/1", "w": "0/1 1/2 2/1 1/1"}
    kernel = Kernel("dequantised", buffers, axes(m=13, n=70, g=5, u=8), values)
    return Case(kernel, schedule(paths, layouts=layouts))


def packed_a() -> Case:
    inside = "m/1! n/16! n/1#"
    paths = {
        "P": "m/8@ m/4 k/32 m/1! k/1#",
        "acc": f"m/8@ n/32 m/4 k/8 k/2! {inside} k/1$",
        "out": f"m/8@ n/32 m/4 {inside}",
    }
    layouts = {"B": "1/32 0/2 1/1 0/1", "P": "0/4 1/2 0/1 1/1"}
    return Case(gemm(13, 70, 37, bf16, packed=True), schedule(paths, layouts=layouts))


def conv(h: int, stride: int) -> Case:
    outer = f"o/32@ y/1@ x/{(h - 1) // stride + 1}! "
    paths = {
        "acc": outer + "r/1 c/2 s/1! c/1! x/1! o/16! o/1#",
        "out": outer + "x/1! o/16! o/1#",
    }
    layout = {"W": "3/32 0/1 2/2 1/1 2/1 3/1"}
    return Case(convolution(h, 4, 32, 3, stride, 1), schedule(paths, layouts=layout))


def siblings() -> Case:
    values = (stored("a", "i", exp(load("X", "i")), "Y"), stored("b", "j", load("X", "j"), "Z"))
    buffers = (buffer("X", f32, 20), buffer("Y", f32, 20), buffer("Z", f32, 5))
    kernel = Kernel("siblings", buffers, axes(i=20, j=5), values)
    return Case(kernel, schedule({"a": "i/8@ i/1#", "b": "j/1"}))


def uneven(first: str, second: str) -> Case:
    """A tile whose reader walks it in steps that do not divide it: it may not pass its end, where
    the tile of another thread begins."""
    acc = total("acc", "q", load("X", "q", "k"), "k")
    out = stored("out", "qd", mul(read("acc"), load("V", "q", "d")), "Y")
    buffers = (buffer("X", f32, 40, 5), buffer("V", f32, 40, 20), buffer("Y", f32, 40, 20))
    kernel = Kernel("uneven", buffers, axes(q=40, d=20, k=5), (acc, out))
    return Case(kernel, schedule({"acc": first, "out": second}))


def started() -> Case:
    """A sum in lanes and partial accumulators that starts at a number of its own."""
    reduction = Reduction("sum", ("k",), start=load("S", "m"))
    value = Value("acc", ("m",), load("X", "m", "k"), f32, reduction, Store("Y", (ix("m"),)))
    buffers = (buffer("X", f32, 3, 70), buffer("S", f32, 3), buffer("Y", f32, 3))
    return Case(Kernel("start", buffers, axes(m=3, k=70), (value,)), schedule({"acc": ROW}))


def positions(path: str) -> Case:
    body = cast(f32, Position(ix("i") * 3 + ix("j") // 2 - "s", i32))
    return one("positions", {"i": 5, "j": 19}, body, buffer("Y", f32, 5, 19), y="ij", path=path,
               ranges=SIZE, sizes={"s": 11})  # fmt: skip


DYNAMIC = gemm("s", 70, 19, epilogue=True, sizes=SIZE)
LENT = schedule(SOFTMAX, homes={"e": "Y"})
CASES = {
    "gemm": Case(gemm(12, 64, 16), tile()),
    "gemm ragged": Case(gemm(13, 70, 19, epilogue=True), tile()),
    "gemm 8 lanes": Case(gemm(13, 70, 19, epilogue=True), tile(8)),
    "gemm dynamic": Case(DYNAMIC, tile(), {"s": 11}),
    "gemm no rows": Case(DYNAMIC, tile(), {"s": 0}),
    "gemm one row": Case(DYNAMIC, tile(), {"s": 1}),
    "gemm dynamic n and k": Case(gemm(7, "s", "s", epilogue=True, sizes=SIZE), tile(), {"s": 43}),
    "gemm nothing to sum": Case(gemm(7, 40, "s", epilogue=True, sizes=SIZE), tile(), {"s": 0}),
    "gemm bf16": Case(gemm(13, 70, 19, bf16), tile(pair=2)),
    "gemm int8": Case(gemm(13, 70, 19, i8), tile(pair=4)),
    "gemm int8 widened": Case(gemm(13, 70, 19, i8), tile()),
    "gemm packed A": packed_a(),
    "gemm blocks of k": Case(
        gemm(13, 70, 19, epilogue=True),
        schedule(
            {"acc": "n/32@ k/8 m/6 k/4 k/1! m/1! n/16! n/1#", "out": "n/32@ m/6 m/1! n/16! n/1#"}
        ),
    ),
    "dot blocks of k": Case(
        gemm(5, 7, 70),
        schedule({"acc": "m/3@ n/4@ k/32 m/1 n/1 k/8* k/1#", "out": "m/3@ n/4@ m/1 n/1"}),
    ),
    "dequantised": dequantised(),
    "softmax": Case(softmax(3, 70), schedule(SOFTMAX)),
    "softmax dynamic": Case(softmax("s", "s", SIZE), schedule(SOFTMAX), {"s": 70}),
    "softmax no rows": Case(softmax("s", 30, SIZE), schedule(SOFTMAX), {"s": 0}),
    "softmax no columns": Case(softmax(3, "s", SIZE), LENT, {"s": 0}),
    "softmax in its output": Case(softmax(3, "s", {"s": (0, 1 << 40)}), LENT, {"s": 70}),
    "layer norm": Case(layer_norm(3, 70, 70), schedule(NORM)),
    "start in lanes": started(),
    "attention": Case(attention(2, 40, 40, 16, False), attention_schedule(32, 16, 16)),
    "attention causal": Case(attention(2, 40, 40, 16, True), attention_schedule(32, 16, 16)),
    "attention dynamic": Case(
        attention(2, "s", "c", 16, True, {"s": (1, 512), "c": (1, 512)}),
        attention_schedule(32, 16, 16),
        {"s": 21, "c": 21},
    ),
    "online in lanes": online(3, 100, "m/1@ k/64 k/16* k/1#", "m/1@ k/64"),
    "online in tiles": online(7, 100, "m/4@ k/64 m/1 k/16* k/1#", "m/4@ k/64 m/1"),
    "online beside lanes": online(19, 30, "m/16@ k/8 k/1! m/1#", "m/16@ k/8 m/1#"),
    "convolution": conv(5, 1),
    "convolution stride 2, even": conv(6, 2),
    "convolution stride 2, odd": conv(7, 2),
    "band": band("q/4@ k/4 q/1! k/1!"),
    "band in memory": band("q/8@ k/4 q/2 k/1 q/1!"),
    "band in lanes": band("q/8@ k/1 q/1#"),
    "band dot": band("q/1@ k/8 k/1#"),
    "tile in uneven steps": uneven("q/9@ q/3 k/1 q/1!", "q/9@ q/4 d/16 q/1! d/1#"),
    "tile in uneven lanes": uneven("q/12@ q/3 k/1 q/1!", "q/12@ d/1 q/8 q/1#"),
    "triangle, wide tiles write": triangle("q/8@ k/4 q/1! k/1!", "q/8@ q/1 k/8 k/1#"),
    "triangle, wide tiles read": triangle("q/8@ q/1 k/4 k/1#", "q/8@ k/8 q/1! k/1!"),
    "triangle, lanes of rows": triangle("q/8@ q/1 k/1", "q/8@ k/2 k/1! q/1#"),
    "triangle, all is read": triangle("q/8@ q/1 k/1", "q/8@ k/1! q/1#"),
    "triangle, guards stay": triangle("q/8@ q/1 k/1", "q/8@ k/1 k/1! q/1#"),
    "transpose": transpose(37, 53, "m/64@ k/16 m/16! k/1! m/1#"),
    "transpose in registers": transpose(64, 96, "m/32@ k/16 m/16! k/1! m/1#"),
    "transpose f64": transpose(64, 96, "m/32@ k/8 m/8! k/1! m/1#", f64),
    "transpose bytes": transpose(64, 96, "m/32@ k/16 m/16! k/1! m/1#", u8),
    "transpose by scatter": transpose(37, 53, "m/4@ m/1 k/16 k/1#"),
    "gather rows": gather("r/2@ r/1 d/16 d/1#"),
    "gather in lanes": gather("d/4@ d/1 r/8 r/1#"),
    "gather nothing": gather("d/4@ d/1 r/8 r/1#", 0),
    "scatter in lanes": scatter("set", f32, "d/4@ d/1 i/8 i/1#"),
    "cumsum": scan("sum", f32, "m/2@ m/1 k/1"),
    "cumsum unrolled": scan("sum", f64, "m/2@ m/1 k/4 k/1!"),
    "cummax in lanes": scan("max", f32, "m/16@ m/1# k/1"),
    "cumprod of integers": scan("prod", i64, "m/16@ k/4 k/1! m/1#"),
    "upsample": upsample("y/1@ x/8 x/1#"),
    "upsample scalars": upsample("y/4@ x/3 y/1! x/1"),
    "split of symbols": split_of_symbols("z/32@ z/8 z/1#"),
    "concat in lanes": concat("i/16@ i/1#"),
    "concat scalars": concat("i/7@ i/3 i/1!"),
    "concat unrolled": concat("i/32@ i/8! i/1#"),
    "pad": pad("i/3@ i/1 j/8 j/1#"),
    "pad lanes outside": pad("j/4@ j/1 i/8 i/1#"),
    "positions": positions("i/2@ i/1 j/8 j/1#"),
    "siblings": siblings(),
    "no axes": one("none", {}, exp(load("X")), buffer("X", f32), buffer("Y", f32), y="", path=""),
}
for mode in ("set", "sum", "max", "min", "prod"):
    CASES[f"scatter {mode}"] = scatter(mode, f32, "d/16@ i/1 d/1#")
    CASES[f"scatter {mode} of integers"] = scatter(mode, i32, "d/16@ i/1 d/1")
for dtype in (f64, bf16, i64, i16, i8, u8, u64):
    for reduce in ("max", "min") if dtype is bf16 else ("sum", "max", "min", "prod"):
        CASES[f"{reduce} of {dtype} in lanes"] = reduced(dtype, reduce, "m/1@ k/8 k/4* k/1#")
        CASES[f"{reduce} of {dtype}"] = reduced(dtype, reduce, "m/4@ k/4 m/1! k/1!")


@pytest.mark.parametrize("name", CASES)
def test_interpreted(name: str) -> None:
    run(CASES[name], threads=2)


@pytest.mark.parametrize("name", CASES)
def test_native(name: str) -> None:
    run(CASES[name], native=True)


def test_hostile_numbers_stay_in_their_rows() -> None:
    """Tails are masked by selection: an inf or NaN does not reach other rows through 0 * inf."""
    case = Case(gemm(13, 70, 19, bf16), tile(pair=2))
    a = np.random.default_rng(0).standard_normal((13, 19))
    a[3, 5], a[4, 6], a[5, 18], a[6, 0] = np.inf, -np.inf, np.nan, -0.0
    case.arrays = {"A": a}
    run(case)
    run(case, native=True)


def test_maximum_sees_nan() -> None:
    case = reduced(f32, "max", "m/1@ k/8 k/4* k/1#")
    x = np.random.default_rng(0).standard_normal((3, 21))
    x[1, 20] = np.nan
    case.arrays = {"X": x}
    run(case)
    run(case, native=True)


def test_padding_costs_nothing_where_loops_follow_the_domain() -> None:
    """The taps of a row outside the image are never visited: no select in the inner loops."""
    from luminal.kernel.program import Instruction
    from luminal.lowering.verify import statements

    program = run(conv(7, 1))
    ops = [s.op for s in statements(program.body) if isinstance(s, Instruction)]
    assert "fma" in ops and "select" not in ops


def test_shared_sum_is_one_loop() -> None:
    """Equal path prefixes are one loop: the softmax has one loop over rows."""
    from luminal.kernel.program import Parallel

    program = run(CASES["softmax"])
    assert sum(isinstance(s, Parallel) for s in program.body) == 1


def test_adding_is_fused_into_fma() -> None:
    from luminal.kernel.program import Instruction
    from luminal.lowering.verify import statements

    program = run(Case(gemm(12, 64, 16), tile()))
    ops = [s.op for s in statements(program.body) if isinstance(s, Instruction)]
    assert ops.count("fma") == 6 * 2 * 4  # rows, vectors, unrolled k


def test_what_full_tiles_leave_over_walks_smaller_ones() -> None:
    """Of six rows one to five: two at a time, which are less to write out, and to compute."""
    from luminal.kernel.program import Instruction
    from luminal.lowering.verify import statements

    long = gemm("s", 64, 16, sizes=SIZE)
    for rows in range(13):
        program = run(Case(long, tile(), {"s": rows}))
    ops = [s.op for s in statements(program.body) if isinstance(s, Instruction)]
    assert ops.count("fma") == (6 + 2) * 2 * 4  # rows of both, vectors, unrolled k


@pytest.mark.parametrize("step", [6, 7, 14])
def test_smaller_tiles_stay_in_the_memory_of_the_whole_one(step: int) -> None:
    """Whatever is left over: rows that are written for nothing have room in it too."""
    inside = "m/1! n/16! n/1#"
    outer = f"m/{2 * step}@"
    paths = {
        "P": f"{outer} m/{step} k/16 m/1! k/1#",
        "acc": f"{outer} n/32 m/{step} k/4 k/1! {inside}",
        "out": f"{outer} n/32 m/{step} {inside}",
    }
    kernel = gemm("s", 40, 19, packed=True, sizes=SIZE)
    for rows in (1, step - 1, step, step + 1, 2 * step - 1, 2 * step + 1):
        run(Case(kernel, schedule(paths, layouts={"B": "1/32 0/1 1/1"}), {"s": rows}))


@pytest.mark.parametrize("dtype", [f32, f64, i32])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8])
def test_lanes_of_several_sums_are_added_together(dtype, lanes: int, rows: int) -> None:
    from luminal.kernel.program import Instruction
    from luminal.lowering.verify import statements

    values = (
        total("sum", "m", load("X", "m", "k", dtype=dtype), "k", dtype=dtype),
        stored("out", "m", read("sum", dtype), "Y"),
    )
    buffers = (buffer("X", dtype, 2 * rows, 64), buffer("Y", dtype, 2 * rows))
    kernel = Kernel("sums", buffers, axes(m=2 * rows, k=64), values)
    paths = {"sum": f"m/{rows}@ k/{lanes} m/1! k/1#", "out": f"m/{rows}@ m/1!"}
    case = Case(kernel, schedule(paths))
    program = run(case)
    run(case, native=True)
    ops = [s.op for s in statements(program.body) if isinstance(s, Instruction)]
    together = rows > 1 and lanes * dtype.bytes >= 16
    assert ops.count("across.sum") == (0 if together else rows)
