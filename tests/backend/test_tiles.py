"""Matrices in registers of their own (Intel AMX): the products of many shapes through the
interpreter, which does what the manual says, and the code that LLVM makes of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
from lower_cases import (
    Case,
    add,
    arrays_of,
    axes,
    buffer,
    cast,
    compare,
    gemm,
    host,
    load,
    mul,
    read,
    run_native,
    schedule,
    stored,
    total,
)
from oracles.program import interpret
from oracles.tiles import exact

from luminal import Graph, ops, train
from luminal.backend import cpu, devices
from luminal.backend.cpu import asked, tiles
from luminal.backend.reference.kernels import evaluate
from luminal.errors import Illegal
from luminal.graph.dtype import bf16, f32, i8, i32, i64, u8
from luminal.graph.index import Index
from luminal.kernel.kernel import Kernel, Store, Value
from luminal.kernel.layout import pack
from luminal.kernel.program import Program
from luminal.kernel.schedule import Schedule
from luminal.lowering.legal import check
from luminal.lowering.lower import lower
from luminal.lowering.verify import instructions, verify
from luminal.scheduling import several
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

from .interpreted import Interpreted

machines = sys.modules[cpu.named.__module__]  # its name in the package is a function
AMX = cpu.named("amx")
HERE = machines.machine(AMX).is_host
BY_NAME = {i.name: i for i in AMX.instructions if i.registers}
PATHS = {
    "acc": "m/32@ n/32@ k/64 k/32 m/16! n/16! m/1# n/1# k/2$ k/1$",
    "out": "m/32@ n/32@ m/1 n/16! n/1#",
}
PAIRS = {"B": "1/32 0/2 1/1 0/1"}


def products(program: Program) -> set[str]:
    return {s.op for s in instructions(program.body)} & {*BY_NAME}


def run(kernel: Kernel, made: Schedule, sizes: dict[str, int], tolerance: float) -> Program:
    """A kernel in the interpreter, with two workers; its program. Where the processor has them, it
    gives the same bits."""
    check(kernel, made)
    program = lower(kernel, made, AMX)
    verify(program)
    want = arrays_of(Case(kernel, made, sizes))
    got = {n: pack(a.copy(), program.layouts.get(n, ())) for n, a in want.items()}
    given = {n: a.copy() for n, a in got.items()}
    evaluate(kernel, want, sizes)
    interpret(program, got, sizes, 2, AMX.instructions)
    found = run_native(program, given, sizes, AMX) if HERE else got
    for name in kernel.outputs:
        compare(name, got[name], want[name], tolerance)
        np.testing.assert_array_equal(found[name], got[name], name)
    return program


def assembly(program: Program) -> list[str]:
    (made,) = cpu.build([cpu.render(program, AMX)], AMX)
    return made.assembly().splitlines()


def count(lines: list[str], text: str) -> int:
    return sum(bool(re.search(rf"\s{text}\s*(%|\.|\(|$)", line)) for line in lines)


# ---- what one of them does


def test_sums_of_integers_wrap() -> None:
    full = np.full((16, 64), 255, np.uint8), np.full((16, 64), -128, np.int8)
    acc = np.full((16, 16), np.iinfo(np.int32).min, np.int32)
    got = exact(BY_NAME["tdpbusd"])(acc, *full)
    assert (got == np.iinfo(np.int32).min - 64 * 255 * 128 + (1 << 32)).all()


def test_even_and_odd_numbers_are_two_chains() -> None:
    a, b = np.zeros((2, 16, 32), bf16.numpy)
    a[:, :6], b[:, :6] = [2.0**30, 1, -(2.0**30), 1, 2, 3], 1
    got = exact(BY_NAME["tdpbf16ps"])(np.full((16, 16), 0.5, np.float32), a, b)
    assert (got == 0.5 + (2 + (1 + 1 + 3))).all()  # 2^30 is gone before anything small joins it
    a[:, :6] = [2.0**30, 1, 1, 1, -(2.0**30), 3]
    got = exact(BY_NAME["tdpbf16ps"])(np.full((16, 16), 0.5, np.float32), a, b)
    assert (got == 0.5 + (0 + (1 + 1 + 3))).all()  # 2^30 + 1 is 2^30 in f32


def test_denormals_are_zeros() -> None:
    product = exact(BY_NAME["tdpbf16ps"])
    a, b = np.zeros((2, 16, 32), bf16.numpy)
    a[:, 0], b[:, 0] = 2.0**-70, 2.0**-70  # a product of normal numbers that is none
    assert (product(np.zeros((16, 16), np.float32), a, b) == 0).all()
    a[:, 0], b[:, 0] = 2.0**-130, 2.0**60
    assert (product(np.full((16, 16), 1e-40, np.float32), a, b) == 0).all()


def test_sums_are_rounded_to_even() -> None:
    for small, want in ((2.0**-24, 1.0), (2.0**-24 + 2.0**-31, 1 + 2.0**-23)):
        a, b = np.zeros((2, 16, 32), bf16.numpy)
        a[:, 0:4:2], b[:, 0:4:2] = [small, 1.0], 1.0
        got = exact(BY_NAME["tdpbf16ps"])(np.zeros((16, 16), np.float32), a, b)
        assert (got == want).all()


# ---- beside them


@pytest.mark.parametrize(("read_at", "stored_at", "path", "op"), [
    ("ba", "ab", "a/8 b/4 a/1# b/1#", "gather"), ("ab", "ba", "a/8 b/4 a/1# b/1#", "scatter"),
])  # fmt: skip
def test_vectors_are_turned_as_rows_of_matrices_are(
    read_at: str, stored_at: str, path: str, op: str
) -> None:
    """Loads and stores say their strides where there are matrices, which are walked by them; the
    text for vectors has to walk them too."""
    sizes = {"a": 6, "b": 4}
    shapes = [[sizes[axis] for axis in at] for at in (read_at, stored_at)]
    buffers = buffer("X", i8, *shapes[0]), buffer("Y", i64, *shapes[1])
    store = Store("Y", tuple(map(Index.of, stored_at)))
    value = Value("v", ("a", "b"), cast(i64, load("X", *read_at, dtype=i8)), i64, store=store)
    kernel = Kernel("turned", buffers, axes(**sizes), (value,))
    program = lower(kernel, schedule({"v": path}), replace(AMX, maskable=4))
    verify(program)
    assert op in {s.op for s in instructions(program.body)}
    want = arrays_of(Case(kernel, schedule({"v": path})))
    got = run_native(program, {n: a.copy() for n, a in want.items()}, {}, host())
    evaluate(kernel, want, {})
    np.testing.assert_array_equal(got["Y"], want["Y"])


# ---- products


@pytest.mark.parametrize("m, n, k", [(32, 64, 64), (64, 32, 192)])
def test_a_schedule_in_matrices(m: int, n: int, k: int) -> None:
    made = schedule(PATHS, layouts=PAIRS)
    program = run(gemm(m, n, k, bf16, epilogue=True), made, {}, 1e-5)
    lines = assembly(program)
    assert count(lines, "ldtilecfg") == count(lines, "tilerelease") == 1
    assert count(lines, "tilezero") == 4 and count(lines, "tilestored") == 4  # nothing is spilled
    assert count(lines, "tdpbf16ps") == count(lines, "tileloadd") == 4
    shapes = tiles.configured()
    assert shapes.count("\\40\\00") == shapes.count("\\10") == 8 and 'c"\\01\\00' in shapes


@pytest.mark.parametrize("m, n, k, s, dtype", [
    (64, 64, 128, 0, bf16), (100, 200, 256, 0, bf16), (40, 24, 64, 0, bf16), (16, 16, 64, 0, bf16),
    ("s", 96, 128, 45, bf16), ("s", 96, 128, 1, bf16), ("s", 80, 64, 64, bf16),
    (64, 128, 256, 0, i8), (50, 200, 128, 0, i8), ("s", 136, 128, 45, i8), ("s", 128, 64, 1, i8),
])  # fmt: skip
def test_the_default_takes_them(m: Any, n: int, k: int, s: int, dtype: Any) -> None:
    name = "tdpbf16ps" if dtype is bf16 else "tdpbusd"
    sizes = {"s": (1, 200)} if s else {}
    (part,) = prepare(gemm(m, n, k, dtype, sizes=sizes), AMX)
    program = run(*default_schedule(part, AMX), {"s": s} if s else {}, 1e-5)
    assert products(program) == {name}
    lines = assembly(program)
    moved = {op: sum(s.op == op for s in instructions(program.body)) for op in BY_NAME}
    assert count(lines, name) == moved[name]
    assert count(lines, "ldtilecfg") == count(lines, "tilerelease") == 1


@pytest.mark.parametrize("m, k", [(1, 128), (2, 64), (64, 48)])
def test_the_default_leaves_them_where_they_do_not_pay_or_fit(m: int, k: int) -> None:
    (part,) = prepare(gemm(m, 64, k, bf16), AMX)
    made = lower(*default_schedule(part, AMX), AMX)
    assert not products(made) and "tile" not in cpu.render(made, AMX)


def twice(first: Any, second: Any) -> Kernel:
    """Two sums of products that share their rows."""
    a, (b, c) = load("A", "m", "k", dtype=first), (load(x, "k", "n", dtype=second) for x in "BC")
    wide = f32 if first is bf16 else i32
    values = [total(v, "mn", mul(cast(wide, a), cast(wide, w)), "k", dtype=wide)
              for v, w in zip("xy", (b, c))]  # fmt: skip
    both = add(read("x", wide), read("y", wide))
    buffers = (buffer("A", first, 48, 128), buffer("B", second, 128, 40, constant=True),
               buffer("C", second, 128, 40, constant=True), buffer("Y", wide, 48, 40))  # fmt: skip
    body = (*values, stored("out", "mn", both, "Y"))
    return Kernel("twice", buffers, axes(m=48, n=40, k=128), body, {})


@pytest.mark.parametrize("first, second, name", [
    (bf16, bf16, "tdpbf16ps"), (u8, i8, "tdpbusd"), (i8, u8, "tdpbsud"), (i8, i8, "tdpbssd"),
])  # fmt: skip
def test_two_sums_share_registers(first: Any, second: Any, name: str) -> None:
    (part,) = prepare(twice(first, second), AMX)
    program = run(*default_schedule(part, AMX), {}, 1e-5)
    assert products(program) == {name}
    assert count(assembly(program), name) >= 2


def test_more_matrices_than_registers_are_refused() -> None:
    wide = PATHS | {"acc": "m/48@ n/48@ k/32 m/16! n/16! m/1# n/1# k/2$ k/1$",
                    "out": "m/48@ n/48@ m/1 n/16! n/1#"}  # fmt: skip
    made = schedule(wide, layouts={"B": "1/48 0/2 1/1 0/1"})
    with pytest.raises(Illegal, match="more matrices"):
        lower(gemm(48, 48, 32, bf16), made, AMX)


def test_rows_that_do_not_lie_side_by_side_are_refused() -> None:
    with pytest.raises(Illegal, match="side by side"):
        lower(gemm(32, 32, 64, bf16), schedule(PATHS), AMX)  # B as it was given


@pytest.mark.parametrize("name", sorted(tiles.PRODUCTS))
def test_ceilings_are_loops_of_products(name: str) -> None:
    (made,) = cpu.build([tiles.peak_text(name, 1000, 4)], AMX)
    lines = made.assembly().splitlines()
    assert count(lines, name) == 4 and count(lines, "ldtilecfg") == count(lines, "tilerelease") == 1


# ---- whole programs


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(devices._LOADERS, "interpreted", lambda: Interpreted("amx"))
    return "interpreted"


@pytest.mark.parametrize("precision, name, bound", [
    ("bf16", "tdpbf16ps", 1e-2), ("int8", "tdpbsud", 3e-2),
])  # fmt: skip
def test_a_network(interpreted: str, precision: str, name: str, bound: float) -> None:
    random = np.random.default_rng(0)
    graph = Graph()
    graph.dim("s", 1, 64)
    x = graph.tensor(("s", 64))
    shapes = ((64, 128), (64, 128), (128, 64))
    gate, up, down = (
        graph.constant(random.standard_normal(shape, dtype=np.float32) / 8) for shape in shapes
    )
    y = ((ops.silu(x @ gate) * (x @ up)) @ down + x).output()
    given = random.standard_normal((21, 64), dtype=np.float32)
    runs = [graph.compile(device="reference"), graph.compile(interpreted, precision=precision)]
    want, got = (run(given) for run in runs)
    assert np.abs(got - want).max() < bound * np.abs(want).max()
    found = set[str]().union(*(products(kernel.program) for kernel in runs[1].kernels))
    assert name in found and y.shape


@pytest.mark.parametrize(("stride", "width"), [(1, 30), (2, 60)])
def test_windows_are_read_from_a_picture_as_it_lies(
    interpreted: str, monkeypatch: pytest.MonkeyPatch, stride: int, width: int
) -> None:
    """A picture with its channels side by side has the rows of matrices: pixels of a line, and
    places behind its end, where the line is no whole matrix. None of them is copied again."""
    monkeypatch.setattr(several, "LEAST_LAUNCHES", 0)
    random = np.random.default_rng(0)
    graph = Graph()
    x = graph.tensor((64, 6, width), name="x")
    w = graph.constant(random.standard_normal((64, 64, 3, 3), dtype=np.float32) / 24)
    ops.conv2d(x.unsqueeze(0), w, stride=stride, padding=1).output()
    given = random.standard_normal((64, 6, width), dtype=np.float32)
    runs = [graph.compile(device="reference"), graph.compile(interpreted, precision="bf16")]
    want, got = (run(given) for run in runs)
    assert np.abs(got - want).max() < 1e-2 * np.abs(want).max()
    found = next(k for k in runs[1].kernels if "tdpbf16ps" in products(k.program))
    assert all(v.reduction or v.store for v in found.kernel.values)


def test_pictures_between_convolutions_are_rows_of_matrices_too(interpreted: str) -> None:
    """They are stored in bf16, without padding: rows are laid out with it, and nothing else is."""
    random = np.random.default_rng(0)
    graph = Graph()
    y = graph.tensor((1, 64, 32, 32), name="x")
    for _ in range(2):
        w = graph.constant(random.standard_normal((64, 64, 3, 3), dtype=np.float32) / 24)
        y = ops.relu(ops.conv2d(y, w, padding=1))
    y.output()
    rt = graph.compile(interpreted, precision="bf16", cache=False, database=False)
    summed = [k for k in rt.kernels if any(v.reduction for v in k.kernel.values)]
    assert ["tdpbf16ps" in products(k.program) for k in summed] == [True, True]


@pytest.mark.parametrize("m, n, k, unit", [
    (2048, 384, 384, "m/32@"),  # the second cache holds all columns: few rows, whole ones
    (1536, 384, 2048, "m/64@"),  # there are more results than columns
    (2048, 2048, 2048, "m/128@ n/128@"), (197, 3072, 768, "m/128@ n/256@"),  # of a part of them
    (128, 3072, 768, "n/128@"),  # one block of rows: columns are read once
])  # fmt: skip
def test_what_is_made_of_sums_walks_long_rows(m: int, n: int, k: int, unit: str) -> None:
    kernel = gemm(m, n, k, bf16, epilogue=True)
    buffers = (replace(b, constant=b.name == "B") for b in kernel.buffers)
    target = replace(AMX, threads=2)
    (part,) = prepare(replace(kernel, buffers=tuple(buffers)), target)
    scheduled, made = default_schedule(part, target)
    check(scheduled, made)
    text = dict(line.split(": ") for line in made.text().splitlines() if ": " in line)
    assert text["out"] == f"{unit} m/1 n/64 n/16! n/1#"
    assert f"{unit} n/" in text["acc"] and "k/2$" in text["acc"]


def test_the_gradient_of_a_softmax_leaves_its_product_to_matrices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that add its results up in the same kernel would have it in vectors."""
    monkeypatch.setitem(devices._LOADERS, "interpreted", lambda: Interpreted("amx"))
    graph = Graph()
    x, w = graph.tensor((2048, 384)), graph.parameter((384, 1152))
    q, k, v = (x @ w).reshape(8, 256, 3, 6, 64).permute(2, 0, 3, 1, 4)
    attention = partial(ops.scaled_dot_product_attention, is_causal=True)
    y = train.checkpoint(attention, q, k, v) * graph.tensor((8, 6, 256, 64))
    train.backward(y.sum(), [w])[0].output()
    rt = graph.compile("interpreted", precision="bf16", cache=False, database=False)
    for made in rt.kernels:
        sizes, values = made.kernel.axes, made.kernel.values
        points = (prod(int(sizes[a]) for a in v.points) for v in values if v.factors)
        rows = max(points, default=0) <= 48 * 256 * 256  # no products, but sums of their results
        forward = any(v.reduction and v.reduction.op == "max" for v in values)
        assert products(made.program) or rows or forward


