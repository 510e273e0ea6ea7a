"""Decoders of speech: those of the language models, with attention to encoded sound between."""

from __future__ import annotations

import math

from ... import nn, ops
from ...graph import Graph, Tensor
from ..llm.attention import attention
from ..llm.cache import Cache
from ..llm.config import DecoderConfig
from ..llm.decoder import FeedForward, Rotary, norm
from ..llm.projection import Projection, projection, projections
from ..llm.storage import Storage

Memories = list[tuple[Tensor, Tensor]]  # keys and values (audios, heads, frames, head_dim)


class Heard:
    """Keys and values (audios, heads, frames, head_dim) of encoded sound, as what tokens see.

    heard: (audios,) i64, how many frames each has; None: all. shown: takes how much of each frame
    each token takes.
    """

    def __init__(
        self, keys: Tensor, values: Tensor, heard: Tensor | None = None,
        shown: list[Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.keys, self.values, self.heard, self.shown = keys, values, heard, shown

    def attend(
        self, layer: int, query: Tensor, key: Tensor | None, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """query: (heads, tokens, head_dim), as many tokens of each recording."""
        query = query.unflatten(1, (self.keys.shape[0], -1)).transpose(0, 1)
        there = None
        if self.heard is not None:
            frames = query.graph.iota((self.keys.shape[2],), "i0")
            there = (frames < self.heard.unsqueeze(1)).unsqueeze(1).unsqueeze(1)
        if self.shown is not None:  # (audios, heads, tokens of each, frames)
            scores = ops.matmul(query, self.keys.mT) / math.sqrt(int(query.shape[-1]))
            self.shown.append(ops.softmax(scores, -1))
        out = ops.scaled_dot_product_attention(query, self.keys, self.values, there)
        return out.transpose(0, 1).flatten(1, 2)


class DecoderLayer(nn.Module):
    """Attention to tokens, to sound, and a feed-forward part, each after a norm."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, layer: int, rotary: Rotary | None,
        storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_layernorm = norm(graph, config, config.width)
        self.self_attn = attention(graph, config, layer, rotary, storage.below("self_attn"))
        self.cross_layernorm = norm(graph, config, config.width)
        self.encoder_attn = nn.Attention(
            graph, config.width, config.heads, head_dim=config.head_dim,
            bias=config.attention_bias, out_bias=config.output_bias,
            names=("q_proj", None, None, "o_proj"),
            linear=projections(storage.below("encoder_attn")),
        )  # fmt: skip
        self.post_attention_layernorm = norm(graph, config, config.width)
        self.mlp = FeedForward(graph, config, storage.below("mlp"))

    def forward(
        self, x: Tensor, cache: Cache, memory: tuple[Tensor, Tensor],
        shown: list[Tensor] | None = None, heard: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x = x + self.self_attn(self.input_layernorm(x), cache)
        x = x + self.encoder_attn(self.cross_layernorm(x), Heard(*memory, heard, shown))
        return x + self.mlp(self.post_attention_layernorm(x))


class SpeechDecoder(nn.Module):
    """ids (tokens,) i64 -> hidden states (tokens, width) -> logits (tokens, vocabulary) f32."""

    def __init__(self, graph: Graph, config: DecoderConfig, storage: Storage) -> None:
        super().__init__()
        self.config, width, rows = config, config.width, config.vocabulary
        self.embed_tokens = projection(graph, width, rows, False, storage, "embed_tokens")
        if config.learned_positions:
            self.embed_positions = nn.Embedding(graph, config.context, width)
        rotary = Rotary(graph, config, "all", config.context) if config.ropes else None
        self.layers = nn.ModuleList(
            DecoderLayer(graph, config, n, rotary, storage.below(f"layers.{n}"))
            for n in range(config.layers)
        )
        self.relative: nn.Embedding | None = None
        if config.relative is not None:
            self.relative = nn.Embedding(graph, config.relative[0], config.heads)
        self.norm = norm(graph, config, width)
        self.lm_head: Projection | None = None
        if not config.tied:
            self.lm_head = projection(graph, width, rows, False, storage, "lm_head")

    def forward(
        self, ids: Tensor, cache: Cache, memory: Memories, shown: list[Tensor] | None = None,
        heard: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """shown: takes how much of each frame each layer's heads take. heard: see
        `Heard`."""
        x = self.embed_tokens.rows(ids)
        if self.config.learned_positions:
            x = x + cache.rows(self.embed_positions.weight)
        for layer, kept in zip(self.layers, memory):
            x = layer(x, cache, kept, shown, heard)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return head(self.norm(hidden))
