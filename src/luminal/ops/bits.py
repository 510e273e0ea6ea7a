"""Operations on the bits of integers, with PyTorch's promotion and broadcasting."""

from __future__ import annotations

from ..graph.dtype import boolean
from ..graph.tensor import Tensor
from .base import Value, binary, full_like
from .logic import logical_not


def bitwise_and(a: Value, b: Value) -> Tensor:
    """Bits set in both.

    >>> ops.bitwise_and(cx.constant([6, 5]), 3).numpy()
    array([2, 1])
    """
    return binary("and", a, b)


def bitwise_or(a: Value, b: Value) -> Tensor:
    """Bits set in one.

    >>> ops.bitwise_or(cx.constant([6, 5]), 3).numpy()
    array([7, 7])
    """
    return binary("or", a, b)


def bitwise_xor(a: Value, b: Value) -> Tensor:
    """Bits set in just one.

    >>> ops.bitwise_xor(cx.constant([6, 5]), 3).numpy()
    array([5, 6])
    """
    return binary("xor", a, b)


def bitwise_not(x: Tensor) -> Tensor:
    """Every bit flipped; of a bool: not.

    >>> ops.bitwise_not(cx.constant([0, 5])).numpy()
    array([-1, -6])
    """
    return logical_not(x) if x.dtype is boolean else binary("xor", x, full_like(x, -1))


def bitwise_left_shift(a: Value, b: Value) -> Tensor:
    """a 2^b, wrapping around; 0 <= b < bits of the dtype.

    >>> ops.bitwise_left_shift(cx.constant([1, 3]), 2).numpy()
    array([ 4, 12])
    """
    return binary("shift_left", a, b)


def bitwise_right_shift(a: Value, b: Value) -> Tensor:
    """floor(a / 2^b); 0 <= b < bits of the dtype.

    >>> ops.bitwise_right_shift(cx.constant([9, -9]), 1).numpy()
    array([ 4, -5])
    """
    return binary("shift_right", a, b)
