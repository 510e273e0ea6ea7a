"""A graph as readable text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .infer import text
from .node import Loop, Node, Scan, Scatter, Source, Variable, View
from .order import reachable

if TYPE_CHECKING:
    from .graph import Graph


def display(graph: Graph) -> str:
    """One line a node that an output or a state needs (every node if there are none)."""
    roots = [t.node for t in graph.outputs] + [new.node for _, new in graph.states]
    nodes = reachable(roots) if roots else graph.nodes
    lines = [_line(graph, node) for node in nodes]
    width = max((len(line) for line, _ in lines), default=0)
    return "\n".join(f"{line:{width}}  # {where}" for line, where in lines)


def _line(graph: Graph, node: Node) -> tuple[str, str]:
    file, number = graph.locations[node]
    operands = [f"%{n.number}" for n in node.inputs] + attribute_text(node)
    dims = text(node.shape)[1:-1].rstrip(",")
    line = f"%{node.number} = {node.op}({', '.join(operands)}) : {node.dtype}[{dims}]"
    if any(t.node is node for t in graph.outputs):
        line += f" -> {graph.output_names[node]}"
    line += "".join(f" -> state %{s.node.number}" for s, new in graph.states if new.node is node)
    return line, f"{os.path.basename(file)}:{number}"


def attribute_text(node: Node) -> list[str]:
    """What a node needs beside its operands, as arguments."""
    attribute = node.attribute
    if isinstance(attribute, Source):
        return [attribute.kind, repr(attribute.name)]
    if isinstance(attribute, View):
        return _view_text(attribute)
    if isinstance(attribute, Variable):
        return []
    if isinstance(attribute, Scan | Scatter | Loop):
        return [f"{name}={value}" for name, value in vars(attribute).items()]
    if node.op == "gather":
        return [f"dim={attribute}"]
    if node.op == "cast":
        return [node.dtype.name]
    if isinstance(attribute, tuple):
        return [f"dims={attribute}"]
    return [] if attribute is None else [str(attribute)]


def _view_text(view: View) -> list[str]:
    parts = ["[" + ", ".join(map(str, view.index)) + "]"]
    if view.conditions:
        parts.append("if " + " and ".join(f"{c} >= 0" for c in view.conditions))
        parts.append(f"else {view.fill}")
    return parts
