"""Slices that steps make themselves, of less than a stack of them would take in memory.

A stack that repeats one value, or widens weights in bytes, need not be stored: each step reads its
slices of the smaller stacks and what has no steps, and makes the rest with a few operations.
"""

from __future__ import annotations

from dataclasses import replace

from .graph import Graph
from .index import names_of
from .loops import parts_of, substituted
from .node import Node, View, position
from .order import post_order
from .passes import Program, rebuild, rewrite
from .scalars import SCALARS
from .stages import CHEAP, bytes_of
from .views import place


def slices_made(program: Program) -> Program:
    """Loops whose steps are given what larger stacks are made of."""
    graph = program.graph

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op != "loop" or not node.attribute.sliced:
            return None
        made = parts_of(node.attribute, inputs)
        if not any(map(_pays, made.stacks)):
            return None
        slices, became = dict[Node, Node](), dict[Node, Node]()
        for stack, part in zip(made.stacks, made.slices):
            if not _pays(stack):
                became[part] = slices.setdefault(stack, part)
        for stack, part in zip(made.stacks, made.slices):
            if part not in became:
                became[part] = _made(graph, stack, slices)
        inputs = (
            *made.initial, *slices, *made.carried, *slices.values(),
            *substituted(graph, made.made, became),
        )  # fmt: skip
        return graph.add("loop", inputs, replace(made.loop, sliced=len(slices)))

    return rewrite(program, rule)


def _pays(stack: Node) -> bool:
    """It takes more memory than what it is made of, by few operations."""
    order = post_order([stack], _below)
    cost = sum(SCALARS[node.op].cost for node in order if _elementwise(node))
    ends = {node.inputs[0] if _alike(node) else node for node in order if not _below(node)}
    return cost <= CHEAP and sum(map(bytes_of, ends)) < bytes_of(stack)


def _below(node: Node) -> tuple[Node, ...]:
    """Stacks of which a slice of this one is made, all at the same step."""
    if _elementwise(node):
        return node.inputs
    if node.op != "view" or _alike(node):
        return ()
    view, (source,) = node.attribute, node.inputs
    steps = position(0) in names_of((*view.index[1:], *view.conditions))
    same = view.index and view.index[0] is place(0) and source.shape[0] is view.shape[0]
    return (source,) if same and not steps else ()


def _elementwise(node: Node) -> bool:
    return node.op in SCALARS and node.attribute is None


def _alike(node: Node) -> bool:
    """All its slices are the same part of one value."""
    view = node.attribute
    return node.op == "view" and position(0) not in names_of((*view.index, *view.conditions))


def _made(graph: Graph, stack: Node, slices: dict[Node, Node]) -> Node:
    """What a step makes in place of a slice. slices: those that it is given, of which stacks; what
    else it needs comes to these."""
    found = dict(slices)
    for node in post_order([stack], lambda node: () if node in slices else _below(node)):
        if node in found:
            continue
        if _alike(node):
            found[node] = graph.moved(node.inputs[0], _of_a_step(node.attribute, 0))
        elif not _below(node):
            found[node] = slices[node] = graph.variable(node.shape[1:], node.dtype)
        elif node.op == "view":
            found[node] = graph.moved(found[node.inputs[0]], _of_a_step(node.attribute, 1))
        else:
            found[node] = rebuild(graph, node, tuple(found[source] for source in node.inputs))
    return found[stack]


def _of_a_step(view: View, first: int) -> View:
    """The view of a slice. first: the first dimension of the source that is left."""
    less = {position(dim): place(dim - 1) for dim in range(1, len(view.shape))}
    index = tuple(i.substitute(less) for i in view.index[first:])
    return View(
        view.shape[1:], index, tuple(c.substitute(less) for c in view.conditions), view.fill
    )
