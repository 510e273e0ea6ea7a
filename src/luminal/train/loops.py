"""Derivatives of loops: a loop over the same steps, backwards for gradients.

Tangents are carried along by a loop that makes the steps once more.

Gradients want what was carried into each step: the loop is recorded once more with what it carries
on as rows, which `graph.join` makes one loop with the first. A step backwards computes its step
anew, but for products with what is added to them, which are rows too. What all steps read has the
sum of their gradients: where that is of products, their factors are rows, and one product behind
the loop sums over all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..graph.graph import Graph
from ..graph.loops import Nodes, Parts, parts, substituted
from ..graph.node import Loop, Node
from ..graph.order import post_order, reachable
from ..graph.tensor import Tensor
from ..graph.views import place
from ..ops.base import full_like
from ..ops.logic import where
from .totals import Total, is_product

if TYPE_CHECKING:
    from .autograd import Walk


def outside(walk: Walk, loop: Node) -> Nodes:
    """What a loop depends on: what it is given, and what its steps read of what lies around them.
    Views are looked through: what they move has the gradient."""
    made = parts(loop)
    captured = post_order(
        walk.scopes.operands(loop)[len(made.given) :],
        lambda node: node.inputs if node.op == "view" else (),
    )
    return (*made.given, *(node for node in captured if node.op != "view"))


def pulled(
    walk: Walk, loop: Node, gradients: Mapping[int, Tensor]
) -> Iterator[tuple[Node, Tensor]]:
    """Gradients of what a loop depends on from those of its results, by their numbers."""
    made, graph = parts(loop), walk.graph
    if made.loop.conditional:
        raise Unsupported("while_loop has no gradient: its steps are not kept. Use scan")
    wanted = [n for n in outside(walk, loop)[len(made.given) :] if n in walk.active]
    step = _Backwards(walk, made, [n for n in wanted if n.dtype.is_float], gradients)
    yield from step.run(graph, loop)


def pushed(
    walk: Walk, loop: Node, tangents: Mapping[Node, Tensor]
) -> Iterator[tuple[Node, Tensor]]:
    """Tangents of the results of a loop from those of what it depends on."""
    made, graph = parts(loop), walk.graph
    around = [n for n in outside(walk, loop)[len(made.given) :] if n in tangents]
    sliced = [n for n, stack in enumerate(made.stacks) if stack in tangents]
    carried, inner = _carried_along(walk, made, around, sliced, tangents)
    if not (carried or sliced or around):
        return
    pairs = [(made.initial[n], made.carried[n]) for n in carried]
    pairs += [(made.stacks[n], made.slices[n]) for n in sliced]
    begin = [tangents[n] if n in tangents else full_like(graph.wrap(n), 0.0) for n, _ in pairs]
    given = [graph.variable(n.shape, n.dtype) for _, n in pairs]
    within = {n: tangents[n] for n in around}
    within |= {n: graph.wrap(g) for (_, n), g in zip(pairs, given)}
    found = inner.forward(within.items())
    new = [found[n] if n in found else full_like(graph.wrap(n), 0.0)
           for n in (made.new[n] for n in carried)]  # fmt: skip
    rows = [n for n, row in enumerate(made.rows) if row in found]
    count, kept = len(carried), made.loop.carried
    inputs = (
        *made.initial, *(t.node for t in begin[:count]),
        *made.stacks, *(t.node for t in begin[count:]),
        *made.carried, *given[:count], *made.slices, *given[count:],
        *made.new, *(t.node for t in new), *(found[made.rows[n]].node for n in rows),
    )  # fmt: skip
    along = replace(made.loop, carried=kept + count, sliced=len(made.slices) + len(sliced),
                    rows=len(rows))  # fmt: skip
    numbers = [*carried, *(kept + n for n in rows)]
    changed = dict(zip(numbers, graph.loop(inputs, along)[kept:]))
    for result in walk.results.get(loop, []):
        if result.attribute in changed:
            yield result, changed[result.attribute]


def _carried_along(
    walk: Walk, made: Parts, around: Sequence[Node], sliced: Sequence[int],
    tangents: Mapping[Node, Tensor],
) -> tuple[list[int], Walk]:  # fmt: skip
    """The carried values that change, and what lies between a step's changes and its results."""
    wrap = walk.graph.wrap
    results = [wrap(n) for n in made.made if n.dtype.is_float]
    moving = {n for n, first in enumerate(made.initial) if first in tangents}
    while True:
        ends = [*(made.carried[n] for n in moving), *(made.slices[n] for n in sliced), *around]
        inner = type(walk)(results, [wrap(n) for n in ends], ends)
        more = {n for n, node in enumerate(made.new) if node in inner.active} - moving
        if not more:
            return sorted(moving), inner
        moving |= more


@dataclass
class _Step:
    """A step backwards. new: gradients of what was carried. wanted: gradients of what lies around.
    parts: gradients of slices. kept: products of the step forwards that it reads, as slices."""

    new: list[Node]
    wanted: list[Node]
    parts: list[Node]
    kept: dict[Node, Node]


