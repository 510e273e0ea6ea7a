"""What is made of parameters before the run: no more of it stays than runs read."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import Graph, ops, train

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) * 0.1


def test_rounded_weights_are_kept_as_they_are_multiplied_and_no_other_way():
    cx = Graph()
    x, w = cx.tensor((64, 256)), cx.parameter((256, 256))
    y = ops.tanh(x @ w)
    (gradient,) = train.backward((y * y).sum(), [x])
    gradient.output()
    rt = cx.compile(precision="bf16", threads=1, cache=False)
    rt[w] = normal(256, 256)
    rt(normal(64, 256))
    assert rt._engine._constants.bytes <= 2 * 256 * 256 * 4  # twice: in lanes of either axis


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_parameter_that_changes_makes_anew_what_was_given_back(precision):
    cx = Graph()
    x, w, v, u = cx.tensor((64, 96)), *(cx.parameter(s) for s in ((96, 80), (80, 80), (80, 80)))
    once = v @ u  # of parameters alone
    (ops.relu(x @ w) @ once + (x @ w) @ (once * 2.0 + v)).output()
    rt = cx.compile(precision=precision, threads=1, cache=False)
    given, a = {t: normal(*map(int, t.shape)) for t in (w, v, u)}, normal(64, 96)
    for t, value in given.items():
        rt[t] = value
    for t in (w, u, v, u, w):
        given[t] = rt[t] = normal(*given[t].shape)
        both, h = given[v] @ given[u], a @ given[w]
        right = np.maximum(h, 0.0) @ both + h @ (both * 2.0 + given[v])
        np.testing.assert_allclose(rt(a), right, rtol=0, atol=0.02 * np.abs(right).max())


def test_what_steps_of_a_loop_read_slices_of_stays():
    cx = Graph()
    x, w = cx.tensor((4, 128)), cx.parameter((6, 128, 128))
    last, _ = ops.scan(lambda c, u: (ops.tanh(c @ u), None), x, ops.sin(w) * 0.1)
    last.output()
    rt = cx.compile(threads=1, cache=False)
    for _ in range(3):
        given, a = normal(6, 128, 128), normal(4, 128)
        rt[w], right = given, a
        for each in given:
            right = np.tanh(right @ (np.sin(each) * np.float32(0.1)))
        np.testing.assert_allclose(rt(a), right, rtol=1e-5, atol=1e-6)
        assert rt._engine._constants.bytes >= given.nbytes  # and not by chance
