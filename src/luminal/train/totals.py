"""Sums over the steps of a loop, behind the loop: one product of what the steps made, where each
step would read a sum, add to it and write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.loops import Scopes
from ..graph.node import Node, View, position
from ..graph.tensor import Tensor
from ..graph.views import place


def is_sum(node: Node) -> bool:
    return node.op == "sum" and node.attribute is not None


def is_product(node: Node) -> bool:
    return is_sum(node) and node.inputs[0].op == "mul"


class Total:
    """The sum over the steps of a loop of a value that is made of sums: of what they sum up, as
    stacks. inside: the variables of the loop. known: what is stacked anyway. rows: what has to be.

    sum_t view(sum_i a_t[i] b_t[i]) = view(sum_ti a[t, i] b[t, i])
    """

    def __init__(self, graph: Graph, value: Node, known: set[Node], inside: set[Node]) -> None:
        self.graph, self.value, self.known = graph, value, known
        self.varying = {n: inside & found for n, found in Scopes([value]).variables.items()}
        self.leaves = dict.fromkeys(self._leaves(value, summed=False))
        self.rows = [leaf for leaf in self.leaves if leaf not in known]

    @property
    def pays(self) -> bool:
        """The rows of a step are fewer numbers than the sum."""
        sizes = self.graph.space.usual()

        def count(node: Node) -> int:
            return prod(int(size.evaluate(sizes)) for size in node.shape)

        summed = bool(self.leaves) and self.value not in self.leaves
        return summed and sum(map(count, self.rows)) < count(self.value)

    def of(self, length: Index, stacked: Mapping[Node, Tensor]) -> Tensor:
        """The sum, from the stacks."""
        self.length, self.stacked = length, stacked
        return self._total(self.value)

    def _leaves(self, node: Node, summed: bool) -> Iterator[Node]:
        if not self.varying[node]:
            if not summed:
                yield self.value  # a sum of equal terms: as it is
        elif node not in self.known and self._passes(node, summed):
            for source in node.inputs:
                yield from self._leaves(source, summed or node.op == "sum")
        else:
            yield node

    def _passes(self, node: Node, summed: bool) -> bool:
        """What a node makes of stacks is made of all at once."""
        if node.op == "view":
            return node.attribute.fill in (None, 0)
        return node.op == ("mul" if summed else "add") or (is_sum(node) and not summed)

    def _total(self, node: Node) -> Tensor:
        if node.op == "view":
            view = node.attribute
            source = self._total(node.inputs[0])
            return source.read(view.shape, view.index, view.conditions, view.fill)
        if node.op == "add":
            first, second = map(self._total, node.inputs)
            return first + second
        if is_sum(node):
            return self._stack(node.inputs[0]).sum((0, *(d + 1 for d in node.attribute)))
        return self._stack(node).sum(0)

    def _stack(self, node: Node) -> Tensor:
        """A value of all steps, along a new first dimension."""
        known, length = self.stacked.get(node), self.length
        if known is not None:
            return known
        if not self.varying[node]:
            shape = (length, *node.shape)
            index = tuple(place(d + 1) for d in range(len(node.shape)))
            return self.graph.wrap(node).read(shape, index, (), None)
        if node.op == "mul":
            a, b = map(self._stack, node.inputs)
            return a * b
        view: View = node.attribute
        later = {position(d): place(d + 1) for d in range(len(view.shape))}
        index = (place(0), *(i.substitute(later) for i in view.index))
        conditions = tuple(c.substitute(later) for c in view.conditions)
        return self._stack(node.inputs[0]).read((length, *view.shape), index, conditions,
                                                view.fill)  # fmt: skip