class _Backwards:
    """floats: numbers of carried values that have gradients. rows: those that are given one."""

    def __init__(
        self, walk: Walk, made: Parts, wanted: Sequence[Node], gradients: Mapping[int, Tensor]
    ) -> None:
        self.walk, self.made, self.wanted, self.gradients = walk, made, wanted, gradients
        self.floats = [n for n, node in enumerate(made.carried) if node.dtype.is_float]
        self.rows = [n for n in range(made.loop.rows) if made.loop.carried + n in gradients]
        self.slices = [n for n, stack in enumerate(made.stacks)
                       if stack in walk.active and stack.dtype.is_float]  # fmt: skip

    def run(self, graph: Graph, loop: Node) -> Iterator[tuple[Node, Tensor]]:
        made, wrap, length = self.made, graph.wrap, self.made.loop.length
        count = made.loop.carried
        assert length is not None  # that of while_loop is not known
        ends = [self._end(graph, n) for n in self.floats]
        given = [graph.variable(t.node.shape, t.dtype) for t in ends]
        kinds = [*made.carried, *made.slices, *(made.rows[n] for n in self.rows)]
        slices = [graph.variable(node.shape, node.dtype) for node in kinds]
        step = self._step(graph, given, slices)
        extra = (*made.new, *step.kept)
        more = replace(made.loop, rows=made.loop.rows + len(extra))
        found = graph.loop((*loop.inputs, *extra), more)[-len(extra) :] if extra else []
        states = [self._before(wrap(n), new) for n, new in zip(made.initial, found)]
        stacks = [*states, *map(wrap, made.stacks),
                  *(self.gradients[count + n] for n in self.rows), *found[count:]]  # fmt: skip
        slices += step.kept.values()
        stacked = dict(zip(slices, stacks))
        inside = {*given, *slices}
        known = {*slices, *step.parts}
        sums = {n: Total(graph, g, known, inside) for n, g in zip(self.wanted, step.wanted)}
        apart = {n: total for n, total in sums.items() if total.pays}
        ends += [full_like(wrap(n), 0.0) for n in self.wanted if n not in apart]
        own = [(n, g) for n, g in zip(self.wanted, step.wanted) if n not in apart]
        given += [graph.variable(n.shape, n.dtype) for n, _ in own]
        added = [(wrap(s) + wrap(g)).node for s, (_, g) in zip(given[len(self.floats) :], own)]
        rows = dict.fromkeys([*step.parts, *(x for total in apart.values() for x in total.rows)])
        back = Loop(length, len(given), len(slices), len(rows), not made.loop.reverse)
        inputs = (*(t.node for t in (*ends, *stacks)), *given, *slices, *step.new, *added, *rows)
        found = graph.loop(inputs, back) if given or rows else []
        nodes = [*(made.initial[n] for n in self.floats), *(n for n, _ in own)]
        yield from zip(nodes, found)
        made_rows = dict(zip(rows, found[len(nodes) :]))
        for n, row in zip(self.slices, step.parts):
            yield made.stacks[n], made_rows[row]
        for node, total in apart.items():
            yield node, total.of(length, stacked | made_rows)

    def _before(self, initial: Tensor, new: Tensor) -> Tensor:
        """What was carried into each step, from the first and what each step carried on: rows of
        what is stacked, or made in its place, anyway."""
        dims, length = range(len(initial.node.shape)), new.node.shape[0]
        number = length - 1 - place(0) if self.made.loop.reverse else place(0)
        other = place(0) + 1 if self.made.loop.reverse else place(0) - 1
        shape, inside = new.node.shape, tuple(place(d + 1) for d in dims)
        later = new.read(shape, (other, *inside), (number - 1,), 0)
        begun = initial.read(shape, inside)
        return where(new.graph.iota(shape, number) < 1, begun, later)

    def _end(self, graph: Graph, number: int) -> Tensor:
        """The gradient of a last carried value."""
        known = self.gradients.get(number)
        return full_like(graph.wrap(self.made.initial[number]), 0.0) if known is None else known

    def _step(self, graph: Graph, carried: Sequence[Node], slices: Sequence[Node]) -> _Step:
        """Gradients of a step from those of what it makes."""
        made, wrap = self.made, graph.wrap
        count, given = made.loop.carried, len(made.variables)
        names = dict(zip(made.variables, slices))  # old states, then slices of the stacks
        products = self._products()
        again = substituted(graph, (*made.made, *products), names)
        results = [*(again[n] for n in self.floats), *(again[count + n] for n in self.rows)]
        gradients = [*carried, *slices[given:]]
        states = [slices[n] for n in self.floats]
        parts_of = [slices[count + n] for n in self.slices]
        ends = *states, *self.wanted, *parts_of  # what these are made of has its gradient outside
        walk = type(self.walk)([wrap(n) for n in results], [wrap(n) for n in ends], ends)
        found = walk.reverse((n, wrap(g)) for n, g in zip(results, gradients))

        def of(node: Node) -> Node:
            known = found.get(node)
            return (full_like(wrap(node), 0.0) if known is None else known).node

        every = [of(n) for n in ends]
        used = set(reachable(every))
        kept = {p: a for p, a in zip(products, again[len(made.made) :]) if a in used}
        names = {a: graph.variable(a.shape, a.dtype) for a in kept.values()}
        every = list(substituted(graph, every, names))
        first, last = len(states), len(states) + len(self.wanted)
        return _Step(every[:first], every[first:last], every[last:],
                     {p: names[a] for p, a in kept.items()})  # fmt: skip

    def _products(self) -> list[Node]:
        """The products of a step, with what is added to nothing but them: what is dear to compute
        again. The steps of a loop inside keep their own."""
        made, mine, operands = self.made, self.walk.scopes.variables, self.walk.scopes.operands
        inside = set(made.variables)
        found = post_order(made.made, lambda n: operands(n) if inside & mine[n] else ())
        users: dict[Node, list[Node]] = {n: [] for n in found}
        for user in found:
            for n in dict.fromkeys(operands(user) if inside & mine[user] else ()):
                users[n].append(user)

        def last(n: Node) -> Node:
            added = [u for u in users[n] if u.op == "add" and u.shape == n.shape]
            alone = len(users[n]) == 1 and n not in made.made
            return last(added[0]) if added and alone else n

        return [*dict.fromkeys(last(n) for n in found if inside & mine[n] and is_product(n))]
