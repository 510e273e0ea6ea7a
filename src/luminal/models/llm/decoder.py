"""A decoder-only transformer, built from its config, over tokens side by side: which sequences they
belong to is known to the cache alone.

Parameters have the names of Llama's checkpoints; a family renames its own when they are loaded.
"""

from __future__ import annotations

import math
from typing import Any

from ... import nn, ops
from ...graph import Graph, Tensor
from ...nn.activation import activation_of
from .attention import attention
from .cache import Cache
from .config import BLOCKS, DecoderConfig
from .experts import MixtureBeside, MixtureOfExperts
from .latent import LatentAttention
from .norms import norm, through
from .projection import Projection, projection
from .rotary import Rotary
from .storage import Storage
from .streams import AltUp, Laurel, Sides, Streams


class FeedForward(nn.Module):
    """Widen, activate, narrow; gated: activation(gate x) * up x between."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, storage: Storage, hidden: int | None = None,
        sparsity: float | None = None,
    ) -> None:  # fmt: skip
        """hidden: width inside, if not that of the config. sparsity: see `DecoderConfig`."""
        super().__init__()
        self.sparsity = sparsity
        width, hidden, bias = config.width, hidden or config.hidden, config.mlp_bias
        self.activation = activation_of(config.activation)
        self.gate_proj: Projection | None = None
        if config.gated:
            self.gate_proj = projection(graph, width, hidden, bias, storage, "gate_proj")
        self.up_proj = projection(graph, width, hidden, bias, storage, "up_proj")
        self.down_proj = projection(graph, hidden, width, bias, storage, "down_proj")
        self.ffn_sub_norm = norm(graph, config, hidden) if config.sub_norms else None

    def forward(self, x: Tensor) -> Tensor:
        up = self.up_proj(x)
        if self.gate_proj is None:
            wide = self.activation(up)
        else:
            wide = self.activation(self._sparse(self.gate_proj(x))) * up
        return self.down_proj(through(self.ffn_sub_norm, wide))

    def _sparse(self, gate: Tensor) -> Tensor:
        """What is above a cut of the token's own, less that; else nothing."""
        if self.sparsity is None:
            return gate
        middle = gate.mean(-1, keepdim=True)
        spread = ops.sqrt(((gate - middle) * (gate - middle)).mean(-1, keepdim=True))
        return ops.relu(gate - (middle + spread * self.sparsity))


class Layer(nn.Module):
    """Attention and a feed-forward part, with norms and residuals around (`BLOCKS`)."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, layer: int, rotary: Rotary | None,
        storage: Storage, heat: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        wanted, self.parallel = BLOCKS[config.block]
        norms = [norm(graph, config, config.width) if there else None for there in wanted]
        norms[0] = None if config.bare_first and layer == 0 else norms[0]
        self.post = config.block == "post"
        self.scale = config.residual_scale
        self.input_layernorm, self.attention_output_norm = norms[:2]
        self.post_attention_layernorm, self.mlp_output_norm = norms[2:]
        mixer = config.mixer(layer)
        self.mixes = "self_attn" if mixer is None else "mixer"
        below = storage.below(self.mixes)
        if mixer is not None:
            self.mixer = mixer.module(graph, config, layer, below)
        else:
            self.self_attn: nn.Module = (
                attention(graph, config, layer, rotary, below, heat) if config.latent is None
                else LatentAttention(graph, config, layer, rotary, below)
            )  # fmt: skip
        inside = storage.below("mlp")
        self.mlp: nn.Module | None = None
        self.mixture: nn.Module | None = None
        beside = config.experts is not None and config.experts.beside
        if beside and config.has_experts(layer):
            below, activation = storage.below("mixture"), activation_of(config.activation)
            self.mixture = MixtureBeside(graph, config, activation, below)
        if config.has_experts(layer) and not beside:
            self.mlp = MixtureOfExperts(graph, config, activation_of(config.activation), inside)
            self._add_shared(graph, config, inside)
        elif config.hidden:
            hidden = config.hiddens[layer] if config.hiddens else None
            sparsity = config.sparsity[layer] if config.sparsity else None
            self.mlp = FeedForward(graph, config, inside, hidden, sparsity)
        self._add_around(graph, config, storage)

    def _add_shared(self, graph: Graph, config: DecoderConfig, inside: Storage) -> None:
        """The expert of all tokens, in the mixture of the others."""
        assert config.experts is not None and self.mlp is not None
        if config.experts.shared:
            below, width = inside.below("shared_expert"), config.experts.shared
            self.mlp.shared_expert = FeedForward(graph, config, below, width)
        if config.experts.shared_gate:
            self.mlp.shared_expert_gate = nn.Linear(graph, config.width, 1, bias=False)

    def _add_around(self, graph: Graph, config: DecoderConfig, storage: Storage) -> None:
        """What Gemma 3n has besides."""
        self.laurel = self.altup = None
        if config.laurel is not None:
            self.laurel = Laurel(graph, config, config.laurel, storage.below("laurel"))
        if config.streams > 1:
            self.altup = AltUp(graph, config)
        side, width = config.side, config.width
        self.per_layer_input_gate: Projection | None = None
        if side is not None:
            self.per_layer_input_gate, self.per_layer_projection = (
                projection(graph, *sizes, False, storage, name)
                for name, sizes in (
                    ("per_layer_input_gate", (width, side.width)),
                    ("per_layer_projection", (side.width, width)),
                )
            )
            self.post_per_layer_input_norm = norm(graph, config, width)
            self.activation = activation_of(config.activation)
        self.layer_scalar = nn.init.filled(graph, (1,), 1) if config.layer_scale else None

    def forward(self, x: Any, cache: Cache, side: Tensor | None = None) -> Any:
        """x: (tokens, width), or a list of those: streams. side: the layer's own numbers."""
        if self.altup is None:
            y = self._whole(x, cache)
            y = y if side is None else y + self._sided(y, side)
            return y if self.layer_scalar is None else y * self.layer_scalar
        guesses = self.altup.predict(x)
        streams = self.altup.correct(guesses, self._whole(guesses[0], cache))
        if side is None:
            return streams
        more = self._sided(streams[0] * self.altup.correct_output_scale, side)
        return [streams[0], *(stream + more for stream in streams[1:])]

    def _sided(self, x: Tensor, side: Tensor) -> Tensor:
        assert self.per_layer_input_gate is not None
        narrow = self.activation(self.per_layer_input_gate(x)) * side
        return self.post_per_layer_input_norm(self.per_layer_projection(narrow))

    def _whole(self, x: Tensor, cache: Cache) -> Tensor:
        """x: (tokens, width)."""
        if self.post:
            assert self.mlp is not None
            x = through(self.attention_output_norm, x + self.self_attn(x, cache))
            return through(self.mlp_output_norm, x + self.mlp(x))
        normed = through(self.input_layernorm, x)
        attended = through(self.attention_output_norm, self._modules[self.mixes](normed, cache))
        before, x = x, self._added(x, attended)
        if self.laurel is not None:
            x = (x + self.laurel(normed)) * math.sqrt(0.5)
        if self.mlp is None:
            return x
        if not self.parallel:
            normed = x
        elif self.post_attention_layernorm is not None:
            normed = before
        widened = self.mlp(through(self.post_attention_layernorm, normed))
        widened = widened if self.mixture is None else self.mixture(normed, widened)
        return self._added(x, through(self.mlp_output_norm, widened))

    def _added(self, x: Tensor, more: Tensor) -> Tensor:
        return x + (more if self.scale is None else more * self.scale)


