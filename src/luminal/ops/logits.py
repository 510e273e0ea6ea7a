"""Softmax and its relatives, in the form that the compiler turns into one pass."""

from __future__ import annotations

from typing import Any

from ..graph.dtype import dtype as dtype_of
from ..graph.tensor import Tensor
from .base import composite, dim_of, floating, positions
from .elementwise import mul, neg, reciprocal, sub
from .math import LOG2_E, log
from .random import Seed, gumbel
from .reduction import argmax, reduce


def exponentials(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """e^(x - max x), and its sum along the dimension (kept as size 1)."""
    highest = reduce("max", x, dim, keepdim=True)
    power = x.graph.apply("exp2", [mul(sub(x, highest), LOG2_E)])
    return power, reduce("sum", power, dim, keepdim=True)


def chosen(x: Tensor, dim: int | None) -> int:
    """The dimension; PyTorch takes the first of scalars, vectors and cubes, else the second."""
    return (0 if x.ndim in (0, 1, 3) else 1) if dim is None else dim


def softmax(x: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """e^x / sum e^x along a dimension.

    >>> ops.softmax(cx.constant([[0.0, 1.0], [2.0, 2.0]]), -1).numpy().round(3)
    array([[0.269, 0.731],
           [0.5  , 0.5  ]], dtype=float32)
    """
    return _softmax(x if dtype is None else x.cast(dtype_of(dtype)), chosen(x, dim))


@floating
@composite
def _softmax(x: Tensor, dim: int) -> Tensor:
    power, total = exponentials(x, dim_of(x, dim))
    return mul(power, reciprocal(total))


def log_softmax(x: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """log(softmax(x)) without underflow.

    >>> ops.log_softmax(cx.constant([0.0, 1.0]), 0).numpy().round(3)
    array([-1.313, -0.313], dtype=float32)
    """
    return _log_softmax(x if dtype is None else x.cast(dtype_of(dtype)), chosen(x, dim))


@floating
@composite
def _log_softmax(x: Tensor, dim: int) -> Tensor:
    dim = dim_of(x, dim)
    highest = reduce("max", x, dim, keepdim=True)
    return sub(sub(x, highest), log(exponentials(x, dim)[1]))


def softmin(x: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """softmax(-x).

    >>> ops.softmin(cx.constant([0.0, 1.0]), 0).numpy().round(3)
    array([0.731, 0.269], dtype=float32)
    """
    return softmax(neg(x), dim, dtype=dtype)


def gumbel_softmax(
    x: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1, *,
    seed: Seed = None, stream: int | None = None,
) -> Tensor:  # fmt: skip
    """softmax((x + Gumbel noise) / tau); with hard, 1 at its maximum, else 0, and the derivative is
    still that of the softmax. (eps is unused.)

    >>> ops.gumbel_softmax(cx.constant([0.0, 100.0]), hard=True).numpy()
    array([0., 1.], dtype=float32)
    """
    noise = gumbel(x.graph, x.shape, seed=seed, stream=stream).cast(x.dtype)
    soft = softmax((x + noise) / tau, dim)
    return _straight_through(soft, dim) if hard else soft


@composite
def _straight_through(soft: Tensor, dim: int) -> Tensor:
    return hardmax(soft, dim)


def hardmax(x: Tensor, dim: int = -1) -> Tensor:
    """1 at the first maximum along a dimension, else 0.

    >>> ops.hardmax(cx.constant([1.0, 3.0, 3.0])).numpy()
    array([0., 1., 0.], dtype=float32)
    """
    return (positions(x, dim_of(x, dim)) == argmax(x, dim, keepdim=True)).cast(x.dtype)
