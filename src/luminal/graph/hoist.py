"""Products that the steps of a loop make of slices and counters alone, made before it for all.

A step that multiplies a few rows by a matrix waits for memory: each step reads the matrix again.
Before the loop one product reads it once, and every step finds its rows in a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .graph import Graph
from .index import Index
from .loops import Parts, Scopes, parts, parts_of, substituted
from .node import REDUCE_OPS, Node, Scan, Scatter, View, position
from .order import post_order
from .passes import Program, rewrite
from .scalars import SCALARS
from .views import place, product

FEW = 16  # rows of a product in one step; more of them read a matrix often enough


def hoist_products(program: Program) -> Program:
    """Loops whose steps are given such products as slices of a stack."""
    graph = program.graph

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op != "loop" or node.attribute.length is None or node.attribute.conditional:
            return None
        body = _Body(graph, parts_of(node.attribute, inputs))
        return body.without(body.products())

    if all(node.op != "loop" for node in program.nodes()):
        return program
    return rewrite(program, rule)


class _Body:
    """What the steps of a loop make. depends: on which variables each node does, of this loop and
    of those inside. stacks: the values of all steps, along a new first dimension, where they are
    known before. alone: nodes that these are enough for, with operations on stacks."""

    def __init__(self, graph: Graph, made: Parts) -> None:
        self.graph, self.made = graph, made
        scopes = Scopes(made.made)
        mine = frozenset(made.variables).union(
            *(parts(loop).variables for loop in scopes.bodies)
        )
        self.depends = {node: found & mine for node, found in scopes.variables.items()}
        self.stacks = dict(zip(made.slices, made.stacks)) | dict(self._counters())
        self.alone = set(self.stacks)
        for node, found in self.depends.items():  # operands first
            made_of = (source in self.alone or not self.depends[source] for source in node.inputs)
            if found and node.op in _STACKED and all(made_of):
                self.alone.add(node)

    def _counters(self) -> Iterator[tuple[Node, Node]]:
        """What is carried and grows by the same in all steps, and its values."""
        made, graph = self.made, self.graph
        for first, variable, new in zip(made.initial, made.carried, made.new):
            if new.op != "add" or variable not in new.inputs or not new.dtype.is_integer:
                continue
            more = new.inputs[1 - new.inputs.index(variable)]
            if not self.depends[more]:
                steps = self._numbers(new)
                grown = graph.add("mul", (self._alike(more), steps))
                yield variable, graph.add("add", (self._alike(first), grown))

    def _numbers(self, node: Node) -> Node:
        """How many steps are made before each, of the shape and dtype of a node's stack."""
        length = self.made.loop.length
        assert length is not None
        number = length - 1 - place(0) if self.made.loop.reverse else place(0)
        return self.graph.iota((length, *node.shape), number, node.dtype).node

    def products(self) -> list[Node]:
        """Those that are worth it, and that something reads which is not itself made before."""
        found = {node for node in self.alone if self._pays(node)}
        order = post_order(
            self.made.made,
            lambda node: node.inputs if self.depends[node] and node not in found else (),
        )
        return [node for node in order if node in found]

    def _pays(self, node: Node) -> bool:
        """A sum of products with what all steps read, of few rows, and smaller than that."""
        if node.op != "sum" or node.inputs[0].op != "mul":
            return False
        points = self._count(node.inputs[0])
        matrices = map(_moved, node.inputs[0].inputs)
        return any(
            not self.depends[matrix]
            and points < FEW * self._count(matrix)
            and self._count(node) <= self._count(matrix)
            for matrix in matrices
        )

    def _count(self, node: Node) -> int:
        return product(node.shape).evaluate(self.graph.space.usual())

    def without(self, products: Sequence[Node]) -> Node | None:
        """The loop with these as slices; None where there are none."""
        if not products:
            return None
        made, graph = self.made, self.graph
        variables = {node: graph.variable(node.shape, node.dtype) for node in products}
        stacks = [self._stack(node) for node in products]
        inputs = (
            *made.initial, *made.stacks, *stacks, *made.variables, *variables.values(),
            *substituted(graph, made.made, variables),
        )  # fmt: skip
        return graph.add("loop", inputs, replace(made.loop, sliced=made.loop.sliced + len(stacks)))

    def _stack(self, wanted: Node) -> Node:
        """The values of all steps, along a new first dimension."""
        order = post_order([wanted], lambda node: node.inputs if node in self.alone else ())
        for node in order:
            if node not in self.stacks:
                made = self._stacked if node in self.alone else self._alike
                self.stacks[node] = made(node)
        return self.stacks[wanted]

    def _stacked(self, node: Node) -> Node:
        inputs = tuple(self.stacks[source] for source in node.inputs)
        if node.op == "view":
            return self.graph.moved(inputs[0], self._moved_on(node.attribute))
        return self.graph.add(node.op, inputs, _one_further(node.attribute), node.dtype)

    def _alike(self, node: Node) -> Node:
        """What all steps read."""
        assert self.made.loop.length is not None
        index = tuple(place(dim + 1) for dim in range(len(node.shape)))
        return self.graph.moved(node, View((self.made.loop.length, *node.shape), index))

    def _moved_on(self, view: View) -> View:
        """A view of every step's slice."""
        assert self.made.loop.length is not None
        further = {position(dim): place(dim + 1) for dim in range(len(view.shape))}
        shape = (self.made.loop.length, *view.shape)
        space = self.graph.positions(shape)

        def renamed(indices: Sequence[Index]) -> tuple[Index, ...]:
            return tuple(space.substitute(index, further) for index in indices)

        index = (place(0), *renamed(view.index))
        return View(shape, index, renamed(view.conditions), view.fill)


def _moved(node: Node) -> Node:
    """What views and casts move."""
    while node.op in ("view", "cast"):
        node = node.inputs[0]
    return node


def _one_further(attribute: object) -> object:
    """An operation along dimensions, with a new first one."""
    match attribute:
        case int(dim):
            return dim + 1
        case tuple(dims):
            return tuple(dim + 1 for dim in dims)
        case Scan() | Scatter():
            return replace(attribute, dim=attribute.dim + 1)
    return attribute


_STACKED = {"view", "gather", "scatter", "scan", *SCALARS, *REDUCE_OPS}
