"""Dropout and its relatives: noise in training, nothing (but rrelu's mean slope) otherwise."""

from __future__ import annotations

from ..errors import DTypeError
from ..graph.index import Index
from ..graph.tensor import Tensor
from .activation import leaky_relu
from .elementwise import add, mul
from .logic import ge, lt, where
from .random import Seed, rand

SELU_FLOOR = -1.7580993408473766  # where selu ends on the left: - its alpha times its scale


def _kept(
    x: Tensor, dims: int, p: float, seed: Seed, stream: int | None
) -> Tensor:  # fmt: skip
    """True with probability 1 - p, alike for all that the first `dims` dimensions share."""
    shape: list[int | Index] = [*x.shape[:dims], *(1,) * (x.ndim - dims)]
    return lt(rand(x.graph, shape, seed=seed, stream=stream), 1.0 - p)


def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise DTypeError(f"dropout: the probability {p} is not in 0 .. 1")
    return p


def _dropped(
    x: Tensor, dims: int, p: float, training: bool, seed: Seed, stream: int | None
) -> Tensor:
    if not training or _probability(p) == 0:
        return x
    if p == 1:
        return mul(x, 0)
    return where(_kept(x, dims, p, seed, stream), mul(x, 1 / (1 - p)), 0)


def dropout(
    x: Tensor, p: float = 0.5, training: bool = True, *, seed: Seed = None,
    stream: int | None = None,
) -> Tensor:  # fmt: skip
    """In training 0 with probability p, else x / (1 - p); otherwise x.

    >>> ops.dropout(cx.constant([1.0, 2.0]), training=False).numpy()
    array([1., 2.], dtype=float32)
    """
    return _dropped(x, x.ndim, _probability(p), training, seed, stream)


def dropout1d(
    x: Tensor, p: float = 0.5, training: bool = True, *, seed: Seed = None,
    stream: int | None = None,
) -> Tensor:  # fmt: skip
    """Dropout of whole channels of x (batch, channels, length) or (channels, length).

    >>> ops.dropout1d(ops.ones(cx, (2, 4, 8)), p=0.5).shape
    (2, 4, 8)
    """
    return _dropped(x, x.ndim - 1, p, training, seed, stream)


def dropout2d(
    x: Tensor, p: float = 0.5, training: bool = True, *, seed: Seed = None,
    stream: int | None = None,
) -> Tensor:  # fmt: skip
    """Dropout of whole channels of x (batch, channels, ...).

    >>> ops.dropout2d(ops.ones(cx, (2, 4, 8, 8)), p=0.5).shape
    (2, 4, 8, 8)
    """
    return _dropped(x, 2, p, training, seed, stream)


def dropout3d(
    x: Tensor, p: float = 0.5, training: bool = True, *, seed: Seed = None,
    stream: int | None = None,
) -> Tensor:  # fmt: skip
    """Dropout of whole channels of x (batch, channels, depth, height, width), or without batch.

    >>> ops.dropout3d(ops.ones(cx, (2, 4, 8, 8, 8)), p=0.5).shape
    (2, 4, 8, 8, 8)
    """
    return _dropped(x, x.ndim - 3, p, training, seed, stream)


def _alpha_dropped(
    x: Tensor, dims: int, p: float, training: bool, seed: Seed, stream: int | None
) -> Tensor:
    if not training or _probability(p) == 0:
        return x
    if p == 1:
        return mul(x, 0)
    scale = ((1 - p) * (1 + p * SELU_FLOOR**2)) ** -0.5
    noisy = where(_kept(x, dims, p, seed, stream), x, SELU_FLOOR)
    return add(mul(noisy, scale), -scale * SELU_FLOOR * p)


def alpha_dropout(
    x: Tensor, p: float = 0.5, training: bool = False, *, seed: Seed = None,
    stream: int | None = None,
) -> Tensor:  # fmt: skip
    """Dropout to selu's lowest value that keeps mean and variance (Klambauer et al. 2017).

    >>> ops.alpha_dropout(cx.constant([1.0, 2.0])).numpy()
    array([1., 2.], dtype=float32)
    """
    return _alpha_dropped(x, x.ndim, p, training, seed, stream)


def feature_alpha_dropout(
    x: Tensor, p: float = 0.5, training: bool = False, *, seed: Seed = None,
    stream: int | None = None,
) -> Tensor:  # fmt: skip
    """alpha_dropout of whole channels of x (batch, channels, ...).

    >>> ops.feature_alpha_dropout(ops.ones(cx, (2, 4, 8)), training=True).shape
    (2, 4, 8)
    """
    return _alpha_dropped(x, 2, p, training, seed, stream)


def rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *,
    seed: Seed = None, stream: int | None = None,
) -> Tensor:  # fmt: skip
    """x, or below 0 a slope times x: drawn from lower .. upper in training, else their mean.

    >>> ops.rrelu(cx.constant([-1.0, 2.0])).numpy().round(3)
    array([-0.229,  2.   ], dtype=float32)
    """
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    slope = add(mul(rand(x.graph, x.shape, seed=seed, stream=stream), upper - lower), lower)
    return where(ge(x, 0), x, mul(x, slope.cast(x.dtype)))
