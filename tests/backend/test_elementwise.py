"""Every elementwise operation, cast and literal in native code against its NumPy meaning."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.backend import cpu
from luminal.graph import scalars
from luminal.graph.dtype import ALL, BY_NAME, DType, boolean, f16, f32, f64, i32, i64
from luminal.kernel.program import Val

from . import native

ELEMENTARY = ("exp2", "log2", "sin", "cos")  # test_elementary.py: to some last places
COUNT = 1024


def hostile(dtype: DType, seed: int, count: int = COUNT) -> np.ndarray:
    """Random bits, small numbers and the values that break things."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return rng.integers(0, 2, count).astype(bool)
    bits = rng.integers(0, 256, count * dtype.bytes, dtype=np.uint8).view(dtype.numpy).copy()
    bits[: count // 2] = rng.integers(-9 if dtype.is_signed else 0, 10, count // 2)
    if dtype.is_float:
        bits[count // 4 : count // 2] = rng.normal(size=count // 4) * 3
        tiny = np.finfo(np.float16).tiny if dtype.bytes == 2 else np.finfo(dtype.numpy).tiny
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 1.5, 2.5, -2.5, tiny, tiny / 4]
    else:
        info = np.iinfo(dtype.numpy)
        special = [info.min, info.max, 0, 1, info.max - 1, info.min + 1, info.max // 2]
    places = rng.integers(0, count, 3 * len(special))
    bits[places] = np.array(special * 3).astype(dtype.numpy)
    return bits


def operations(dtype: DType) -> list[scalars.Scalar]:
    """The rows that are defined for a dtype."""
    found = []
    for row in scalars.SCALARS.values():
        fits = row.domain == "any" or (row.domain == "float") == dtype.is_float
        if fits and row.name not in ("cast", "select") and row.name not in ELEMENTARY:
            found.append(row)
    return found


def same(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Equal bit for bit, but any NaN for any NaN."""
    if actual.dtype.kind not in "fV":
        return actual == expected
    nan = np.isnan(actual.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    size = f"u{actual.dtype.itemsize}"
    return nan | (np.ascontiguousarray(actual).view(size) == expected.view(size))


def check(name: str, actual: np.ndarray, expected: np.ndarray, *operands: np.ndarray) -> None:
    wrong = np.flatnonzero(~same(actual, np.ascontiguousarray(expected)))
    if wrong.size:
        i = wrong[0]
        values = ", ".join(str(o[i]) for o in operands)
        pytest.fail(f"{name}({values}) = {actual[i]}, not {expected[i]} ({wrong.size} wrong)")


def widths(dtype: DType, target: str) -> tuple[int, ...]:
    lanes = native.target_of(target).lanes(dtype)
    return 1, lanes, 4 * lanes


@pytest.mark.parametrize("target", native.TARGETS)
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_operation(dtype: DType, target: str) -> None:
    rows = operations(dtype)
    results = {r.name: boolean if r.result == "bool" else dtype for r in rows}
    names = ("a", "b", "select", *results)
    kinds = (dtype, dtype, dtype, *results.values())
    a, b = hostile(dtype, 1), hostile(dtype, 2)
    for width in widths(dtype, target):

        def build(body: native.Body, at, width: int = width) -> None:
            x, y = (body.emit("load", (at(n),), dtype, width, (0,)) for n in "ab")
            for row in rows:
                out = body.emit(row.name, (x, y)[: row.arity], results[row.name], width)
                body.effect("store", (out, at(row.name)), (0,))
            less = body.emit("less", (x, y), boolean, width)
            chosen = body.emit("select", (less, x, y), dtype, width)
            body.effect("store", (chosen, at("select")), (0,))

        buffers = [native.buffer(n, k, COUNT) for n, k in zip(names, kinds)]
        arrays = {n: np.zeros(COUNT, k.numpy) for n, k in zip(names, kinds)}
        arrays["a"], arrays["b"] = a.copy(), b.copy()
        native.run(native.blocks(buffers, width, build), arrays, native.target_of(target))
        for row in rows:
            operands = (a, b)[: row.arity]
            expected = scalars.compute(row.name, results[row.name], *operands)
            if row.name in ("max", "min") and dtype.is_float:  # either zero may win
                arrays[row.name], expected = arrays[row.name] + 0, expected + 0
            check(f"{row.name} {dtype} x {width}", arrays[row.name], expected, *operands)
        expected = scalars.compute("select", dtype, np.less(a, b), a, b)
        check(f"select {dtype} x {width}", arrays["select"], expected, a, b)


@pytest.mark.parametrize("target", native.TARGETS)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_every_cast(source: DType, target: str) -> None:
    a = hostile(source, 3)
    if source.is_float:  # where integers end
        sizes = [2.0 ** (8 * n - sign) for n in (1, 2, 4, 8) for sign in (0, 1)]
        with np.errstate(over="ignore"):
            ends = np.array([s for n in sizes for s in (n, -n)]).astype(source.numpy)
        near = [np.nextafter(ends, source.numpy.type(0))] if source.bytes > 2 else []
        a[: (1 + len(near)) * len(ends)] = np.concatenate([ends, *near])
    names = ["a", *(f"to_{d}" for d in ALL)]
    kinds = [source, *ALL]
    for width in widths(source, target)[:2]:

        def build(body: native.Body, at, width: int = width) -> None:
            x = body.emit("load", (at("a"),), source, width, (0,))
            for dtype in ALL:
                out = body.emit("cast", (x,), dtype, width)
                body.effect("store", (out, at(f"to_{dtype}")), (0,))

        buffers = [native.buffer(n, k, COUNT) for n, k in zip(names, kinds)]
        arrays = {n: np.zeros(COUNT, k.numpy) for n, k in zip(names, kinds)}
        arrays["a"] = a.copy()
        native.run(native.blocks(buffers, width, build), arrays, native.target_of(target))
        for dtype in ALL:
            expected = scalars.convert(a, dtype)
            check(f"{source} to {dtype} x {width}", arrays[f"to_{dtype}"], expected, a)


@pytest.mark.parametrize("dtype", [d for d in ALL if d.kind in ("int", "uint")], ids=str)
def test_floats_become_integers_in_lanes(dtype: DType) -> None:
    def build(body: native.Body, at) -> None:
        x = body.emit("load", (at("a"),), f32, 16, (0,))
        body.effect("store", (body.emit("cast", (x,), dtype, 16), at("b")), (0,))

    buffers = [native.buffer("a", f32, COUNT), native.buffer("b", dtype, COUNT)]
    target = cpu.named("avx512")
    text = cpu.render(native.blocks(buffers, 16, build), target)
    assert "cvttss" not in cpu.build([text], target)[0].assembly()


@pytest.mark.parametrize("target", native.TARGETS)
def test_all_f16_bits_both_ways(target: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)

    def build(body: native.Body, at) -> None:
        x = body.emit("load", (at("half"),), f16, 16, (0,))
        wide = body.emit("cast", (x,), f32, 16)
        body.effect("store", (wide, at("wide")), (0,))
        body.effect("store", (body.emit("cast", (wide,), f16, 16), at("back")), (0,))

    buffers = [
        native.buffer(n, d, 1 << 16) for n, d in (("half", f16), ("wide", f32), ("back", f16))
    ]
    arrays = {
        "half": bits.copy(),
        "wide": np.zeros(1 << 16, np.float32),
        "back": np.zeros_like(bits),
    }
    native.run(native.blocks(buffers, 16, build), arrays, native.target_of(target))
    check("widen", arrays["wide"], bits.astype(np.float32), bits)
    check("back", arrays["back"], bits, bits)


LITERALS = [
    ("inf", f32), ("-inf", f64), ("nan", f32), ("1e-05", f32), ("0.1", f64), ("1e300", f32),
    ("3", f32), ("0.333", f16), ("65504.0", f16), ("-7", i32), (str(-(2**63)), i64),
    (str(2**63 + 5), BY_NAME["u64"]), ("255", BY_NAME["u8"]), ("True", boolean), ("0", boolean),
    ("0.333", BY_NAME["bf16"]), ("nan", BY_NAME["bf16"]), ("1.0", i32),
]  # fmt: skip


@pytest.mark.parametrize("text, dtype", LITERALS, ids=str)
@pytest.mark.parametrize("width", (1, 8))
def test_literals(text: str, dtype: DType, width: int) -> None:
    def build(body: native.Body, at) -> None:
        value = native.literal(text, dtype, width)
        body.effect("store", (value, at("out")), (0,))

    arrays = {"out": np.zeros(16, dtype.numpy)}
    program = native.blocks([native.buffer("out", dtype, 16)], width, build)
    native.run(program, arrays, native.target_of("host"))
    value = {"True": True}.get(text, float(text) if dtype.is_float else None)
    with np.errstate(over="ignore"):
        expected = np.array(int(float(text)) if value is None and "." in text else value)
        if value is None and "." not in text:
            expected = np.array(int(text))
        if dtype.bytes == 2:
            expected = expected.astype(np.float32)
        expected = np.full(16, expected.astype(dtype.numpy))
    check("literal", arrays["out"], expected)


@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_integer], ids=str)
@pytest.mark.parametrize("op", ("floor_div", "mod"))
@pytest.mark.parametrize("divisor", (1, 3, 8, 10, 64))
def test_division_by_a_constant(dtype: DType, op: str, divisor: int) -> None:
    a = hostile(dtype, 4)

    def build(body: native.Body, at) -> None:
        x = body.emit("load", (at("a"),), dtype, 8, (0,))
        out = body.emit(op, (x, native.literal(divisor, dtype, 8)), dtype, 8)
        body.effect("store", (out, at("out")), (0,))

    buffers = [native.buffer("a", dtype, COUNT), native.buffer("out", dtype, COUNT)]
    arrays = {"a": a.copy(), "out": np.zeros_like(a)}
    native.run(native.blocks(buffers, 8, build), arrays, native.target_of("host"))
    expected = scalars.compute(op, dtype, a, np.full_like(a, divisor))
    check(f"{op} {divisor}", arrays["out"], expected, a)


@pytest.mark.parametrize("target", native.TARGETS)
@pytest.mark.parametrize("dtype", (f64, f32, f16, BY_NAME["bf16"], i32, BY_NAME["u8"]), ids=str)
def test_fma(dtype: DType, target: str) -> None:
    rng = np.random.default_rng(5)
    # whole numbers below 16: every sum is exact, rounded once or twice
    acc, a, b = (rng.integers(0, 8, 64).astype(dtype.numpy) for _ in range(3))

    def build(body: native.Body, at) -> None:
        parts: list[Val] = [body.emit("load", (at(n),), dtype, 16, (0,)) for n in ("acc", "a", "b")]
        body.effect("store", (body.emit("fma", parts, dtype, 16), at("acc")), (0,))

    buffers = [native.buffer(n, dtype, 64) for n in ("acc", "a", "b")]
    arrays = {"acc": acc.copy(), "a": a, "b": b}
    native.run(native.blocks(buffers, 16, build), arrays, native.target_of(target))
    check("fma", arrays["acc"], (acc + a * b).astype(dtype.numpy), acc, a, b)


@pytest.mark.parametrize("op", ("max", "min"))
@pytest.mark.parametrize("dtype", (f32, f64), ids=str)
@pytest.mark.parametrize("constant", ("0.0", "nan", "inf"))
@pytest.mark.parametrize("first", (True, False))
def test_extremum_with_a_constant(op: str, dtype: DType, constant: str, first: bool) -> None:
    a = hostile(dtype, 6)

    def build(body: native.Body, at) -> None:
        x, bound = body.emit("load", (at("a"),), dtype, 8, (0,)), native.literal(constant, dtype, 8)
        out = body.emit(op, (bound, x) if first else (x, bound), dtype, 8)
        body.effect("store", (out, at("out")), (0,))

    buffers = [native.buffer("a", dtype, COUNT), native.buffer("out", dtype, COUNT)]
    arrays = {"a": a.copy(), "out": np.zeros_like(a)}
    native.run(native.blocks(buffers, 8, build), arrays, native.target_of("host"))
    expected = scalars.compute(op, dtype, a, np.full_like(a, float(constant)))
    check(op, arrays["out"] + 0, expected + 0, a)
