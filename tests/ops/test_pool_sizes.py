"""Pooling whose last window may be partial, over lengths known at run time: PyTorch's windows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from luminal import Graph, ops

WINDOWS = [(2, 2, 0), (1, 3, 0), (2, 3, 1), (3, 2, 1), (5, 4, 2), (2, 5, 1)]


@pytest.mark.parametrize("kernel, stride, padding", WINDOWS)
def test_ceil_mode(kernel: int, stride: int, padding: int) -> None:
    graph = Graph()
    graph.dim("s", 5, 1000)
    x = graph.tensor((2, 3, "s"))
    highest = ops.max_pool1d(x, kernel, stride, padding, ceil_mode=True).output()
    means = [
        ops.avg_pool1d(x, kernel, stride, padding, True, include).output()
        for include in (True, False)
    ]
    rt = graph.compile()
    for size in range(5, 19):
        value = np.random.default_rng(size).standard_normal((2, 3, size), np.float32)
        rt[x] = value
        rt.run()
        t, rest = torch.from_numpy(value), (kernel, stride, padding)
        wanted = [torch.max_pool1d(t, *rest, ceil_mode=True)]
        wanted += [torch.avg_pool1d(t, *rest, True, include) for include in (True, False)]
        for mine, theirs in zip((highest, *means), wanted):
            np.testing.assert_allclose(rt[mine], theirs.numpy(), 1e-5, 1e-6)
