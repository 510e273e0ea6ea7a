"""Quantised weights in products by matrices on `device="cuda:sim"`, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.backend.cuda.simulator import found_compiler
from luminal.graph import Graph
from luminal.graph.dtype import bf16
from luminal.models.llm.projection import Blocks
from luminal.models.llm.storage import FORMATS

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
INSIDE, OUT = 256, 256


@pytest.mark.parametrize("kind, rows, apart", [
    ("q8", 256, True),  # many rows: weights are taken apart once
    ("q8", 1, False),
])  # fmt: skip
def test_weights_are_taken_apart_where_rows_pay_for_it(kind: str, rows: int, apart: bool) -> None:
    graph, rng = Graph(), np.random.default_rng(0)
    layer = Blocks(graph, INSIDE, OUT, False, FORMATS[kind])
    x = graph.tensor((rows, INSIDE), name="x")
    layer(x).output("y")
    found = []
    for device in ("cuda:sim", "reference"):
        rt = graph.compile(device, precision="bf16")
        for value in layer.parameters():
            shape, integer = tuple(map(int, value.shape)), value.dtype.is_integer
            made = rng.integers(0, 256, shape) if integer else rng.random(shape) / 100
            rt[value] = made.astype(value.dtype.numpy)
        stored = [v.dtype for made in rt.kernels for v in made.kernel.values if v.store]
        assert device == "reference" or (bf16 in stored) is apart
        rt[x] = rng.standard_normal((rows, INSIDE), dtype=np.float32)
        rt.run()
        found.append(rt["y"])
        rng = np.random.default_rng(0)
    close = 1e-5 if apart else 2**-8  # no instruction, no rounding
    assert np.abs(found[0] - found[1]).max() < close * np.abs(found[1]).max()
