"""Multi-head attention, its key and value cache, rotary positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import ops
from ..errors import ShapeError
from ..graph.dtype import boolean
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.tensor import Tensor
from ..ops.base import Size
from . import init
from .linear import Linear
from .module import Module


class RotaryEmbedding(Module):
    """Rotates pairs of features by angles that grow with the position (Su et al. 2021).

    Features i and i + width / 2 are a pair, as in Hugging Face models. `frequencies` replaces the
    usual theta^(-2 i / width) (for scaled variants).

    >>> nn.RotaryEmbedding(cx, 8)(cx.tensor((2, "s", 8)), position=5).shape
    (2, s, 8)
    """

    def __init__(
        self, graph: Graph, width: int, max_positions: int = 4096, theta: float = 10000.0,
        frequencies: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if frequencies is None:
            frequencies = theta ** -(np.arange(0, width, 2, dtype=np.float64) / width)
        angles = np.arange(max_positions)[:, None] * frequencies[None]  # (positions, width / 2)
        self.cos = graph.constant(np.cos(angles).astype(np.float32))
        self.sin = graph.constant(np.sin(angles).astype(np.float32))

    def forward(self, x: Tensor, position: Size = 0) -> Tensor:
        """x: (..., tokens, width), the first token at `position`."""
        length, half = x.shape[-2], x.shape[-1] // 2
        cos, sin = (table.narrow(0, position, length) for table in (self.cos, self.sin))
        wide = x.cast("f32") if x.dtype.bytes < 4 else x
        first, second = wide.narrow(-1, 0, half), wide.narrow(-1, half, half)
        turned = ops.cat([first * cos - second * sin, second * cos + first * sin], -1)
        return turned.cast(x.dtype)


class KVCache:
    """Keys and values of earlier tokens: two states of the graph, kept in place between runs.

    keys and values: (batch, kv heads, capacity, width). Not a module: it holds no weights.

    >>> cache, new = nn.KVCache(cx, 1, 2, 64, 8), cx.tensor((1, 2, "s", 8))
    >>> keys, values = cache.update(new, new, position=0)
    >>> keys.shape
    (1, 2, s, 8)
    """

    def __init__(
        self, graph: Graph, batch: Size, kv_heads: int, capacity: int, width: int,
        dtype: Any = "f32", name: str = "cache",
    ) -> None:  # fmt: skip
        shape = (batch, kv_heads, capacity, width)
        self.keys = graph.tensor(shape, dtype, f"{name}.keys")
        self.values = graph.tensor(shape, dtype, f"{name}.values")
        if all(isinstance(size, int) for size in shape):
            for state in (self.keys, self.values):
                state.set(np.zeros(shape, state.dtype.numpy))

    def update(self, key: Tensor, value: Tensor, position: Size) -> tuple[Tensor, Tensor]:
        """Write new keys and values at position, position + 1, ...; all that are there then."""
        return self._write(self.keys, key, position), self._write(self.values, value, position)

    def _write(self, state: Tensor, new: Tensor, position: Size) -> Tensor:
        graph = state.graph
        start, length = graph.size(position), new.node.shape[2]
        capacity = state.node.shape[2]
        graph.require(capacity - start - length, f"cache: {start} + {length} tokens of {capacity}")
        places = graph.iota(new.shape, Index.of("i2") + start)
        whole = state._scatter(places, new.cast(state.dtype), 2)
        graph.donate(state, whole)
        return whole.narrow(2, 0, start + length)


class CachedAttention(Module):
    """Attention of decoders: (batch, tokens, features), over a cache, with rotary positions.

    kv_heads: fewer key and value heads than query heads (grouped or multi query attention).
    rotary: applied to queries and keys.

    >>> layer, x = nn.CachedAttention(cx, 16, 4), cx.tensor((2, "s", 16))
    >>> layer(x).shape
    (2, s, 16)
    """

    def __init__(
        self, graph: Graph, embed_dim: int, num_heads: int, kv_heads: int | None = None,
        bias: bool = True, head_dim: int | None = None, rotary: RotaryEmbedding | None = None,
        dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_heads, self.kv_heads = num_heads, kv_heads or num_heads
        if (head_dim is None and embed_dim % num_heads) or num_heads % self.kv_heads:
            raise ShapeError(
                f"attention: {embed_dim} features, {num_heads} heads, {self.kv_heads} kv heads"
            )
        self.head_dim = head_dim or embed_dim // num_heads
        inner, kv = num_heads * self.head_dim, self.kv_heads * self.head_dim
        self.q_proj = Linear(graph, embed_dim, inner, bias, dtype)
        self.k_proj = Linear(graph, embed_dim, kv, bias, dtype)
        self.v_proj = Linear(graph, embed_dim, kv, bias, dtype)
        self.o_proj = Linear(graph, inner, embed_dim, bias, dtype)
        self.rotary = rotary

    def forward(self, x: Tensor, cache: KVCache | None = None, position: Size = 0) -> Tensor:
        """x: (batch, tokens, features), each token sees itself and those before. position: of the
        first token."""
        q = heads(self.q_proj(x), self.num_heads)  # (batch, heads, tokens, head_dim)
        k, v = (heads(part(x), self.kv_heads) for part in (self.k_proj, self.v_proj))
        if self.rotary is not None:
            q, k = self.rotary(q, position), self.rotary(k, position)
        if cache is not None:
            k, v = cache.update(k, v, position)
        offset = position if cache is not None else 0
        grouped = self.kv_heads != self.num_heads
        out = ops.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=grouped, offset=offset
        )
        return self.o_proj(out.transpose(1, 2).flatten(2, 3))


def heads(x: Tensor, count: int) -> Tensor:
    """(batch, tokens, features) as (batch, heads, tokens, features of a head)."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


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
        deviation = math.sqrt(2 / embed_dim)
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
        result = self.out_proj(mixed.transpose(1, 2).flatten(2, 3))
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
    if mask.dtype is not boolean:
        return mask.cast(like.dtype)
    return ops.where(mask, float("-inf"), ops.zeros_like(mask, like.dtype))


def _widened(mask: Tensor, keys: Tensor) -> Tensor:
    """0 for keys that the layer itself adds."""
    more = keys.node.shape[2] - mask.node.shape[-1]
    return mask if more == 0 else mask.pad([(0, 0)] * (mask.ndim - 1) + [(0, more)])
