"""Attention in one pass, both of its products by instructions whose matrices lie among threads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pytest
from default_cases import attention
from lower_cases import Case, arrays_of, cast, compare, read, schedule
from oracles.program import interpret

from luminal.backend.cuda.matrices import INSTRUCTIONS
from luminal.backend.cuda.shape import group_target
from luminal.backend.loops import loop_program, verify_loops
from luminal.backend.reference.kernels import evaluate
from luminal.graph.dtype import DType, bf16, f16, f32
from luminal.kernel.kernel import Apply, Expression, Kernel, Load, Read, Rewriter
from luminal.kernel.narrow import half_weights
from luminal.kernel.program import Instruction, Program
from luminal.kernel.schedule import Schedule, path_text
from luminal.lowering.legal import check
from luminal.lowering.verify import instructions
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

GPU = group_target(2, INSTRUCTIONS)


def narrow(kernel: Kernel) -> Kernel:
    """Queries, keys and values in bf16; weights rounded to it before they are multiplied."""

    def change(e: Expression) -> Expression:
        if isinstance(e, Load):
            return cast(f32, replace(e, dtype=bf16))
        if (
            isinstance(e, Apply)
            and e.op == "mul"
            and isinstance(e.args[0], Read)
            and (e.args[0].value == "p")
        ):
            return replace(e, args=(cast(f32, cast(bf16, e.args[0])), e.args[1]))
        return e

    rewriter = Rewriter(change)
    buffers = tuple(b if b.name in kernel.outputs else replace(b, dtype=bf16)
                    for b in kernel.buffers)  # fmt: skip
    return replace(kernel, buffers=buffers, values=tuple(map(rewriter.value, kernel.values)))


def paths(rows: int, block: int, columns: int) -> Schedule:
    """A tile of queries for each unit, blocks of keys, columns of values in a matrix."""
    unit, row = f"h/1@ q/{rows}@ ", "q/1# "
    step = unit + f"k/{block} "
    scores = step + "k/16! " + row + "k/1#"
    return schedule({
        "score": step + "k/16! d/16! " + row + "k/1# d/1$", "masked": scores,
        "before": step + row, "top": scores, "shrink": step + row, "p": scores, "sum": scores,
        "mix": step + f"e/{columns}! k/16! " + row + "e/1# k/1$",
        "out": unit + f"e/{columns}! " + row + "e/1#",
    })  # fmt: skip


def lowered(kernel: Kernel, made: Schedule) -> Program:
    check(kernel, made)
    program = loop_program(kernel, made, GPU)
    verify_loops(program)
    assert "mma_bf16_1x1" in {s.op for s in instructions(program.body)} and not program.tiles
    return program


def run(kernel: Kernel, made: Schedule, program: Program, sizes: dict[str, int]) -> None:
    """Each order of threads gives what the kernel means."""
    want = arrays_of(Case(kernel, made, sizes))
    given = {n: a.copy() for n, a in want.items()}
    evaluate(kernel, want, sizes)
    for order in (list, reversed):
        got = {n: a.copy() for n, a in given.items()}
        interpret(program, got, sizes, 1, GPU.instructions, order)
        for name in kernel.outputs:
            compare(name, got[name], want[name], 5e-3)


@pytest.mark.parametrize("queries, keys, causal", [(16, 32, False), (21, 40, True)])
def test_a_tile_of_queries(queries: int, keys: int, causal: bool) -> None:
    kernel, made = narrow(attention(2, queries, keys, 32, causal)), paths(16, 32, 32)
    run(kernel, made, lowered(kernel, made), {})


SIZES: dict[str, tuple[int, int]] = {"s": (1, 64), "t": (1, 64)}


@pytest.mark.parametrize("width, groups, sizes", [
    (16, 2, {"s": 17, "t": 17}), (48, 1, {"s": 3, "t": 35}),
])  # fmt: skip
def test_the_default_takes_them(width: int, groups: int, sizes: dict[str, int]) -> None:
    """Queries and keys of run-time number; what is the same for all keys is made once."""
    plain = narrow(attention(2, "s", "t", width, True, groups, SIZES))
    (part,) = prepare(replace(plain, hints={"s": 16, "t": 64}), GPU)
    kernel, made = default_schedule(part, GPU)
    assert len({v.domain["k"] for v in kernel.values if "k" in v.points}) == 1  # they end together
    assert path_text(made.paths["score_a"]).endswith("q/16@ d/16! q/1# d/1#")
    run(kernel, made, lowered(kernel, made), sizes)


def test_weights_are_rounded_where_the_contract_allows_it() -> None:
    plain = attention(2, 64, 64, 32)
    for target, found in ((GPU, False), (replace(GPU, rounds=True), True)):
        halves = Rewriter(lambda e: cast(f32, cast(bf16, e)) if isinstance(e, Load) and
                          e.buffer in "QK" else e)  # fmt: skip
        kernel = replace(plain, values=tuple(map(halves.value, plain.values)))
        kernel, made = default_schedule(prepare(kernel, target)[0], target)
        ops = {s.op for s in instructions(loop_program(kernel, made, target).body)}
        assert ("mma_bf16_1x1" in ops) == found
    weighed = {v.name: v.body for v in half_weights(narrow_values(plain, f16), INSTRUCTIONS).values}
    assert weighed["mix"].args[0] == cast(f32, cast(f16, read("p")))  # loses less than bf16


def narrow_values(kernel: Kernel, dtype: DType) -> Kernel:
    rewriter = Rewriter(lambda e: cast(f32, replace(e, dtype=dtype)) if isinstance(e, Load) and
                        e.buffer == "V" else e)  # fmt: skip
    return replace(kernel, values=tuple(map(rewriter.value, kernel.values)))


FAULTS: dict[str, Callable[[Instruction], Instruction | None]] = {
    "an exchange left out": lambda s: (
        replace(s, op="cast", attrs=()) if s.op == "exchange" else None
    ),
    "an exchange with another row": lambda s: (
        replace(s, attrs=(4,)) if s.op == "exchange" else None
    ),
    "a first operand in another order": lambda s: (
        replace(s, args=s.args[4:] + s.args[:4]) if s.op == "pack" and len(s.args) == 8 else None
    ),
    "a tail that is not cut off": lambda s: (
        replace(s, args=(s.args[0], s.args[1], s.args[1])) if s.op == "select" else None
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str) -> None:
    """One place by itself; of tails, of which some are cut off twice, all."""
    kernel, made = narrow(attention(1, 16, 40, 16, False)), paths(16, 32, 16)
    program = lowered(kernel, made)
    places = [s for s in instructions(program.body) if FAULTS[fault](s) is not None]
    for there in places if "tail" in fault else places[3:4]:
        put = FAULTS[fault](there)
        assert put is not None
        there.op, there.args, there.attrs = put.op, put.args, put.attrs
    with pytest.raises(AssertionError):
        run(kernel, made, program, {})
