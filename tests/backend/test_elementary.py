"""exp2, log2, sin and cos over their whole range: error in units of the last place."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.graph.dtype import DType, f32, f64

from . import native

COUNT = 1 << 15
WORST = {  # units in the last place (of normal numbers)
    ("exp2", "f32"): 1.5, ("log2", "f32"): 2.0, ("sin", "f32"): 3.0, ("cos", "f32"): 3.0,
    ("exp2", "f64"): 2.0, ("log2", "f64"): 4.0,
}  # fmt: skip


def arguments(dtype: DType) -> np.ndarray:
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 256, COUNT * dtype.bytes, dtype=np.uint8).view(dtype.numpy).copy()
    part = COUNT // 8
    bits[:part] = rng.normal(size=part)
    bits[part : 2 * part] = 1 + rng.normal(size=part) * 1e-2
    bits[2 * part : 3 * part] = rng.normal(size=part) * (100 if dtype is f32 else 700)
    bits[3 * part : 4 * part] = np.arange(part) * np.pi / 2
    bits[4 * part : 5 * part] = rng.normal(size=part) * 1e6
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-40, -1e-40, 1024, -1074.5, 128, -149]
    bits[: len(special)] = special
    return bits


def natively(op: str, dtype: DType, x: np.ndarray, target: str, width: int) -> np.ndarray:
    def build(body: native.Body, at) -> None:
        value = body.emit("load", (at("x"),), dtype, width, (0,))
        body.effect("store", (body.emit(op, (value,), dtype, width), at("out")), (0,))

    buffers = [native.buffer("x", dtype, COUNT), native.buffer("out", dtype, COUNT)]
    arrays = {"x": x, "out": np.zeros_like(x)}
    native.run(native.blocks(buffers, width, build), arrays, native.target_of(target))
    return arrays["out"]


def errors(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """In last places; 0 where both are the same infinity or NaN; infinite where only one is."""
    rounded = exact.astype(actual.dtype)
    fine = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    tiny = np.finfo(actual.dtype).tiny
    place = np.spacing(np.maximum(np.abs(rounded), tiny)).astype(exact.dtype)
    off = np.abs(actual.astype(exact.dtype) - exact) / place
    return np.where(fine, 0, np.where(np.isfinite(off), off, np.inf)).astype(np.float64)


@pytest.mark.parametrize("target", native.TARGETS)
@pytest.mark.parametrize("op, dtype", WORST, ids=str)
def test_last_places(op: str, dtype: str, target: str) -> None:
    kind = {"f32": f32, "f64": f64}[dtype]
    x = arguments(kind)
    with np.errstate(all="ignore"):
        exact = getattr(np, op)(x.astype(np.float64 if kind is f32 else np.longdouble))
        for width in (1, native.target_of(target).lanes(kind), 32):
            off = errors(natively(op, kind, x, target, width), exact)
            worst = int(np.argmax(off))
            assert off[worst] <= WORST[op, dtype], (op, x[worst], width, off[worst])


@pytest.mark.parametrize("op", ("sin", "cos"))
@pytest.mark.parametrize("width", (1, 8))
def test_sin_and_cos_of_f64(op: str, width: int) -> None:
    """To 1e-14 everywhere: the reduction is exact however large the argument."""
    x = arguments(f64)
    with np.errstate(all="ignore"):
        exact = getattr(np, op)(x)
        off = np.abs(natively(op, f64, x, "host", width) - exact)
    assert np.array_equal(np.isnan(off), np.isnan(exact))
    assert np.nanmax(off) < 1e-14


def test_signs_of_zero_and_limits() -> None:
    x = np.zeros(COUNT, np.float32)
    x[:4] = [-0.0, np.inf, -np.inf, -1]
    assert np.signbit(natively("sin", f32, x, "host", 16)[0])
    assert natively("exp2", f32, x, "host", 16)[:4].tolist() == [1, np.inf, 0, 0.5]
    log = natively("log2", f32, x, "host", 16)
    assert log[0] == -np.inf and log[1] == np.inf and np.isnan(log[2:4]).all()


@pytest.mark.parametrize("target", native.TARGETS)
def test_exp2_of_masked_lanes_is_not_slow(target: str) -> None:
    """Lanes that underflow to 0 must not take a microcode assist each (50 times slower)."""
    import time

    def best(value: float) -> float:
        x = np.full(COUNT, value, np.float32)
        table, samples = prepared(x), []
        for _ in range(20):
            start = time.thread_time()
            cpu.crew(1).run(table)
            samples.append(time.thread_time() - start)
        return min(samples)

    from luminal.backend import cpu

    prepared = _timed(target)
    assert best(-1e9) < 4 * best(0.5) + 2e-5


def _timed(target: str):
    """A function that binds an array to a compiled exp2 of 32k elements, four times over."""
    import ctypes

    from luminal.backend import cpu
    from luminal.backend.table import Entry

    wanted, kept = native.target_of(target), []
    width = wanted.lanes(f32)

    def build(body: native.Body, at) -> None:
        value = body.emit("load", (at("x"),), f32, width, (0,))
        body.effect("store", (body.emit("exp2", (value,), f32, width), at("out")), (0,))

    buffers = [native.buffer("x", f32, COUNT), native.buffer("out", f32, COUNT)]
    code = cpu.build([cpu.render(native.blocks(buffers, width, build), wanted)], wanted)[0]
    counters, out = np.zeros(256, np.uint8), np.zeros(COUNT, np.float32)

    def prepared(x: np.ndarray):
        slots = [a.ctypes.data for a in (x, out, counters, counters)]
        arguments = (ctypes.c_int64 * 4)(*slots)
        kept.append(arguments)
        return cpu.table([Entry(code.address("kernel"), ctypes.addressof(arguments))] * 4)

    return prepared
