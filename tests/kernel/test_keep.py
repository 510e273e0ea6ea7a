"""Values that are kept for a later pass, or that no tile holds."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import ops
from luminal.backend.cpu.target import named
from luminal.backend.loops import loop_program, verify_loops
from luminal.backend.reference.kernels import evaluate
from luminal.graph import Graph
from luminal.graph.dtype import f32
from luminal.graph.index import Index
from luminal.kernel.kernel import Apply, Buffer, Kernel, Load, Read, Reduction, Store, Value
from luminal.lowering.legal import check
from luminal.scheduling.default import default_schedule


def kernel() -> Kernel:
    """A value of unbounded size, made of a constant, that two passes read."""
    a, b, s = Index.of("a"), Index.of("b"), Index.of("s")
    x = Buffer("x", f32, (s, Index.of(64)))
    w = Buffer("w", f32, (Index.of(64),), True)
    y = Buffer("y", f32, (s,))
    product = Apply("mul", (Load("x", (a, b), f32), Load("w", (b,), f32)), f32)
    weighted = Apply("mul", (Read("v", f32), Read("r", f32)), f32)
    values = (
        Value("v", ("a", "b"), Apply("exp2", (product,), f32), f32),
        Value("r", ("b",), Read("v", f32), f32, Reduction("sum", ("a",))),
        Value("y", ("a",), weighted, f32, Reduction("sum", ("b",)), Store("y", (a,))),
    )
    sizes = {"s": (1, 2**31 - 1)}
    return Kernel("k", (x, w, y), {"a": s, "b": Index.of(64)}, values, sizes)


@pytest.mark.parametrize("name", ["avx512", "avx2", "sse"])
def test_a_value_that_no_tile_holds_is_computed_again(name: str) -> None:
    target = named(name)
    scheduled, schedule = default_schedule(kernel(), target)
    assert "v" not in schedule.paths
    check(scheduled, schedule)
    verify_loops(loop_program(scheduled, schedule, target))
    rng = np.random.default_rng(0)
    x, w = rng.random((5, 64), np.float32), rng.random(64, np.float32)
    found, wanted = np.zeros(5, np.float32), np.zeros(5, np.float32)
    evaluate(scheduled, {"x": x, "w": w, "y": found}, {"s": 5})
    evaluate(kernel(), {"x": x, "w": w, "y": wanted}, {"s": 5})
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_threads_of_a_gpu_share_a_row_that_fits() -> None:
    """Exponentials of a softmax are not written where its results lie, and read again."""
    graph = Graph()
    ops.softmax(graph.tensor((64, 4096)), -1).output()
    rt = graph.compile("cuda:sm_90a", cache=False, database=False)
    (made,) = rt.kernels
    assert not made.schedule.homes
