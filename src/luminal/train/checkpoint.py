"""Values that are computed again for their derivative, rather than kept until then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from ..errors import InputError
from ..graph.loops import Nodes, sources, substituted
from ..graph.node import Composite, Node
from ..graph.order import post_order
from ..graph.passes import rebuild
from ..graph.tensor import Tensor
from ..ops.base import named
from .composites import INSTEAD

NAME = "checkpoint"
SILENT = ("literal", "iota")  # nothing is above them
Instead: TypeAlias = tuple[Callable[..., Tensor], int]  # the function, how many inputs it takes


def checkpoint(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """function(*inputs), of which a gradient keeps the inputs only: the rest is computed again.

    What a training step holds between forward and backward shrinks to the inputs; the function is
    computed twice, unless `Step(memory=...)` finds room for it. It may use further tensors
    (parameters of a module), which get their gradients.
    Raises InputError where no input is a tensor of floats: nothing could be computed again.

    >>> x = cx.constant([1.0, 2.0])
    >>> y = train.checkpoint(lambda x: ops.exp(ops.sin(x)), x)
    >>> train.backward(y.sum(), [x])[0].numpy().round(3)
    array([ 1.253, -1.033], dtype=float32)
    """
    if not any(x.dtype.is_float for x in inputs):
        raise InputError("checkpoint: one of the inputs has to be a tensor of floats")
    graph = inputs[0].graph
    before = len(graph.nodes)
    result = function(*inputs)
    given = tuple(dict.fromkeys(_source(x.node) for x in inputs))  # views of views are one view
    made_of = _ends(result.node, given, before, lambda n: n.inputs)
    if _source(result.node) in made_of or made_of.isdisjoint(given):
        return result
    ends = _ends(result.node, given, before, lambda n: sources(graph, n))
    floats = [n for n in ends.difference(given) if n.dtype.is_float and n.op not in SILENT]
    whole, others = graph.composites.get(result.node), sorted(floats, key=_number)

    def made_again(*tensors: Tensor) -> Tensor:
        """The nodes once more, rather than the function: noise and modes are those of the first."""
        new = [x.node for x in tensors]
        became = {n: n for n in ends} | dict(zip(others, new[len(given) :])) | dict(zip(given, new))
        parts = substituted(graph, result.node.inputs, became)
        node = rebuild(graph, result.node, parts)
        if whole is not None:
            below = substituted(graph, whole.inputs, became)
            graph.composites.setdefault(node, replace(whole, inputs=below))
        return graph.wrap(node)

    options = (made_again, len(given), whole)
    graph.composites[result.node] = Composite(NAME, (*given, *others), options)
    return result


def _number(node: Node) -> int:
    return node.number


def again(x: Tensor) -> Tensor:
    """x under another name: what is made of it is made anew. Derivatives pass, other than through
    one cast to the own dtype (`stop_gradient`)."""
    return named(x, Composite("again", (x.node,)))


def instead_of(known: Composite) -> Instead | None:
    """An equal function that is recorded again for the derivative, if there is one."""
    if known.name == NAME:
        again, count, _ = known.options
        return again, count
    if known.name not in INSTEAD:
        return None

    def function(*inputs: Tensor) -> Any:
        return INSTEAD[known.name](*inputs, *known.options)

    return function, len(known.inputs)


def _ends(result: Node, given: Nodes, before: int, below: Callable[[Node], Nodes]) -> set[Node]:
    """What a function used of its inputs and, seen through views, of what was recorded earlier."""

    def is_end(node: Node) -> bool:
        return node in given or (node.number < before and node.op != "view")

    walked = post_order([result], lambda node: () if is_end(node) else below(node))
    return {node for node in walked if is_end(node)}


def _source(node: Node) -> Node:
    """What a view moves."""
    return node.inputs[0] if node.op == "view" else node
