"""Random graphs mean the same as graphs and as terms over named axes."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.terms import run, run_regions
from programs import programs

from luminal import ops
from luminal.backend import reference
from luminal.graph.graph import Graph
from luminal.rewrite.normalise import normalise
from luminal.rewrite.regions import regions


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_terms_mean_what_the_graph_means(program):
    graph, outputs, feeds = program
    expected = reference.evaluate(graph, outputs, feeds)
    found = run(normalise(graph.space, outputs), feeds)
    for node in outputs:
        np.testing.assert_array_equal(found[node], expected[node])


def _merge(x):
    return x.flatten(0, 1) if x.ndim > 1 else x


def _split(x):
    return x.reshape(*x.shape[:-1], 2, 2) if x.shape[-1] == 4 else x


def _causal(x):
    if x.ndim < 2:
        return x
    position = [x.graph.iota(x.shape, f"i{d}") for d in range(2)]
    return ops.where(position[0] >= position[1], x, -1.0)


MOVES = {
    "merge": _merge,
    "split": _split,
    "causal": _causal,
    "turn": lambda x: x.movedim(0, -1),
    "pad": lambda x: x.pad([(1, 2), *[(0, 0)] * (x.ndim - 1)], 5),
    "crop": lambda x: x.pad([(-1, 0), *[(0, 0)] * (x.ndim - 1)]),
    "flip": lambda x: x.flip(0),
    "mirror": lambda x: x + x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "twice": lambda x: ops.cat([x, x * 2.0], 0),
    "repeat": lambda x: x.repeat(2, *[1] * (x.ndim - 1)),
    "stretch": lambda x: x.repeat_interleave(2, 0),
    "windows": lambda x: x.pad([(1, 1), *[(0, 0)] * (x.ndim - 1)]).unfold(0, 3, 1),
    "sum": lambda x: ops.sum(x, 0) if x.ndim > 1 else x,
    "centre": lambda x: x - ops.amax(x, 0, keepdim=True),
    "scan": lambda x: ops.cumsum(x, 0),
    "gram": lambda x: ops.matmul(x, x.mT) if x.ndim == 2 else x,
}
SHAPES = (("n", 4), ("m", "n"), ("n", "m", 4), ("2*n", 3), ("n+1", 2))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(SHAPES), st.lists(st.sampled_from(sorted(MOVES)), max_size=5),
    st.integers(6, 9), st.integers(6, 8),
)  # fmt: skip
def test_symbolic_sizes(shape, moves, n, m):
    graph = Graph()
    graph.dim("n", 6, 100)
    graph.dim("m", 6, 100)
    x = y = graph.tensor(shape, dtype="f64")
    for move in moves:
        y = MOVES[move](y)
    sizes = {"n": n, "m": m}
    array = np.random.default_rng(n).integers(-4, 5, [int(k.evaluate(sizes)) for k in x.node.shape])
    feeds = {x.node: array.astype(np.float64)}
    expected = reference.evaluate(graph, [y.node], feeds, sizes)[y.node]
    normal = normalise(graph.space, [y.node])
    np.testing.assert_allclose(run(normal, feeds, sizes)[y.node], expected, rtol=1e-12)
    found = run_regions(normal, regions(normal), feeds, sizes)[y.node]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
