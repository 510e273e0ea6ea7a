"""Linear layers and embeddings."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..errors import InputError
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from . import init
from .module import Module


def _bias(graph: Graph, size: int, fan_in: int, dtype: Any) -> Tensor:
    return init.fan_in_uniform(graph, (size,), fan_in, dtype)


class Linear(Module):
    """x @ weight^T + bias: (..., in_features) to (..., out_features).

    >>> layer = nn.Linear(cx, 4, 3)
    >>> layer(cx.tensor(("batch", 4))).shape
    (batch, 3)
    """

    def __init__(
        self, graph: Graph, in_features: int, out_features: int, bias: bool = True,
        dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.weight = init.fan_in_uniform(graph, (out_features, in_features), in_features, dtype)
        self.bias = _bias(graph, out_features, in_features, dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, self.bias)


class Bilinear(Module):
    """a^T W_o b + bias for each output o.

    >>> nn.Bilinear(cx, 4, 5, 3)(cx.tensor(("s", 4)), cx.tensor(("s", 5))).shape
    (s, 3)
    """

    def __init__(
        self, graph: Graph, in1_features: int, in2_features: int, out_features: int,
        bias: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        shape = (out_features, in1_features, in2_features)
        self.weight = init.fan_in_uniform(graph, shape, in1_features, dtype)
        self.bias = _bias(graph, out_features, in1_features, dtype) if bias else None

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return ops.bilinear(a, b, self.weight, self.bias)


def _table(graph: Graph, rows: int, width: int, padding: int | None, dtype: Any) -> Tensor:
    """Random rows, that of padding 0. Raises InputError."""
    if padding is not None and not -rows <= padding < rows:
        raise InputError(f"padding_idx {padding} is none of {rows} rows")
    weight = init.normal(graph, (rows, width), 1.0, dtype)
    if padding is not None and weight.node in graph.values:
        graph.values[weight.node][padding] = 0
    return weight


class Embedding(Module):
    """Rows of a table at integer indices: (...) to (..., embedding_dim). That of padding_idx starts
    as 0 and is not trained.

    >>> nn.Embedding(cx, 100, 8)(cx.tensor(("s",), "i64")).shape
    (s, 8)
    """

    def __init__(
        self, graph: Graph, num_embeddings: int, embedding_dim: int,
        padding_idx: int | None = None, *, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.weight = _table(graph, num_embeddings, embedding_dim, padding_idx, dtype)
        self.padding_idx = padding_idx

    def forward(self, index: Tensor) -> Tensor:
        return ops.embedding(index, self.weight, self.padding_idx)


class EmbeddingBag(Module):
    """The sum, mean or maximum of the rows of a table in each bag of indices. That of padding_idx
    starts as 0 and does not count.

    >>> nn.EmbeddingBag(cx, 100, 8)(cx.tensor((4, 6), "i64")).shape
    (4, 8)
    """

    def __init__(
        self, graph: Graph, num_embeddings: int, embedding_dim: int, *, mode: str = "mean",
        include_last_offset: bool = False, padding_idx: int | None = None, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.weight = _table(graph, num_embeddings, embedding_dim, padding_idx, dtype)
        self.mode, self.padding_idx = mode, padding_idx
        self.include_last_offset = include_last_offset

    def forward(
        self, index: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """index: (bags, each), or a vector with offsets (bags,)."""
        return ops.embedding_bag(
            index, self.weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=self.padding_idx,
        )  # fmt: skip
