"""What whole quotients leave over, with PyTorch's signs of zero."""

from __future__ import annotations

from ..graph.tensor import Tensor
from .base import Value, composite, operands
from .elementwise import abs, modulo, mul, neg, sub
from .logic import eq, logical_and, lt, ne, where


def remainder(a: Value, b: Value) -> Tensor:
    """a modulo b with the sign of b, as Python's %; a zero has the sign of a.

    >>> ops.remainder(cx.constant([7.0, -7.0]), 3.0).numpy()
    array([1., 2.], dtype=float32)
    """
    x, y = operands(a, b)
    return _remainder(x, y) if x.dtype.is_float else modulo(x, y)


@composite
def _remainder(x: Tensor, y: Tensor) -> Tensor:
    rest = modulo(x, y)
    return where(eq(rest, 0), mul(x, 0.0), rest)


def fmod(a: Value, b: Value) -> Tensor:
    """a modulo b with the sign of a, as in C.

    >>> ops.fmod(cx.constant([7.0, -7.0]), 3.0).numpy()
    array([ 1., -1.], dtype=float32)
    """
    x, y = operands(a, b)
    if x.dtype.is_float:
        return _fmod(x, y)
    rest = modulo(x, y)
    opposite = logical_and(ne(rest, 0), ne(lt(x, 0), lt(y, 0)))
    return where(opposite, sub(rest, y), rest) if x.dtype.is_signed else rest


@composite
def _fmod(x: Tensor, y: Tensor) -> Tensor:
    size = modulo(abs(x), abs(y))
    return where(eq(x, 0), mul(size, x), where(lt(x, 0), neg(size), size))
