"""Values that are computed again for their derivative, rather than kept until then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..errors import InputError
from ..graph.node import Composite, Node
from ..graph.order import post_order
from ..graph.tensor import Tensor
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
    given = tuple(dict.fromkeys(x.node for x in inputs))
    if result.node in given or result.node.number < before:
        return result
    named = [_source(node) for node in given]  # the function may read them as well
    others = dict.fromkeys([*named, *_used(result.node, given, before)])
    floats = [node for node in others if node.dtype.is_float and node.op not in SILENT]

    def of_nodes(*tensors: Tensor) -> Tensor:
        known = dict(zip(given, tensors))
        return function(*(known[x.node] for x in inputs))

    options = (of_nodes, len(given), graph.composites.get(result.node))
    graph.composites[result.node] = Composite(NAME, (*given, *floats), options)
    return result


def again(x: Tensor) -> Tensor:
    """x under another name: what is made of it is made anew. Derivatives pass, other than through
    one cast to the own dtype (`stop_gradient`)."""
    return named(x, Composite("again", (x.node,)))


def named(x: Tensor, known: Composite) -> Tensor:
    """x under a name that nothing else has, as the result of this."""
    name = x.graph.apply("cast", [x], x.dtype)
    while True:
        name = x.graph.apply("cast", [name], x.dtype)
        if x.graph.composites.setdefault(name.node, known) == known:
            return name


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


def _used(result: Node, given: tuple[Node, ...], before: int) -> list[Node]:
    """What was recorded earlier that a function used beside its inputs, seen through views."""

    def below(node: Node) -> tuple[Node, ...]:
        outside = node.number < before and node.op != "view"
        return () if node in given or outside else node.inputs

    ends = (n for n in post_order([result], below) if n not in given and n.number < before)
    return [n for n in ends if n.op != "view"]


def _source(node: Node) -> Node:
    """What a view moves."""
    return node.inputs[0] if node.op == "view" else node
