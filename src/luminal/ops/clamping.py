"""Limits from below and above."""

from __future__ import annotations

from ..graph.tensor import Tensor
from .base import Value, composite, holding, operands, result_type, tensor_of
from .elementwise import maximum, minimum


def clamp(x: Tensor, min: Value | None = None, max: Value | None = None) -> Tensor:
    """x limited to min .. max; NaN stays. Where a limit is met the slope is 1, that of `limited` 0.

    >>> ops.clamp(cx.constant([-2.0, 0.5, 3.0]), -1.0, 1.0).numpy()
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    kind = result_type(x, *(limit for limit in (min, max) if limit is not None))
    if kind.is_float and not x.dtype.is_float:  # before a limit: -1 is no u8
        x = x.cast(kind)
    if not x.dtype.is_float or (min is None and max is None):
        return limited(x, min, max)
    if not isinstance(min, Tensor) and not isinstance(max, Tensor):
        return _clamp(x, min, max)
    x = x if min is None else _clamp_low(*operands(x, min))
    return x if max is None else _clamp_high(*operands(x, max))


@composite
def _clamp(x: Tensor, low: Value | None, high: Value | None) -> Tensor:
    """The limits come first: other nodes than those of `limited`."""
    if low is not None:
        x = maximum(tensor_of(x.graph, low, x.dtype), x)
    return x if high is None else minimum(tensor_of(x.graph, high, x.dtype), x)


@composite
def _clamp_low(x: Tensor, low: Tensor) -> Tensor:
    return maximum(low, x)


@composite
def _clamp_high(x: Tensor, high: Tensor) -> Tensor:
    return minimum(high, x)


def limited(x: Tensor, min: Value | None = None, max: Value | None = None) -> Tensor:
    """As clamp, flat at the limits too: PyTorch's hardtanh."""
    if min is not None:
        x = maximum(x, holding(min, x.dtype))
    return x if max is None else minimum(x, holding(max, x.dtype))


def clamp_min(a: Value, b: Value) -> Tensor:
    """a, or b where that is larger; NaN if either is. Where both meet, all the slope is that of a.

    >>> ops.clamp_min(cx.constant([1.0, 5.0]), 3.0).numpy()
    array([3., 5.], dtype=float32)
    """
    return clamp(a, b) if isinstance(a, Tensor) else maximum(a, b)


def clamp_max(a: Value, b: Value) -> Tensor:
    """a, or b where that is smaller; NaN if either is. Where both meet, all the slope is that of a.

    >>> ops.clamp_max(cx.constant([1.0, 5.0]), 3.0).numpy()
    array([1., 3.], dtype=float32)
    """
    return clamp(a, None, b) if isinstance(a, Tensor) else minimum(a, b)
