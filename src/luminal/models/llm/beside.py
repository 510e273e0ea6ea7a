"""LoRA adapters served side by side: each token gets the sums of the adapter of its own.

The halves of all adapters lie in two matrices, so one product serves all tokens of a run: of its
result (tokens, adapters * rank) each token keeps the numbers of its own adapter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ... import nn, ops
from ...errors import Unsupported
from ...graph import Graph, Tensor
from ...graph.index import Index
from .adapters import Adapter
from .decoder import FeedForward
from .projection import Blocks, Dense
from .weights import identity_of


@dataclass(frozen=True)
class Beside:
    """count: of adapters. rank: the largest of theirs. matrices: name, inputs and outputs of those
    that any of them changes."""

    count: int
    rank: int
    matrices: tuple[tuple[str, int, int], ...]


class Low(nn.Module):
    """What adapters add to a matrix. chosen: (tokens, adapters * rank), ones where a column is of
    the token's adapter."""

    def __init__(self, graph: Graph, inside: int, out: int, chosen: Tensor) -> None:
        super().__init__()
        columns = int(chosen.shape[1])
        self.chosen = chosen
        self.a = nn.init.filled(graph, (columns, inside), 0)
        self.b = nn.init.filled(graph, (out, columns), 0)

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(ops.linear(x, self.a) * self.chosen, self.b)


def insert(model: nn.Module, beside: Beside, which: Tensor) -> None:
    """Let the matrices of a decoder add what adapters add. which: (tokens,) i64, numbers of
    adapters from 1 on, 0: none. Raises Unsupported."""
    graph, modules = which.graph, dict(model.named_modules())
    column = graph.iota((beside.count * beside.rank,), Index.of("i0") // beside.rank + 1)
    chosen = ops.eq(which.unsqueeze(1), column).cast("f32")
    for name, inside, out in beside.matrices:
        path = name.removesuffix(".weight")
        part, matrix = modules.get(path.rpartition(".")[0]), modules.get(path)
        own = isinstance(part, (nn.Attention, FeedForward))
        if not (own and isinstance(matrix, (Dense, Blocks))):
            raise Unsupported(f"an adapter of {name!r} beside others; it can be merged (lora)")
        matrix.more = Low(graph, inside, out, chosen)
    model._name_parameters("")


def stacked(
    adapters: Sequence[Adapter], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Beside, dict[str, np.ndarray]]:
    """The form and the parameters of `insert`. shapes: of the matrices that a model has as its
    checkpoint has them. Raises WeightsError or Unsupported."""
    for adapter in adapters:
        if adapter.saved or not adapter.pairs:
            more = "with whole tensors" if adapter.saved else "without matrices"
            raise Unsupported(f"{adapter.where}: an adapter {more}, beside others")
        for name, pair in adapter.pairs.items():
            if name not in shapes:
                raise Unsupported(f"{adapter.where}: {name!r} is no matrix of its own in this "
                                  "model: the adapter can only be merged (lora)")  # fmt: skip
            pair.check(name, shapes[name])
    names = sorted({name for adapter in adapters for name in adapter.pairs})
    rank = max(len(pair.a) for adapter in adapters for pair in adapter.pairs.values())
    state = dict[str, np.ndarray]()
    for name in names:
        out, inside = shapes[name]
        a = np.zeros((len(adapters), rank, inside), np.float32)
        b = np.zeros((out, len(adapters), rank), np.float32)
        for n, adapter in enumerate(adapters):
            if (own := adapter.pairs.get(name)) is not None:
                a[n, : len(own.a)] = own.a
                b[:, n, : len(own.a)] = np.float32(own.factor) * own.b.astype(np.float32)
        stem = f"{name.removesuffix('.weight')}.more"
        state[f"{stem}.a"], state[f"{stem}.b"] = a.reshape(-1, inside), b.reshape(out, -1)
    matrices = tuple((name, shapes[name][1], shapes[name][0]) for name in names)
    return Beside(len(adapters), rank, matrices), state


def identity_with(identity: str | None, adapters: Sequence[Adapter]) -> str | None:
    """Of a checkpoint with these adapters, in this order: see `identity_of`."""
    every = [identity, *(identity_of(adapter.files, None) for adapter in adapters)]
    if None in every:
        return None
    return hashlib.sha256(" ".join(map(str, every)).encode()).hexdigest()[:32]
