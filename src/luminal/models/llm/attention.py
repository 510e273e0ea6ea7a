"""Attention of all models, over the cache."""

from __future__ import annotations

from ... import nn, ops
from ...graph import Graph, Tensor
from .cache import Cache
from .config import DecoderConfig
from .norms import norm, plain_norm, through
from .projection import Projection, projection
from .rotary import Rotary
from .storage import Storage


class Attention(nn.Module):
    """Causal attention over the cache: grouped heads, rotary positions, windows, soft caps.

    A layer that has no keys of its own (`DecoderConfig.sources`) takes those of another one. heat:
    (context, 1), what queries at each position are multiplied by.
    """

    def __init__(
        self, graph: Graph, config: DecoderConfig, layer: int, rotary: Rotary | None,
        storage: Storage, heat: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.config, self.rotary, self.layer, self.heat = config, rotary, layer, heat
        self.kv_heads, self.head_dim = config.shape(layer)
        inner, kv = config.heads * self.head_dim, self.kv_heads * self.head_dim
        bias, width = config.attention_bias, config.width
        twice = inner * (2 if config.attention_gate else 1)
        self.q_proj = projection(graph, width, twice, bias, storage, "q_proj")
        own = config.source(layer) == layer
        self.k_proj: Projection | None = None
        self.v_proj: Projection | None = None
        if own:
            self.k_proj = projection(graph, width, kv, bias, storage, "k_proj")
        if own and layer not in config.keys_as_values:
            self.v_proj = projection(graph, width, kv, bias, storage, "v_proj")
        bias = config.output_bias
        self.o_proj = projection(graph, inner, width, bias, storage, "o_proj")
        self.sinks = nn.init.filled(graph, (config.heads,), 0) if config.sinks else None
        self.attn_sub_norm = norm(graph, config, inner) if config.sub_norms else None
        self.q_norm = self.k_norm = None
        if config.qk_norm in ("whole", "head"):
            whole = config.qk_norm == "whole"
            self.q_norm = norm(graph, config, inner if whole else self.head_dim)
            self.k_norm = norm(graph, config, kv if whole else self.head_dim) if own else None

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        """x: (tokens, width)."""
        heads, size = self.config.heads, self.head_dim
        query = self.q_proj(x)
        if self.config.qk_norm == "whole":
            query = through(self.q_norm, query)
        query = query.unflatten(-1, (heads, -1)).transpose(0, 1)  # (heads, tokens, head_dim)
        gate, query = query[..., size:], query.narrow(-1, 0, size)  # a gate of nothing, mostly
        query = self._turned(query, self.q_norm, cache)
        if self.heat is not None:
            query = query * cache.rows(self.heat)
        key, value = self._kept(x, cache)
        out = cache.attend(self.layer, query, key, value, self.sinks)  # (heads, tokens, head_dim)
        if self.config.attention_gate:
            out = out * ops.sigmoid(gate)
        return self.o_proj(through(self.attn_sub_norm, out.transpose(0, 1).flatten(1, 2)))

    def _kept(self, x: Tensor, cache: Cache) -> tuple[Tensor | None, Tensor | None]:
        """Keys and values (kv heads, tokens, head_dim) to keep."""
        if self.k_proj is None:
            return None, None
        raw = self.k_proj(x)
        key = through(self.k_norm, raw) if self.config.qk_norm == "whole" else raw
        value = self._heads(raw if self.v_proj is None else self.v_proj(x))
        if self.config.value_norm:
            value = plain_norm(value, self.config.eps)
        return self._turned(self._heads(key), self.k_norm, cache), value

    def _turned(self, x: Tensor, own: nn.Module | None, cache: Cache) -> Tensor:
        """Queries or keys, normed and at their positions."""
        if self.config.qk_norm == "head":
            x = through(own, x)
        if self.rotary is not None:
            x = self.rotary.turn(x, cache)
            if self.config.qk_norm == "turned":
                x = plain_norm(x, self.config.eps)
        return x

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.kv_heads, self.head_dim)).transpose(0, 1)
