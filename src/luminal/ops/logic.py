"""Comparisons, logic and choice, with PyTorch's promotion and broadcasting."""

from __future__ import annotations

from typing import Any

from ..graph.dtype import boolean, dtype
from ..graph.tensor import Tensor
from .base import Value, binary, broadcast, full_like, holding, result_type, tensor_of


def lt(a: Value, b: Value) -> Tensor:
    """a < b.

    >>> ops.lt(cx.constant([1.0, 2.0]), 2.0).numpy()
    array([ True, False])
    """
    return binary("less", a, b)


def gt(a: Value, b: Value) -> Tensor:
    """a > b.

    >>> ops.gt(cx.constant([1.0, 3.0]), 2.0).numpy()
    array([False,  True])
    """
    return binary("less", b, a)


def eq(a: Value, b: Value) -> Tensor:
    """a = b.

    >>> ops.eq(cx.constant([1, 2]), 2).numpy()
    array([False,  True])
    """
    return binary("equal", a, b)


def ne(a: Value, b: Value) -> Tensor:
    """Not a = b: true for NaN.

    >>> ops.ne(cx.constant([1, 2]), 2).numpy()
    array([ True, False])
    """
    return logical_not(eq(a, b))


def le(a: Value, b: Value) -> Tensor:
    """a <= b: false for NaN.

    >>> ops.le(cx.constant([1.0, 2.0, 3.0]), 2.0).numpy()
    array([ True,  True, False])
    """
    if result_type(a, b).is_float:
        return binary("or", lt(a, b), eq(a, b))
    return logical_not(lt(b, a))


def ge(a: Value, b: Value) -> Tensor:
    """a >= b: false for NaN.

    >>> ops.ge(cx.constant([1.0, 2.0]), 2.0).numpy()
    array([False,  True])
    """
    return le(b, a)


def isnan(x: Tensor) -> Tensor:
    """x is no number.

    >>> ops.isnan(cx.constant([1.0, float("nan")])).numpy()
    array([False,  True])
    """
    return ne(x, x) if x.dtype.is_float else full_like(x, False, boolean)


def isposinf(x: Tensor) -> Tensor:
    """x is plus infinity.

    >>> ops.isposinf(cx.constant([float("inf"), float("-inf")])).numpy()
    array([ True, False])
    """
    return eq(x, float("inf")) if x.dtype.is_float else full_like(x, False, boolean)


def isneginf(x: Tensor) -> Tensor:
    """x is minus infinity.

    >>> ops.isneginf(cx.constant([float("inf"), float("-inf")])).numpy()
    array([False,  True])
    """
    return eq(x, float("-inf")) if x.dtype.is_float else full_like(x, False, boolean)


def where(condition: Tensor, a: Value, b: Value) -> Tensor:
    """a where the condition holds, else b.

    >>> x = cx.constant([-1.0, 2.0, -3.0])
    >>> ops.where(x > 0, x, 0.0).numpy()
    array([0., 2., 0.], dtype=float32)
    """
    kind, graph = result_type(a, b), condition.graph
    x, y = (tensor_of(graph, holding(value, kind), kind) for value in (a, b))
    choice, x, y = broadcast(truth(condition), x, y)
    return graph.apply("select", [choice, x, y])


def masked_fill(x: Tensor, mask: Tensor, value: Value) -> Tensor:
    """x with a value where the mask holds; keeps the dtype of x.

    >>> x = cx.constant([1.0, 2.0, 3.0])
    >>> ops.masked_fill(x, x > 1, 0.0).numpy()
    array([1., 0., 0.], dtype=float32)
    """
    return where(mask, tensor_of(x.graph, holding(value, x.dtype), x.dtype), x)


def truth(x: Tensor) -> Tensor:
    """x as bool: not equal to zero."""
    return x if x.dtype is boolean else x.cast(boolean)


def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """Both are not zero.

    >>> ops.logical_and(cx.constant([0, 1, 2]), cx.constant([1, 1, 0])).numpy()
    array([False,  True, False])
    """
    return binary("and", truth(a), truth(b))


def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """One is not zero.

    >>> ops.logical_or(cx.constant([0, 1, 0]), cx.constant([1, 1, 0])).numpy()
    array([ True,  True, False])
    """
    return binary("or", truth(a), truth(b))


def logical_xor(a: Tensor, b: Tensor) -> Tensor:
    """Just one is not zero.

    >>> ops.logical_xor(cx.constant([0, 1, 0]), cx.constant([1, 1, 0])).numpy()
    array([ True, False, False])
    """
    return binary("xor", truth(a), truth(b))


def logical_not(x: Tensor) -> Tensor:
    """x is zero.

    >>> ops.logical_not(cx.constant([0, 1, 2])).numpy()
    array([ True, False, False])
    """
    return binary("xor", truth(x), True)


def cast(x: Tensor, to: Any) -> Tensor:
    """x in another dtype.

    >>> ops.cast(cx.constant([1.7, -1.7]), "i32").numpy()
    array([ 1, -1], dtype=int32)
    """
    return x.cast(dtype(to))
