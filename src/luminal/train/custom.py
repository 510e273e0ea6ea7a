"""Functions with derivatives of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..errors import DTypeError, InputError, ShapeError, Unsupported
from ..graph.infer import text
from ..graph.node import Composite
from ..graph.tensor import Tensor
from ..ops.base import named
from .rules import Maybe, Structural

NAME = "custom"
Pull: TypeAlias = Callable[..., Sequence[Maybe]]
Push: TypeAlias = Callable[..., Tensor]


def custom(
    function: Callable[..., Tensor], *inputs: Tensor, pull: Pull, push: Push | None = None
) -> Tensor:
    """function(*inputs), whose derivative is what the rules say rather than that of its parts.

    pull(g, y, *inputs): of the gradient g of the result y a gradient of each input, of its shape
    and dtype, or None for 0. push(tangents, y, *inputs): the tangent of y of those of the inputs,
    of which some may be None, which is 0; without it forward mode raises Unsupported. Rules are
    recorded like anything else, so they have derivatives too. What the function uses beside its
    inputs has the gradient 0. Raises InputError for a result that is not of floats, or no inputs.

    >>> x = cx.constant([0.4, 1.6])
    >>> y = train.custom(ops.round, x, pull=lambda g, y, x: [g])
    >>> train.backward((y * y).sum(), [x])[0].numpy()
    array([0., 4.], dtype=float32)
    """
    if not inputs:
        raise InputError("custom: a derivative is of at least one input")
    result = function(*inputs)
    if not result.dtype.is_float:
        raise InputError(f"custom: the result is {result.dtype}: only floats have derivatives")
    options = (pull, push)
    return named(result, Composite(NAME, tuple(x.node for x in inputs), options))


def rule(pull: Pull, push: Push | None) -> Structural:
    """Both directions, with what they give looked at."""

    def pulled(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
        found = pull(g, y, *inputs)
        if isinstance(found, Tensor) or len(found) != len(inputs):
            raise InputError(f"custom: pull gives a list of {len(inputs)} gradients, one an input")
        for x, gradient in zip(inputs, found):
            if gradient is not None:
                _check("pull", gradient, x)
        return found

    def pushed(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        if push is None:
            raise Unsupported("custom: forward mode needs push=")
        tangent = push(tangents, y, *inputs)
        _check("push", tangent, y)
        return tangent

    return Structural(pulled, pushed)


def _check(which: str, given: Tensor, wanted: Tensor) -> None:
    if given.node.shape != wanted.node.shape:
        found, shape = text(given.node.shape), text(wanted.node.shape)
        raise ShapeError(f"custom: {which} gives the shape {found} for {shape}")
    if given.dtype is not wanted.dtype:
        raise DTypeError(f"custom: {which} gives {given.dtype} for {wanted.dtype}")
