"""Outputs have one memory each, also where several blocks of a program keep them."""

from __future__ import annotations

import numpy as np
import pytest

import luminal
from luminal import ops, train

STARTS = {
    "literal": lambda cx, x: ops.full(cx, (3,), 0.5),
    "iota": lambda cx, x: ops.arange(cx, 3).cast("f32"),
    "view": lambda cx, x: ops.flip(x[0], (0,)),
    "wider": lambda cx, x: ops.outer(x[0, :1], x[1]).reshape(3),
}
LOOPS = {
    "scan": lambda f, start: ops.scan(lambda k, _: (f(k), None), start, None, length=2)[0],
    "while": lambda f, start: ops.while_loop(lambda k: k.sum() < 9.0, f, start, max_steps=4),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("outermost", [False, True])
def test_an_output_starts_a_loop_in_a_loop(start, loop, outermost):
    cx = luminal.Graph()
    x, a = cx.tensor((5, 3)), cx.tensor((3,))
    first = STARTS[start](cx, x).output()

    def step(carry, row):
        made = LOOPS[loop](lambda k: ops.tanh(k * carry) + row, first) + carry
        return made, made * first

    last, rows = ops.scan(step, first if outermost else a, x)
    last.output(), rows.output()
    if loop == "scan":
        for slope in train.backward(last.sum() + rows.sum(), [x]):
            slope.output()
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(t.shape).astype(np.float32) for t in cx.inputs]
    options = ("reference", 1), ("cpu", 1), ("cpu", 2)
    right, *found = [cx.compile(d, threads=n, cache=False)(*given) for d, n in options]
    for outputs in found:
        for mine, wanted in zip(outputs, right, strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
