"""A run that is watched kernel by kernel computes what any run computes."""

from contextlib import contextmanager

import numpy as np

import luminal
from luminal import nn, ops
from luminal.runtime.watch import watched


def test_kernels_and_loops_are_watched_one_by_one():
    cx = luminal.Graph()
    x = cx.tensor((2, "s", 4))
    hidden = nn.LSTM(cx, 4, 8, batch_first=True)(x)[0]
    ops.softmax(hidden @ cx.constant(np.eye(8, dtype=np.float32)), 1).output()
    rt = cx.compile(threads=2, cache=False)
    rng = np.random.default_rng(0)
    for tensor in cx.parameters:
        rt[tensor] = rng.standard_normal(tuple(map(int, tensor.shape)), dtype=np.float32)
    array = rng.standard_normal((2, 9, 4), dtype=np.float32)
    expected, seen = rt(array).copy(), []

    @contextmanager
    def watch(name):
        seen.append(name)
        yield

    with watched(watch):
        np.testing.assert_array_equal(rt(array), expected)
    assert len(seen) == len(set(seen)) > 2 and sum(n.startswith("loop of k") for n in seen) == 1
    rt(array)
    assert len(set(seen)) == len(seen)
