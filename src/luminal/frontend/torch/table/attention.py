"""Attention, kept whole, and its gradient."""

from __future__ import annotations

from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import boolean
from ....graph.tensor import Tensor
from ....ops.attention import causal
from ....ops.base import Value, extent, size_value, static
from .base import rule, widened


def _factor(query: Tensor, scale: float | None) -> Value:
    """scale, or 1 / sqrt(width)."""
    if scale is not None:
        return scale
    width = extent(query, query.ndim - 1)
    if width.is_constant:
        return float(width.constant**-0.5)
    return ops.rsqrt(size_value(query.graph, width, query.dtype))


def _scores(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """query key^T scale + mask: (..., queries, keys)."""
    scores = ops.mul(ops.matmul(query, key.transpose(-1, -2)), _factor(query, scale))
    if is_causal:
        scores = ops.where(causal(scores), scores, float("-inf"))
    if mask is None:
        return scores
    if mask.dtype is boolean:
        return ops.where(mask, scores, float("-inf"))
    return ops.add(scores, mask.cast(scores.dtype))


def _per_head(x: Tensor, query: Tensor) -> Tensor:
    """Keys or values with a head for each of the query's: each serves a group, by a view."""
    heads, own = extent(query, query.ndim - 3), extent(x, x.ndim - 3)
    if heads is own:
        return x
    return x.repeat_interleave(static(heads, "heads") // static(own, "heads"), x.ndim - 3)


def _per_group(grad: Tensor, x: Tensor) -> Tensor:
    """The gradients of a group's heads, added up."""
    own, dim = extent(x, x.ndim - 3), x.ndim - 3
    if extent(grad, dim) is own:
        return grad
    return ops.sum(grad.unflatten(dim, (own, -1)), dim + 1)


@rule("_scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0, is_causal: bool = False,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """(result, log of the sum of exponentials of each row). A row that sees nothing gives 0."""
    if dropout:
        raise Unsupported("attention with dropout")
    q, k, v = widened(query), _per_head(widened(key), query), _per_head(widened(value), query)
    if extent(v, v.ndim - 2) is not extent(k, k.ndim - 2):  # two symbols for one size
        v = v.narrow(v.ndim - 2, 0, extent(k, k.ndim - 2))
    scores = _scores(q, k, attn_mask, is_causal, scale)
    result = ops.matmul(ops.softmax(scores, -1), v)
    if attn_mask is not None:
        blind = ops.eq(ops.amax(scores, -1, keepdim=True), float("-inf"))
        result = ops.where(blind, 0.0, result)
    return result.cast(query.dtype), ops.logsumexp(scores, -1)


@rule("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    dropout: float, is_causal: bool, attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """Of query, key and value. With P = softmax: dS = P (dO V^T - rowsum(dO O))."""
    if dropout:
        raise Unsupported("attention with dropout")
    q, g, o = widened(query), widened(grad), widened(out)
    k, v = _per_head(widened(key), query), _per_head(widened(value), query)
    scores = _scores(q, k, attn_mask, is_causal, scale)
    weights = ops.exp(ops.sub(scores, logsumexp.unsqueeze(-1)))
    rows = ops.sum(ops.mul(g, o), -1, keepdim=True)
    inner = ops.sub(ops.matmul(g, v.transpose(-1, -2)), rows)
    of_scores = ops.mul(ops.mul(weights, inner), _factor(q, scale))
    of_query = ops.matmul(of_scores, k)
    of_key = ops.matmul(of_scores.transpose(-1, -2), q)
    of_value = ops.matmul(weights.transpose(-1, -2), g)
    return of_query, _per_group(of_key, key), _per_group(of_value, value)
