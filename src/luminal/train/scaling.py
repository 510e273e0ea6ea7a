"""Loss scaling: gradients of f16 are small numbers, which a factor keeps from becoming 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import ops
from ..graph.dtype import i64
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from .limits import check, whole


@dataclass(frozen=True)
class LossScale:
    """The factor of the loss, as torch.amp.GradScaler has it: a step whose gradients are not finite
    is left out, and the factor falls; after `interval` good ones in a row it grows.

    >>> w = cx.parameter(1, "f16").set([1.0])
    >>> loss = (w * w).sum().cast("f32")
    >>> step = train.Step(loss, [w], train.SGD(), masters=True, scaling=train.LossScale())
    """

    initial: float = 65536.0
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self) -> None:
        check("LossScale: initial", self.initial, 1e-30)
        check("LossScale: growth", self.growth, 1.0)
        check("LossScale: backoff", self.backoff, 1e-30, 1.0)
        whole("LossScale: interval", self.interval, 1)


class Scaled:
    """The factor and the good steps in a row as states of a graph."""

    def __init__(self, graph: Graph, scale: LossScale) -> None:
        self.numbers = scale
        self.factor = graph.parameter((), "f32", "scale").set(np.float32(scale.initial))
        self.good = graph.parameter((), "i64", "scale.good").set(np.int64(0))

    def renew(self, finite: Tensor, last: Tensor | None) -> None:
        """What the next step takes. last: whether this one updates the parameters."""
        grown = ops.eq(self.good, self.numbers.interval - 1)
        larger = self.factor * self.numbers.growth
        higher = ops.where(ops.logical_and(grown, ops.isfinite(larger)), larger, self.factor)
        factor = ops.where(finite, higher, self.factor * self.numbers.backoff)
        again = ops.logical_or(grown, ops.logical_not(finite))
        good = ops.where(again, ops.zeros_like(self.good), self.good + 1)
        if last is not None:
            factor, good = ops.where(last, factor, self.factor), ops.where(last, good, self.good)
        self.factor.graph.donate(self.factor, factor)
        self.factor.graph.donate(self.good, good.cast(i64))


def all_finite(gradients: Sequence[Tensor]) -> Tensor:
    """Whether every element is."""
    good = ops.isfinite(gradients[0]).all()
    for g in gradients[1:]:
        good = ops.logical_and(good, ops.isfinite(g).all())
    return good
