"""What operators meant before opset 7, in the words of opset 7."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ShapeError
from ...ops.base import dim_of
from .operators import Operator

PAIRS = frozenset(
    ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater")
)


def modern(operator: Operator, operands: list[Any]) -> tuple[list[Any], Mapping[str, Any]]:
    """Operands and attributes. Where the two of a pair were broadcast, the dimensions of the second
    were those of the first from `axis` on. Raises ShapeError."""
    attributes = dict(operator.attributes)
    if operator.version >= 7 or operator.domain:
        return operands, attributes
    attributes.pop("consumed_inputs", None)  # told only where memory could be reused
    if operator.name in PAIRS:
        axis, spread = attributes.pop("axis", None), attributes.pop("broadcast", 0)
        if spread and axis is not None:
            x, y = operands
            return [x, _aligned(x, y, dim_of(x, axis))], attributes
    return operands, attributes


def _aligned(x: Any, y: Any, axis: int) -> Any:
    after = x.ndim - axis - y.ndim
    if after < 0:
        raise ShapeError(f"{y.ndim} dimensions from {axis} on, of {x.ndim}")
    return y.reshape((*y.shape, *(1,) * after))
