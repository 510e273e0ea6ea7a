"""The encoder of T5 1.1 (Raffel et al. 2019, https://arxiv.org/abs/1910.10683), under Hugging
Face's names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import nn, ops
from ...graph import Graph, Tensor
from ...graph.index import Index
from ...nn.activation import BY_NAME, activation_of
from ...ops.base import Size
from ...weights.fields import Fields


@dataclass(frozen=True)
class T5Config:
    """Sizes of an encoder, under the names of its config.json."""

    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_layers: int
    num_heads: int
    buckets: int
    distance: int
    eps: float
    act: str
    gated: bool

    @staticmethod
    def load(file: Path) -> T5Config:
        """Raises WeightsError."""
        return T5Config.read(Fields.load(file))

    @staticmethod
    def read(given: Fields) -> T5Config:
        """Raises WeightsError."""
        given.text("model_type", "t5", among=("t5", "mt5"))
        kind = given.text("feed_forward_proj", "relu")
        gated, act = kind.startswith("gated-"), kind.removeprefix("gated-")
        act = "gelu_new" if kind == "gated-gelu" else act
        if act not in BY_NAME:
            raise given.wrong("feed_forward_proj", "a known activation, with gated- or without")
        return T5Config(
            given.count("vocab_size"), given.count("d_model"), given.count("d_kv"),
            given.count("d_ff"), given.count("num_layers"), given.count("num_heads"),
            given.count("relative_attention_num_buckets", 32),
            given.count("relative_attention_max_distance", 128),
            given.number("layer_norm_epsilon", 1e-6, low=0, high=1), act, gated,
        )  # fmt: skip


def bucket(distance: np.ndarray, count: int, most: int) -> np.ndarray:
    """The number of a bucket of key position - query position: half of them for either direction,
    half of those exact, the others growing with the logarithm up to `most`."""
    half = count // 2
    exact = half // 2
    far = np.abs(distance)
    with np.errstate(divide="ignore"):
        grown = exact + np.log(far / exact) / math.log(most / exact) * (half - exact)
    grown = np.minimum(np.where(far < exact, 0, grown).astype(np.int64), half - 1)
    return np.where(distance > 0, half, 0) + np.where(far < exact, far, grown)


class Dense(nn.Module):
    """A feed-forward part, gated or plain."""

    def __init__(self, graph: Graph, config: T5Config) -> None:
        super().__init__()
        self.activation, self.gated = activation_of(config.act), config.gated
        names = ("wi_0", "wi_1") if config.gated else ("wi",)
        for name in names:
            setattr(self, name, nn.Linear(graph, config.d_model, config.d_ff, bias=False))
        self.wo = nn.Linear(graph, config.d_ff, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        first, *gate = (module for name, module in self._modules.items() if name != "wo")
        y = self.activation(first(x))
        return self.wo(y * gate[0](x) if gate else y)


class Part(nn.Module):
    """A norm and what follows it, under a name of its own."""

    def __init__(self, graph: Graph, config: T5Config, name: str, inner: nn.Module) -> None:
        super().__init__()
        self.layer_norm = nn.RMSNorm(graph, config.d_model, config.eps)
        setattr(self, name, inner)
        self.name = name

    def forward(self, x: Tensor, **seen: Any) -> Tensor:
        return x + self._modules[self.name](self.layer_norm(x), **seen)


class Block(nn.Module):
    """Attention, then a feed-forward part."""

    def __init__(self, graph: Graph, config: T5Config, biased: bool) -> None:
        super().__init__()
        inner, names = config.d_kv, ("q", "k", "v", "o")
        attention = nn.Attention(
            graph, config.d_model, config.num_heads, head_dim=inner, bias=False, names=names
        )
        if biased:
            table = nn.Embedding(graph, config.buckets, config.num_heads)
            attention.relative_attention_bias = table
        self.layer = nn.ModuleList([
            Part(graph, config, "SelfAttention", attention),
            Part(graph, config, "DenseReluDense", Dense(graph, config)),
        ])  # fmt: skip

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        return self.layer[1](self.layer[0](x, mask=bias, scale=1.0))


class Encoder(nn.Module):
    """All blocks; the first one has the biases of all."""

    def __init__(self, graph: Graph, config: T5Config) -> None:
        super().__init__()
        self.graph, self.config = graph, config
        self.block = nn.ModuleList(Block(graph, config, n == 0) for n in range(config.num_layers))
        self.final_layer_norm = nn.RMSNorm(graph, config.d_model, config.eps)

    def bias(self, length: int) -> Tensor:
        """Of scores, by the distance of a key: (heads, length, length)."""
        at = np.arange(length)
        return self._table(at[None] - at[:, None]).permute(2, 0, 1)

    def bias_of(self, length: Size, most: int) -> Tensor:
        """As `bias`, of any length up to `most`."""
        table = self._table(np.arange(1 - most, most))  # (distances, heads)
        ahead = self.graph.iota((length, length), Index.of("i1") - Index.of("i0") + (most - 1))
        return ops.embedding(ahead, table).permute(2, 0, 1)

    def _table(self, distances: np.ndarray) -> Tensor:
        numbers = bucket(distances, self.config.buckets, self.config.distance)
        biases = self.block[0].layer[0].SelfAttention.relative_attention_bias
        table: Tensor = biases(self.graph.constant(numbers))
        return table

    def forward(self, x: Tensor, most: int | None = None, seen: Tensor | None = None) -> Tensor:
        """most: tokens, where their number is not known. seen: (batch, tokens) bool, those that are
        no padding."""
        length = x.shape[1]
        bias = self.bias(int(length)) if most is None else self.bias_of(length, most)
        if seen is not None:
            bias = ops.where(seen.unsqueeze(1).unsqueeze(1), bias.unsqueeze(0), float("-inf"))
        for block in self.block:
            x = block(x, bias)
        return self.final_layer_norm(x)


class T5Encoder(nn.Module):
    """ids (batch, tokens) i64 to hidden states (batch, tokens, d_model); padding is seen
    where `seen` is not told."""

    def __init__(self, graph: Graph, config: T5Config) -> None:
        super().__init__()
        self.shared = nn.Embedding(graph, config.vocab_size, config.d_model)
        self.encoder = Encoder(graph, config)

    def forward(
        self, ids: Tensor, most: int | None = None, seen: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """most, seen: as of `Encoder`."""
        return self.encoder(self.shared(ids), most, seen)
