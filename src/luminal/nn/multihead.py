"""Multi-head attention with the parameters and arguments of `torch.nn`."""

from __future__ import annotations

import math
from typing import Any

from .. import ops
from ..errors import DTypeError, ShapeError
from ..graph.dtype import boolean
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from . import init
from .attention import heads, merged
from .linear import Linear
from .module import Module


class MultiheadAttention(Module):
    """Attention of several heads with projections before and after, as `torch.nn` has it.

    Bool masks are True where nothing is seen, unlike those of `scaled_dot_product_attention`.

    >>> x = cx.tensor((2, "s", 16))
    >>> y, _ = nn.MultiheadAttention(cx, 16, 4)(x, x, x)
    >>> y.shape
    (2, s, 16)
    """

    def __init__(
        self, graph: Graph, embed_dim: int, num_heads: int, dropout: float = 0.0,
        bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False,
        kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        if embed_dim % num_heads:
            raise ShapeError(f"attention: {embed_dim} features in {num_heads} heads")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.add_zero_attn, self.batch_first = add_zero_attn, batch_first
        widths = (embed_dim, kdim or embed_dim, vdim or embed_dim)
        self.packed = widths == (embed_dim,) * 3
        if self.packed:
            bound = math.sqrt(6 / (4 * embed_dim))
            self.in_proj_weight = init.uniform(graph, (3 * embed_dim, embed_dim), bound, dtype)
        else:
            for letter, width in zip("qkv", widths):
                bound = math.sqrt(6 / (embed_dim + width))
                weight = init.uniform(graph, (embed_dim, width), bound, dtype)
                setattr(self, f"{letter}_proj_weight", weight)
        self.in_proj_bias = init.filled(graph, (3 * embed_dim,), 0, dtype) if bias else None
        self.out_proj = Linear(graph, embed_dim, embed_dim, bias, dtype)
        if self.out_proj.bias is not None and self.out_proj.bias.node in graph.values:
            graph.values[self.out_proj.bias.node][:] = 0
        deviation = math.sqrt(1 / embed_dim)
        for name in ("bias_k", "bias_v"):
            extra = init.normal(graph, (1, 1, embed_dim), deviation, dtype) if add_bias_kv else None
            setattr(self, name, extra)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """(result like query, weights (batch, queries, keys), or of each head, or None).

        query: (queries, batch, features), batch first if asked for, or (queries, features); key and
        value alike. key_padding_mask: (batch, keys). attn_mask: (queries, keys) or (batch heads,
        queries, keys). A mask is bool, True where nothing is seen, or a summand.
        """
        inputs = [query, key, value]
        alone = query.ndim == 2
        if alone:
            inputs = [part.unsqueeze(0) for part in inputs]
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            inputs = [part.transpose(0, 1) for part in inputs]
        q, k, v = self._projected(inputs)
        mask = self._mask(q, k, key_padding_mask, attn_mask)
        causal = is_causal and attn_mask is None
        drop = self.dropout if self.training else 0.0
        if need_weights:
            mixed, weights = self._weighted(q, k, v, mask, causal, drop)
            weights = ops.mean(weights, 1) if average_attn_weights else weights
        else:
            mixed = ops.scaled_dot_product_attention(q, k, v, mask, drop, causal)
        result = self.out_proj(merged(mixed))
        if alone:
            result = result.squeeze(0)
        elif not self.batch_first:
            result = result.transpose(0, 1)
        if not need_weights:
            return result, None
        return result, weights.squeeze(0) if alone else weights

    def _projected(self, inputs: list[Tensor]) -> list[Tensor]:
        """Queries, keys, values: (batch, heads, tokens, features of a head), and what is added."""
        size, found = self.embed_dim, []
        for place, (letter, x) in enumerate(zip("qkv", inputs)):
            weight = (
                self.in_proj_weight.narrow(0, place * size, size)
                if self.packed
                else getattr(self, f"{letter}_proj_weight")
            )
            bias = self.in_proj_bias
            part = ops.linear(
                x, weight, None if bias is None else bias.narrow(0, place * size, size)
            )
            extra = getattr(self, f"bias_{letter}", None)
            if extra is not None:
                part = ops.cat([part, extra.expand((part.shape[0], 1, size))], 1)
            if self.add_zero_attn and place:
                part = part.pad([(0, 0), (0, 1), (0, 0)])
            found.append(heads(part, self.num_heads))
        return found

    def _mask(
        self, q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None
    ) -> Tensor | None:
        """Both masks as one summand that broadcasts against (batch, heads, queries, keys)."""
        parts = []
        if mask is not None:
            per_head = mask.ndim == 3
            parts.append(mask.unflatten(0, (-1, self.num_heads)) if per_head else mask)
        if padding is not None:
            parts.append(padding.unsqueeze(1).unsqueeze(1))
        summands = [_widened(_summand(part, q), k) for part in parts]
        return ops.add(*summands) if len(summands) == 2 else summands[0] if summands else None

    def _weighted(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, drop: float
    ) -> tuple[Tensor, Tensor]:
        """(result, weights), with the weights as a result of their own."""
        scores = ops.matmul(q, k.transpose(-1, -2)) * (self.embed_dim // self.num_heads) ** -0.5
        if causal:
            scores = ops.where(ops.causal(scores), scores, float("-inf"))
        scores = scores if mask is None else scores + mask
        weights = ops.dropout(ops.softmax(scores, -1), drop)
        return ops.matmul(weights, v), weights


def _summand(mask: Tensor, like: Tensor) -> Tensor:
    """0 where a bool mask lets see, else minus infinity."""
    if mask.dtype is not boolean and not mask.dtype.is_float:
        raise DTypeError(f"masks are bool, or floats that are added, not {mask}")
    if mask.dtype is not boolean:
        return mask.cast(like.dtype)
    return ops.where(mask, float("-inf"), ops.zeros_like(mask, like.dtype))


def _widened(mask: Tensor, keys: Tensor) -> Tensor:
    """0 for keys that the layer itself adds."""
    more = keys.node.shape[2] - mask.node.shape[-1]
    return mask if more == 0 else mask.pad([(0, 0)] * (mask.ndim - 1) + [(0, more)])
