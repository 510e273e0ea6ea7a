"""Blocks of decoder-only language models, under Llama's names."""

from __future__ import annotations

from typing import Any

from ..graph.graph import Graph
from ..graph.tensor import Tensor
from ..ops.base import Size
from .activation import activation_of
from .attention import Attention, KVCache, RotaryEmbedding
from .linear import Linear
from .module import Module
from .norm import RMSNorm

LLAMA = ("q_proj", "k_proj", "v_proj", "o_proj")  # projections of attention


class MLP(Module):
    """Widen, activate, narrow. Gated as in Llama: activation(gate_proj x) * up_proj x between.

    >>> nn.MLP(cx, 8, 32)(cx.tensor(("s", 8))).shape
    (s, 8)
    """

    def __init__(
        self, graph: Graph, width: int, hidden: int, activation: str = "silu", gated: bool = True,
        bias: bool = False, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.activation = activation_of(activation)
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
    positions and grouped heads, RMS norm, gated MLP; residuals around both.

    >>> rotary = nn.RotaryEmbedding(cx, 8)
    >>> nn.DecoderBlock(cx, 32, 4, 2, 64, rotary)(cx.tensor((1, "s", 32))).shape
    (1, s, 32)
    """

    def __init__(
        self, graph: Graph, width: int, heads: int, kv_heads: int, hidden: int,
        rotary: RotaryEmbedding, eps: float = 1e-5, head_dim: int | None = None,
        attention_bias: bool = False, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_layernorm = RMSNorm(graph, width, eps, dtype=dtype)
        self.self_attn = Attention(
            graph, width, heads, kv_heads=kv_heads, head_dim=head_dim, bias=attention_bias,
            names=LLAMA, rotary=rotary, dtype=dtype,
        )  # fmt: skip
        self.post_attention_layernorm = RMSNorm(graph, width, eps, dtype=dtype)
        self.mlp = MLP(graph, width, hidden, dtype=dtype)

    def forward(self, x: Tensor, cache: KVCache | None = None, position: Size = 0) -> Tensor:
        """x: (batch, tokens, width)."""
        normed = self.input_layernorm(x)
        x = x + self.self_attn(normed, is_causal=True, cache=cache, position=position)
        return x + self.mlp(self.post_attention_layernorm(x))
