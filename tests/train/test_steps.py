"""Steps beyond the plain one: matrices' optimizers, accumulation, means, scales, masters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from luminal import Graph, InputError, ShapeError, Tensor, ops, train

STEPS = 12
SHAPES = [(6, 4), (4, 9), (5,)]
random = np.random.default_rng(0)
STARTS = [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]
SLOPES = [[random.standard_normal(s).astype(np.float32) for s in SHAPES] for _ in range(STEPS)]
OPTIMIZERS: dict[str, tuple[train.Optimizer, Any, float, int]] = {
    "adafactor": (train.Adafactor(0.1), lambda p: torch.optim.Adafactor(p, 0.1), 2e-5, 3),
    "adafactor decay": (
        train.Adafactor(train.constant(0.05), -0.7, (1e-4, 1e-2), 2.0, 0.1),
        lambda p: torch.optim.Adafactor(p, 0.05, -0.7, (1e-4, 1e-2), 2.0, 0.1),
        2e-5,
        3,
    ),
    # PyTorch iterates in bf16
    "muon": (train.Muon(0.1), lambda p: torch.optim.Muon(p, 0.1), 3e-2, 2),
    "muon plain": (
        train.Muon(0.1, 0.0, 0.8, nesterov=False),
        lambda p: torch.optim.Muon(p, 0.1, 0.0, 0.8, nesterov=False),
        3e-2,
        2,
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_pytorch(name: str) -> None:
    mine, theirs, tolerance, count = OPTIMIZERS[name]
    graph = Graph()
    parameters = [graph.parameter(s.shape).set(s) for s in STARTS[:count]]
    slopes = [graph.tensor(s.shape) for s in STARTS[:count]]
    train.Step(sum((p * g).sum() for p, g in zip(parameters, slopes)), parameters, mine)
    rt = graph.compile(device="reference")
    leaves = [torch.nn.Parameter(torch.tensor(s)) for s in STARTS[:count]]
    optimizer = theirs(leaves)
    for made in SLOPES:
        for tensor, leaf, slope in zip(slopes, leaves, made):
            rt[tensor] = slope
            leaf.grad = torch.tensor(slope)
        rt.run()
        optimizer.step()
    for p, leaf in zip(parameters, leaves):
        distance = np.abs(rt[p] - leaf.detach().numpy()).max() / np.abs(rt[p]).max()
        assert distance < tolerance


def problem(rows: int, **options: Any) -> tuple[Any, list[Tensor], Tensor, train.Step]:
    graph = Graph()
    x, w = graph.tensor((rows, 4)), graph.parameter((4,), name="w").set(np.ones(4, np.float32))
    loss = (ops.tanh(x * w) ** 2.0).sum(1).mean()
    step = train.Step(loss, [w], train.AdamW(0.1), train.clip_norm(0.5), **options)
    return graph.compile(device="reference"), [x], w, step


def test_accumulated_gradients_are_those_of_one_large_batch() -> None:
    data = random.standard_normal((5, 12, 4)).astype(np.float32)
    (large, (whole,), w, _), (small, (part,), v, step) = problem(12), problem(4, accumulate=3)
    for rows in data:
        large[whole] = rows
        large.run()
        for number in range(3):
            before = small[v]
            small[part] = rows[4 * number : 4 * number + 4]
            small.run()
            assert np.array_equal(small[v], before) == (number < 2)
        np.testing.assert_allclose(small[v], large[w], rtol=1e-5)
    assert small[step.count] == 5


def test_a_running_mean_of_the_parameters() -> None:
    rt, (x,), w, step = problem(4, ema=0.9)
    mean = None
    for _ in range(6):
        rt[x] = random.standard_normal((4, 4)).astype(np.float32)
        rt.run()
        mean = rt[w] if mean is None else 0.9 * mean + 0.1 * rt[w]
        np.testing.assert_allclose(rt[step.averages[w]], mean, rtol=1e-5)


def test_a_scale_falls_where_gradients_are_not_finite_and_grows_after_good_steps() -> None:
    plain, (x,), w, _ = problem(4)
    scaled, (y,), v, step = problem(4, scaling=train.LossScale(256.0, interval=3))
    factors = []
    for number in range(8):
        rows = random.standard_normal((4, 4)).astype(np.float32)
        bad = number == 4
        scaled[y] = np.full_like(rows, np.nan) if bad else rows
        before = scaled[v]
        scaled.run()
        factors.append(float(scaled["scale"]))
        if bad:
            np.testing.assert_array_equal(scaled[v], before)
            continue
        plain[x] = rows
        plain.run()
        np.testing.assert_allclose(scaled[v], plain[w], rtol=1e-5)
    assert factors == [256, 256, 512, 512, 256, 256, 256, 512]
    assert scaled[step.count] == 7


def test_a_scale_stays_finite() -> None:
    graph = Graph()
    w, x = graph.parameter((2,), name="w").set(np.ones(2, np.float32)), graph.tensor((2,))
    scaling = train.LossScale(2.0**126, interval=1)
    step = train.Step((w * x).sum(), [w], train.SGD(), scaling=scaling)
    rt = graph.compile(device="reference")
    for _ in range(4):
        rt[x] = np.full(2, 1e-30, np.float32)
        rt.run()
    assert rt["scale"] == 2.0**127 and rt[step.count] == 4


def test_f16_learns_what_f32_learns_with_a_scale_and_masters() -> None:
    """Gradients of 1e-8 are 0 in f16."""
    graph = Graph()
    w = graph.parameter((4,), "f16", name="w").set(np.full(4, 1.0, np.float16))
    loss = (w * 1e-4).sum() * 1e-4
    options = {"scaling": train.LossScale(), "masters": True}
    step = train.Step(loss, [w], train.Adam(1e-4, eps=1e-14), **options)
    rt = graph.compile(device="reference")
    for _ in range(20):
        rt.run()
    np.testing.assert_allclose(rt[step.slots["w.master"]], 1 - 20e-4, rtol=1e-4)
    np.testing.assert_allclose(rt[w], 1 - 20e-4, rtol=1e-3)


def test_a_parameter_that_is_set_takes_its_master_along() -> None:
    graph = Graph()
    w = graph.parameter((2,), "f16", name="w").set(np.ones(2, np.float16))
    step = train.Step(w.sum(), [w], train.SGD(2.0**-12), masters=True)
    rt = graph.compile(device="reference")
    rt[w] = np.full(2, 4.0, np.float16)
    for _ in range(3):
        rt.run()
    assert rt[w][0] == 4.0 and rt[step.slots["w.master"]].tolist() == [4.0 - 3 * 2.0**-12] * 2


def test_what_is_refused() -> None:
    graph = Graph()
    w, v = graph.parameter((3, 3), "f16", name="w"), graph.parameter((3,))
    loss = (w * w).sum()
    with pytest.raises(InputError, match="at least one run"):
        train.Step(loss, [w], train.SGD(), accumulate=0)
    with pytest.raises(InputError, match="w has no value yet"):
        train.Step(loss, [w], train.SGD(), masters=True)
    m = graph.parameter((3, 3), name="m").set(np.ones((3, 3), np.float32))
    for _ in range(2):
        with pytest.raises(ShapeError, match="Muon trains matrices"):
            train.Step((v * m).sum(), [m, v], train.Muon(), accumulate=2)
    assert not graph.states
    train.Step((v * m).sum(), [m], train.Muon())
    with pytest.raises(InputError, match="m is updated already"):
        train.Step((v * m).sum(), [m], train.Muon())


def test_edges_of_optimizers_of_matrices() -> None:
    """An eps of 0 is none; a matrix may have no elements."""
    graph = Graph()
    v = graph.parameter((2,)).set(np.ones(2, np.float32))
    w = graph.parameter((3, 0)).set(np.ones((3, 0), np.float32))
    chosen = {v: train.Adafactor(0.1, eps=(0.0, 1e-3)), w: train.Muon()}
    train.Step((v * 1e-9).sum() + w.sum(), [v, w], chosen.__getitem__)
    rt = graph.compile(device="reference")
    rt.run()
    np.testing.assert_allclose(rt[v], 0.9, rtol=1e-6)


def test_gradients_of_f16_are_clipped_in_f32() -> None:
    graph = Graph()
    w = graph.parameter((2,), "f16", name="w").set(np.ones(2, np.float16))
    loss = (w * graph.constant([3e3, 4e3]).cast("f16")).sum()
    step = train.Step(loss, [w], train.SGD(1.0), train.clip_norm(0.01), masters=True)
    rt = graph.compile(device="reference")
    rt.run()
    np.testing.assert_allclose(1.0 - rt[step.slots["w.master"]], [0.006, 0.008], rtol=1e-4)