class Body(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, graph: Graph, config: DecoderConfig, context: int, storage: Storage) -> None:
        super().__init__()
        self.config = config
        width, rows = config.width, config.vocabulary
        self.embed_tokens = projection(graph, width, rows, False, storage, "embed_tokens")
        if config.learned_positions:
            self.embed_positions = nn.Embedding(graph, config.context, config.width)
        used = [name for name in config.rotary if name is not None]
        rotaries = {name: Rotary(graph, config, name, context) for name in dict.fromkeys(used)}
        self.layers = nn.ModuleList()
        heat = config.heat
        table = None if heat is None else graph.constant(heat.table(context))
        hot = None if heat is None else heat.layers
        for n, name in enumerate(config.rotary):
            rotary = None if name is None else rotaries[name]
            warm = table if hot is None or n in hot else None
            self.layers.append(Layer(graph, config, n, rotary, storage.below(f"layers.{n}"), warm))
        self.sides = self.streams = None
        if config.side is not None:
            self.sides = Sides(graph, config, storage.below("sides"))
        if config.streams > 1:
            self.streams = Streams(graph, config, storage.below("streams"))
        self.norm = norm(graph, config, config.width)

    def forward(self, ids: Tensor, cache: Cache, pictures: Tensor | None = None) -> Tensor:
        """Hidden states (tokens, width) of ids (tokens,), before the final norm."""
        words = None if pictures is None else ids < self.config.vocabulary
        x = self.embed_tokens.rows(ids if words is None else ops.where(words, ids, 0))
        if self.config.embedding_scale is not None:
            x = x * self.config.embedding_scale
        if words is not None and pictures is not None:
            x = ops.where(words.unsqueeze(-1), x, pictures.narrow(1, 0, x.shape[1]))
        if self.config.learned_positions:
            x = x + cache.rows(self.embed_positions.weight)
        sides = None if self.sides is None else self.sides(ids, x)
        carried: Any = x if self.streams is None else self.streams.enter(x)
        for n, layer in enumerate(self.layers):
            carried = layer(carried, cache, None if sides is None else sides[:, n])
            if pictures is not None and n < self.config.deep:  # (Qwen3-VL) zeros for words
                carried = carried + pictures.narrow(1, (n + 1) * x.shape[1], x.shape[1])
        return carried if self.streams is None else self.streams.leave(carried)


class Decoder(nn.Module):
    """ids (tokens,) i64 -> hidden states (tokens, width) -> logits (tokens, vocabulary) f32.

    context: how many positions a sequence may have. storage: how the matrices are stored.
    """

    def __init__(self, graph: Graph, config: DecoderConfig, context: int, storage: Storage) -> None:
        super().__init__()
        self.config = config
        self.model = Body(graph, config, context, storage.below("model"))
        self.lm_head: Projection | None = None
        if not config.tied:
            width, rows = config.width, config.vocabulary
            self.lm_head = projection(graph, width, rows, config.head_bias, storage, "lm_head")

    def forward(self, ids: Tensor, cache: Cache, pictures: Tensor | None = None) -> Tensor:
        """Hidden states of the tokens, not normed; the cache knows where they stand. pictures
        (tokens, width): what stands in place of tokens beyond the vocabulary."""
        return self.model(ids, cache, pictures)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states, as many as are wanted."""
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        logits = head(self.model.norm(hidden))
        if self.config.logit_scale is not None:
            logits = logits * self.config.logit_scale
        cap = self.config.logit_cap
        return logits if cap is None else ops.tanh(logits * (1 / cap)) * cap
