"""Loops that make the same steps are one loop, and rows that nobody needs are not made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .loops import Scopes, parts
from .node import Node
from .passes import Program, rewrite


def join_loops(program: Program) -> Program:
    """One loop for all with the same initial values, stacks, variables and new values, in the same
    steps of other loops; its rows are those of which a result is used. A loop with rows that are
    recorded after the first of them stays: these may depend on its results."""
    nodes, graph = program.nodes(), program.graph
    if all(node.op != "loop" for node in nodes):
        return program
    around = Scopes(nodes).variables
    key = {n: (_key(n), around[n]) for n in nodes if n.op == "loop"}
    first: dict[Any, Node] = {}
    rows: dict[Node, list[Node]] = {}  # of each first loop
    for node in (n for n in nodes if n.op == "loop"):
        rows.setdefault(first.setdefault(key[node], node), [])
    for node in (n for n in nodes if n.op == "result"):
        row, home = _row(node), first[key[node.inputs[0]]]
        if row is not None and _joins(node, home) and row not in rows[home]:
            rows[home].append(row)
    made: dict[Node, Node] = {}  # of each loop
    became: dict[Node, Node] = {}  # of all that was read so far: also inside of steps

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        became.update(zip(node.inputs, inputs))
        home = first[key[node.inputs[0]]] if node.op == "result" else None
        if home is not None and _joins(node, home):
            row, carried = _row(node), home.attribute.carried
            place = node.attribute if row is None else carried + rows[home].index(row)
            return graph.add("result", (made[home],), place)
        if node.op != "loop":
            return None
        if rows.get(node) or (node in rows and node.attribute.carried):
            kept = (*node.inputs[: len(inputs) - node.attribute.rows], *rows[node])
            loop = replace(node.attribute, rows=len(rows[node]))
            made[node] = graph.add("loop", tuple(became[source] for source in kept), loop)
        return made.get(node)

    return rewrite(program, rule)


def _key(loop: Node) -> Any:
    made = parts(loop)
    return replace(loop.attribute, rows=0), made.given, made.variables, made.new


def _row(result: Node) -> Node | None:
    """What a result stacks; None for what is carried."""
    made = parts(result.inputs[0])
    number: int = result.attribute - made.loop.carried
    return made.rows[number] if number >= 0 else None


def _joins(result: Node, home: Node) -> bool:
    """It can be a result of the first loop of its kind."""
    row = _row(result)
    return result.inputs[0] is home or row is None or row.number < home.number
