"""Losses beyond those of `ops` (mse, mae, huber, cross-entropy, BCE, KL, CTC, margins ...)."""

from __future__ import annotations

import itertools

from .. import ops
from ..errors import InputError
from ..graph.dtype import DType, f32, f64, i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from ..ops.base import extent, of_shape
from .checkpoint import checkpoint


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, *, chunks: int = 8, ignore_index: int = -100,
    bias: Tensor | None = None, class_weight: Tensor | None = None, label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """ops.cross_entropy(ops.linear(x, weight, bias), target, class_weight, ...), of which
    (tokens / chunks, classes) logits are made at a time.

    x: (tokens, width), weight: (classes, width), bias and class_weight: (classes,), target:
    (tokens,), integers. reduction: "mean" or "sum". The logits of a part are computed again for its
    gradient. Raises InputError.

    >>> x, weight = cx.constant([[1.0, 0.0]]), cx.constant([[2.0, 0.0], [0.0, 2.0]])
    >>> a = cx.constant([0])
    >>> round(float(train.linear_cross_entropy(x, weight, a, chunks=1).numpy()), 3)
    0.127
    """
    _check_parts(x, chunks)
    if reduction not in ("mean", "sum"):
        raise InputError(f"reduction is 'mean' or 'sum', not {reduction!r}")
    if not 0.0 <= label_smoothing <= 1.0:
        raise InputError(f"label_smoothing is {label_smoothing!r}: it must be in 0 .. 1")

    def part(rows: Tensor, wanted: Tensor) -> Tensor:
        return ops.cross_entropy(
            ops.linear(rows, weight, bias).cast(wide), wanted, class_weight, reduction="sum",
            ignore_index=ignore_index, label_smoothing=label_smoothing,
        )  # fmt: skip

    wide = f64 if x.dtype is f64 else f32  # sums of f16 may be too large for it
    tokens = extent(x, 0)
    target = of_shape(target, (tokens,), "the target")
    ends = [tokens * n // chunks for n in range(chunks + 1)]
    total = None
    for start, end in itertools.pairwise(ends):
        rows, wanted = (t.narrow(0, start, end - start) for t in (x, target))
        loss = checkpoint(part, rows, wanted)
        total = loss if total is None else total + loss
    assert total is not None
    if reduction == "mean":
        total = total / _number(target, class_weight, ignore_index, wide)
    return total.cast(x.dtype)


def _check_parts(x: Tensor, chunks: int) -> None:
    tokens = extent(x, 0) if x.ndim == 2 else Index.of(0)
    most = tokens.constant if tokens.is_constant else chunks
    if not isinstance(chunks, int) or not 1 <= chunks <= most:
        raise InputError(f"{chunks} parts of {x}: a matrix with as many tokens is needed")


def _number(target: Tensor, weight: Tensor | None, ignored: int, kind: DType) -> Tensor:
    """What the mean is over: the targets, or their weights."""
    place = target.cast(i64)
    kept = ops.ne(place, ignored)
    if weight is None:
        return kept.cast(kind).sum()
    own = ops.index_select(weight.cast(kind), 0, ops.where(kept, place, 0))
    return ops.where(kept, own, 0.0).sum()


def focal_loss(
    x: Tensor, target: Tensor, *, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "mean"
) -> Tensor:
    """Binary cross-entropy of logits x, less where they are right (arXiv 1708.02002). alpha: the
    weight of the class 1, that of 0 is 1 - alpha; negative for none.

    >>> a, b = cx.constant([0.0, 2.0]), cx.constant([1.0, 1.0])
    >>> round(float(train.focal_loss(a, b).numpy()), 3)
    0.022
    """
    target = target.cast(x.dtype)
    each = ops.binary_cross_entropy_with_logits(x, target, reduction="none")
    p = ops.sigmoid(x)
    each = each * ops.pow(p + target - 2.0 * p * target, gamma)
    if alpha >= 0:
        each = each * (alpha * target + (1.0 - alpha) * (1.0 - target))
    return _reduced(each, reduction)


def dice_loss(x: Tensor, target: Tensor, *, smooth: float = 1.0, reduction: str = "mean") -> Tensor:
    """1 - (2 |x y| + smooth) / (|x| + |y| + smooth) of each sample (arXiv 1606.04797). x:
    probabilities (batch, ...), target: of the same shape.

    >>> a, b = cx.constant([[1.0, 0.0]]), cx.constant([[1.0, 1.0]])
    >>> round(float(train.dice_loss(a, b).numpy()), 3)
    0.25
    """
    p, y = x.flatten(1), target.cast(x.dtype).flatten(1)
    shared, whole = (p * y).sum(1), p.sum(1) + y.sum(1)
    return _reduced(1.0 - (2.0 * shared + smooth) / (whole + smooth), reduction)


def contrastive_loss(a: Tensor, b: Tensor, temperature: float = 0.07) -> Tensor:
    """Row i of a belongs to row i of b and to no other, and the other way round: the mean of both
    cross-entropies of cosine similarities (CLIP, arXiv 2103.00020). a, b: (batch, width).

    >>> a = cx.constant([[1.0, 0.0], [0.0, 1.0]])
    >>> round(float(train.contrastive_loss(a, a, 1.0).numpy()), 3)
    0.313
    """
    a, b = (ops.normalize(x, dim=-1) for x in (a, b))
    scores = (a @ b.T) / temperature
    own = a.graph.iota((a.shape[0],), "i0")
    return (ops.cross_entropy(scores, own) + ops.cross_entropy(scores.T, own)) * 0.5


def _reduced(each: Tensor, reduction: str) -> Tensor:
    if reduction not in ("mean", "sum", "none"):
        raise InputError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r}")
    return each if reduction == "none" else each.mean() if reduction == "mean" else each.sum()
