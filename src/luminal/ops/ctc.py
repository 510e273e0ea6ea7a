"""Connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph.dtype import i64
from ..graph.tensor import Tensor
from .base import extent, full_like, literal, static
from .clamping import clamp
from .elementwise import add, div, floor_divide, isinf, mul, neg, sub
from .indexing import gather, take
from .logic import eq, logical_and, lt, ne, where
from .loss import reduced
from .math import logaddexp
from .reduction import mean
from .remainders import remainder

Lengths = Tensor | Sequence[int]


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths,
    blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """-log of the probability of all ways to spell the targets with blanks and repetitions.

    log_probs: (steps, batch, classes) or (steps, classes), steps fixed; targets: (batch, longest),
    or all targets in a row; lengths: (batch,). "mean" is over losses divided by target lengths.

    >>> log_probs = ops.log_softmax(ops.zeros(cx, (2, 1, 3)), -1)  # 2 frames, 1 text, 3 classes
    >>> round(float(ops.ctc_loss(log_probs, cx.constant([[1]]), (2,), (1,)).numpy()), 3)
    1.099
    """
    if log_probs.ndim == 2:
        alone = targets.reshape((1, -1))
        steps, sizes = _both_lengths(log_probs, input_lengths, target_lengths)
        each = _losses(log_probs.unsqueeze(1), alone, steps.reshape(1), sizes.reshape(1), blank)
    else:
        steps, sizes = _both_lengths(log_probs, input_lengths, target_lengths)
        rows = targets if targets.ndim == 2 else _rows(targets, sizes)
        each = _losses(log_probs, rows, steps, sizes, blank)
    if zero_infinity:
        each = where(isinf(each), 0.0, each)
    if reduction != "mean":
        each = each.squeeze(0) if log_probs.ndim == 2 else each
        return reduced(each, reduction)
    return mean(div(each, clamp(sizes.reshape(-1), 1).cast(each.dtype)))


def _both_lengths(like: Tensor, *given: Lengths) -> list[Tensor]:
    arrays = (g if isinstance(g, Tensor) else np.asarray(g, np.int64) for g in given)
    return [(a if isinstance(a, Tensor) else like.graph.constant(a)).cast(i64) for a in arrays]


def _rows(targets: Tensor, sizes: Tensor) -> Tensor:
    """(batch, all): each sequence of those in a row, at the start of a row of its own."""
    start = sub(sizes.scan("sum", 0), sizes).unsqueeze(-1)
    here = targets.graph.iota((sizes.shape[0], extent(targets, 0)), "i1")
    return take(targets, clamp(add(start, here), None, extent(targets, 0).constant - 1))


def _losses(log_probs: Tensor, targets: Tensor, steps: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """(batch,). alpha[s]: log of the probability to be at place s of blank, t0, blank, t1, ..."""
    batch, longest = log_probs.shape[1], extent(targets, 1)
    places = log_probs.graph.iota((batch, longest * 2 + 1), "i1")
    odd = eq(remainder(places, 2), 1)
    nothing = literal(log_probs.graph, -np.inf, log_probs.dtype)
    letter = full_like(places, blank)
    if longest.constant:
        number = clamp(floor_divide(sub(places, 1), 2), 0, longest.constant - 1)
        letter = where(odd, gather(targets.cast(i64), 1, number), blank)
    repeats = eq(letter, letter.pad([(0, 0), (2, 0)], -1).narrow(1, 0, longest * 2 + 1))
    skips = logical_and(odd, logical_and(ne(repeats, True), lt(1, places)))

    def said(step: int) -> Tensor:
        return gather(log_probs.select(0, step), 1, letter)

    def before(alpha: Tensor, shift: int) -> Tensor:
        moved = alpha.pad([(0, 0), (shift, 0)], -np.inf)
        return moved.narrow(1, 0, longest * 2 + 1)

    alpha = where(lt(places, 1), literal(log_probs.graph, 0.0, log_probs.dtype), nothing)
    for step in range(static(log_probs.shape[0], "the number of steps")):
        two = logaddexp(alpha, before(alpha, 1))
        three = logaddexp(two, where(skips, before(alpha, 2), nothing))
        alpha = where(lt(step, steps).unsqueeze(-1), add(three, said(step)), alpha)
    end = mul(sizes, 2).unsqueeze(-1)
    at_blank = gather(alpha, 1, end)
    at_letter = where(lt(0, end), gather(alpha, 1, clamp(sub(end, 1), 0)), nothing)
    return neg(logaddexp(at_blank, at_letter)).squeeze(-1)
