"""The user's side of a program as data; no engine is needed to know it."""

from __future__ import annotations

from ..graph.graph import Graph
from ..graph.passes import Program
from ..graph.values import sizes_of
from .contract import Interface, Port, Result


def interface_of(graph: Graph, program: Program) -> Interface:
    """What a user sees of a graph: its sources in order of recording, its outputs."""
    nodes = program.nodes()
    used = set(nodes) | {state for state, _ in program.states}
    ports = [
        Port(n.attribute.name, n.attribute.kind, n.dtype, n.shape, n in used)
        for n in (tensor.node for tensor in graph.sources)
    ]
    results = [
        Result(graph.output_names[n], n.dtype, n.shape, number)
        for number, n in enumerate(tensor.node for tensor in graph.outputs)
    ]
    named = sizes_of(nodes).union(*(r.index.names() for r in graph.requirements))
    sizes = {name: ends for name, ends in graph.space.sizes.items() if name in named}
    return Interface(tuple(ports), tuple(results), sizes, tuple(graph.requirements))
