"""Attention and rotary position embedding."""

from __future__ import annotations

import math

from ..errors import ShapeError
from ..graph.dtype import boolean, i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import Size, Value, composite, extent, floating, literal, same_size, size_value
from .elementwise import add, mul, neg
from .linalg import matmul
from .logic import eq, lt, where
from .logits import softmax
from .math import rsqrt
from .noise import dropout
from .reduction import amax
from .shape import cat


@floating
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False, *, offset: Size = 0,
) -> Tensor:  # fmt: skip
    """softmax(query key^T scale + mask) value; 0 in a row that a mask leaves nothing to see.

    query: (..., heads, queries, width), key and value: (..., kv heads, keys, width). attn_mask:
    bool (True may be seen) or a summand, broadcast to (..., heads, queries, keys). Causal: query i
    sees the keys 0 .. i + offset. With enable_gqa each kv head serves heads / kv heads query heads,
    by views.

    >>> x = cx.tensor((2, 4, "s", 16))  # batch, heads, query, head_dim
    >>> ops.scaled_dot_product_attention(x, x, x, is_causal=True).shape
    (2, 4, s, 16)
    """
    if enable_gqa and not same_size(query.shape[-3], key.shape[-3]):
        return _grouped(query, key, value, attn_mask, dropout_p, is_causal, scale, offset)
    if not dropout_p:
        if attn_mask is None:
            return _attention(query, key, value, is_causal, scale, offset)
        return _masked_attention(query, key, value, attn_mask, is_causal, scale, offset)
    scores = attention_scores(query, key, attn_mask, is_causal, scale, offset)
    mixed = matmul(dropout(softmax(scores, -1), dropout_p), value)
    if attn_mask is None:
        return mixed
    return where(_blind(scores, attn_mask, is_causal, offset), 0.0, mixed)


@composite
def _attention(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None, offset: Size
) -> Tensor:
    return weighted(query, key, value, is_causal, scale, offset)


@composite
def _masked_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor,
    is_causal: bool, scale: float | None, offset: Size,
) -> Tensor:  # fmt: skip
    scores = attention_scores(query, key, mask, is_causal, scale, offset)
    blind = _blind(scores, mask, is_causal, offset)
    return where(blind, 0.0, matmul(softmax(scores, -1), value))


def weighted(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None, offset: Size
) -> Tensor:
    """Attention without a mask."""
    return matmul(softmax(attention_scores(query, key, None, is_causal, scale, offset), -1), value)


def masked(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor,
    is_causal: bool, scale: float | None, offset: Size,
) -> Tensor:  # fmt: skip
    """Attention under a mask, in a form that has a derivative: the softmax of a row that is blind
    is NaN, so it is taken of other scores."""
    scores = attention_scores(query, key, mask, is_causal, scale, offset)
    blind = _blind(scores, mask, is_causal, offset)
    return where(blind, 0.0, matmul(softmax(where(blind, 0.0, scores), -1), value))


def attention_scores(
    query: Tensor, key: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, offset: Size = 0,
) -> Tensor:  # fmt: skip
    """query key^T scale + mask: (..., queries, keys), -inf where nothing may be seen."""
    scores = mul(matmul(query, key.transpose(-1, -2)), attention_scale(query, scale))
    if is_causal:
        scores = where(causal(scores, offset), scores, float("-inf"))
    return scores if attn_mask is None else under_mask(scores, attn_mask)


def _blind(scores: Tensor, mask: Tensor, is_causal: bool, offset: Size) -> Tensor:
    """The rows in which nothing may be seen: by the mask alone, for a value that is read before
    and after a product would be stored, and attention would be no single kernel."""
    hidden = float("-inf")
    seen = where(mask, 0.0, hidden) if mask.dtype is boolean else mask
    seen = seen.cast(scores.dtype)
    if is_causal:
        seen = where(causal(scores, offset), seen, hidden)
    return eq(amax(seen, -1, keepdim=True), hidden)


def attention_scale(query: Tensor, scale: float | None = None) -> Value:
    """The scale given, or 1 / sqrt(width)."""
    if scale is not None:
        return scale
    width = extent(query, query.ndim - 1)
    if width.is_constant:
        return 1 / math.sqrt(width.constant) if width.constant else 1.0
    return rsqrt(size_value(query.graph, width, query.dtype))


