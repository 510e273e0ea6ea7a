"""Convolutions by matrices on `device="cuda:sim"`, which looks for races, beside NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from luminal import ops
from luminal.backend import devices
from luminal.backend.cuda.simulator import Simulator, found_compiler
from luminal.graph import Graph

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")


def wanted(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """(images, c, h, w) and (out, c, k, k) -> (images, out, ..), padded by k / 2; as bf16."""
    x, weight = (a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in (x, weight))
    size, edge = weight.shape[-1], weight.shape[-1] // 2
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    found: np.ndarray = np.einsum("bchwij,ocij->bohw", windows[:, :, ::stride, ::stride], weight)
    return found


@pytest.mark.parametrize("channels, out, size, stride", [(32, 32, 14, 1), (32, 48, 15, 2)])
def test_rows_and_columns_of_an_image_fill_matrices(
    channels: int, out: int, size: int, stride: int
) -> None:
    devices.register("cuda races", lambda: Simulator(races=True))
    graph, rng = Graph(), np.random.default_rng(0)
    x = graph.tensor((2, channels, size, size), name="x")
    w = graph.parameter((out, channels, 3, 3), name="w")
    bias = graph.parameter((out,), name="bias")
    y = ops.conv2d(x, w, bias, stride=stride, padding=1).relu().output("y")
    rt = graph.compile("cuda races", precision="bf16", cache=False, database=False)
    rt[x] = rng.standard_normal((2, channels, size, size), dtype=np.float32)
    rt[w] = rng.standard_normal((out, channels, 3, 3), dtype=np.float32)
    rt[bias] = rng.standard_normal(out, dtype=np.float32)
    rt.run()
    found = np.maximum(wanted(rt[x], rt[w], stride) + rt[bias][:, None, None], 0)
    np.testing.assert_allclose(rt[y], found, rtol=1e-4, atol=1e-4)
    edges = -(-size // stride)
    products = [made.kernel for made in rt.report.kernels if "mma_bf16" in rt.sources()[made.name]]
    assert [int(n) for n in products[-1].axes.values() if int(n) == edges**2] == [edges**2]
