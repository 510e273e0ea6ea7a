"""What the user gets of a graph: the executable around an engine."""

from __future__ import annotations

from ..graph.graph import Graph
from ..graph.node import Node
from ..graph.passes import Program
from ..graph.values import sizes_of
from .contract import Engine, Interface, Port, Result
from .executable import Executable, Save
from .report import Report


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
    named = sizes_of(nodes)
    sizes = {name: ends for name, ends in graph.space.sizes.items() if name in named}
    requirements = (r for r in graph.requirements if r.index.names() <= sizes.keys())
    return Interface(tuple(ports), tuple(results), sizes, tuple(requirements))


def executable_of_graph(
    graph: Graph, interface: Interface, engine: Engine, report: Report, program: Program,
    save: Save | None = None,
) -> Executable:  # fmt: skip
    """The executable, with the values that the graph already knows."""
    sources = [tensor.node for tensor in graph.sources]
    numbers: dict[Node | str, int] = {}
    for number, tensor in enumerate((*graph.outputs, *(new for _, new in graph.states))):
        numbers.setdefault(tensor.node, number)
    made = Executable(engine, interface, report, save, sources, numbers, program.bare())
    for number, node in enumerate(sources):
        value = graph.values.get(node, node.attribute.value)
        if value is not None:
            made.preset(number, value)
    return made
