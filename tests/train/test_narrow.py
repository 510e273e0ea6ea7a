"""Optimizers' memory in 8 bits: small, true on the average, and it trains."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import Graph, ops, train
from luminal.train.narrow import Narrow


def test_means_decay_as_they_should() -> None:
    """Each step changes a number by a third of the least step between codes."""
    graph = Graph()
    codes, scales = graph.parameter((16, 256), "i8"), graph.parameter((16, 1))
    step = graph.parameter((), "i64").set(np.int64(0))
    old, random = Narrow(codes, scales), np.random.default_rng(0)
    new = old.written(old.read((4096,)) * 0.99, step)
    first = old.read((4096,)).output()
    graph.donate(codes, new.codes)
    graph.donate(scales, new.scales)
    graph.donate(step, step + 1)
    start = random.integers(-127, 128, (16, 256)).astype(np.int8)
    codes.set(start)
    scales.set(np.ones((16, 1), np.float32))
    rt = graph.compile(threads=1)
    for _ in range(100):
        rt.run()
    wanted = np.sign(start) * (np.abs(start) / 127.0) ** 4 * 0.99**99
    got = rt[first].reshape(16, 256)
    assert np.abs(got).sum() == pytest.approx(np.abs(wanted).sum(), rel=0.02)
    assert np.abs(got - wanted).max() < 0.2 * np.abs(wanted).max()


def test_it_trains_as_with_32_bits() -> None:
    random = np.random.default_rng(0)
    true = random.standard_normal((64, 64)).astype(np.float32)
    start = 0.1 * random.standard_normal((64, 64)).astype(np.float32)
    found = []
    for narrow in (False, True):
        graph = Graph()
        w, x, y = (
            graph.parameter((64, 64)).set(start),
            graph.tensor((32, 64)),
            graph.tensor((32, 64)),
        )
        loss = ops.mse_loss(ops.tanh(x @ w), y)
        step = train.Step(loss, [w], train.AdamW(0.01), narrow=narrow)
        kept = sum(int(np.prod(s.shape)) * s.dtype.bytes for s in step.slots.values())
        assert kept == (2 * 64 * 64 * (1 + 4 / 256) if narrow else 2 * 64 * 64 * 4)
        rt, data = graph.compile(threads=1), np.random.default_rng(1)
        for _ in range(300):
            rows = data.standard_normal((32, 64), np.float32)
            rt[x], rt[y] = rows, np.tanh(rows @ true)
            rt.run()
        found.append(float(rt[loss]))
    assert found[0] < 0.2
    assert found[1] == pytest.approx(found[0], rel=0.2), found


def test_a_large_gradient_beside_small_ones_leaves_their_steps_small() -> None:
    """In a block the squares of the small ones are less than the least code."""
    slopes = np.full((16, 256), 1e-3, np.float32)
    slopes[:, 0] = 100.0
    graph = Graph()
    w, x = graph.parameter((16, 256)).set(np.zeros_like(slopes)), graph.tensor((16, 256))
    train.Step((w * x).sum(), [w], train.AdamW(1e-3), narrow=True)
    rt = graph.compile(device="reference")
    for number in range(6):
        rt[x] = slopes if number < 3 else 0.0 * slopes
        rt.run()
        assert np.abs(rt[w]).max() < 1.1e-3 * (number + 1)
