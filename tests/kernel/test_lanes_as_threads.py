"""Schedules of vectors, run by threads of which each has a lane: in the interpreter, in orders that
show a barrier that is missing."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import default_cases
import numpy as np
import pytest
from lower_cases import (
    TARGET,
    arrays_of,
    axes,
    buffer,
    cast,
    compare,
    exp,
    ix,
    load,
    mul,
    num,
    position,
    read,
    stored,
    total,
)  # fmt: skip
from oracles.program import interpret
from oracles.schedules import schedule_of
from test_lower import CASES

from luminal.backend.cuda.shape import group_target
from luminal.backend.loops import loop_program, verify_loops
from luminal.backend.reference.kernels import evaluate
from luminal.errors import Illegal
from luminal.graph.dtype import f32, u8
from luminal.kernel.kernel import Kernel, Read, Reduction, Store, Value
from luminal.kernel.layout import pack
from luminal.kernel.program import For, Instruction, Program
from luminal.lowering.verify import statements
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

GROUP = replace(TARGET, group=32, instructions=())
GPU = group_target(132)
NAMES = (
    "softmax in its output", "layer norm", "start in lanes",
    "online beside lanes", "band in lanes",
    "triangle, lanes of rows", "gather in lanes", "cummax in lanes", "cumprod of integers",
    "upsample", "concat in lanes", "pad lanes outside", "positions",
    "sum of f64 in lanes", "max of bf16 in lanes", "prod of i64 in lanes", "min of u8 in lanes",
)  # fmt: skip


def inside(program: Program) -> list[Instruction]:
    return [s for s in statements(program.body) if isinstance(s, Instruction)]


def barriers(program: Program) -> list[Instruction]:
    return [s for s in inside(program) if s.op == "barrier"]


@pytest.mark.parametrize(
    "name, exchanges", [(name, n % 4 == 0) for n, name in enumerate(NAMES)]
)  # fmt: skip
def test_meaning_in_any_order(name: str, exchanges: bool) -> None:
    case = CASES[name]
    program = loop_program(case.kernel, case.schedule, replace(GROUP, exchanges=exchanges))
    verify_loops(program)
    assert program.threads == 32
    given = arrays_of(case)
    want = {n: a.copy() for n, a in given.items()}
    evaluate(case.kernel, want, case.sizes)
    rng = np.random.default_rng(0)
    for order in (list, reversed, lambda running: rng.permutation(np.array(running, object))):
        got = {n: pack(a.copy(), program.layouts.get(n, ())) for n, a in given.items()}
        interpret(program, got, case.sizes, order=order)
        for output in case.kernel.outputs:
            compare(output, got[output], want[output], case.tolerance)


def blocks(rows: int, count: int, size: int) -> Kernel:
    """y[n] = sum over b and j of x[b, j] w[n, b, j] s[n, b], w of bytes."""
    quant = cast(f32, load("w", "n", "b", "j", dtype=u8))
    body = mul(load("x", "b", "j"), mul(quant, load("s", "n", "b")))
    made = Value("acc", ("n",), body, f32, Reduction("sum", ("b", "j")), Store("y", (ix("n"),)))
    given = (buffer("x", f32, count, size), buffer("w", u8, rows, count, size, constant=True),
             buffer("s", f32, rows, count, constant=True), buffer("y", f32, rows))  # fmt: skip
    return Kernel("blocks", given, axes(n=rows, b=count, j=size), (made,))


@pytest.mark.parametrize("exchanges", (False, True))
def test_sums_in_lanes_outside_of_kept_lanes(exchanges: bool) -> None:
    """Each warp adds up blocks of its own; what lies side by side is loaded at once."""
    schedule = schedule_of(
        "acc: n/32@ n/32 b/4 j/16 j/1! b/1# n/1#\nlayout w: 0/32 1/1 0/1 2/1\nregisters: 40"
    )
    kernel, target = blocks(64, 8, 16), replace(GPU, instructions=(), exchanges=exchanges)
    program = loop_program(kernel, schedule, target)
    verify_loops(program)
    assert program.threads == 4 * 32
    widths = [s.out.width for s in inside(program) if s.op == "load" and s.out and s.out.width > 1]
    assert widths == [4, 4, 4, 4, 16] or widths == [4, 16, 4, 4, 4]
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((8, 16)).astype(np.float32), "y": np.zeros(64, np.float32),
             "w": rng.integers(0, 256, (64, 8, 16)).astype(np.uint8),
             "s": rng.standard_normal((64, 8)).astype(np.float32)}  # fmt: skip
    want = np.einsum("bj,nbj,nb->n", given["x"], given["w"], given["s"])
    for order in (list, reversed, lambda running: rng.permutation(np.array(running, object))):
        got = {n: pack(a.copy(), program.layouts.get(n, ())) for n, a in given.items()}
        interpret(program, got, {}, order=order)
        np.testing.assert_allclose(got["y"], want, rtol=1e-4, atol=1e-3)


def test_a_quantised_vector_product_is_summed_up_by_many_warps() -> None:
    """32 rows in lanes, blocks of the sum in further warps."""
    text, program = scheduled(blocks(4096, 128, 32))
    assert "b/1# n/1#" in text and program.threads is not None and program.threads >= 256


def test_a_long_row_has_many_threads() -> None:
    """Few units: a lane of a wider vector for each of them, added up through memory they share."""
    row = Value("total", (), mul(load("x", "n"), load("x", "n")), f32, Reduction("sum", ("n",)))
    out = Value("out", ("n",), mul(load("x", "n"), Read("total", f32)), f32,
                store=Store("y", (ix("n"),)))  # fmt: skip
    given = buffer("x", f32, 256), buffer("y", f32, 256)
    text, program = scheduled(Kernel("row", given, axes(n=256), (row, out)))
    verify_loops(program)
    assert program.threads == 256 and barriers(program), text
    x, rng = np.linspace(-1, 1, 256, dtype=np.float32), np.random.default_rng(0)
    for order in (list, reversed, lambda running: rng.permutation(np.array(running, object))):
        got = {"x": x, "y": np.zeros_like(x)}
        interpret(program, got, {}, order=order)
        np.testing.assert_allclose(got["y"], x * (x @ x), rtol=1e-5)


def test_a_sum_of_positions_is_known_to_each_thread() -> None:
    """Nothing that changes: it is computed before the units, and so is what is made of it."""
    half = mul(cast(f32, position(ix("k"))), num(0.5))
    summed, out = total("t", "", half, "k"), mul(load("x", "m"), exp(read("t")))
    kernel = Kernel("scaled", (buffer("x", f32, 6), buffer("y", f32, 6)), axes(m=6, k=8),
                    (summed, stored("y", "m", out, "y")))  # fmt: skip
    schedule = schedule_of("t: k/8 k/1#\ny: m/1@\nregisters: 40")
    program = loop_program(kernel, schedule, replace(GROUP, exchanges=True))
    verify_loops(program)
    x = np.arange(6, dtype=np.float32)
    got = {"x": x.copy(), "y": np.zeros(6, np.float32)}
    interpret(program, got, {})
    np.testing.assert_allclose(got["y"], x * np.exp(14.0), rtol=1e-5)


def scheduled(kernel: object) -> tuple[str, Program]:
    (part,) = prepare(kernel, GPU)
    made, schedule = default_schedule(part, GPU)
    return schedule.text(), loop_program(made, schedule, GPU)


def test_a_row_of_a_vector_product_is_shared_by_a_group() -> None:
    """Few units of work: lanes of the sum, which are added up at its end, not in its loop."""
    text, program = scheduled(default_cases.gemm(1, 2048, 2048))
    assert "acc: n/1@" in text and "k/4# k/1*" in text  # four elements of each thread lie together
    (loop,) = [s for s in statements(program.body) if isinstance(s, For)]
    inside = [s for s in statements(loop.body) if isinstance(s, Instruction)]
    assert all(s.op != "barrier" for s in inside)
    assert not barriers(program) and not program.tiles


def test_a_matrix_product_shares_nothing() -> None:
    """Neighbours in lanes, rows in registers: no tile, no barrier."""
    text, program = scheduled(default_cases.gemm(512, 2048, 2048))
    assert "n/1#" in text and "m/1!" in text
    assert not program.tiles and not barriers(program)


def test_tiles_that_do_not_fit_are_refused() -> None:
    case = CASES["layer norm"]
    with pytest.raises(Illegal, match="bytes for the threads"):
        loop_program(case.kernel, case.schedule, replace(GROUP, shared=64))


def test_lanes_in_which_a_later_store_counts_are_refused() -> None:
    case = CASES["scatter in lanes"]
    with pytest.raises(Illegal, match="in an order"):
        loop_program(case.kernel, case.schedule, GROUP)


def test_barriers_that_data_decide_are_refused() -> None:
    """Sixteen lanes are two threads each: one reads what the other adds to."""
    case = CASES["scatter sum"]
    with pytest.raises(Illegal, match="come to a barrier"):
        loop_program(case.kernel, case.schedule, GROUP)


def test_a_thread_waits_for_several_elements() -> None:
    """Short lanes inside of short axes: places are written out, some of a long axis'."""
    for sizes, written in (((512, 24, 2, 32), "c"), ((512, 512, 32), "b")):
        own = axes(**dict(zip("abcd", sizes)))
        x, y = buffer("x", u8, *sizes), buffer("y", f32, *sizes)
        body = cast(f32, load("x", *own, dtype=u8))
        value = Value("v", tuple(own), body, f32, store=Store("y", tuple(map(ix, own))))
        _, schedule = default_schedule(Kernel("wide", (x, y), own, (value,)), GPU)
        found = [loop.axis for loop in schedule.paths["v"] if loop.kind == "unroll"]
        assert "".join(found) == written
