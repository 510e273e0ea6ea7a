"""Encoders of sound: the layers of the language models, in which every frame sees all."""

from __future__ import annotations

from ... import nn, ops
from ...graph import Graph, Tensor
from ...ops.base import Size
from ..llm.config import DecoderConfig
from ..llm.decoder import Layer, Rotary, norm
from ..llm.projection import projection
from ..llm.storage import Storage
from ..llm.whole import Whole, plain_config


class Stack(nn.Module):
    """Layers and a last norm over frames (batch, length, width)."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, storage: Storage, longest: int = 0
    ) -> None:
        """longest: most frames, where positions are rotary."""
        super().__init__()
        self.config = config
        rotary = Rotary(graph, config, "all", longest) if config.ropes else None
        self.layers = nn.ModuleList(
            Layer(graph, config, n, rotary, storage.below(f"layers.{n}"))
            for n in range(config.layers)
        )
        self.norm = norm(graph, config, config.width)

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        batch, length = x.shape[:2]
        cache, flat = Whole(self.config, batch, length, seen), x.flatten(0, 1)
        for layer in self.layers:
            flat = layer(flat, cache)
        return self.norm(flat).unflatten(0, (batch, length))


class Memory(nn.Module):
    """Of each layer of a decoder: keys and values of the encoded frames."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, inside: int, storage: Storage
    ) -> None:
        """config: of the decoder. inside: the width of the frames."""
        super().__init__()
        out, self.heads = config.kv_heads * config.head_dim, config.kv_heads
        bias = config.attention_bias
        self.layers = nn.ModuleList()
        for n in range(config.layers):
            below, made = storage.below(f"layers.{n}"), nn.Module()
            made.k_proj = projection(graph, inside, out, bias, below, "k_proj")
            made.v_proj = projection(graph, inside, out, bias, below, "v_proj")
            self.layers.append(made)

    def forward(self, frames: Tensor) -> list[tuple[Tensor, Tensor]]:
        """frames (batch, length, inside) -> (batch, heads, length, head_dim) twice a layer."""

        def split(x: Tensor) -> Tensor:
            return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        return [(split(made.k_proj(frames)), split(made.v_proj(frames))) for made in self.layers]


class Lengths:
    """How many frames each recording of a batch has, behind convolutions without padding. counts:
    (batch,) i64."""

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts

    def behind(self, kernel: int, stride: int) -> Lengths:
        return Lengths((self.counts - kernel) // stride + 1)

    def there(self, length: Size) -> Tensor:
        """(batch, length) bool: which frames are sound."""
        return self.counts.graph.iota((length,), "i0") < self.counts.unsqueeze(1)

    def norm(self, norm: nn.GroupNorm, x: Tensor) -> Tensor:
        """The norm of each recording's own frames. x: (batch, channels, length)."""
        assert norm.weight is not None and norm.bias is not None
        there = self.there(x.shape[2]).unsqueeze(1).unsqueeze(1)
        apart = x.unflatten(1, (norm.num_groups, -1))  # (batch, groups, channels of one, length)
        count = (self.counts * int(apart.shape[2])).cast("f32").reshape((-1, 1, 1, 1))
        mean = ops.where(there, apart, 0.0).sum((2, 3), keepdim=True) / count
        off = ops.where(there, apart - mean, 0.0)
        spread = (off * off).sum((2, 3), keepdim=True) / count
        found = (off * ops.rsqrt(spread + norm.eps)).flatten(1, 2)
        return found * norm.weight.unsqueeze(-1) + norm.bias.unsqueeze(-1)


class WhisperEncoder(nn.Module):
    """Spectrograms (batch, mels, 2 * frames) -> (batch, frames, width): two convolutions, learned
    positions, layers."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, mels: int, storage: Storage
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(graph, mels, config.width, 3, padding=1)
        self.conv2 = nn.Conv1d(graph, config.width, config.width, 3, 2, 1)
        self.embed_positions = nn.Embedding(graph, config.context, config.width)
        self.stack = Stack(graph, config, storage)

    def forward(self, mel: Tensor) -> Tensor:
        x = ops.gelu(self.conv2(ops.gelu(self.conv1(mel)))).transpose(1, 2)
        return self.stack(x + self.embed_positions.weight)


def encoder_outputs(memory: list[tuple[Tensor, Tensor]]) -> None:
    """Name the keys and values of each layer as outputs."""
    for n, (keys, values) in enumerate(memory):
        keys.output(f"keys{n}")
        values.output(f"values{n}")


__all__ = [
    "Lengths", "Memory", "Stack", "WhisperEncoder", "Whole", "encoder_outputs", "plain_config",
]  # fmt: skip
