"""However a softmax is written, attention keeps no matrix of scores and a row is one kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luminal import Graph, Tensor, ops
from luminal.rewrite.normalise import normalise
from luminal.rewrite.optimise import optimise
from luminal.rewrite.plan import Plan
from luminal.rewrite.regions import regions

HEADS, LENGTH, WIDTH = 4, 256, 64


def top(s: Tensor) -> Tensor:
    return s.amax(-1, keepdim=True)


def shares(e: Tensor) -> Tensor:
    return e / e.sum(-1, keepdim=True)


WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda s: s.softmax(-1),
    "exp(s - m)": lambda s: shares((s - top(s)).exp()),
    "exp(-m + s)": lambda s: shares((-top(s) + s).exp()),
    "exp((s - m) / 2)": lambda s: shares(((s - top(s)) / 2.0).exp()),
    "2 ** (s - m)": lambda s: shares(2.0 ** (s - top(s))),
    "softmin": lambda s: (-s).softmax(-1),
    "exp(min - s)": lambda s: shares((s.amin(-1, keepdim=True) - s).exp()),
    "exp(log_softmax)": lambda s: ops.log_softmax(s, -1).exp(),
    "times the reciprocal": lambda s: (s - top(s)).exp() * (s - top(s)).exp().sum(-1, True) ** -1,
}


def plans_of(graph: Graph) -> list[Plan]:
    return [optimise(r) for r in regions(normalise(graph.space, [t.node for t in graph.outputs]))]


def kernels(graph: Graph) -> int:
    return sum(len(plan.pieces) for plan in plans_of(graph))


def scores(graph: Graph, length: int = LENGTH) -> tuple[Tensor, Tensor]:
    q, k, v = (graph.tensor((HEADS, length, WIDTH)) for _ in range(3))
    return (q @ k.transpose(-1, -2)) * 0.125, v


@pytest.mark.parametrize("spelling", WEIGHTS)
def test_attention_is_one_kernel(spelling):
    graph = Graph()
    s, v = scores(graph)
    (WEIGHTS[spelling](s) @ v).output()
    assert kernels(graph) == 1


def test_attention_divided_at_its_end_is_one_kernel():
    graph = Graph()
    s, v = scores(graph)
    e = (s - top(s)).exp()
    ((e @ v) / e.sum(-1, keepdim=True)).output()
    assert kernels(graph) == 1


@pytest.mark.parametrize("spelling", WEIGHTS)
def test_a_row_is_one_kernel(spelling):
    graph = Graph()
    WEIGHTS[spelling](graph.tensor((512, 2048))).output()
    assert kernels(graph) == 1


STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "logsumexp": lambda x: ops.logsumexp(x, -1),
    "log_softmax": lambda x: x - ops.logsumexp(x, -1, True),
    "layer norm": lambda x: ops.layer_norm(x, (2048,)),
    "variance": lambda x: (x - x.mean(-1, True)).square().mean(-1),
}


@pytest.mark.parametrize("row", STATISTICS)
def test_statistics_of_a_row_are_one_kernel(row):
    graph = Graph()
    STATISTICS[row](graph.tensor((512, 2048))).output()
    assert kernels(graph) == 1


@pytest.mark.parametrize("spelling", WEIGHTS)
def test_values_are_right(spelling):
    graph = Graph()
    s, v = scores(graph, 40)
    y = (WEIGHTS[spelling](s) @ v).output()
    rng, found = np.random.default_rng(0), {}
    given = {x: rng.standard_normal((HEADS, 40, WIDTH), np.float32) * 2 for x in graph.inputs}
    for device in ("cpu", "reference"):
        rt = graph.compile(device=device)
        for x, array in given.items():
            rt[x] = array
        rt.run()
        found[device] = np.array(rt[y])
    np.testing.assert_allclose(found["cpu"], found["reference"], 1e-4, 1e-5)
