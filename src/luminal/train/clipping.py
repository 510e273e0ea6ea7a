"""Gradients kept within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from .. import ops
from ..graph.dtype import f32, f64
from ..graph.tensor import Tensor
from .limits import check

Clip: TypeAlias = Callable[[Iterable[Tensor]], list[Tensor]]


def clip_norm(most: float) -> Clip:
    """All gradients scaled by one number, so that their common norm is at most this. The sum of
    squares is in f32; NaN and infinity stay, as in torch.nn.utils.clip_grad_norm_.

    >>> train.clip_norm(1.0)([cx.constant([3.0, 4.0])])[0].numpy().round(3)
    array([0.6, 0.8], dtype=float32)
    """
    check("clip_norm", most)

    def clip(gradients: Iterable[Tensor]) -> list[Tensor]:
        gradients = list(gradients)
        scale = ops.minimum(most / (norm(gradients) + 1e-6), 1.0)
        return [g * scale.cast(g.dtype) for g in gradients]

    return clip


def clip_value(most: float) -> Clip:
    """Every element in -most .. most.

    >>> train.clip_value(1.0)([cx.constant([3.0, -0.5])])[0].numpy()
    array([ 1. , -0.5], dtype=float32)
    """
    check("clip_value", most)
    return lambda gradients: [ops.clamp(g, -most, most) for g in gradients]


def norm(gradients: Iterable[Tensor]) -> Tensor:
    """The root of the sum of all squares: a scalar.

    >>> train.norm([cx.constant([3.0]), cx.constant([4.0])]).numpy()
    array(5., dtype=float32)
    """
    gradients = list(gradients)
    kind = f64 if any(g.dtype is f64 for g in gradients) else f32
    wide = [g.cast(kind) for g in gradients]
    total = (wide[0] * wide[0]).sum()
    for g in wide[1:]:
        total = total + (g * g).sum()
    return ops.sqrt(total)
