"""Kernels and schedules written by hand, for the tests of the lowering."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from oracles.program import interpret
from oracles.schedules import schedule_of

from luminal.backend.loops import loop_program, verify_loops
from luminal.backend.reference.kernels import evaluate
from luminal.graph.dtype import DType, bf16, f32, i8, i32, i64, u8
from luminal.graph.index import Index
from luminal.kernel.kernel import (
    Apply,
    Buffer,
    Constant,
    Expression,
    Guard,
    Kernel,
    Load,
    Position,
    Read,
    Reduction,
    Store,
    Value,
)
from luminal.kernel.layout import pack
from luminal.kernel.program import Program
from luminal.kernel.schedule import Schedule
from luminal.kernel.target import MatrixInstruction, Target
from luminal.lowering.legal import check

ix = Index.of
DPBF16PS = MatrixInstruction("dpbf16ps", 2, bf16, bf16, f32)
VPDPBUSD = MatrixInstruction("vpdpbusd", 4, u8, i8, i32)
TARGET = Target("test", 64, 32, instructions=(DPBF16PS, VPDPBUSD))


# ---- short forms of kernel data


def axes(**extents: int | str) -> dict[str, Index]:
    return {name: ix(e) for name, e in extents.items()}


def buffer(name: str, dtype: DType, *shape: int | str | Index, constant: bool = False) -> Buffer:
    return Buffer(name, dtype, tuple(ix(s) for s in shape), constant)


def load(name: str, *index: Any, dtype: DType = f32, slots: Any = ()) -> Load:
    return Load(name, tuple(ix(i) for i in index), dtype, tuple(slots))


def op(name: str, *args: Expression, dtype: DType = f32) -> Apply:
    return Apply(name, args, dtype)


def mul(*args: Expression) -> Expression:
    return op("mul", *args, dtype=args[0].dtype)


def add(*args: Expression) -> Expression:
    return op("add", *args, dtype=args[0].dtype)


def minus(a: Expression, b: Expression) -> Expression:
    return add(a, mul(b, num(-1.0)))


def cast(dtype: DType, value: Expression) -> Expression:
    return Apply("cast", (value,), dtype)


def num(value: float, dtype: DType = f32) -> Constant:
    return Constant(value, dtype)


def read(name: str, dtype: DType = f32, so_far: bool = False) -> Read:
    return Read(name, dtype, so_far)


def exp(value: Expression) -> Expression:
    return op("exp2", mul(value, num(1.4426950408889634)))


def stored(name: str, over: str, body: Expression, buffer: str, **more: Any) -> Value:
    """A value over axes of one letter, stored to a buffer of these axes."""
    store = Store(buffer, tuple(ix(a) for a in over), **more)
    return Value(name, tuple(over), body, body.dtype, store=store)


def total(
    name: str, kept: str, body: Expression, over: str, reduce: str = "sum", dtype: DType = f32,
    **more: Any,
) -> Value:  # fmt: skip
    return Value(name, tuple(kept), body, dtype, Reduction(reduce, tuple(over), **more))


def schedule(paths: dict[str, str], **more: Any) -> Schedule:
    lines = [f"{name}: {path}" for name, path in paths.items()]
    lines += [f"layout {n}: {text}" for n, text in more.get("layouts", {}).items()]
    lines += [f"home {n}: {text}" for n, text in more.get("homes", {}).items()]
    lines += [f"tail {n}: {text}" for n, text in more.get("tails", {}).items()]
    if "registers" in more:
        lines.append(f"registers: {more['registers']}")
    return schedule_of("\n".join(lines))


# ---- running


@dataclass
class Case:
    """A kernel, a schedule, input arrays and sizes."""

    kernel: Kernel
    schedule: Schedule
    sizes: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-6


def arrays_of(case: Case, seed: int = 0) -> dict[str, Any]:
    """Random inputs of the kernel's buffers; those given stay."""
    rng = np.random.default_rng(seed)
    found = {}
    for b in case.kernel.buffers:
        shape = [int(e.evaluate(case.sizes)) for e in b.shape]
        if b.name in case.arrays:
            found[b.name] = np.array(case.arrays[b.name], b.dtype.numpy)
        elif b.dtype.is_float:
            found[b.name] = rng.standard_normal(shape).astype(b.dtype.numpy)
        elif b.dtype.kind == "bool":
            found[b.name] = rng.integers(0, 2, shape).astype(bool)
        else:
            low = 0 if b.dtype.kind == "uint" else -20
            found[b.name] = rng.integers(low, 20, shape).astype(b.dtype.numpy)
    return found


