"""Compares a graph with its terms and its regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from oracles.terms import run, run_regions

from luminal.backend import reference
from luminal.graph.graph import Graph
from luminal.graph.node import Node
from luminal.graph.tensor import Tensor
from luminal.rewrite.normal import Normal
from luminal.rewrite.normalise import normalise
from luminal.rewrite.regions import regions
from luminal.rewrite.terms import Region


def random_feeds(
    graph: Graph, sizes: Mapping[str, int], given: Mapping[Tensor, np.ndarray], seed: int = 0
) -> dict[Node, np.ndarray]:
    """Values of all sources: normal floats, small integers, coin flips."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for source in graph.sources:
        node = source.node
        shape = [int(n.evaluate(sizes)) for n in node.shape]
        if source in given:
            feeds[node] = given[source]
        elif node.attribute.value is not None:
            feeds[node] = node.attribute.value
        elif node.dtype.is_float:
            feeds[node] = rng.standard_normal(shape).astype(node.dtype.numpy)
        else:
            feeds[node] = rng.integers(0, 2, shape).astype(node.dtype.numpy)
    return feeds


def check(
    graph: Graph, outputs: Sequence[Tensor], sizes: Mapping[str, int] | None = None,
    given: Mapping[Tensor, np.ndarray] | None = None, tolerance: float = 1e-5,
) -> tuple[Normal, list[Region]]:  # fmt: skip
    """Terms and regions of the outputs, which mean the same on an example."""
    sizes = sizes or {}
    nodes = [t.node for t in outputs]
    feeds = random_feeds(graph, sizes, given or {})
    expected = reference.evaluate(graph, nodes, feeds, sizes)
    normal = normalise(graph.space, nodes)
    mine = {node: feeds[node] for node in normal.sources}
    pieces = regions(normal)
    for found in (run(normal, mine, sizes), run_regions(normal, pieces, mine, sizes)):
        for node in nodes:
            assert found[node].shape == expected[node].shape
            np.testing.assert_allclose(
                found[node].astype(np.float64), expected[node].astype(np.float64),
                rtol=tolerance, atol=tolerance,
            )  # fmt: skip
    return normal, pieces


def ops_of(normal: Normal) -> list[str]:
    return [term.op for term in normal.terms.nodes]


def maps_of(normal: Normal) -> list[str]:
    """Index maps of all reads, as text."""
    terms = normal.terms.nodes
    return [
        ", ".join(str(index) for _, index in t.attribute.entries)
        for t in terms
        if t.op in ("read", "gather")
    ]