# ---- who may use them


@pytest.mark.parametrize("granted, answer, usable", [
    (True, "right", True), (True, "", False), (True, "wrong", False), (False, "right", False),
])  # fmt: skip
def test_a_host_has_them_if_they_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, granted: bool, answer: str, usable: bool
) -> None:
    """answer: of the child, behind what LLVM says; none where it crashed."""
    flags = ",".join(f"+{flag}" for flag in machines.AMX)
    said = json.dumps(["x86_64-linux", flags]) + "\n" + answer
    child = subprocess.CompletedProcess([], -4, said.encode())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(asked, "granted", lambda: granted)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: child)
    monkeypatch.setattr(machines, "_processor", asked.processor)
    found = machines._host_machine.__wrapped__()
    assert found.has("amx-tile") == usable and ("-amx-tile" in found.features) != usable
    assert found.has("avx512bf16")
    offered = {i.name for i in machines.available(found.flags)}
    assert ({*BY_NAME} <= offered) == usable and (not {*BY_NAME} & offered) != usable


@pytest.mark.skipif(HERE, reason="they work here")
def test_what_they_do_not_do_is_no_answer() -> None:
    """Where the processor or the system lacks them, the child does not say that they are right."""
    assert json.loads(asked.asked_elsewhere())[2] is False