def run(case: Case, threads: int = 1, seed: int = 0, native: bool = False) -> Program:
    """Check, lower, verify, interpret; compare all outputs with the meaning of the kernel."""
    check(case.kernel, case.schedule)
    target = host() if native else TARGET
    if native and _paired(case.schedule) and not set(TARGET.instructions) <= {*target.instructions}:
        pytest.skip("this machine lacks the instruction of the case")
    program = loop_program(case.kernel, case.schedule, target)
    verify_loops(program)
    want = arrays_of(case, seed)
    got = {n: pack(a.copy(), program.layouts.get(n, ())) for n, a in want.items()}
    evaluate(case.kernel, want, case.sizes)
    if native:
        got = run_native(program, got, case.sizes, target)
    else:
        interpret(program, got, case.sizes, threads, TARGET.instructions)
    for name in case.kernel.outputs:
        compare(name, got[name], want[name], case.tolerance)
    return program


def _paired(schedule: Schedule) -> bool:
    return any(loop.kind == "collapse" for path in schedule.paths.values() for loop in path)


def host() -> Target:
    from luminal.backend.cpu.target import host as describe

    return describe(1)


def run_native(program: Program, arrays: Any, sizes: Any, target: Target) -> dict[str, Any]:
    """One thread of native code on copies of the arrays."""
    from luminal.backend.cpu import memory
    from luminal.backend.cpu.jit import build
    from luminal.backend.cpu.render import counter_bytes, render, workspace_bytes

    arrays = {n: memory.aligned(a) for n, a in arrays.items()}
    (built,) = build([render(program, target)], target)
    counters = memory.zeros((counter_bytes(program, 1) + 64,), np.uint8)
    stride = workspace_bytes(program)
    space = memory.empty((stride + 64,), np.uint8)
    space[...] = 0xFF  # NaN until it is written
    slots = [arrays[b.name].ctypes.data for b in program.buffers]
    slots += [counters.ctypes.data, space.ctypes.data, stride]
    slots += [sizes[s] for s in program.sizes]
    table = (ctypes.c_int64 * len(slots))(*slots)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    function(built.address(program.name))(ctypes.addressof(table), 0, 1)
    return arrays


def compare(name: str, got: Any, want: Any, tolerance: float) -> None:
    """Equal in NaN and infinities, near in relation to the largest number."""
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite], err_msg=name)
    scale = np.abs(want[finite]).max(initial=1e-30)
    assert np.abs(got[finite] - want[finite]).max(initial=0) <= tolerance * scale, name


# ---- kernels


def gemm(
    m: Any, n: Any, k: Any, dtype: DType = f32, epilogue: bool = False, sizes: Any = None,
    packed: bool = False,
) -> Kernel:  # fmt: skip
    """C[m, n] = sum_k A[m, k] * B[k, n] (+ bias, relu)."""
    acc = i32 if dtype is i8 else f32
    first = u8 if dtype is i8 else dtype
    a, b = load("A", "m", "k", dtype=first), load("B", "k", "n", dtype=dtype)
    wide = [x if dtype is f32 else cast(acc, x) for x in (a, b)]
    values: list[Value] = []
    if packed:
        values.append(Value("P", ("m", "k"), a, first))
        wide[0] = read("P", first) if dtype is f32 else cast(acc, read("P", first))
    values.append(total("acc", "mn", mul(*wide), "k", dtype=acc))
    out: Expression = read("acc", acc)
    buffers = [buffer("A", first, m, k), buffer("B", dtype, k, n, constant=True)]
    if epilogue:
        buffers.append(buffer("bias", f32, n))
        out = op("max", add(out, load("bias", "n")), num(0.0))
    buffers.append(buffer("C", acc, m, n))
    values.append(stored("out", "mn", out, "C"))
    return Kernel("gemm", tuple(buffers), axes(m=m, n=n, k=k), tuple(values), sizes or {})


def softmax(m: Any, k: Any, sizes: Any = None) -> Kernel:
    x = load("X", "m", "k")
    values = (
        total("top", "m", x, "k", "max"),
        Value("e", ("m", "k"), exp(minus(x, read("top"))), f32),
        total("total", "m", read("e"), "k"),
        Value("scale", ("m",), op("recip", read("total")), f32),
        stored("out", "mk", mul(read("e"), read("scale")), "Y"),
    )
    buffers = (buffer("X", f32, m, k), buffer("Y", f32, m, k))
    return Kernel("softmax", buffers, axes(m=m, k=k), values, sizes or {})


def layer_norm(m: Any, k: Any, count: int, sizes: Any = None) -> Kernel:
    x, d = load("X", "m", "k"), minus(load("X", "m", "k"), read("mean"))
    variance = add(mul(read("squares"), num(1 / count)), num(1e-5))
    values = (
        total("total", "m", x, "k"),
        Value("mean", ("m",), mul(read("total"), num(1 / count)), f32),
        total("squares", "m", mul(d, d), "k"),
        Value("scale", ("m",), op("recip", op("sqrt", variance)), f32),
        stored("out", "mk", add(mul(mul(d, read("scale")), load("G", "k")), load("H", "k")), "Y"),
    )
    buffers = (buffer("X", f32, m, k), buffer("G", f32, k), buffer("H", f32, k),
               buffer("Y", f32, m, k))  # fmt: skip
    return Kernel("layer_norm", buffers, axes(m=m, k=k), values, sizes or {})


