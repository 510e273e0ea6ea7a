"""The gradient of attention over many places: head by head, a block of queries at a time.

With p = softmax(s), s = scale q k^T, and d = sum_j g_j y_j of each query,

    dv = p^T g      ds = p (g v^T - d)      dq = scale ds k      dk = scale ds^T q

(FlashAttention-2: Dao 2023, https://arxiv.org/abs/2307.08691, with whole rows of scores): a step
makes the scores of its queries anew, and nothing of (queries, keys) is ever in memory. Causal
queries are taken in parts besides: each sees the keys up to its end alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import takewhile
from math import inf, prod
from typing import TypeAlias

from .. import ops
from ..graph.dtype import i64
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.node import Composite, Node
from ..graph.tensor import Tensor
from ..ops.attention import attention_scale, under_mask
from ..ops.base import Size, extent, same_size
from .rules import Maybe

Tensors: TypeAlias = tuple[Tensor, ...]
Pull: TypeAlias = Callable[[Tensor, Tensor, Sequence[Tensor]], tuple[Maybe, ...]]

BLOCK, PARTS = 128, 4  # queries at a time; loops over blocks of causal ones, at most
LONG, LARGE = 512, 1 << 22  # queries, and scores of all heads, from which blocks are no slower


def in_blocks(graph: Graph, known: Composite, active: Collection[Node]) -> Pull | None:
    """The gradients of queries, keys and values; None for what is no attention, or a small one, or
    under a mask that is active: one that has a gradient itself."""
    if known.name not in ("attention", "masked_attention"):
        return None
    query, key, _, *masks = known.inputs
    most = _most(graph)
    *around, places, seen = (int(n.evaluate(most)) for n in (*query.shape[:-1], key.shape[-2]))
    large = places >= LONG and prod((*around, places, seen)) >= LARGE
    if not large or any(mask in active for mask in masks):
        return None
    return partial(_pulled if masks else _one_by_one, *known.options)


def _most(graph: Graph) -> dict[str, int]:
    """The largest usual value of each size; of one without hints the largest at all."""
    bounds = {name: high for name, (_, high) in graph.space.sizes.items() if high < inf}
    hints = {name: max(usual) for name, usual in graph.usual.items()}
    return {**graph.space.usual(), **{n: int(high) for n, high in bounds.items()}, **hints}


def _one_by_one(
    is_causal: bool, scale: float | None, offset: Size, g: Tensor, y: Tensor,
    inputs: Sequence[Tensor],
) -> tuple[Maybe, ...]:
    """Heads of keys one after the other: what a step makes of one stays in a cache."""
    query, *others = inputs
    sizes = zip(*(x.shape[:-2] for x in inputs))
    count = sum(1 for _ in takewhile(lambda n: all(same_size(n[0], m) for m in n), sizes))
    if count == 0 or any(x.ndim != query.ndim for x in others):
        return _in_parts(is_causal, scale, offset, g, y, inputs)

    def step(nothing: None, head: Tensors) -> tuple[None, tuple[Maybe, ...]]:
        return nothing, _in_parts(is_causal, scale, offset, head[0], head[1], head[2:])

    heads = tuple(x.flatten(0, count - 1) for x in (g, y, *inputs))
    _, found = ops.scan(step, None, heads)
    return tuple(x.unflatten(0, query.shape[:count]) for x in found)


def _in_parts(
    is_causal: bool, scale: float | None, offset: Size, g: Tensor, y: Tensor,
    inputs: Sequence[Tensor],
) -> tuple[Maybe, ...]:
    """Where queries are causal, and their places known: a few times some of them, with the keys
    that the last of them sees."""
    query, *others = inputs
    places, seen, first = query.shape[-2], others[0].shape[-2], query.graph.size(offset)
    behind = first.is_constant and first.constant >= 0
    if not (is_causal and behind and isinstance(places, int) and isinstance(seen, int)):
        return _pulled(is_causal, scale, offset, g, y, inputs)
    ends = [places * (n + 1) // PARTS // BLOCK * BLOCK for n in range(PARTS - 1)]
    ends = sorted({*ends, places} - {0})
    rows, (dk, dv) = list[Tensor](), map(ops.zeros_like, others)
    for start, end in zip([0, *ends], ends):
        last = min(seen, end + first.constant)
        q, own, of = (x.narrow(-2, start, end - start) for x in (query, g, y))
        near = (x.narrow(-2, 0, last) for x in others)
        found = _pulled(True, scale, first.constant + start, own, of, (q, *near))
        dq, *more = (x for x in found if x is not None)
        rest = [*[(0, 0)] * (query.ndim - 2), (0, seen - last), (0, 0)]
        dk, dv = (total + x.pad(rest) for total, x in zip((dk, dv), more))
        rows.append(dq)
    return ops.cat(rows, -2), dk, dv


def _pulled(
    is_causal: bool, scale: float | None, offset: Size, g: Tensor, y: Tensor,
    inputs: Sequence[Tensor],
) -> tuple[Maybe, ...]:
    query, key, value, *masks = inputs
    factor, places = attention_scale(query, scale), extent(query, query.ndim - 2)
    walked = [mask for mask in masks if mask.ndim > 1 and mask.shape[-2] != 1]
    count = (places + (BLOCK - 1)) // BLOCK

    def rows(x: Tensor) -> Tensor:
        """(blocks, ..., block, n) of (..., places, n), and zeros behind."""
        behind = [*[(0, 0)] * (x.ndim - 2), (0, count * BLOCK - places), (0, 0)]
        return x.pad(behind).unflatten(-2, (count, BLOCK)).movedim(-3, 0)

    def step(carry: Tensors, block: Tensors) -> tuple[Tensors, Tensor]:
        (dk, dv, first), (q, own, mean, *mask) = carry, block
        scores = (q @ key.transpose(-1, -2)) * factor
        if is_causal:
            scores = ops.where(_early(scores, first, offset), scores, float("-inf"))
        for seen in mask or masks:
            scores = under_mask(scores, seen)
        if masks:
            blind = ops.eq(scores.amax(-1, keepdim=True), float("-inf"))
            scores, own = ops.where(blind, 0.0, scores), ops.where(blind, 0.0, own)
        shares = ops.softmax(scores, -1)
        change = shares * (own @ value.transpose(-1, -2) - mean) * factor
        dk = dk + ops.sum_to_size(change.transpose(-1, -2) @ q, key.shape)
        dv = dv + ops.sum_to_size(shares.transpose(-1, -2) @ own, value.shape)
        return (dk, dv, first + BLOCK), change @ key

    mean = (g * y).sum(-1, keepdim=True)
    begin = ops.zeros_like(key), ops.zeros_like(value), 0
    (dk, dv, _), dq = ops.scan(step, begin, tuple(map(rows, (query, g, mean, *walked))))
    dq = dq.movedim(0, -3).flatten(-3, -2).narrow(-2, 0, places)
    return (dq, dk, dv, *(None for _ in masks))


def _early(scores: Tensor, first: Tensor, offset: Size) -> Tensor:
    """Keys that do not lie behind their query, the first of which has this number."""
    ahead = Index.of(f"i{scores.ndim - 1}") - Index.of(f"i{scores.ndim - 2}")
    return scores.graph.iota(scores.shape, ahead - scores.graph.size(offset), i64) < first + 1
