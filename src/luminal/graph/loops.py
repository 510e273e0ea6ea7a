"""The parts of a loop node, and what its body is. See `node.Loop`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import DTypeError, ShapeError
from .dtype import DType, boolean
from .node import Loop, Node, Shape
from .order import post_order, reachable

if TYPE_CHECKING:
    from .graph import Graph

Nodes = tuple[Node, ...]


@dataclass(frozen=True)
class Parts:
    """The inputs of a loop, by what they are."""

    loop: Loop
    initial: Nodes
    stacks: Nodes
    carried: Nodes
    slices: Nodes
    new: Nodes
    rows: Nodes

    @property
    def variables(self) -> Nodes:
        return self.carried + self.slices

    @property
    def given(self) -> Nodes:
        """What must be in memory before the first step."""
        return self.initial + self.stacks

    @property
    def shared(self) -> dict[int, int]:
        """Rows that are carried too: each with the number of what is carried."""
        found: dict[int, int] = {}
        for number, node in enumerate(self.new):
            if node in self.rows and self.rows.index(node) not in found:
                found[self.rows.index(node)] = number
        return found

    @property
    def made(self) -> Nodes:
        """What every step makes."""
        return self.new + self.rows


def parts_of(loop: Loop, inputs: Sequence[Node]) -> Parts:
    """The inputs of a loop, sorted. Raises ShapeError for a wrong number of them."""
    counts = [loop.carried, loop.sliced, loop.carried, loop.sliced, loop.carried, loop.rows]
    if len(inputs) != sum(counts):
        raise ShapeError(f"loop: {sum(counts)} inputs are wanted, got {len(inputs)}")
    found, start = [], 0
    for count in counts:
        found.append(tuple(inputs[start : start + count]))
        start += count
    return Parts(loop, *found)


def parts(node: Node) -> Parts:
    """The inputs of a loop node."""
    return parts_of(node.attribute, node.inputs)


def check_loop(made: Parts) -> None:
    """What is carried keeps shape and dtype; slices are those of their stacks, and so on."""
    loop = made.loop
    if any(node.op != "variable" for node in made.variables):
        raise ShapeError("loop: the names of what a step is given are variables")
    if not made.made or (loop.length is None and (loop.sliced or loop.rows)):
        raise ShapeError("loop: nothing is made, or the length is not known")
    if loop.length is None and not loop.conditional:
        raise ShapeError("loop: neither a length nor a condition")
    for first, variable, new in zip(made.initial, made.carried, made.new):
        kinds = {(node.shape, node.dtype) for node in (first, variable, new)}
        if len(kinds) > 1:
            raise ShapeError(
                f"what a loop carries keeps its shape and dtype: {first} at first, then {new}"
            )
    for stack, part in zip(made.stacks, made.slices):
        if stack.shape[1:] != part.shape or stack.dtype is not part.dtype:
            raise ShapeError(f"loop: {part} is no slice of {stack}")
        if not stack.shape or stack.shape[0] is not loop.length:
            raise ShapeError(f"loop: {stack} has not {loop.length} slices, one for each step")
    if loop.conditional and (made.carried[0].dtype is not boolean or made.carried[0].shape):
        raise DTypeError(f"the condition of a loop is one bool, not {made.carried[0]}")


def result_of(node: Node, number: int) -> tuple[Shape, DType]:
    """Shape and dtype of a result of a loop."""
    made = parts(node)
    source = made.made[number]
    if number < made.loop.carried:
        return source.shape, source.dtype
    assert made.loop.length is not None
    return (made.loop.length, *source.shape), source.dtype


class Scopes:
    """What belongs to the bodies of which loops.

    variables: those that a node depends on, where its value is not the same for all of their steps.
    """

    def __init__(self, roots: Iterable[Node]) -> None:
        self.variables: dict[Node, frozenset[Node]] = {}
        self._captured: dict[Node, Nodes] = {}
        self.bodies: dict[Node, list[Node]] = {}  # of each loop, operands first
        for node in reachable(roots):
            found = frozenset[Node]().union(*(self.variables[source] for source in node.inputs))
            if node.op == "variable":
                found = frozenset([node])
            elif node.op == "loop":
                found -= set(parts(node).variables)
                self._find_body(node)
            self.variables[node] = found

    def operands(self, node: Node) -> Nodes:
        """What must be known before a node; of a loop: what it is given, and what its body needs
        that is the same for all steps."""
        return node.inputs if node.op != "loop" else parts(node).given + self._captured[node]

    def ordered(self, roots: Iterable[Node]) -> list[Node]:
        """The roots and all that they depend on, operands first, without the bodies of loops."""
        return sorted(post_order(roots, self.operands), key=lambda node: node.number)

    def _find_body(self, node: Node) -> None:
        made = parts(node)
        mine = set(made.variables)

        def inside(n: Node) -> bool:
            return not mine.isdisjoint(self.variables[n])

        order = post_order(made.made, lambda n: self.operands(n) if inside(n) else ())
        order.sort(key=lambda n: n.number)
        self.bodies[node] = [n for n in order if inside(n)]
        self._captured[node] = tuple(n for n in order if not inside(n))


def sources(graph: Graph, node: Node) -> Nodes:
    """What a node and the function that it is the result of are made of."""
    known = graph.composites.get(node)
    return node.inputs if known is None else (*node.inputs, *known.inputs)


def substituted(graph: Graph, roots: Sequence[Node], became: Mapping[Node, Node]) -> Nodes:
    """The roots, recorded anew with other nodes in the place of some; what lies below these is not
    walked."""
    from .passes import rebuild

    new = dict(became)
    walked = post_order(roots, lambda node: () if node in became else sources(graph, node))
    for node in sorted(walked, key=lambda node: node.number):
        if node not in new:
            made = new[node] = rebuild(graph, node, tuple(new[source] for source in node.inputs))
            known = graph.composites.get(node)
            if known is not None and made is not node:
                inputs = tuple(new[source] for source in known.inputs)
                graph.composites.setdefault(made, replace(known, inputs=inputs))
    return tuple(new[root] for root in roots)
