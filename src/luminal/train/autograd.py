"""Derivatives as ordinary graph tensors: reverse mode, forward mode, and both again on the result.

A gradient is recorded into the graph that it is taken of, so it can be compiled, stored, updated
with, and differentiated. Only what leads from `wrt` to the result is walked, without recursion.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..errors import DTypeError, InputError, ShapeError, stack_level
from ..graph.graph import Graph
from ..graph.infer import text
from ..graph.loops import Scopes
from ..graph.node import Composite, Node
from ..graph.order import post_order
from ..graph.scope import scope
from ..graph.tensor import Tensor
from ..ops.base import full_like
from . import loops
from .attention import in_blocks
from .checkpoint import again, instead_of
from .composites import composite
from .custom import NAME as CUSTOM
from .custom import rule as rule_of
from .rules import STRUCTURAL, Change, Structural, changes


def backward(loss: Tensor, wrt: Iterable[Tensor]) -> list[Tensor]:
    """The gradient of a scalar with respect to each tensor, of its shape and dtype.

    `wrt` may name any tensors of floats, sources or not, except views. One that does not reach the
    loss has the gradient 0, and a warning says so. Raises ShapeError for a loss of more than one
    element, DTypeError for integers, InputError for views and for what is no tensor.

    >>> x = cx.constant([1.0, 2.0])
    >>> slope = train.backward((x * x).sum(), [x])[0].output()
    >>> cx.compile()()
    array([2., 4.], dtype=float32)
    """
    (loss,), wrt = tensors("the loss", [loss]), tensors("wrt", wrt)
    found = slopes(loss, wrt)
    return [full_like(x, 0.0) if g is None else g for x, g in zip(wrt, found)]


def slopes(loss: Tensor, wrt: Sequence[Tensor]) -> list[Tensor | None]:
    """As `backward`, with None for what does not reach the loss."""
    if any(size != 1 for size in loss.node.shape):
        raise ShapeError(
            f"a gradient is of one number, and the loss has shape {text(loss.node.shape)}: "
            "take its mean() or sum(), or use vjp"
        )
    _check_float("the loss", loss)
    found = Walk([loss], wrt).reverse([(loss.node, full_like(loss, 1.0))])
    unreached = [_name(x) for x in wrt if x.node not in found]
    if unreached:
        names = ", ".join(unreached)
        message = f"{names}: does not reach the loss; its gradient is 0"
        warnings.warn(message, stacklevel=stack_level())
    return [found.get(x.node) for x in wrt]


def vjp(
    results: Iterable[Tensor], gradients: Iterable[Tensor], wrt: Iterable[Tensor]
) -> list[Tensor]:
    """Gradients of `wrt` from those of the results: the transposed Jacobian times a vector.

    Each gradient has the shape and dtype of its result. Raises ShapeError, DTypeError.

    >>> x = cx.constant([1.0, 2.0])
    >>> train.vjp([x * x], [cx.constant([1.0, 10.0])], [x])[0].numpy()
    array([ 2., 40.], dtype=float32)
    """
    results, gradients = tensors("results", results), tensors("gradients", gradients)
    wrt = tensors("wrt", wrt)
    _check_counts("gradients", gradients, "results", results)
    for result, gradient in zip(results, gradients):
        _check_like("the gradient", gradient, result)
    nodes = (result.node for result in results)
    found = Walk(results, wrt).reverse(zip(nodes, gradients))
    return [_or_zero(found, x) for x in wrt]


def jvp(
    results: Iterable[Tensor], wrt: Iterable[Tensor], tangents: Iterable[Tensor]
) -> list[Tensor]:
    """How the results change with a change of `wrt` along the tangents: forward mode.

    Each tangent has the shape and dtype of its tensor. Raises ShapeError, DTypeError.

    >>> x = cx.constant([1.0, 2.0])
    >>> train.jvp([x * x], [x], [cx.constant([1.0, 10.0])])[0].numpy()
    array([ 2., 40.], dtype=float32)
    """
    results, wrt = tensors("results", results), tensors("wrt", wrt)
    tangents = tensors("tangents", tangents)
    _check_counts("tangents", tangents, "wrt", wrt)
    for x, tangent in zip(wrt, tangents):
        _check_like("the tangent", tangent, x)
    found = Walk(results, wrt).forward(zip((x.node for x in wrt), tangents))
    return [_or_zero(found, result) for result in results]


def stop_gradient(x: Tensor) -> Tensor:
    """x, as a constant to every derivative: a cast to its own dtype, which none passes.

    >>> x = cx.constant([1.0, 2.0])
    >>> train.backward((x * train.stop_gradient(x)).sum(), [x])[0].numpy()
    array([1., 2.], dtype=float32)
    """
    node = x.node
    plain = node.op == "cast" and node not in x.graph.composites
    if plain and node.inputs[0].dtype is x.dtype:
        return x
    return x.graph.apply("cast", [x], x.dtype)


# ---- the two directions


class Walk:
    """What lies between wrt and the results: composites whole, unless a part of one is in wrt.

    order: operands first. active: the nodes that a change of wrt can reach. ends: what is below
    these is not walked.
    """

    def __init__(
        self, results: Sequence[Tensor], wrt: Sequence[Tensor], ends: Collection[Node] = ()
    ) -> None:
        self.graph, self.ends = _graph_of([*results, *wrt]), frozenset(ends)
        wanted = {x.node for x in wrt}
        _check_views(wrt)
        self.composites = _whole(self.graph, wanted)
        roots = [result.node for result in results]
        looping = any(node.op == "loop" for node in self.graph.nodes)
        self.scopes = Scopes(roots if looping else ())
        self.results: dict[Node, list[Node]] = {}  # of each loop
        self.order = post_order([result.node for result in results], self.operands)
        self.active = set(wanted)
        for node in self.order:
            if self.is_result(node):
                self.results.setdefault(node.inputs[0], []).append(node)
            if any(source in self.active for source in self._passing(node)):
                self.active.add(node)

    def operands(self, node: Node) -> tuple[Node, ...]:
        if node in self.ends:
            return ()
        if node.op == "loop":
            return loops.outside(self, node)
        known = self.composites.get(node)
        return node.inputs if known is None else known.inputs

    def is_result(self, node: Node) -> bool:
        """Whether the node is a result of a loop, whose derivative is the loop's."""
        return node.op == "result" and node not in self.composites

    def rule(self, node: Node) -> Sequence[Change | None] | Structural:
        """An elementwise row, or a pair of directions."""
        known = self.composites.get(node)
        if known is not None:
            if known.name == CUSTOM:
                return rule_of(*known.options)
            instead = instead_of(known)
            if instead is None:
                return composite(known)
            other, pull = _other(*instead), in_blocks(self.graph, known, self.active)
            return other if pull is None else replace(other, pull=pull)
        row = changes(node)
        return STRUCTURAL[node.op] if row is None else row

    def _passing(self, node: Node) -> list[Node]:
        """The operands whose small changes change the node."""
        operands = self.operands(node)
        if node.op == "loop":
            return [x for x in operands if x.dtype.is_float]
        if not node.dtype.is_float or not operands:
            return []
        if self.is_result(node):
            return list(operands)
        rule = self.rule(node)
        row = [True] * len(operands) if isinstance(rule, Structural) else rule
        return [x for x, change in zip(operands, row) if change and x.dtype.is_float]

    # ---- gradients

    def reverse(self, gradients: Iterable[tuple[Node, Tensor]]) -> dict[Node, Tensor]:
        """Gradients of all active nodes from those of the results."""
        found: dict[Node, Tensor] = {}
        for node, gradient in gradients:
            _add(found, node, gradient)
        for node in reversed(self.order):
            if node.op == "loop" and node in self.active:
                known = {r.attribute: found[r] for r in self.results[node] if r in found}
                with scope(_backward(self.graph.scopes[node])):
                    for source, gradient in loops.pulled(self, node, known) if known else ():
                        if source in self.active:
                            _add(found, source, gradient)
            elif node in found and node in self.active and not self.is_result(node):
                with scope(_backward(self.graph.scopes[node])):
                    for source, gradient in self._pulled(node, found[node]):
                        _add(found, source, gradient)
        return {node: g for node, g in found.items() if node in self.active}

    def _pulled(self, node: Node, g: Tensor) -> Iterator[tuple[Node, Tensor]]:
        operands = self.operands(node)
        if not any(source in self.active for source in operands):
            return
        exact = _unrounded(g) if node.op == "view" else g
        if exact is not g:  # moved and added up, then rounded
            yield from ((source, t.cast(g.dtype)) for source, t in self._pulled(node, exact))
            return
        y, inputs = self.graph.wrap(node), [self.graph.wrap(source) for source in operands]
        rule = self.rule(node)
        if isinstance(rule, Structural):
            for source, gradient in zip(operands, rule.pull(g, y, inputs)):
                if gradient is not None and source in self.active:
                    yield source, gradient
            return
        for source, change in zip(operands, rule):
            if change is not None and source in self.active:
                yield source, change(g, y, *inputs)

    # ---- tangents

    def forward(self, tangents: Iterable[tuple[Node, Tensor]]) -> dict[Node, Tensor]:
        """Tangents of all active nodes from those of wrt."""
        found: dict[Node, Tensor] = {}
        for node, tangent in tangents:
            _add(found, node, tangent)
        for node in self.order:
            if node.op == "loop" and node in self.active:
                for result, tangent in loops.pushed(self, node, found):
                    _add(found, result, tangent)
            elif node in self.active and not self.is_result(node):
                for tangent in self._pushed(node, found):
                    _add(found, node, tangent)
        return found

    def _pushed(self, node: Node, found: Mapping[Node, Tensor]) -> Iterator[Tensor]:
        operands = self.operands(node)
        tangents = [found.get(source) for source in operands]
        if all(tangent is None for tangent in tangents):
            return
        y, inputs = self.graph.wrap(node), [self.graph.wrap(source) for source in operands]
        rule = self.rule(node)
        if isinstance(rule, Structural):
            yield rule.push(tangents, y, inputs)
            return
        for tangent, change in zip(tangents, rule):
            if tangent is not None and change is not None:
                yield change(tangent, y, *inputs)


