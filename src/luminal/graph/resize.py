"""Which shape a reshape means: one size may be -1, and sizes may contain floors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ShapeError
from .infer import text
from .node import Shape
from .views import product, proven_empty

if TYPE_CHECKING:
    from .tensor import Tensor


def new_shape(tensor: Tensor, sizes: Shape) -> Shape:
    """The shape that these sizes mean for a tensor. Raises ShapeError if they do not fit."""
    old = tensor.node.shape
    wanted = infer_size(tensor, old, sizes)
    same = product(wanted) is product(old) or (proven_empty(old) and proven_empty(wanted))
    if not same and not _require_division(tensor, wanted):
        raise ShapeError(f"reshape: {tensor} has not as many elements as {text(wanted)}")
    return wanted


def infer_size(tensor: Tensor, old: Shape, sizes: Shape) -> Shape:
    """Sizes with -1 replaced by what is left of the number of elements."""
    unknown = [dim for dim, size in enumerate(sizes) if size == -1]
    if not unknown:
        return sizes
    left, given = list(old), [size for size in sizes if size != -1]
    for size in list(given):
        if size in left:
            left.remove(size)
            given.remove(size)
    known = product(given)
    if len(unknown) > 1 or known == 0:
        raise ShapeError(f"reshape: {text(sizes)} of {tensor}: only one size can be inferred")
    quotient = tensor.graph.space.floor(product(left), known)
    return tuple(quotient if size == -1 else size for size in sizes)


def _require_division(tensor: Tensor, wanted: Shape) -> bool:
    """A size with a floor in it (s // 4): as many elements if it divides, which is required."""
    if not any("//" in size.text for size in wanted + tensor.node.shape):
        return False
    difference = product(tensor.node.shape) - product(wanted)
    message = f"reshape: {tensor} must have as many elements as {text(wanted)}"
    for side in (difference, -difference):
        tensor.graph.require(side, message)
    return True
