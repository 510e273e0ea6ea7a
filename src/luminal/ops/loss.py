"""Losses, as in torch.nn.functional. `reduction`: "mean", "sum" or "none"."""

from __future__ import annotations

from ..errors import InputError, ShapeError
from ..graph.dtype import i64
from ..graph.tensor import Tensor
from .base import broadcast, composite, extent, floating, full_like, of_shape, promoting, size_value
from .clamping import clamp
from .elementwise import abs, add, div, maximum, mul, neg, square, sub
from .indexing import gather, index_select
from .logic import eq, lt, ne, where
from .logits import log_softmax
from .math import exp, log, log1p, log_one_and_exp
from .reduction import mean, norm, reduce
from .reduction import sum as total


def reduced(x: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return x
    if reduction == "sum":
        return total(x)
    if reduction == "mean":
        return mean(x)
    raise ShapeError(f'reduction is "mean", "sum" or "none", not {reduction!r}')


@promoting
def mse_loss(
    x: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """(x - target)^2; with weights the mean is over them.

    >>> float(ops.mse_loss(cx.constant([1.0, 2.0]), cx.constant([0.0, 0.0])).numpy())
    2.5
    """
    return _by_weight(square(sub(x, target)), weight, reduction)


@promoting
def l1_loss(
    x: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """|x - target|; with weights the mean is over them.

    >>> float(ops.l1_loss(cx.constant([1.0, 2.0]), cx.constant([0.0, 0.0])).numpy())
    1.5
    """
    return _by_weight(abs(sub(x, target)), weight, reduction)


@promoting
def smooth_l1_loss(
    x: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Square near 0, linear beyond beta, divided by beta.

    >>> a, b = cx.constant([0.5, 4.0]), cx.constant([0.0, 0.0])
    >>> ops.smooth_l1_loss(a, b, reduction="none").numpy()
    array([0.125, 3.5  ], dtype=float32)
    """
    if beta < 0:
        raise InputError(f"smooth_l1_loss: beta {beta} is negative")
    if beta == 0:
        return l1_loss(x, target, reduction=reduction)
    change = sub(x, target)
    near, distance = div(mul(square(clamp(change, -beta, beta)), 0.5), beta), abs(change)
    return reduced(where(lt(distance, beta), near, sub(distance, 0.5 * beta)), reduction)


@floating
def huber_loss(x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Square near 0, linear beyond delta.

    >>> a, b = cx.constant([0.5, 4.0]), cx.constant([0.0, 0.0])
    >>> ops.huber_loss(a, b, reduction="none").numpy()
    array([0.125, 3.5  ], dtype=float32)
    """
    if delta <= 0:
        raise InputError(f"huber_loss: delta {delta} is not positive")
    change = sub(x, target)
    near, distance = mul(square(clamp(change, -delta, delta)), 0.5), abs(change)
    far = mul(sub(distance, 0.5 * delta), delta)
    return reduced(where(lt(distance, delta), near, far), reduction)


def _by_weight(x: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return reduced(x, reduction)
    return _weighted(x, weight.expand(x.shape), reduction)


# ---- classification


@floating
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *,
    ignore_index: int = -100, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-x[target], for log-probabilities x (batch, classes, ...) or (classes,). A program raises no
    errors for values: classes outside are clamped, as indices are (negative ones count from the
    end).

    >>> a, b = cx.constant([[-0.1, -2.0], [-3.0, -0.3]]), cx.constant([0, 1])
    >>> round(float(ops.nll_loss(a, b).numpy()), 3)
    0.2
    """
    return _weighted(*picked(x, target, weight, ignore_index), reduction)


def picked(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """(-x[target], weight[target]); both 0 where the target is ignored."""
    dim = 0 if x.ndim == 1 else 1
    target = _classes(x, target, dim)
    if weight is not None:
        weight = of_shape(weight, (extent(x, dim),), "the weight of classes")
    kept = ne(target, ignore_index)
    safe = where(kept, target, 0)
    losses = neg(gather(x, dim, safe.unsqueeze(dim)).squeeze(dim))
    weights = _class_weights(safe, weight, x).masked_fill(eq(kept, False), 0.0)
    return where(kept, losses, 0.0), weights


def _classes(x: Tensor, target: Tensor, dim: int) -> Tensor:
    """The targets as i64: one for each place of x but that along dim."""
    return of_shape(target.cast(i64), [*x.shape[:dim], *x.shape[dim + 1 :]], "the target")


def _class_weights(target: Tensor, weight: Tensor | None, like: Tensor) -> Tensor:
    if weight is None:
        return full_like(target, 1.0, like.dtype)
    return index_select(weight.cast(like.dtype), 0, target.flatten()).reshape(target.shape)


def _weighted(x: Tensor, weights: Tensor, reduction: str) -> Tensor:
    """The weighted mean (or sum, or all)."""
    x = mul(x, weights)
    return div(total(x), total(weights)) if reduction == "mean" else reduced(x, reduction)


@floating
def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *,
    ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Of logits x (batch, classes, ...) or (classes,): classes as integers, or probabilities.

    >>> logits = cx.constant([[2.0, 0.0], [0.0, 0.0]])
    >>> round(float(ops.cross_entropy(logits, cx.constant([0, 1])).numpy()), 4)
    0.41
    """
    if not 0 <= label_smoothing <= 1:
        raise InputError(f"label_smoothing {label_smoothing} is not in 0 .. 1")
    dim = 0 if x.ndim == 1 else 1
    logs = log_softmax(x, dim)
    if target.dtype.is_float:
        target = of_shape(target, x.shape, "a target of probabilities")
        return _soft_cross_entropy(logs, target, weight, reduction, label_smoothing, dim)
    hard = nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if label_smoothing == 0:
        return hard
    smooth = _smooth_part(logs, target, weight, ignore_index, reduction, dim)
    share = label_smoothing / int(extent(x, dim))
    return add(mul(hard, 1 - label_smoothing), mul(smooth, share))


def _smooth_part(
    logs: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, dim: int
) -> Tensor:
    """The sum of -logs over all classes; its mean is over the weights of the targets."""
    target = _classes(logs, target, dim)
    kept = ne(target, ignore_index)
    each = neg(reduce("sum", _times_class_weight(logs, weight, dim), dim))
    each = where(kept, each, 0.0)
    if reduction != "mean":
        return reduced(each, reduction)
    safe = where(kept, target, 0)
    weights = where(kept, _class_weights(safe, weight, logs), 0.0)
    return div(total(each), total(weights))


def _times_class_weight(x: Tensor, weight: Tensor | None, dim: int) -> Tensor:
    if weight is None:
        return x
    weight = of_shape(weight, (extent(x, dim),), "the weight of classes")
    return mul(x, weight.cast(x.dtype).reshape((-1, *(1,) * (x.ndim - dim - 1))))


def _soft_cross_entropy(
    logs: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float, dim: int
) -> Tensor:
    if smoothing:
        target = add(mul(target, 1 - smoothing), smoothing / int(extent(logs, dim)))
    each = neg(reduce("sum", mul(_times_class_weight(logs, weight, dim), target), dim))
    if reduction != "mean" or each.ndim == 0:
        return reduced(each, reduction)
    return mean(each)


@floating
def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """Of probabilities x; logarithms are limited to -100 as in PyTorch.

    >>> a, b = cx.constant([0.5, 0.9]), cx.constant([1.0, 1.0])
    >>> round(float(ops.binary_cross_entropy(a, b).numpy()), 3)
    0.399
    """
    each = _log_loss(x, of_shape(target.cast(x.dtype), x.shape, "the target"))
    return reduced(each if weight is None else mul(each, weight), reduction)


@composite
def _log_loss(x: Tensor, target: Tensor) -> Tensor:
    of_one = clamp(log(x), min=-100.0)
    of_zero = clamp(log1p(neg(x)), min=-100.0)
    return neg(add(mul(target, of_one), mul(sub(1.0, target), of_zero)))


@floating
def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Of logits x, without overflow.

    >>> a, b = cx.constant([0.0, 2.0]), cx.constant([1.0, 1.0])
    >>> round(float(ops.binary_cross_entropy_with_logits(a, b).numpy()), 3)
    0.41
    """
    target = of_shape(target, x.shape, "the target")
    softplus = log_one_and_exp(neg(x))
    if pos_weight is not None:
        softplus = mul(softplus, add(mul(sub(pos_weight, 1.0), target), 1.0))
    each = add(mul(sub(1.0, target), x), softplus)
    return reduced(each if weight is None else mul(each, weight), reduction)


@promoting
def kl_div(
    x: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target (log target - x), for log-probabilities x; "batchmean" divides by the batch.

    >>> a, b = cx.constant([[-0.5, -1.0]]), cx.constant([[0.5, 0.5]])
    >>> round(float(ops.kl_div(a, b, reduction="batchmean").numpy()), 3)
    0.057
    """
    if log_target:
        each = mul(exp(target), sub(target, x))
    else:
        each = where(ne(target, 0), mul(target, sub(log(target), x)), mul(target, 0.0))
    if reduction != "batchmean":
        return reduced(each, reduction)
    return div(total(each), size_value(each.graph, extent(x, 0), each.dtype) if x.ndim else 1.0)


# ---- distances


@promoting
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The product of a / max(|a|, eps) and b / max(|b|, eps), added up.

    >>> a, b = cx.constant([[1.0, 0.0]]), cx.constant([[3.0, 4.0]])
    >>> ops.cosine_similarity(a, b).numpy().round(3)
    array([0.6], dtype=float32)
    """
    parts = [div(t, maximum(norm(t, 2, dim, keepdim=True), eps)) for t in broadcast(a, b)]
    return total(mul(*parts), dim)


@promoting
def pairwise_distance(
    a: Tensor, b: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The norm of a - b + eps along the last dimension.

    >>> a, b = cx.constant([[0.0, 0.0]]), cx.constant([[3.0, 4.0]])
    >>> ops.pairwise_distance(a, b).numpy().round(3)
    array([5.], dtype=float32)
    """
    return norm(add(sub(a, b), eps), p, -1, keepdim)
