"""Attention by matrices on `device="cuda:sim"`, which looks for races, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import ops
from luminal.backend import devices
from luminal.backend.cuda.simulator import Simulator, found_compiler
from luminal.graph import Graph
from luminal.graph.dtype import DType, bf16, f16, f32

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")


def wanted(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """(heads, queries, width) and (kv heads, keys, width) -> (heads, queries, width), in f64."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    k, v = (np.repeat(array, len(q) // len(k), 0) for array in (k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found: np.ndarray = weights / weights.sum(-1, keepdims=True) @ v
    return found


@pytest.mark.parametrize("heads, kv_heads, width, causal, dtype, sizes", [
    (4, 2, 64, True, bf16, [(70, 70), (1, 1), (17, 17)]),
    (1, 1, 80, False, f32, [(100, 37)]),
    (2, 1, 128, True, f16, [(65, 65)]),
])  # fmt: skip
def test_attention(
    heads: int, kv_heads: int, width: int, causal: bool, dtype: DType, sizes: list[tuple[int, int]]
) -> None:
    devices.register("cuda races", lambda: Simulator(races=True))
    graph, rng = Graph(), np.random.default_rng(0)
    graph.dim("s", 1, 512)
    graph.dim("t", 1, 512)
    shapes = ((heads, "s"), (kv_heads, "t"), (kv_heads, "t"))
    given = [graph.tensor((n, size, width), dtype) for n, size in shapes]
    q, k, v = (x.cast(f32) for x in given)
    y = ops.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).output()
    rt = graph.compile("cuda races", precision="bf16", cache=False)
    assert any("mma_" in text for text in rt.sources().values())
    for queries, keys in sizes:
        arrays = []
        for x, (n, _), count in zip(given, shapes, (queries, keys, keys)):
            arrays.append(rng.standard_normal((n, count, width)).astype(dtype.numpy))
            rt[x] = arrays[-1]
        rt.run(s=queries, t=keys)
        error = np.abs(rt[y] - wanted(*arrays, causal)).max()
        assert error < 2**-6, error  # factors have 8 bits
