"""Feed-forward and transformer blocks."""

from __future__ import annotations

from typing import Any

from ..errors import Unsupported
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from ..ops.base import Size
from .activation import BY_NAME
from .attention import KVCache, MultiheadAttention, RotaryEmbedding
from .linear import Dropout, Linear
from .module import Module, ModuleList
from .norm import LayerNorm, RMSNorm


def _activation(name: str) -> Any:
    if name not in BY_NAME:
        raise Unsupported(f"activation {name!r}; there are {', '.join(BY_NAME)}")
    return BY_NAME[name]


class MLP(Module):
    """Widen, activate, narrow. Gated as in Llama: activation(gate_proj x) * up_proj x between."""

    def __init__(
        self, graph: Graph, width: int, hidden: int, activation: str = "silu", gated: bool = True,
        bias: bool = False, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.activation = _activation(activation)
        self.gate_proj = Linear(graph, width, hidden, bias, dtype) if gated else None
        self.up_proj = Linear(graph, width, hidden, bias, dtype)
        self.down_proj = Linear(graph, hidden, width, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up_proj(x)
        if self.gate_proj is None:
            return self.down_proj(self.activation(up))
        return self.down_proj(self.activation(self.gate_proj(x)) * up)


class DecoderBlock(Module):
    """A block of a decoder-only model under Llama's names: RMS norm, causal attention with rotary
    positions and grouped heads, RMS norm, gated MLP; residuals around both."""

    def __init__(
        self, graph: Graph, width: int, heads: int, kv_heads: int, hidden: int,
        rotary: RotaryEmbedding, eps: float = 1e-5, head_dim: int | None = None,
        attention_bias: bool = False, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_layernorm = RMSNorm(graph, width, eps, dtype=dtype)
        self.self_attn = MultiheadAttention(
            graph, width, heads, kv_heads, attention_bias, head_dim, rotary, "o_proj", dtype
        )
        self.post_attention_layernorm = RMSNorm(graph, width, eps, dtype=dtype)
        self.mlp = MLP(graph, width, hidden, dtype=dtype)

    def forward(self, x: Tensor, cache: KVCache | None = None, position: Size = 0) -> Tensor:
        """x: (batch, tokens, width)."""
        normed = self.input_layernorm(x)
        x = x + self.self_attn(normed, is_causal=True, cache=cache, position=position)
        return x + self.mlp(self.post_attention_layernorm(x))


class TransformerEncoderLayer(Module):
    """Self attention and a feed-forward part, under PyTorch's names; batch first."""

    def __init__(
        self, graph: Graph, d_model: int, nhead: int, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: str = "relu", layer_norm_eps: float = 1e-5,
        norm_first: bool = False, bias: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.self_attn = MultiheadAttention(graph, d_model, nhead, bias=bias, dtype=dtype)
        self.linear1 = Linear(graph, d_model, dim_feedforward, bias, dtype)
        self.linear2 = Linear(graph, dim_feedforward, d_model, bias, dtype)
        self.norm1 = LayerNorm(graph, d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(graph, d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout = Dropout(graph, dropout)
        self.activation, self.norm_first = _activation(activation), norm_first

    def forward(self, x: Tensor, src_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """x: (batch, tokens, d_model). src_mask: bool (True may be seen) or a summand."""
        if self.norm_first:
            x = x + self._attend(self.norm1(x), src_mask, is_causal)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self._attend(x, src_mask, is_causal))
        return self.norm2(x + self._feed_forward(x))

    def _attend(self, x: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        return self.dropout(self.self_attn(x, attn_mask=mask, is_causal=is_causal))

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.linear1(x)))
        return self.dropout(self.linear2(hidden))


class TransformerDecoderLayer(Module):
    """Causal self attention, attention to an encoder's output, a feed-forward part; batch first."""

    def __init__(
        self, graph: Graph, d_model: int, nhead: int, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: str = "relu", layer_norm_eps: float = 1e-5,
        norm_first: bool = False, bias: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.self_attn = MultiheadAttention(graph, d_model, nhead, bias=bias, dtype=dtype)
        self.multihead_attn = MultiheadAttention(graph, d_model, nhead, bias=bias, dtype=dtype)
        self.linear1 = Linear(graph, d_model, dim_feedforward, bias, dtype)
        self.linear2 = Linear(graph, dim_feedforward, d_model, bias, dtype)
        for name in ("norm1", "norm2", "norm3"):
            setattr(self, name, LayerNorm(graph, d_model, layer_norm_eps, bias=bias, dtype=dtype))
        self.dropout = Dropout(graph, dropout)
        self.activation, self.norm_first = _activation(activation), norm_first

    def forward(
        self, x: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """x: (batch, tokens, d_model), memory: (batch, source tokens, d_model)."""

        def attend(y: Tensor) -> Tensor:
            out = self.self_attn(y, attn_mask=tgt_mask, is_causal=tgt_is_causal)
            return self.dropout(out)

        def cross(y: Tensor) -> Tensor:
            out = self.multihead_attn(y, memory, attn_mask=memory_mask)
            return self.dropout(out)

        def feed_forward(y: Tensor) -> Tensor:
            hidden = self.dropout(self.activation(self.linear1(y)))
            return self.dropout(self.linear2(hidden))

        parts = zip((attend, cross, feed_forward), ("norm1", "norm2", "norm3"))
        for part, name in parts:
            norm = getattr(self, name)
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x


class TransformerEncoder(Module):
    """Layers one after the other, and a last norm if there is one."""

    def __init__(
        self, graph: Graph, layers: list[TransformerEncoderLayer], norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers, self.norm = ModuleList(layers), norm

    def forward(self, x: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask, is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """Decoder layers one after the other, and a last norm if there is one."""

    def __init__(
        self, graph: Graph, layers: list[TransformerDecoderLayer], norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers, self.norm = ModuleList(layers), norm

    def forward(self, x: Tensor, memory: Tensor, **options: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, memory, **options)
        return x if self.norm is None else self.norm(x)
