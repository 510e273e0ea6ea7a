"""What the user gets of a graph: the executable around an engine."""

from __future__ import annotations

from typing import Any

from ..graph.graph import Graph
from ..graph.node import Node
from ..graph.passes import Program
from .contract import Engine, Interface
from .executable import Executable, Save
from .report import Report


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
    for number, value in known_values(graph).items():
        made.preset(number, value)
    return made


def known_values(graph: Graph) -> dict[int, Any]:
    """Of the sources that have values already, by number."""
    nodes = enumerate(tensor.node for tensor in graph.sources)
    values = {n: graph.values.get(node, node.attribute.value) for n, node in nodes}
    return {n: value for n, value in values.items() if value is not None}