def causal(scores: Tensor, offset: Size = 0) -> Tensor:
    """True where key position <= query position + offset, for scores (..., queries, keys).

    >>> ops.causal(ops.zeros(cx, (2, 3)), offset=1).numpy()
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    graph, n = scores.graph, scores.ndim
    ahead = Index.of(f"i{n - 1}") - Index.of(f"i{n - 2}") - graph.size(offset)
    return lt(graph.iota(scores.shape, ahead, i64), 1)


def under_mask(scores: Tensor, mask: Tensor) -> Tensor:
    """-inf where a bool mask hides something; another one is added."""
    if mask.dtype is boolean:
        return where(mask, scores, float("-inf"))
    return add(scores, mask.cast(scores.dtype))


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None, offset: Size,
) -> Tensor:  # fmt: skip
    """Heads split into (kv heads, group); key and value have a dimension of size 1 there."""
    heads, kv = extent(query, query.ndim - 3), extent(key, key.ndim - 3)
    if heads % kv != 0:
        raise ShapeError(f"attention: {heads} heads are no multiple of {kv} key and value heads")
    split = query.unflatten(-3, (kv, heads // kv))
    if mask is not None and mask.ndim >= 3:
        shared = mask.shape[-3] == 1
        mask = mask.unsqueeze(-3) if shared else mask.unflatten(-3, (kv, heads // kv))
    result = scaled_dot_product_attention(
        split, key.unsqueeze(-3), value.unsqueeze(-3), mask, dropout_p, is_causal, scale,
        offset=offset,
    )  # fmt: skip
    return result.flatten(-4, -3)


# ---- rotary position embedding


def rotate_half(x: Tensor) -> Tensor:
    """(-x2, x1) of the two halves of the last dimension.

    >>> ops.rotate_half(cx.constant([1.0, 2.0, 3.0, 4.0])).numpy()
    array([-3., -4.,  1.,  2.], dtype=float32)
    """
    half = extent(x, x.ndim - 1) // 2
    first, second = x.narrow(-1, 0, half), x.narrow(-1, half, half)
    return cat([neg(second), first], -1)


@floating
def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x cos + rotate_half(x) sin, the halves layout of Hugging Face models; cos and sin broadcast
    against (..., positions, width).

    >>> a = cx.constant([[1.0, 2.0]])
    >>> b = cx.constant([[0.0, 0.0]])
    >>> c = cx.constant([[1.0, 1.0]])
    >>> ops.apply_rotary(a, b, c).numpy()
    array([[-2.,  1.]], dtype=float32)
    """
    return add(mul(x, cos), mul(rotate_half(x), sin))


@floating
def apply_rotary_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same rotation of neighbouring pairs; cos and sin: (positions, width / 2).

    >>> a = cx.constant([[1.0, 2.0, 3.0, 4.0]])
    >>> b = cx.constant([[1.0, 0.0]])
    >>> c = cx.constant([[0.0, 1.0]])
    >>> ops.apply_rotary_pairs(a, b, c).numpy()
    array([[ 1.,  2., -4.,  3.]], dtype=float32)
    """
    pairs = x.unflatten(-1, (-1, 2))
    even, odd = pairs.select(-1, 0), pairs.select(-1, 1)
    first = add(mul(even, cos), neg(mul(odd, sin)))
    second = add(mul(even, sin), mul(odd, cos))
    return cat([first.unsqueeze(-1), second.unsqueeze(-1)], -1).flatten(-2, -1)


def alibi_slopes(graph_like: Tensor, heads: int) -> Tensor:
    """2^(-8 (h + 1) / heads) for each head (a power of two of them).

    >>> ops.alibi_slopes(cx.constant([0.0]), 4).numpy()
    array([0.25      , 0.0625    , 0.015625  , 0.00390625], dtype=float32)
    """
    step = literal(graph_like.graph, -8 / heads, graph_like.dtype)
    number = graph_like.graph.iota((heads,), Index.of("i0") + 1, i64).cast(graph_like.dtype)
    return graph_like.graph.apply("exp2", [mul(number, step)])
