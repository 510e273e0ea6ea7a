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
from lower_cases import TARGET, arrays_of, compare
from oracles.program import interpret
from test_lower import CASES

from luminal.backend.cuda.shape import group_target
from luminal.backend.reference.kernels import evaluate
from luminal.errors import Illegal
from luminal.kernel.layout import pack
from luminal.kernel.program import For, Instruction, Program
from luminal.lowering.lower import lower
from luminal.lowering.verify import statements, verify
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


def barriers(program: Program) -> list[Instruction]:
    found = (s for s in statements(program.body) if isinstance(s, Instruction))
    return [s for s in found if s.op == "barrier"]


@pytest.mark.parametrize(
    "name, exchanges", [(name, n % 4 == 0) for n, name in enumerate(NAMES)]
)  # fmt: skip
def test_meaning_in_any_order(name: str, exchanges: bool) -> None:
    case = CASES[name]
    program = lower(case.kernel, case.schedule, replace(GROUP, exchanges=exchanges))
    verify(program)
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


def scheduled(kernel: object) -> tuple[str, Program]:
    (part,) = prepare(kernel, GPU)
    made, schedule = default_schedule(part, GPU)
    return schedule.text(), lower(made, schedule, GPU)


def test_a_row_of_a_vector_product_is_shared_by_a_group() -> None:
    """Few units of work: lanes of the sum, which are added up at its end, not in its loop."""
    text, program = scheduled(default_cases.gemm(1, 2048, 2048))
    assert "acc: n/1@" in text and "k/1#" in text
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
        lower(case.kernel, case.schedule, replace(GROUP, shared=64))


def test_lanes_in_which_a_later_store_counts_are_refused() -> None:
    case = CASES["scatter in lanes"]
    with pytest.raises(Illegal, match="in an order"):
        lower(case.kernel, case.schedule, GROUP)


def test_barriers_that_data_decide_are_refused() -> None:
    """Sixteen lanes are two threads each: one reads what the other adds to."""
    case = CASES["scatter sum"]
    with pytest.raises(Illegal, match="come to a barrier"):
        lower(case.kernel, case.schedule, GROUP)
