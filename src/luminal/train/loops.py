"""Derivatives of loops: a loop over the same steps, backwards for gradients.

Gradients want what was carried into each step: the loop is recorded once more with these as rows,
which `graph.join` makes one loop with the first. A step backwards computes its step anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..graph.graph import Graph
from ..graph.loops import Nodes, Parts, parts, substituted
from ..graph.node import Loop, Node
from ..graph.order import post_order
from ..graph.tensor import Tensor
from ..ops.base import full_like

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
        made, wrap = self.made, graph.wrap
        count = made.loop.carried
        with_states = replace(made.loop, rows=made.loop.rows + count)
        states = graph.loop((*loop.inputs, *made.carried), with_states)[-count:] if count else []
        stacks = [*states, *map(wrap, made.stacks), *(self.gradients[count + n] for n in self.rows)]
        ends = [self._end(graph, n) for n in self.floats]
        sums = [full_like(wrap(node), 0.0) for node in self.wanted]
        carried = [graph.variable(t.node.shape, t.dtype) for t in (*ends, *sums)]
        slices = [graph.variable(t.node.shape[1:], t.dtype) for t in stacks]
        new, rows = self._step(graph, carried, slices)
        back = Loop(made.loop.length, len(carried), len(slices), len(rows), not made.loop.reverse)
        initial = (t.node for t in (*ends, *sums))
        inputs = (*initial, *(t.node for t in stacks), *carried, *slices, *new, *rows)
        found = graph.loop(inputs, back)
        nodes = [*(made.initial[n] for n in self.floats), *self.wanted]
        nodes += [made.stacks[n] for n in self.slices]
        yield from zip(nodes, found)

    def _end(self, graph: Graph, number: int) -> Tensor:
        """The gradient of a last carried value."""
        known = self.gradients.get(number)
        return full_like(graph.wrap(self.made.initial[number]), 0.0) if known is None else known

    def _step(
        self, graph: Graph, carried: Sequence[Node], slices: Sequence[Node]
    ) -> tuple[list[Node], list[Node]]:
        """Gradients of a step from those of what it makes: (carried on, rows)."""
        made, wrap = self.made, graph.wrap
        count, given = made.loop.carried, len(made.variables)
        names = dict(zip(made.variables, slices))  # old states, then slices of the stacks
        again = substituted(graph, made.made, names)
        results = [*(again[n] for n in self.floats), *(again[count + n] for n in self.rows)]
        gradients = [*carried[: len(self.floats)], *slices[given:]]
        states = [slices[n] for n in self.floats]
        parts_of = [slices[count + n] for n in self.slices]
        walk = type(self.walk)(
            [wrap(n) for n in results], [wrap(n) for n in (*states, *self.wanted, *parts_of)]
        )
        found = walk.reverse((n, wrap(g)) for n, g in zip(results, gradients))

        def of(node: Node) -> Tensor:
            known = found.get(node)
            return full_like(wrap(node), 0.0) if known is None else known

        sums = [wrap(s) + of(n) for s, n in zip(carried[len(self.floats) :], self.wanted)]
        new = [*(of(n) for n in states), *sums]
        return [t.node for t in new], [of(n).node for n in parts_of]
