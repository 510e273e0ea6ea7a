"""What does not vary along some dimensions is computed once, and repeated by a view.

Between loops it then lies in memory once (see `stages`), not once for each place where it is read:
transformed weights of a convolution, that all tiles of a picture are multiplied by.
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Graph
from .index import names_of
from .node import REDUCE_OPS, Node, View, position
from .passes import Program, rewrite
from .scalars import SCALARS
from .views import ZERO, place


def without_repeats(program: Program) -> Program:
    """In a program with loops: operation of repeated values --> its result, repeated."""
    graph = program.graph

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op not in SCALARS and node.op not in REDUCE_OPS:
            return None
        rank, reduced = len(inputs[0].shape), node.attribute or ()
        kept = [d for d in range(rank) if d in reduced or any(_varies(n, d) for n in inputs)]
        return _repeated(graph, node, inputs, kept) if len(kept) < rank else None

    return rewrite(program, rule) if any(n.op == "loop" for n in program.nodes()) else program


def _varies(node: Node, dim: int) -> bool:
    """Also said of a dimension with one position: there is nothing to gain."""
    if node.op != "view" or node.shape[dim] == 1:
        return True
    return position(dim) in names_of((*node.attribute.index, *node.attribute.conditions))


def _repeated(graph: Graph, node: Node, inputs: Sequence[Node], kept: Sequence[int]) -> Node:
    """The node, made of its inputs at the first place along all dimensions but those kept."""
    rank, reduced = len(inputs[0].shape), node.attribute or ()
    index = [place(kept.index(d)) if d in kept else ZERO for d in range(rank)]
    shape = tuple(inputs[0].shape[d] for d in kept)
    once = tuple(graph.moved(n, View(shape, tuple(index))) for n in inputs)
    attribute = node.attribute and tuple(kept.index(d) for d in reduced)
    made = graph.add(node.op, once, attribute, node.dtype)
    left = [d for d in range(rank) if d not in reduced]
    back = tuple(place(left.index(d)) for d in kept if d in left)
    return graph.moved(made, View(node.shape, back))
