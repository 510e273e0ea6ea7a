"""Concatenations of what earlier steps make: these write into the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel import default_cases as cases

import luminal
from luminal import ops
from luminal.backend.reference.kernels import evaluate
from luminal.graph.index import Index
from luminal.kernel.kernel import Guard
from luminal.rewrite.lower_plan import Ref, Step
from luminal.rewrite.parts import written_in_parts
from luminal.train import backward

I = Index.of
ROWS, FIRST, SECOND = 3, 4, 5


def step(name, buffers, axes, *values):
    kernel = cases.kernel(name, [cases.buffer(n, *shape) for n, shape in buffers.items()],
                          axes, values)  # fmt: skip
    kinds = {"x": Ref("input", 0), "t": Ref("temporary", 0), "u": Ref("temporary", 1),
             "y": Ref("temporary", 2), "z": Ref("output", 0)}  # fmt: skip
    return Step(kernel, {n: kinds[n] for n in buffers}, False)


def made(name, source, op, width):
    value = cases.value("v", "rc", cases.op(op, cases.load(source, "r", "c")),
                        store=cases.store(name, "r", "c"))  # fmt: skip
    return step(f"make_{name}", {source: (ROWS, width), name: (ROWS, width)},
                {"r": ROWS, "c": width}, value)  # fmt: skip


def guarded(name, shift, *conditions):
    body = cases.load(name, "r", I("c") - shift)
    return Guard(conditions, body, cases.const(0.0))


def steps(whole):
    """t = exp2(x), u = sin(t2), y = t beside u, z = y + y."""
    one = made("t", "x", "exp2", FIRST)
    value = cases.value("v", "rc", cases.op("sin", cases.load("x", "r", 0)),
                        store=cases.store("u", "r", "c"))  # fmt: skip
    two = step("make_u", {"x": (ROWS, FIRST), "u": (ROWS, SECOND)}, {"r": ROWS, "c": SECOND}, value)
    width, joined = FIRST + SECOND, {"r": ROWS, "c": FIRST + SECOND}
    three = step("join", {"t": (ROWS, FIRST), "u": (ROWS, SECOND), "y": (ROWS, width)}, joined,
                 cases.value("v", "rc", whole, store=cases.store("y", "r", "c")))  # fmt: skip
    twice = cases.add(cases.load("y", "r", "c"), cases.load("y", "r", "c"))
    four = step("use", {"y": (ROWS, width), "z": (ROWS, width)}, joined,
                cases.value("v", "rc", twice, store=cases.store("z", "r", "c")))  # fmt: skip
    return [one, two, three, four]


def run(found, x):
    shapes = {str(ref): b.shape for s in found for b in s.kernel.buffers
              for ref in [s.arguments[b.name]]}  # fmt: skip
    memory = {ref: np.full([int(n) for n in shape], np.nan, np.float32)
              for ref, shape in shapes.items()}  # fmt: skip
    memory["input0"] = x
    for each in found:
        evaluate(each.kernel, {n: memory[str(ref)] for n, ref in each.arguments.items()}, {})
    return memory["output0"]


PADDED = cases.add(guarded("t", 0, I(FIRST - 1) - "c"), guarded("u", FIRST, I("c") - FIRST))
CHOSEN = replace(guarded("t", 0, I(FIRST - 1) - "c"), other=cases.load("u", "r", I("c") - FIRST))


@pytest.mark.parametrize("whole", [PADDED, CHOSEN])
def test_parts_are_written_where_they_belong(whole):
    before = steps(whole)
    after = written_in_parts(before)
    assert [s.kernel.name for s in after] == ["make_t", "make_u", "use"]
    x = np.random.default_rng(0).standard_normal((ROWS, FIRST)).astype(np.float32)
    np.testing.assert_array_equal(run(after, x), run(before, x))


def test_what_is_no_concatenation_stays():
    masked = guarded("t", 0, I(FIRST - 2) - "c")  # its last column is 0
    scaled = cases.mul(guarded("u", FIRST, I("c") - FIRST), cases.const(2.0))
    for whole in (
        cases.add(masked, PADDED.args[1]), cases.add(PADDED.args[0], scaled),
        replace(PADDED, op="max"), PADDED.args[0],
    ):  # fmt: skip
        assert len(written_in_parts(steps(whole))) == 4


def test_a_part_that_others_read_or_that_is_an_output_stays():
    one, two, three, four = steps(PADDED)
    reader = made("z", "t", "sin", FIRST)
    assert len(written_in_parts([one, two, three, reader])) == 4
    kept = {**three.arguments, "t": Ref("output", 1)}
    given = replace(one, arguments={**one.arguments, "t": Ref("output", 1)})
    assert len(written_in_parts([given, two, replace(three, arguments=kept), four])) == 4


@pytest.mark.parametrize("dtype", ["bf16", "i32"])
def test_parts_are_rounded_as_their_whole_is(dtype):
    """Products of whole numbers: all orders of summation give the same."""
    cx = luminal.Graph()
    x, y = cx.tensor((2, 24, 32)), cx.tensor((2, 32, 16))
    joined = ops.cat([x @ y, (x * x) @ (y + 1)], 1).cast(dtype)
    joined.output()
    compiled = cx.compile(threads=1, cache=False)
    assert all("Guard" not in str(made.kernel) for made in compiled.kernels)
    given = [np.random.default_rng(0).integers(-3, 4, t.shape).astype(np.float32) for t in (x, y)]
    want = cx.compile(device="reference")(*given)
    np.testing.assert_array_equal(compiled(*given), want)


def test_a_step_backwards_of_a_recurrence_is_its_gates_and_a_product():
    cx = luminal.Graph()
    x, w, h = cx.tensor((6, 4, 64)), cx.tensor((32, 64)), cx.tensor((4, 32))

    def cell(state, row):
        a, b = (row + state @ w).split(32, 1)
        return ops.tanh(a) * ops.sigmoid(b), None

    last, _ = ops.scan(cell, h, x)
    (gradient,) = backward((last**2).sum(), [w])
    gradient.output()
    shapes = ((6, 4, 64), (32, 64), (4, 32))
    draw = np.random.default_rng(0)
    given = [draw.standard_normal(shape, dtype=np.float32) * 0.3 for shape in shapes]
    rt = cx.compile(threads=2, cache=False)
    np.testing.assert_allclose(rt(*given), cx.compile("reference")(*given), atol=1e-5)
    back = rt._report.plan.loops[-1]
    assert back.stop - back.start == 2
