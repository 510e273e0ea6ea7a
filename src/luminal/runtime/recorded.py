"""What the user gets of a graph: its sources as ports, the executable around an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..graph.graph import Graph
from ..graph.node import Node
from ..graph.passes import Program
from ..graph.values import sizes_of
from .contract import Contents, Engine, Port
from .executable import Executable
from .report import Report


def ports_of(graph: Graph, program: Program) -> list[Port]:
    """The sources of the graph, in order of recording."""
    used = set(program.nodes()) | {state for state, _ in program.states}
    return [
        Port(t.node, t.node.attribute.name, t.node.attribute.kind, t.node in used)
        for t in graph.sources
    ]


def executable_of_graph(
    graph: Graph, program: Program, ports: Sequence[Port], engine: Engine, report: Report,
    save: Callable[[Contents, Path], None] | None = None,
) -> Executable:  # fmt: skip
    """The executable, with the values that the graph already knows."""
    named = [tensor.node for tensor in graph.outputs] + [new.node for _, new in graph.states]
    numbers: dict[Node, int] = {}
    for number, node in enumerate(named):
        numbers.setdefault(node, number)
    used = sizes_of(program.nodes())
    sizes = {name: ends for name, ends in graph.space.sizes.items() if name in used}
    requirements = [r for r in graph.requirements if r.index.names() <= sizes.keys()]
    order = {tensor.node: graph.output_names[tensor.node] for tensor in graph.outputs}
    made = Executable(engine, ports, numbers, sizes, report, order, requirements, save)
    for port in ports:
        value = graph.values.get(port.node, port.node.attribute.value)
        if value is not None:
            made.preset(port.node, value)
    return made
