"""What Gemma 3n has around its layers: streams of which each layer computes one and corrects the
others (AltUp, Baykal and others 2023), and numbers of a token that each layer has for itself."""

from __future__ import annotations

import math

from ... import nn, ops
from ...graph import Graph, Tensor
from .config import DecoderConfig
from .norms import norm
from .projection import projection
from .storage import Storage

LEAST = 1e-5  # mean square of a stream


class AltUp(nn.Module):
    """Predicts a layer's streams, (tokens, width) each, from those of the one below, and corrects
    them by what the layer makes of the first. Names are those of Gemma's checkpoints."""

    def __init__(self, graph: Graph, config: DecoderConfig) -> None:
        super().__init__()
        count, width = config.streams, config.width
        self.count, self.width = count, width
        self.correct_output_scale = nn.init.filled(graph, (width,), 0)
        self.correction_coefs = nn.Linear(graph, count, count, bias=False)
        self.prediction_coefs = nn.Linear(graph, count, count * count, bias=False)
        self.modality_router = nn.Linear(graph, width, count, bias=False)
        self.router_norm = norm(graph, config, width)

    def _routed(self, x: Tensor) -> Tensor:
        """(tokens, streams)."""
        return ops.tanh(self.modality_router(self.router_norm(x) * (1 / self.width)))

    def predict(self, streams: list[Tensor]) -> list[Tensor]:
        """Each is itself and a mixture of all."""
        shares = self.prediction_coefs(self._routed(streams[0])).unflatten(-1, (self.count, -1))
        found = []
        for n, stream in enumerate(streams):
            for m, other in enumerate(streams):
                stream = stream + other * shares[:, n, m].unsqueeze(-1)
            found.append(stream)
        return found

    def correct(self, guesses: list[Tensor], made: Tensor) -> list[Tensor]:
        """Each moves with what the first was wrong by."""
        shares = self.correction_coefs(self._routed(made)) + 1.0
        wrong = made - guesses[0]
        return [guess + wrong * shares[:, n].unsqueeze(-1) for n, guess in enumerate(guesses)]


class Laurel(nn.Module):
    """A residual of low rank: x + norm(right(left(x)))."""

    def __init__(self, graph: Graph, config: DecoderConfig, rank: int, storage: Storage) -> None:
        super().__init__()
        width = config.width
        self.linear_left = projection(graph, width, rank, False, storage, "linear_left")
        self.linear_right = projection(graph, rank, width, False, storage, "linear_right")
        self.post_laurel_norm = norm(graph, config, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.post_laurel_norm(self.linear_right(self.linear_left(x)))


class Sides(nn.Module):
    """What all layers have of a token for themselves: rows of a table, and its embedding
    projected."""

    def __init__(self, graph: Graph, config: DecoderConfig, storage: Storage) -> None:
        super().__init__()
        assert config.side is not None
        self.side, self.config = config.side, config
        both = config.layers * self.side.width
        self.embed_tokens_per_layer = projection(
            graph, both, self.side.rows, False, storage, "embed_tokens_per_layer"
        )
        self.per_layer_model_projection = projection(
            graph, config.width, both, False, storage, "per_layer_model_projection"
        )
        self.per_layer_projection_norm = norm(graph, config, self.side.width)

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        """(tokens, layers, width of a side) of ids (tokens,) and embeddings x."""
        size, layers = self.side.width, (self.config.layers, -1)
        known = ops.where(ids < self.side.rows, ids, 0)
        own = self.embed_tokens_per_layer.rows(known).unflatten(-1, layers) * math.sqrt(size)
        made = self.per_layer_model_projection(x) * self.config.width**-0.5
        made = self.per_layer_projection_norm(made.unflatten(-1, layers))
        return (made + own) * math.sqrt(0.5)


class Streams(nn.Module):
    """From embeddings to streams of as large numbers, and back to one."""

    def __init__(self, graph: Graph, config: DecoderConfig, storage: Storage) -> None:
        super().__init__()
        width = config.width
        self.altup_projections, self.altup_unembed_projections = (
            nn.ModuleList(
                projection(graph, width, width, False, storage, f"{name}.{n}")
                for n in range(config.streams - 1)
            )
            for name in ("altup_projections", "altup_unembed_projections")
        )

    def enter(self, x: Tensor) -> list[Tensor]:
        return [x, *(_as_large(made(x), x) for made in self.altup_projections)]

    def leave(self, streams: list[Tensor]) -> Tensor:
        total = streams[0]
        for made, stream in zip(self.altup_unembed_projections, streams[1:]):
            total = total + _as_large(made(stream), streams[0])
        return total * (1 / len(streams))


def _as_large(x: Tensor, other: Tensor) -> Tensor:
    """x with the mean square of another."""
    wanted, own = ((t * t).mean(-1, keepdim=True) for t in (other, x))
    return x * ops.sqrt(wanted / ops.clamp(own, min=LEAST))
