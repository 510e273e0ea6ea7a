"""GPT-2 (Radford et al. 2019) under Hugging Face's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import nn, ops
from ..graph import Graph, Tensor
from ..nn import init


@dataclass(frozen=True)
class GPT2Config:
    """Sizes, under the names of its config.json; the defaults are the small GPT-2."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    layer_norm_epsilon: float = 1e-5


class Conv1D(nn.Module):
    """A linear layer that keeps its weight as (in, out), as GPT-2's checkpoints do."""

    def __init__(self, graph: Graph, inputs: int, outputs: int, *_: Any) -> None:
        super().__init__()
        self.weight = init.normal(graph, (inputs, outputs), 0.02)
        self.bias = init.filled(graph, (outputs,), 0)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class MLP(nn.Module):
    """To four times the width and back."""

    def __init__(self, graph: Graph, width: int) -> None:
        super().__init__()
        self.c_fc = Conv1D(graph, width, 4 * width)
        self.c_proj = Conv1D(graph, 4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(ops.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and MLP, each after a norm, with residuals around both."""

    def __init__(self, graph: Graph, config: GPT2Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(graph, config.n_embd, config.layer_norm_epsilon)
        self.attn = nn.Attention(
            graph, config.n_embd, config.n_head, names=("c_attn", "c_proj"), linear=Conv1D
        )
        self.ln_2 = nn.LayerNorm(graph, config.n_embd, config.layer_norm_epsilon)
        self.mlp = MLP(graph, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x), is_causal=True)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Token ids (batch, tokens) i64 to hidden states (batch, tokens, n_embd)."""

    def __init__(self, graph: Graph, config: GPT2Config | None = None) -> None:
        super().__init__()
        config = config or GPT2Config()
        self.wte = nn.Embedding(graph, config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(graph, config.n_positions, config.n_embd)
        self.h = nn.ModuleList(Block(graph, config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(graph, config.n_embd, config.layer_norm_epsilon)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x)

    def scores(self, hidden: Tensor) -> Tensor:
        """Scores of the next token, (..., vocab_size): the head shares the embedding's weight."""
        return ops.linear(hidden, self.wte.weight)
