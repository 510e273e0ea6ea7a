"""Losses beyond those of `ops` (mse, mae, huber, cross-entropy, BCE, KL, CTC, margins ...)."""

from __future__ import annotations

import itertools

from .. import ops
from ..errors import InputError
from ..graph.dtype import f32, f64, i64
from ..graph.tensor import Tensor
from .checkpoint import checkpoint


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, *, chunks: int = 8, ignore_index: int = -100
) -> Tensor:
    """ops.cross_entropy(x @ weight.T, target), with (tokens / chunks, classes) logits at a time.

    x: (tokens, width), weight: (classes, width), target: (tokens,), integers. The logits of a part
    are computed again for its gradient. Raises InputError.

    >>> x, weight = cx.constant([[1.0, 0.0]]), cx.constant([[2.0, 0.0], [0.0, 2.0]])
    >>> a = cx.constant([0])
    >>> round(float(train.linear_cross_entropy(x, weight, a, chunks=1).numpy()), 3)
    0.127
    """
    tokens = x.shape[0]
    if x.ndim != 2 or not isinstance(tokens, int) or not 1 <= chunks <= tokens:
        raise InputError(f"{chunks} parts of {x}: as many tokens are needed, of a fixed number")

    def part(rows: Tensor, wanted: Tensor) -> Tensor:
        logits = ops.linear(rows, weight).cast(wide)
        return ops.cross_entropy(logits, wanted, ignore_index=ignore_index, reduction="sum")

    wide = f64 if x.dtype is f64 else f32  # sums of f16 may be too large for it
    ends = [tokens * n // chunks for n in range(chunks + 1)]
    total = None
    for start, end in itertools.pairwise(ends):
        wanted = target.narrow(0, start, end - start)
        loss = checkpoint(part, x.narrow(0, start, end - start), wanted)
        total = loss if total is None else total + loss
    assert total is not None
    return (total / ops.ne(target.cast(i64), ignore_index).cast(wide).sum()).cast(x.dtype)


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
