"""Indices in 32 bits: the same results, and only where they are known to fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lower_cases import TARGET, Case, arrays_of, compare, gemm, schedule
from oracles.program import interpret
from test_lower import CASES

from luminal.backend.loops import loop_program, verify_loops
from luminal.backend.reference.kernels import evaluate
from luminal.graph.dtype import i32, i64
from luminal.kernel.layout import pack
from luminal.kernel.program import For, Instruction, Parallel, Program
from luminal.lowering.verify import statements

NARROW = replace(TARGET, index_bits=32)
PATHS = {"acc": "m/4@ n/4 k/4 k/1! m/1! n/1#", "out": "m/4@ n/4 m/1! n/1#"}


@pytest.mark.parametrize("name", list(CASES)[::3])
def test_narrow_indices_mean_the_same(name: str) -> None:
    case = CASES[name]
    program = loop_program(case.kernel, case.schedule, NARROW)
    verify_loops(program)
    want = arrays_of(case, 0)
    got = {n: pack(a.copy(), program.layouts.get(n, ())) for n, a in want.items()}
    evaluate(case.kernel, want, case.sizes)
    interpret(program, got, case.sizes, 2, TARGET.instructions)
    for output in case.kernel.outputs:
        compare(output, got[output], want[output], case.tolerance)


def widths(program: Program) -> tuple[set[object], int]:
    """The dtypes of loop counters; how many operations on i64 there are."""
    found = statements(program.body)
    loops = {s.var.dtype for s in found if isinstance(s, (For, Parallel))}
    done = [s for s in found if isinstance(s, Instruction) and s.op in ("add", "mul")]
    return loops, sum(s.out is not None and s.out.dtype is i64 for s in done)


@pytest.mark.parametrize(("most", "narrow"), [(1000, True), (1 << 40, False)])
def test_only_what_is_known_to_fit(most: int, narrow: bool) -> None:
    """C has 64 s elements: with at most 1000 rows no index needs 64 bits, with 2^40 some do."""
    kernel = gemm("s", 64, 32, epilogue=True, sizes={"s": (1, most)})
    case = Case(kernel, schedule(PATHS), {"s": 9})
    program = loop_program(case.kernel, case.schedule, NARROW)
    verify_loops(program)
    loops, wide = widths(program)
    assert (loops == {i32} and not wide) if narrow else (i64 in loops and wide)


def test_a_size_without_bounds_stays_wide() -> None:
    kernel = gemm("s", 64, 32, epilogue=True, sizes={"s": (0, float("inf"))})
    program = loop_program(kernel, schedule(PATHS), NARROW)
    verify_loops(program)
    assert i64 in widths(program)[0]
