"""Losses of distances, margins and distributions, as in torch.nn.functional."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..graph.dtype import i64
from ..graph.tensor import Tensor
from .activation import logsigmoid
from .base import extent, floating, of_shape, positions, promoting, tensor_of
from .clamping import clamp
from .elementwise import add, div, maximum, minimum, mul, neg, square, sub
from .indexing import gather
from .logic import eq, gt, logical_and, logical_not, lt, where
from .loss import pairwise_distance, reduced
from .math import exp, log, log_one_and_exp, sqrt
from .reduction import mean, reduce


@floating
def cosine_embedding_loss(
    a: Tensor, b: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1.

    >>> a, b, c = cx.constant([[1.0, 0.0]]), cx.constant([[0.0, 1.0]]), cx.constant([1.0])
    >>> ops.cosine_embedding_loss(a, b, c).numpy()
    array(1., dtype=float32)
    """
    squares = [add(reduce("sum", square(x), -1), 1e-12) for x in (a, b)]
    cos = div(reduce("sum", mul(a, b), -1), sqrt(mul(*squares)))
    same, other = sub(1.0, cos), clamp(sub(cos, margin), min=0.0)
    return reduced(where(eq(target, 1), same, other), reduction)


@floating
def margin_ranking_loss(
    a: Tensor, b: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """max(0, -target (a - b) + margin).

    >>> a, b = cx.constant([1.0]), cx.constant([3.0])
    >>> ops.margin_ranking_loss(a, b, a).numpy()
    array(2., dtype=float32)
    """
    return reduced(clamp(add(neg(mul(target, sub(a, b))), margin), min=0.0), reduction)


@floating
def hinge_embedding_loss(
    x: Tensor, target: Tensor, margin: float = 1.0, *, reduction: str = "mean"
) -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1.

    >>> ops.hinge_embedding_loss(cx.constant([0.5, 0.25]), cx.constant([1.0, -1.0])).numpy()
    array(0.625, dtype=float32)
    """
    far = clamp(sub(margin, x), min=0.0)
    return reduced(where(eq(target, 1), x, far), reduction)


@floating
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, |anchor - positive| - |anchor - negative| + margin); with swap the distance from the
    positive to the negative counts where it is less.

    >>> a, b, c = cx.constant([[0.0]]), cx.constant([[1.0]]), cx.constant([[1.5]])
    >>> round(float(ops.triplet_margin_loss(a, b, c).numpy()), 3)
    0.5
    """

    def distance(one: Tensor, other: Tensor) -> Tensor:
        return pairwise_distance(one, other, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """triplet_margin_loss of any distance, by default the pairwise one.

    >>> a, b, c = cx.constant([[0.0]]), cx.constant([[1.0]]), cx.constant([[1.5]])
    >>> round(float(ops.triplet_margin_with_distance_loss(a, b, c).numpy()), 3)
    0.5
    """
    distance = distance_function or pairwise_distance
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(
    anchor: Tensor, positive: Tensor, negative: Tensor, distance: Any, margin: float, swap: bool,
    reduction: str,
) -> Tensor:  # fmt: skip
    far = distance(anchor, negative)
    far = minimum(far, distance(positive, negative)) if swap else far
    return reduced(clamp(add(sub(distance(anchor, positive), far), margin), min=0.0), reduction)


@floating
def soft_margin_loss(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """log(1 + e^(-target x)).

    >>> a, b = cx.constant([0.0, 2.0]), cx.constant([1.0, 1.0])
    >>> round(float(ops.soft_margin_loss(a, b).numpy()), 3)
    0.41
    """
    return reduced(log_one_and_exp(neg(mul(target, x))), reduction)


@promoting
def poisson_nll_loss(
    x: Tensor, target: Tensor, log_input: bool = True, full: bool = False, *, eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """e^x - target x for logarithms x, else x - target log(x + eps); full adds Stirling's formula
    for log target! where the target is above 1.

    >>> ops.poisson_nll_loss(cx.constant([0.0]), cx.constant([2.0])).numpy()
    array(1., dtype=float32)
    """
    first = sub(exp(x), mul(target, x))
    each = first if log_input else sub(x, mul(target, log(add(x, eps))))
    if full:
        half = mul(log(mul(target, 2 * math.pi)), 0.5)
        stirling = add(sub(mul(target, log(target)), target), half)
        each = add(each, where(gt(target, 1), stirling, 0.0))
    return reduced(each, reduction)


@floating
def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """(log var + (x - target)^2 / var) / 2; full adds log(2 pi) / 2. var: like x, or with 1 for, or
    without, the last dimension, or a number.

    >>> a, b, c = cx.constant([1.0]), cx.constant([3.0]), cx.constant([4.0])
    >>> round(float(ops.gaussian_nll_loss(a, b, c).numpy()), 3)
    1.193
    """
    var = tensor_of(x.graph, var, x.dtype)
    if var.ndim == x.ndim - 1 and var.ndim:
        var = var.unsqueeze(-1)
    held = var.graph.apply("cast", [var], var.dtype)  # no derivative passes it
    var = where(lt(var, eps), add(sub(var, held), eps), var)
    each = mul(add(log(var), div(square(sub(x, target)), var)), 0.5)
    return reduced(add(each, 0.5 * math.log(2 * math.pi)) if full else each, reduction)


# ---- several classes


@floating
def multi_margin_loss(
    x: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over the other classes of max(0, margin - x[target] + x)^p, times the weight of the
    target. x: (batch, classes) or (classes,).

    >>> ops.multi_margin_loss(cx.constant([[0.25, 0.5]]), cx.constant([1])).numpy()
    array(0.375, dtype=float32)
    """
    at = of_shape(target.cast(i64), x.shape[:-1], "the target").unsqueeze(-1)
    gap = maximum(add(sub(x, gather(x, -1, at)), margin), 0.0)
    gap = square(gap) if p == 2 else gap
    if weight is not None:
        weight = of_shape(weight.cast(x.dtype), x.shape[-1:], "the weight of classes")
        gap = mul(gap, gather(weight.expand(x.shape), -1, at))
    own = eq(positions(x, x.ndim - 1), at)
    total = reduce("sum", where(own, 0.0, gap), x.ndim - 1)
    return reduced(div(total, float(extent(x, x.ndim - 1).constant)), reduction)


@floating
def multilabel_margin_loss(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The sum over targets j and other classes i of max(0, 1 - x[j] + x[i]), over the number of
    classes. target: like x, classes in front, then -1.

    >>> ops.multilabel_margin_loss(cx.constant([[0.25, 0.5]]), cx.constant([[1, -1]])).numpy()
    array(0.375, dtype=float32)
    """
    last = x.ndim - 1
    classes = of_shape(target.cast(i64), x.shape, "the target")
    real = eq(lt(classes, 0).cast(i64).scan("sum", last), 0)  # before the first -1
    safe = where(real, classes, 0)
    hit = logical_and(real.unsqueeze(-1), eq(safe.unsqueeze(-1), positions(x, last).unsqueeze(-2)))
    wanted = reduce("max", hit, last)  # (..., classes)
    gap = maximum(add(sub(x.unsqueeze(-2), gather(x, -1, safe).unsqueeze(-1)), 1.0), 0.0)
    counts = logical_and(real.unsqueeze(-1), logical_not(wanted).unsqueeze(-2))
    total = reduce("sum", where(counts, gap, 0.0), (last, last + 1))
    return reduced(div(total, float(extent(x, last).constant)), reduction)


@floating
def multilabel_soft_margin_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of the binary cross entropy of logits x.

    >>> a, b = cx.constant([[0.0, 0.0]]), cx.constant([[1.0, 0.0]])
    >>> round(float(ops.multilabel_soft_margin_loss(a, b).numpy()), 3)
    0.693
    """
    each = neg(add(mul(target, logsigmoid(x)), mul(sub(1.0, target), logsigmoid(neg(x)))))
    each = each if weight is None else mul(each, weight)
    return reduced(mean(each, -1), reduction)
