"""What two kernels want in one layout is laid out once, what all steps of a loop do before it."""

from __future__ import annotations

import numpy as np

import luminal
from luminal import ops


def test_an_operand_that_two_products_want_turned_is_turned_once():
    cx = luminal.Graph()
    x, y = cx.tensor((1024, 1024)), cx.tensor((1024, 1024))
    weights = [cx.tensor((1024, 256)) for _ in range(3)]
    for left, weight in zip((x, x, y), weights):
        (left.T @ weight).output()
    rt = cx.compile(threads=2, cache=False)
    draw = np.random.default_rng(0)
    shapes = [(1024, 1024)] * 2 + [(1024, 256)] * 3
    given = [draw.standard_normal(shape, dtype=np.float32) for shape in shapes]
    for _ in range(2):
        given[0] = given[0] + 1
        right = [given[0].T @ given[2], given[0].T @ given[3], given[1].T @ given[4]]
        for mine, wanted in zip(rt(*given), right):
            np.testing.assert_allclose(mine, wanted, rtol=1e-3, atol=1e-2)
    plan = rt._report.plan
    first, second = plan.ports[:2]
    made = [plan.touched(call) for call in plan.calls]
    turned = [sorted(reads) for reads, _ in made if reads <= {first, second}]
    assert sorted(turned) in ([], [[first], [second]])  # nothing is turned, or each once


def test_weights_that_all_steps_want_turned_are_turned_before_the_loop():
    cx = luminal.Graph()
    cx.dim("s", 0, 9)
    x, h, w = cx.tensor(("s", 16, 1024)), cx.tensor((16, 256)), cx.tensor((1024, 256))

    def inner(state, row):
        before = state @ w.T + row
        gates = ops.tanh(before)
        return gates[:, :256] * gates[:, 256:512] + gates[:, 512:768], before

    def outer(state, scale):
        last, rows = ops.scan(inner, state * scale, x)
        return last, rows.sum(0)

    last, rows = ops.scan(outer, h, cx.constant(np.float32([0.5, 2.0])))
    last.output(), rows.output()
    rt = cx.compile(threads=2, cache=False)
    draw = np.random.default_rng(0)
    for steps in (0, 1, 5):
        shapes = (steps, 16, 1024), (16, 256), (1024, 256)
        xs, state, weights = (draw.standard_normal(s, dtype=np.float32) * 0.1 for s in shapes)
        mine, sums = rt(xs, state, weights)
        for number, scale in enumerate((0.5, 2.0)):
            state, total = state * scale, np.zeros((16, 1024))
            for row in xs:
                total += (before := state @ weights.T + row)
                gates = np.tanh(before)
                state = gates[:, :256] * gates[:, 256:512] + gates[:, 512:768]
            np.testing.assert_allclose(sums[number], total, atol=1e-3)
        np.testing.assert_allclose(mine, state, atol=2e-4)
    plan, weight = rt._report.plan, rt._report.plan.ports[2]
    first = min(loop.start for loop in plan.loops)
    turning = [n for n, call in enumerate(plan.calls) if plan.touched(call)[0] == {weight}]
    assert all(n < first for n in turning)  # outside of both loops
