"""Derivatives as ordinary graph tensors: reverse mode, forward mode, and both again on the result.

A gradient is recorded into the graph that it is taken of, so it can be compiled, stored, updated
with, and differentiated. Only what leads from `wrt` to the result is walked, without recursion.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from ..errors import DTypeError, InputError, ShapeError
from ..graph.graph import Graph
from ..graph.infer import text
from ..graph.node import Node
from ..graph.order import reachable
from ..graph.tensor import Tensor
from ..ops.base import full_like
from .rules import STRUCTURAL, changes


def backward(loss: Tensor, wrt: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of a scalar with respect to each tensor, of its shape and dtype.

    `wrt` may name any tensors of floats, sources or not. One that does not reach the loss has the
    gradient 0, and a warning says so. Raises ShapeError for a loss of more than one element,
    DTypeError for integers.
    """
    if any(size != 1 for size in loss.node.shape):
        raise ShapeError(
            f"a gradient is of one number, and the loss has shape {text(loss.node.shape)}: "
            "take its mean() or sum(), or use vjp"
        )
    _check_float("the loss", loss)
    found = _reverse([loss], [full_like(loss, 1.0)], wrt)
    unreached = [_name(x) for x in wrt if x.node not in found]
    if unreached:
        names = ", ".join(unreached)
        warnings.warn(f"{names}: does not reach the loss; its gradient is 0", stacklevel=2)
    return [_or_zero(found, x) for x in wrt]


def vjp(
    results: Sequence[Tensor], gradients: Sequence[Tensor], wrt: Sequence[Tensor]
) -> list[Tensor]:
    """Gradients of `wrt` from those of the results: the transposed Jacobian times a vector.

    Each gradient has the shape and dtype of its result. Raises ShapeError, DTypeError.
    """
    for result, gradient in zip(results, gradients, strict=True):
        _check_like("the gradient", gradient, result)
    found = _reverse(results, gradients, wrt)
    return [_or_zero(found, x) for x in wrt]


def jvp(
    results: Sequence[Tensor], wrt: Sequence[Tensor], tangents: Sequence[Tensor]
) -> list[Tensor]:
    """How the results change with a change of `wrt` along the tangents: forward mode.

    Each tangent has the shape and dtype of its tensor. Raises ShapeError, DTypeError.
    """
    for x, tangent in zip(wrt, tangents, strict=True):
        _check_like("the tangent", tangent, x)
    graph = _graph_of([*results, *wrt])
    found: dict[Node, Tensor] = {}
    for x, tangent in zip(wrt, tangents):
        _add(found, x.node, tangent)
    for node in reachable([result.node for result in results]):
        pushed = _push(graph.wrap(node), found)
        if pushed is not None:
            _add(found, node, pushed)
    return [_or_zero(found, result) for result in results]


def stop_gradient(x: Tensor) -> Tensor:
    """x, as a constant to every derivative: a cast to its own dtype, which none passes."""
    return x.graph.apply("cast", [x], x.dtype)


# ---- the two directions


def _reverse(
    results: Sequence[Tensor], gradients: Sequence[Tensor], wrt: Sequence[Tensor]
) -> dict[Node, Tensor]:
    """Gradients of all nodes between wrt and the results."""
    graph = _graph_of([*results, *wrt])
    order = reachable([result.node for result in results])
    active = _depending(order, wrt)
    found: dict[Node, Tensor] = {}
    for result, gradient in zip(results, gradients):
        _add(found, result.node, gradient)
    for node in reversed(order):
        if node not in found or not any(source in active for source in node.inputs):
            continue
        y, g = graph.wrap(node), found[node]
        inputs = [graph.wrap(source) for source in node.inputs]
        row = changes(node)
        if row is not None:
            for x, change in zip(inputs, row):
                if x.node in active and change is not None:
                    _add(found, x.node, change(g, y, *inputs))
            continue
        for x, pulled in zip(inputs, STRUCTURAL[node.op].pull(g, y, inputs)):
            if x.node in active and pulled is not None:
                _add(found, x.node, pulled)
    return {node: g for node, g in found.items() if node in active}


def _depending(order: Sequence[Node], wrt: Sequence[Tensor]) -> set[Node]:
    """The nodes that a derivative can reach from wrt."""
    active = {x.node for x in wrt}
    for node in order:
        if node.dtype.is_float and any(source in active for source in _passing(node)):
            active.add(node)
    return active


def _passing(node: Node) -> list[Node]:
    """The inputs whose small changes change the node."""
    row = changes(node) or (True,) * len(node.inputs)
    return [x for x, change in zip(node.inputs, row) if change and x.dtype.is_float]


def _add(found: dict[Node, Tensor], node: Node, gradient: Tensor) -> None:
    known = found.get(node)
    found[node] = gradient if known is None else known + gradient


def _or_zero(found: Mapping[Node, Tensor], x: Tensor) -> Tensor:
    known = found.get(x.node)
    return full_like(x, 0.0) if known is None else known


def _push(y: Tensor, found: Mapping[Node, Tensor]) -> Tensor | None:
    node = y.node
    if not node.dtype.is_float or not any(source in found for source in _passing(node)):
        return None
    inputs = [y.graph.wrap(source) for source in node.inputs]
    tangents = [found.get(source) for source in node.inputs]
    row = changes(node)
    if row is None:
        return STRUCTURAL[node.op].push(tangents, y, inputs)
    total: Tensor | None = None
    for t, change in zip(tangents, row):
        if t is not None and change is not None:
            part = change(t, y, *inputs)
            total = part if total is None else total + part
    return total


# ---- what is refused


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


def _check_like(what: str, given: Tensor, wanted: Tensor) -> None:
    if given.node.shape != wanted.node.shape:
        raise ShapeError(f"{what} of {wanted} has its shape, not {text(given.node.shape)}")
    if given.dtype is not wanted.dtype:
        raise DTypeError(f"{what} of {wanted} has its dtype, not {given.dtype}")


def _name(tensor: Tensor) -> str:
    return tensor.node.attribute.name if tensor.node.op == "input" else repr(tensor)