def attention(
    heads: int, queries: Any, keys: Any, d: int, causal: bool, sizes: Any = None
) -> Kernel:
    """One pass over the keys with a running maximum."""
    p, low = read("p"), -3.0e38
    masked: Expression = read("score")
    if causal:
        masked = Guard((ix("q") - ix("k"),), read("score"), num(low))
    top = read("top", so_far=True)
    limit = {"k": (None, ix("q") + 1)} if causal else {}
    shrink = read("shrink")

    def value(name: str, kept: str, body: Expression) -> Value:
        return Value(name, tuple(kept), body, f32, domain=limit if "k" in kept else {})

    def stream(name: str, kept: str, body: Expression, reduce: str = "sum", **more: Any) -> Value:
        reduction = Reduction(reduce, ("k",), **more)
        return Value(name, tuple(kept), body, f32, reduction, domain=limit)

    values = (
        Value("turned_q", ("h", "d", "q"), mul(load("Q", "h", "q", "d"),
                                               num(1.4426950408889634 / d**0.5)), f32),
        Value("score", ("h", "k", "q"), mul(read("turned_q"), load("K", "h", "k", "d")), f32,
              Reduction("sum", ("d",)), domain=limit),
        value("masked", "hkq", masked),
        Value("before", ("h", "q"), top, f32),
        stream("top", "hq", read("masked"), "max", start=num(low)),
        Value("shrink", ("h", "q"), op("exp2", minus(read("before"), top)), f32),
        value("p", "hkq", op("exp2", minus(read("masked"), top))),
        stream("total", "hq", p, rescale=shrink),
        stream("mix", "heq", mul(p, load("V", "h", "k", "e")), rescale=shrink),
        Value("scale", ("h", "q"), op("recip", read("total")), f32),
        Value("turned", ("h", "e", "q"), mul(read("mix"), read("scale")), f32),
        stored("out", "hqe", read("turned"), "O"),
    )  # fmt: skip
    buffers = (
        buffer("Q", f32, heads, queries, d), buffer("K", f32, heads, keys, d),
        buffer("V", f32, heads, keys, d), buffer("O", f32, heads, queries, d),
    )  # fmt: skip
    extents = axes(h=heads, q=queries, k=keys, d=d, e=d)
    return Kernel("attention", buffers, extents, values, sizes or {})


def attention_schedule(q: int, k: int, lanes: int, rows: int = 4, columns: int = 4) -> Schedule:
    """Queries in the lanes; tiles of keys x queries and features x queries in registers."""
    tile, vector = f"h/1@ q/{q}@ ", f"q/{lanes}! q/1#"
    step = tile + f"k/{k} "
    return schedule({
        "turned_q": tile + f"d/{lanes} q/{lanes}! d/1! q/1#",
        "score": step + f"k/{rows} d/4 d/1! k/1! {vector}",
        "before": step + vector,
        "top": step + f"k/4 k/1! {vector}",
        "shrink": step + vector,
        "p": step + f"k/4 k/1! {vector}",
        "total": step + f"k/4 k/1! {vector}",
        "mix": step + f"e/{columns} k/4 k/1! e/1! {vector}",
        "scale": tile + vector,
        "turned": tile + f"e/4 e/1! {vector}",
        "out": tile + f"q/{lanes} e/{lanes} q/1! e/1#",
    })  # fmt: skip


def convolution(h: int, c: int, o: int, size: int, stride: int, border: int) -> Kernel:
    """relu(bias + convolution with zero padding), the domain of r as bounds of its loop."""
    out = (h + 2 * border - size) // stride + 1
    y, x = ix("y") * stride + "r" - border, ix("x") * stride + "s" - border
    taps = (y, ix(h - 1) - y, x, ix(h - 1) - x)
    value = Guard(taps, load("X", y, x, "c"), num(0.0))
    top = ix("y") * -stride + border
    acc = Value(
        "acc", ("y", "x", "o"), mul(value, load("W", "r", "s", "c", "o")), f32,
        Reduction("sum", ("r", "s", "c")), domain={"r": (top, top + h)},
    )  # fmt: skip
    body = op("max", add(read("acc"), load("bias", "o")), num(0.0))
    buffers = (
        buffer("X", f32, h, h, c), buffer("W", f32, size, size, c, o, constant=True),
        buffer("bias", f32, o), buffer("Y", f32, out, out, o),
    )  # fmt: skip
    extents = axes(y=out, x=out, o=o, r=size, s=size, c=c)
    return Kernel("convolution", buffers, extents, (acc, stored("out", "yxo", body, "Y")))


def position(index: Index, dtype: DType = i64) -> Position:
    return Position(index, dtype)


def names(values: Sequence[Value]) -> list[str]:
    return [v.name for v in values]
