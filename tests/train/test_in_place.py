"""States have their new values in the next run, whoever reads the old ones."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.schedules import schedule_of

from luminal import Graph, ops, train
from luminal.graph.dtype import f32
from luminal.graph.index import Index
from luminal.kernel.kernel import (
    Apply,
    Buffer,
    Constant,
    Expression,
    Kernel,
    Load,
    Read,
    Store,
    Value,
)
from luminal.lowering.legal import problems
from luminal.runtime.in_place import in_place

SHAPES = [(1,), (17,), (1027,), (17, 19), (65, 130), (127, 33)]  # with and without rests of lanes


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_states_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    graph, start = Graph(), random.standard_normal(shape, dtype=np.float32)
    w, x = graph.parameter(shape).set(start), graph.tensor(("b", shape[0]))
    made = ops.tanh(x @ w) if len(shape) == 2 else x * w
    step = train.Step((made * made).sum(), [w], train.AdamW(0.05))
    programs = [graph.compile(threads=2), graph.compile(device="reference")]
    for number in range(4):
        data = random.standard_normal((9 + number, shape[0]), dtype=np.float32)
        for rt in programs:
            rt[x] = data
            rt.run()
    for state in (w, *step.slots.values(), step.count):
        np.testing.assert_allclose(programs[0][state], programs[1][state], 2e-4, 2e-5)
    assert len(programs[0]._engine._plan.in_place) >= 2


def test_a_state_that_is_read_elsewhere_keeps_its_old_value_until_then():
    graph, eye = Graph(), np.eye(64, dtype=np.float32)
    a, b = graph.parameter((64, 64)).set(eye), graph.parameter((64, 64)).set(eye)
    graph.donate(a, a + b)
    graph.donate(b, a.T * 2.0 + b.flip(0))
    rt, wanted = graph.compile(), [eye, eye]
    for _ in range(3):
        rt.run()
        wanted = [wanted[0] + wanted[1], wanted[0].T * 2 + wanted[1][::-1]]
    np.testing.assert_array_equal(rt[a], wanted[0])
    np.testing.assert_array_equal(rt[b], wanted[1])


def test_a_state_that_becomes_a_constant_is_one_after_it_was_set_again():
    graph = Graph()
    state, made = graph.tensor((7,)), graph.constant(np.arange(7.0, dtype=np.float32)).sin()
    graph.donate(state, made)
    rt = graph.compile()
    for _ in range(3):
        rt[state] = np.ones(7, np.float32)
        rt.run()
        np.testing.assert_allclose(rt[state], np.sin(np.arange(7.0)), atol=1e-6)


def test_steps_of_clipped_gradients_are_those_of_numpy():
    """A gradient is read for the norm of all and for its own update."""
    graph, random = Graph(), np.random.default_rng(0)
    x, sizes = graph.tensor(("n", 64)), [(64, 128), (128, 12), (12, 64)]
    weights = [graph.parameter(s).set(0.1 * random.standard_normal(s, np.float32)) for s in sizes]
    biases = [graph.parameter((n,)).set(np.zeros(n, np.float32)) for _, n in sizes]
    y = x
    for w, b in zip(weights, biases):
        y = ops.gelu(y @ w + b)
    loss = ((y - x) ** 2.0).sum(-1).mean() * 50.0
    train.Step(loss, [*weights, *biases], train.AdamW(3e-3), train.clip_norm(10.0))
    programs = [graph.compile(threads=2), graph.compile(device="reference")]
    for _ in range(5):
        data = random.standard_normal((128, 64), dtype=np.float32)
        for rt in programs:
            rt[x] = data
            rt.run()
        np.testing.assert_allclose(programs[0][loss], programs[1][loss], rtol=1e-4)


def test_buffers_are_one_only_where_the_schedule_lets_them():
    """Adam's mean lent the new parameter's place, or is computed again behind its own store."""
    kernel, whole = update(), "a0/64@ a0/16! a0/1#"
    schedules = {
        "kept": [f"{v}: {whole}" for v in ("mean", "mean_out", "p_out")],
        "again": [f"{v}: {whole}" for v in ("mean_out", "p_out")],
    }
    schedules["lent"] = [*schedules["kept"], "home mean: p_new"]
    wants = {"kept": (True, True), "again": (False, True), "lent": (True, False)}
    for name, wanted in wants.items():
        schedule = schedule_of("\n".join([*schedules[name], "registers: 40"]))
        assert not list(problems(kernel, schedule)), name
        found = in_place(kernel, schedule, "m", "m_new"), in_place(kernel, schedule, "p", "p_new")
        assert found == wanted, name


def update() -> Kernel:
    """mean = 0.9 m + g; p - mean."""

    def load(name: str) -> Load:
        return Load(name, (Index.of("a0"),), f32)

    def value(name: str, body: Expression, out: str | None = None) -> Value:
        store = None if out is None else Store(out, (Index.of("a0"),))
        return Value(name, ("a0",), body, f32, store=store)

    mean = Read("mean", f32)
    old = Apply("mul", (load("m"), Constant(0.9, f32)), f32)
    values = (
        value("mean", Apply("add", (old, load("g")), f32)),
        value("mean_out", mean, "m_new"),
        value("p_out", Apply("sub", (load("p"), mean), f32), "p_new"),
    )
    names = ("g", "m", "p", "m_new", "p_new")
    buffers = tuple(Buffer(name, f32, (Index.of(1024),)) for name in names)
    return Kernel("update", buffers, {"a0": Index.of(1024)}, values)
