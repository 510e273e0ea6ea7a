"""Products of matrices by instructions of which each thread of a warp holds some elements."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import pytest
from lower_cases import (
    TARGET,
    Case,
    arrays_of,
    axes,
    buffer,
    cast,
    compare,
    gemm,
    load,
    mul,
    read,
    schedule,
    stored,
    total,
)
from oracles.program import interpret

from luminal.backend.cuda.matrices import INSTRUCTIONS
from luminal.backend.cuda.shape import group_target
from luminal.backend.loops import loop_program, verify_loops
from luminal.backend.reference.kernels import evaluate
from luminal.errors import Illegal
from luminal.graph.dtype import bf16, f16, f32, i8, i32
from luminal.kernel.kernel import Kernel
from luminal.kernel.layout import pack
from luminal.kernel.program import Program
from luminal.kernel.schedule import Schedule
from luminal.kernel.target import Target
from luminal.lowering.verify import instructions
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

GPU = group_target(2, INSTRUCTIONS)
VECTORS = replace(TARGET, instructions=INSTRUCTIONS)  # the same before lanes are threads
PATHS = {
    "acc": "m/32@ n/16@ k/16 m/16! n/8! m/1# n/1# k/1$",
    "out": "m/32@ n/16@ m/16! n/8! m/1# n/1#",
}


def run(kernel: Kernel, made: Schedule, target: Target, sizes: dict[str, int]) -> Program:
    program = loop_program(kernel, made, target)
    verify_loops(program)
    case = Case(kernel, made, sizes)
    want = arrays_of(case)
    given = {n: pack(a.copy(), program.layouts.get(n, ())) for n, a in want.items()}
    evaluate(kernel, want, sizes)
    for order in (list, reversed):
        got = {n: a.copy() for n, a in given.items()}
        interpret(program, got, sizes, 1, target.instructions, order)
        for name in kernel.outputs:
            compare(name, got[name], want[name], 1e-5)
    return program


def products(program: Program) -> set[str]:
    return {s.op for s in instructions(program.body)} & {i.name for i in INSTRUCTIONS}


@pytest.mark.parametrize("target", [VECTORS, GPU], ids=["vectors", "threads"])
@pytest.mark.parametrize("m, n", [(32, 16), (40, 20), (3, 9)])
def test_tiles_of_matrices_and_what_is_left_over(target: Target, m: int, n: int) -> None:
    program = run(gemm(m, n, 32, bf16, epilogue=True), schedule(PATHS), target, {})
    assert products(program) == {"mma_bf16_1x1"}


@pytest.mark.parametrize("warps, n", [("2x2", 16), ("2x4", 32)])
def test_several_warps_work_on_a_tile(warps: str, n: int) -> None:
    paths = {
        "acc": f"m/64@ n/{n}@ k/16 m/32! m/1# n/1# k/1$",
        "out": f"m/64@ n/{n}@ m/32! m/1# n/1#",
    }
    program = run(gemm(64, n, 32, bf16, epilogue=True), schedule(paths), GPU, {})
    assert products(program) == {"mma_bf16_1x1"}
    down, across = map(int, warps.split("x"))
    assert program.threads == 32 * down * across


@pytest.mark.parametrize("tails", [{}, {"m": "units"}], ids=["masked", "units"])
def test_a_run_time_number_of_rows(tails: dict[str, str]) -> None:
    kernel = gemm("s", 16, 32, bf16, epilogue=True, sizes={"s": (1, 64)})
    for s in (1, 33, 64):
        program = run(kernel, schedule(PATHS, tails=tails), GPU, {"s": s})
    loads = [i for i in instructions(program.body) if i.op == "load" and i.out is not None]
    found = {(i.args[0].memory, len(i.args)) for i in loads if i.out and i.out.width > 1}
    assert (("A", 1) in found) == bool(tails)  # several at once, also under a condition of a row
    assert ("A", 2) in found


def batched(dtype: object, wide: object, turned: bool) -> Kernel:
    """C[b, m, n] = sum_k A[b, m, k] * B[b, n, k]; or A[b, k, m]."""
    left = load("A", *("bkm" if turned else "bmk"), dtype=dtype)
    right = load("B", "b", "n", "k", dtype=dtype)
    values = (
        total("acc", "bmn", mul(cast(wide, left), cast(wide, right)), "k", dtype=wide),
        stored("out", "bmn", read("acc", wide), "C"),
    )
    shape = (2, 32, 20) if turned else (2, 20, 32)
    buffers = (buffer("A", dtype, *shape), buffer("B", dtype, 2, 12, 32),
               buffer("C", wide, 2, 20, 12))  # fmt: skip
    return Kernel("batched", buffers, axes(b=2, m=20, n=12, k=32), values, {})


@pytest.mark.parametrize("dtype, wide, name", [
    (bf16, f32, "mma_bf16"), (f16, f32, "mma_f16"), (i8, i32, "mma_s8"),
])  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_the_default_takes_them(dtype: object, wide: object, name: str, turned: bool) -> None:
    (part,) = prepare(batched(dtype, wide, turned), GPU)
    kernel, made = default_schedule(part, GPU)
    assert {found[:-4] for found in products(run(kernel, made, GPU, {}))} == {name}


def test_constants_lie_as_threads_take_them() -> None:
    (part,) = prepare(gemm(32, 32, 32, bf16), GPU)
    kernel, made = default_schedule(part, GPU)
    program = run(kernel, made, GPU, {})
    assert len(products(program)) == 1 and program.layouts["B"][-1] == (0, 1)


def test_an_axis_that_is_a_row_here_and_a_column_there_is_refused() -> None:
    kernel = batched(bf16, f32, False)
    paths = {"acc": "b/1@ n/16! m/8! k/16 m/1# n/1# k/1$", "out": "b/1@ m/1 n/1#"}
    with pytest.raises(Illegal):
        loop_program(kernel, schedule(paths), GPU)


def test_specification() -> None:
    """Each instruction's fragments cover their matrices once."""
    for made in INSTRUCTIONS:
        shapes = ((made.rows, made.columns), (made.rows, made.collapse),
                  (made.columns, made.collapse))  # fmt: skip
        for way, shape in zip(made.fragments, shapes, strict=True):
            seen = np.zeros(shape, int)
            np.add.at(seen, way.places(), 1)
            assert (seen == seen[0, 0]).all() and seen.sum() == made.threads * len(way.elements)