def _other(function: Callable[..., Tensor], count: int) -> Structural:
    """The derivative of an equal function of the same inputs, recorded again of the first `count`
    under names of their own."""

    def recorded(inputs: Sequence[Tensor]) -> tuple[Walk, Tensor, list[Tensor]]:
        named = [again(x) if x.dtype.is_float else x for x in inputs[:count]]
        named += inputs[count:]
        other = function(*named)
        floats = [x for x in named if x.dtype.is_float]
        return Walk([other], floats, [x.node for x in named]), other, named

    def pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Tensor | None]:
        walk, other, named = recorded(inputs)
        found = walk.reverse([(other.node, g)])
        return [found.pop(x.node, None) for x in named]  # of inputs that are one, once

    def push(tangents: Sequence[Tensor | None], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        walk, other, named = recorded(inputs)
        given = {x.node: t for x, t in zip(named, tangents) if t is not None}
        return _or_zero(walk.forward(given.items()), other)

    return Structural(pull, push)


def _whole(graph: Graph, wanted: set[Node]) -> Mapping[Node, Composite]:
    """The composites of a graph of which no part is wanted; a user's rule stands for all parts."""
    parts = {node for node in wanted if node.op != "input"}
    if not parts:
        return graph.composites

    def inside(node: Node, known: Composite) -> set[Node]:
        """Without its inputs, and what those are views of: views of views are one view."""
        given = set(post_order(known.inputs, lambda n: n.inputs if n.op == "view" else ()))
        return set(post_order([node], lambda n: () if n in given else n.inputs)) - {node, *given}

    return {
        node: known
        for node, known in graph.composites.items()
        if known.name == CUSTOM or parts.isdisjoint(inside(node, known))
    }


def _add(found: dict[Node, Tensor], node: Node, gradient: Tensor) -> None:
    known = found.get(node)
    if known is None:
        found[node] = gradient
        return
    wide = _unrounded(known), _unrounded(gradient)
    same = wide[0].dtype is wide[1].dtype
    found[node] = (wide[0] + wide[1]).cast(known.dtype) if same else known + gradient


def _unrounded(g: Tensor) -> Tensor:
    """The wider numbers of which it is the rounded ones; itself if it is of none."""
    if g.node.op != "cast" or g.node in g.graph.composites:
        return g
    (wide,) = g.node.inputs
    return g.graph.wrap(wide) if wide.dtype.is_float and wide.dtype.bytes > g.dtype.bytes else g


def _or_zero(found: Mapping[Node, Tensor], x: Tensor) -> Tensor:
    known = found.get(x.node)
    return full_like(x, 0.0) if known is None else known


# ---- what is refused


def tensors(what: str, given: Iterable[Tensor]) -> list[Tensor]:
    """What is given, as a list. Raises InputError where something else than tensors is."""
    if not isinstance(given, Iterable):
        raise InputError(f"{what}: a list of tensors is expected, not {given!r}")
    listed = list(given)
    for x in listed:
        if not isinstance(x, Tensor):
            raise InputError(f"{what}: {x!r} is no tensor")
    return listed


def _check_counts(what: str, given: list[Tensor], name: str, wanted: list[Tensor]) -> None:
    if len(given) != len(wanted):
        raise InputError(f"{len(given)} {what} for {len(wanted)} {name}: one is expected for each")


def _graph_of(tensors: Sequence[Tensor]) -> Graph:
    if not tensors:
        raise InputError("a derivative needs at least one tensor")
    graph = tensors[0].graph
    if any(tensor.graph is not graph for tensor in tensors):
        raise InputError("a derivative is of tensors of one graph")
    for tensor in tensors:
        _check_float(_name(tensor), tensor)
    return graph


def _check_float(name: str, tensor: Tensor) -> None:
    if not tensor.dtype.is_float:
        raise DTypeError(f"{name} is {tensor.dtype}: only floats have derivatives")


def _check_views(wrt: Sequence[Tensor]) -> None:
    for x in wrt:
        if x.node.op == "view":
            raise InputError(
                f"{x} only moves elements, and what reads it reads its source: take the derivative "
                "with respect to that"
            )


def _check_like(what: str, given: Tensor, wanted: Tensor) -> None:
    if given.node.shape != wanted.node.shape:
        raise ShapeError(f"{what} of {wanted} has its shape, not {text(given.node.shape)}")
    if given.dtype is not wanted.dtype:
        raise DTypeError(f"{what} of {wanted} has its dtype, not {given.dtype}")


def _backward(module: str) -> str:
    """The module of a node's gradients, for viewers."""
    if module.partition(".")[0] == "backward":
        return module
    return f"backward.{module}".rstrip(".")


def _name(tensor: Tensor) -> str:
    return tensor.node.attribute.name if tensor.node.op == "input" else repr(tensor)
