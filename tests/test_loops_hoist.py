"""Products of a loop's slices and counters are made before it, once for all steps."""

from __future__ import annotations

import numpy as np
import pytest

import luminal
from luminal import ops
from luminal.graph.passes import program_of
from luminal.precision.hoist import hoist_products

RNG = np.random.default_rng(0)
WIDTH = 12


def hoisted(cx: luminal.Graph) -> list[int]:
    """How many slices each loop has after the pass."""
    nodes = hoist_products(program_of(cx)).nodes()
    return [node.attribute.sliced for node in nodes if node.op == "loop"]


def same(cx: luminal.Graph, *given: np.ndarray) -> None:
    """With and without the pass, compiled and interpreted."""
    plain = cx.compile("reference", passes=[])(*given)
    for device in ("reference", "cpu"):
        found = cx.compile(device, threads=1, cache=False)(*given)
        for mine, right in zip(found, plain, strict=True):
            np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-4)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


MAKERS = {
    "views": lambda x, table: ops.pad(ops.flip(x, (0,))[: WIDTH - 5], (2, 3)),
    "sum": lambda x, table: x.expand((3, WIDTH)).cumsum(0).sum(0),
    "max": lambda x, table: (x.unsqueeze(1) * table[:, 0]).amax(1),
    "gather": lambda x, table: table[ops.argmax(x)],
    "scatter": lambda x, table: ops.scatter_add(table[0], 0, ops.argsort(x)[:4], x[:4]),
    "select": lambda x, table: ops.where(x > 0, ops.exp(x), table[1]),
    "cast": lambda x, table: (x * 8).cast("i32").cast("f32"),
    "product": lambda x, table: ops.tanh(x @ table),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_what_slices_make(name, reverse):
    cx = luminal.Graph()
    cx.dim("s", 0, 50)
    w, table, xs = cx.tensor((WIDTH, WIDTH)), cx.tensor((WIDTH, WIDTH)), cx.tensor(("s", WIDTH))

    def step(h, x):
        made = MAKERS[name](x, table) @ w
        new = ops.tanh(h @ table + made)
        return new, (new, made)

    last, rows = ops.scan(step, ops.zeros(cx, (WIDTH,)), xs, reverse=reverse)
    last.output(), rows[0].output(), rows[1].output()
    assert hoisted(cx) == [2]
    for steps in (0, 1, 7):
        same(cx, normal(WIDTH, WIDTH), normal(WIDTH, WIDTH), normal(steps, WIDTH))


@pytest.mark.parametrize("dtype", ["i64", "u8"])
@pytest.mark.parametrize("reverse", [False, True])
def test_counters_are_known_before(dtype, reverse):
    """Also where they overflow."""
    cx = luminal.Graph()
    w, xs, start = cx.tensor((WIDTH, WIDTH)), cx.tensor((9, WIDTH)), cx.tensor((), dtype)

    def step(carry, _):
        at, h = carry
        row = xs[(at % 9).cast("i64")]
        return (at + start, ops.tanh(h + row @ w)), h

    (count, last), rows = ops.scan(step, (start, ops.zeros(cx, (WIDTH,))), None, 9, reverse)
    count.output(), last.output(), rows.output()
    assert hoisted(cx) == [1]
    number = np.array(113, {"i64": np.int64, "u8": np.uint8}[dtype])
    same(cx, normal(WIDTH, WIDTH), normal(9, WIDTH), number)


def test_loops_in_loops():
    cx = luminal.Graph()
    w, xs = cx.tensor((WIDTH, WIDTH)), cx.tensor((4, 3, WIDTH))

    def inner(h, x):
        return (ops.tanh(h + x @ w),) * 2

    def outer(h, rows):
        last, made = ops.scan(inner, h, rows)
        return last, made

    last, rows = ops.scan(outer, ops.zeros(cx, (WIDTH,)), xs)
    last.output(), rows.output()
    assert hoisted(cx) == [2, 2]  # out of both
    same(cx, normal(WIDTH, WIDTH), normal(4, 3, WIDTH))


def test_what_a_loop_inside_makes_of_a_slice_stays():
    """It is no operation on stacks, though it depends on the slice alone."""
    cx = luminal.Graph()
    w, xs = cx.tensor((WIDTH, WIDTH)), cx.tensor((5, 3, WIDTH))

    def outer(h, rows):
        last, _ = ops.scan(lambda c, r: (ops.tanh(c + r), None), ops.zeros(cx, (WIDTH,)), rows)
        return ops.tanh(h + (last * 2) @ w), rows[0] @ w

    last, rows = ops.scan(outer, ops.zeros(cx, (WIDTH,)), xs)
    last.output(), rows.output()
    assert hoisted(cx) == [1, 2]  # the second product
    same(cx, normal(WIDTH, WIDTH), normal(5, 3, WIDTH))


def test_what_would_not_pay_stays():
    """Many rows in a step (a loop over chunks, which is there to save memory), what needs what is
    carried, and loops whose steps nobody knows."""
    cx = luminal.Graph()
    w, xs = cx.tensor((WIDTH, WIDTH)), cx.tensor((5, 32, WIDTH))
    total, _ = ops.scan(lambda c, x: (c + (x @ w).sum(), None), 0.0, xs)
    state, _ = ops.scan(lambda h, x: (ops.tanh((h + x[0]) @ w), None), ops.zeros(cx, (WIDTH,)), xs)
    ended = ops.while_loop(
        lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] + xs[c[0], 0] @ w),
        (cx.constant(0), ops.zeros(cx, (WIDTH,))),
    )  # fmt: skip
    total.output(), state.output(), ended[1].output()
    assert hoisted(cx) == [1, 1, 0]
    same(cx, normal(WIDTH, WIDTH), normal(5, 32, WIDTH))
