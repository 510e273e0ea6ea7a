"""Attention, kept whole, and its gradient."""

from __future__ import annotations

import math
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.tensor import Tensor
from ....ops.attention import attention_scale, attention_scores
from ....ops.base import extent, static
from .base import rule, widened


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
    """(result, log of the sum of exponentials of each row)."""
    if dropout:
        raise Unsupported("attention with dropout")
    q, k, v = widened(query), _per_head(widened(key), query), _per_head(widened(value), query)
    if extent(v, v.ndim - 2) is not extent(k, k.ndim - 2):  # two symbols for one size
        v = v.narrow(v.ndim - 2, 0, extent(k, k.ndim - 2))
    result = ops.scaled_dot_product_attention(
        q, k, v, attn_mask, is_causal=is_causal, scale=scale
    )
    scores = attention_scores(q, k, attn_mask, is_causal, scale)
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
    scores = attention_scores(q, k, attn_mask, is_causal, scale)
    blind = ops.eq(logsumexp, -math.inf)  # a row in which nothing may be seen: its weights are 0
    total = ops.where(blind, 0.0, logsumexp).unsqueeze(-1)
    weights = ops.exp(ops.sub(scores, total))
    rows = ops.sum(ops.mul(g, o), -1, keepdim=True)
    inner = ops.sub(ops.matmul(g, v.transpose(-1, -2)), rows)
    of_scores = ops.mul(ops.mul(weights, inner), attention_scale(q, scale))
    of_query = ops.matmul(of_scores, k)
    of_key = ops.matmul(of_scores.transpose(-1, -2), q)
    of_value = ops.matmul(weights.transpose(-1, -2), g)
    return of_query, _per_group(of_key, key), _per_group(of_value, value)
