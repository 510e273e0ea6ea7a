"""Operations on the bits of integers, with PyTorch's promotion and broadcasting."""

from __future__ import annotations

from ..graph.dtype import boolean
from ..graph.tensor import Tensor
from .base import Value, binary, full_like
from .elementwise import logical_not


def bitwise_and(a: Value, b: Value) -> Tensor:
    """Bits set in both."""
    return binary("and", a, b)


def bitwise_or(a: Value, b: Value) -> Tensor:
    """Bits set in one."""
    return binary("or", a, b)


def bitwise_xor(a: Value, b: Value) -> Tensor:
    """Bits set in just one."""
    return binary("xor", a, b)


def bitwise_not(x: Tensor) -> Tensor:
    """Every bit flipped; of a bool: not."""
    return logical_not(x) if x.dtype is boolean else binary("xor", x, full_like(x, -1))


def bitwise_left_shift(a: Value, b: Value) -> Tensor:
    """a 2^b, wrapping around; 0 <= b < bits of the dtype."""
    return binary("shift_left", a, b)


def bitwise_right_shift(a: Value, b: Value) -> Tensor:
    """floor(a / 2^b); 0 <= b < bits of the dtype."""
    return binary("shift_right", a, b)
