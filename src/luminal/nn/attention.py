"""Multi-head attention, its key and value cache, rotary positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..errors import ShapeError
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.tensor import Tensor
from ..ops.base import Size
from .linear import Linear
from .module import Module


class RotaryEmbedding(Module):
    """Rotates pairs of features by angles that grow with the position (Su et al. 2021).

    Features i and i + width / 2 are a pair, as in Hugging Face models. `frequencies` replaces the
    usual theta^(-2 i / width) (for scaled variants).
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
        whole = state.scatter_node(places, new.cast(state.dtype), 2)
        graph.donate(state, whole)
        return whole.narrow(2, 0, start + length)


class MultiheadAttention(Module):
    """Attention of several heads with projections before and after.

    kv_heads: fewer key and value heads than query heads (grouped or multi query attention).
    rotary: applied to queries and keys. PyTorch's packed in_proj_weight can be loaded.
    """

    def __init__(
        self, graph: Graph, embed_dim: int, num_heads: int, kv_heads: int | None = None,
        bias: bool = True, head_dim: int | None = None, rotary: RotaryEmbedding | None = None,
        output_name: str = "out_proj", dtype: Any = "f32",
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
        setattr(self, output_name, Linear(graph, inner, embed_dim, bias, dtype))
        self.output_name, self.rotary = output_name, rotary

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
        attn_mask: Tensor | None = None, is_causal: bool = False, cache: KVCache | None = None,
        position: Size = 0,
    ) -> Tensor:  # fmt: skip
        """query: (batch, tokens, features); key and value default to it. position: of the first
        token. attn_mask: bool (True may be seen) or a summand, (..., tokens, keys)."""
        key = query if key is None else key
        value = key if value is None else value
        q = self._split(self.q_proj(query), self.num_heads)  # (batch, heads, tokens, head_dim)
        k = self._split(self.k_proj(key), self.kv_heads)
        v = self._split(self.v_proj(value), self.kv_heads)
        if self.rotary is not None:
            q, k = self.rotary(q, position), self.rotary(k, position)
        if cache is not None:
            k, v = cache.update(k, v, position)
        offset = position if cache is not None else 0
        out = ops.scaled_dot_product_attention(
            q, k, v, attn_mask, is_causal, enable_gqa=self.kv_heads != self.num_heads, offset=offset
        )
        return getattr(self, self.output_name)(out.transpose(1, 2).flatten(2, 3))

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)

    def adapt_state(self, state: dict[str, Any], prefix: str) -> None:
        """PyTorch packs the three projections: in_proj_weight, in_proj_bias."""
        sizes = [self.num_heads * self.head_dim, self.kv_heads * self.head_dim]
        for part in ("weight", "bias"):
            packed = state.pop(f"{prefix}in_proj_{part}", None)
            if packed is not None:
                pieces = np.split(np.asarray(packed), [sizes[0], sizes[0] + sizes[1]])
                for letter, piece in zip("qkv", pieces):
                    state[f"{prefix}{letter}_proj.{part}"] = piece
