"""Sizes of which two expressions must mean the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph.index import Index
from ...graph.node import Shape
from ...graph.tensor import Tensor
from .operators import Operator


def united(
    operator: Operator, tensors: Mapping[str, Tensor], sample: Mapping[str, int]
) -> dict[str, Tensor]:
    """The operands that change where sizes that must be equal to fit, and are in this run, get one
    expression. (An image that was halved and doubled fits itself where its size is even.) Runs of
    other sizes are refused by the program."""
    shapes = [tensor.node.shape for tensor in tensors.values()]
    found = {name: _united(operator, tensor, shapes, sample) for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in found.items() if tensor is not tensors[name]}


def _united(
    operator: Operator, x: Tensor, shapes: Sequence[Shape], sample: Mapping[str, int]
) -> Tensor:
    for d, size in enumerate(x.node.shape):
        same = next((o for o in _beside(operator, x, d, shapes) if _simpler(o, size, sample)), None)
        if same is not None:
            x.graph.require(same - size, f"{same} and {size} are one size")
            x.graph.require(size - same, f"{same} and {size} are one size")
            x = x.narrow(d, 0, same)
    return x


def _beside(operator: Operator, x: Tensor, d: int, shapes: Sequence[Shape]) -> list[Index]:
    """The sizes that this one meets."""
    if operator.name == "Concat" and d == operator.attributes.get("axis", 1) % x.ndim:
        return []
    if operator.name == "MatMul" and d >= x.ndim - 2:
        first, second = shapes  # the last size of one is the last but one of the other
        ends = [first[-1], second[-2 if len(second) > 1 else -1]]
        return ends if x.node.shape[d] in ends else []
    return [shape[d - x.ndim] for shape in shapes if len(shape) >= x.ndim - d]


def _simpler(other: Index, size: Index, sample: Mapping[str, int]) -> bool:
    """The other is the simpler one, and of the same value in this run."""
    if other is size or other == 1 or size == 1 or size.is_constant:
        return False
    if not (other.names() | size.names()) <= sample.keys():
        return False
    longer = (len(str(other)), str(other)) > (len(str(size)), str(size))
    if longer and not other.is_constant:
        return False
    return bool(other.evaluate(sample) == size.evaluate(sample))
