"""How many threads a program is worth."""

from __future__ import annotations

from math import prod

from ...graph.graph import Graph
from ...graph.loops import parts
from ...graph.node import Node
from ...graph.order import reachable

WORTH = 1_000_000  # multiply-adds of a call: half of them take as long as waking a second thread


def threads_for(graph: Graph, most: int | None) -> int | None:
    """One where calls are short, else as many as are allowed: by the usual sizes."""
    sizes = graph.space.usual(64)
    roots = [t.node for t in graph.outputs] + [new.node for _, new in graph.states]
    work, calls = 0, 0
    for node, times in _repeated(roots, sizes).items():
        if node.op == "sum":
            source = node.inputs[0].shape
            work += times * prod(int(size.evaluate(sizes)) for size in source)
            calls += times
    return 1 if work < WORTH * max(calls, 1) else most


def _repeated(roots: list[Node], sizes: dict[str, int]) -> dict[Node, int]:
    """How often each node is computed: those of a loop's body once a step."""
    nodes = reachable(roots)
    times = dict.fromkeys(nodes, 1)
    for loop in (node for node in nodes if node.op == "loop"):
        body = parts(loop)
        count = 1 if body.loop.length is None else int(body.loop.length.evaluate(sizes))
        inside = set(body.variables)
        for node in reachable(body.made):
            if inside.intersection(node.inputs):
                inside.add(node)
                times[node] = times.get(node, 1) * count
    return times
