"""Decoders of speech: those of the language models, with attention to encoded sound between."""

from __future__ import annotations

import math

from ... import nn, ops
from ...graph import Graph, Tensor
from ..llm.cache import Cache
from ..llm.config import DecoderConfig
from ..llm.decoder import Attention, FeedForward, Rotary, norm
from ..llm.projection import Projection, projection
from ..llm.storage import Storage

Memories = list[tuple[Tensor, Tensor]]  # keys and values (audios, heads, frames, head_dim)


class CrossAttention(nn.Module):
    """Attention of tokens over the frames of their recording."""

    def __init__(self, graph: Graph, config: DecoderConfig, storage: Storage) -> None:
        super().__init__()
        self.heads, inner = config.heads, config.heads * config.head_dim
        bias = config.attention_bias
        self.q_proj = projection(graph, config.width, inner, bias, storage, "q_proj")
        bias = config.output_bias
        self.o_proj = projection(graph, inner, config.width, bias, storage, "o_proj")

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, heard: Tensor | None = None
    ) -> Tensor:
        """x: (tokens, width), as many of each recording. heard: (audios,) i64, how many frames each
        has; None: all."""
        there = None
        if heard is not None:
            frames = x.graph.iota((keys.shape[2],), "i0")
            there = (frames < heard.unsqueeze(1)).unsqueeze(1).unsqueeze(1)
        out = ops.scaled_dot_product_attention(self.query(x, keys), keys, values, there)
        return self.o_proj(out.transpose(1, 2).flatten(2, 3).flatten(0, 1))

    def query(self, x: Tensor, keys: Tensor) -> Tensor:
        """(audios, heads, tokens of each, head_dim)."""
        split = self.q_proj(x).unflatten(0, (keys.shape[0], -1))
        return split.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def shares(self, x: Tensor, keys: Tensor) -> Tensor:
        """How much of each frame a token takes: (audios, heads, tokens of each, frames)."""
        query = self.query(x, keys)
        return ops.softmax(ops.matmul(query, keys.mT) / math.sqrt(int(query.shape[-1])), -1)


class DecoderLayer(nn.Module):
    """Attention to tokens, to sound, and a feed-forward part, each after a norm."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, layer: int, rotary: Rotary | None,
        storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_layernorm = norm(graph, config, config.width)
        self.self_attn = Attention(graph, config, layer, rotary, storage.below("self_attn"))
        self.cross_layernorm = norm(graph, config, config.width)
        self.encoder_attn = CrossAttention(graph, config, storage.below("encoder_attn"))
        self.post_attention_layernorm = norm(graph, config, config.width)
        self.mlp = FeedForward(graph, config, storage.below("mlp"))

    def forward(
        self, x: Tensor, cache: Cache, memory: tuple[Tensor, Tensor],
        shown: list[Tensor] | None = None, heard: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x = x + self.self_attn(self.input_layernorm(x), cache)
        normed = self.cross_layernorm(x)
        if shown is not None:
            shown.append(self.encoder_attn.shares(normed, memory[0]))
        x = x + self.encoder_attn(normed, *memory, heard)
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
        `CrossAttention`."""
        x = self.embed_tokens.rows(ids)
        if self.config.learned_positions:
            x = x + cache.rows(self.embed_positions.weight)
        for layer, kept in zip(self.layers, memory):
            x = layer(x, cache, kept, shown, heard)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return head(self.norm(hidden))
