"""A decoder-only transformer, built from its config, over tokens side by side: which sequences they
belong to is known to the cache alone.

Parameters have the names of Llama's checkpoints; a family renames its own when they are loaded.
"""

from __future__ import annotations

from typing import Any

from ... import nn, ops
from ...errors import Unsupported
from ...graph import Graph, Tensor
from .cache import Cache
from .config import BLOCKS, DecoderConfig
from .experts import MixtureOfExperts
from .latent import LatentAttention
from .projection import Projection, projection
from .rotary import Rotary
from .storage import Storage

ACTIVATIONS = {
    "silu": ops.silu,
    "gelu": ops.gelu,
    "relu": ops.relu,
    "relu2": lambda x: ops.relu(x) * ops.relu(x),
    "gelu_new": lambda x: ops.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, approximate="tanh"),
}


def activation(name: str) -> Any:
    """The function of that name."""
    if name not in ACTIVATIONS:
        raise Unsupported(f"activation {name!r}; there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class ShiftedRMSNorm(nn.Module):
    """RMS norm whose weights are stored minus one, as in Gemma."""

    def __init__(self, graph: Graph, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.init.filled(graph, (width,), 0), eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, (x.shape[-1],), self.weight + 1.0, self.eps)


def norm(graph: Graph, config: DecoderConfig, width: int) -> nn.Module:
    """The kind of norm that the config names."""
    if config.norm in ("layer", "scale", "plain"):
        kind = config.norm
        return nn.LayerNorm(graph, width, config.eps, kind != "plain", kind == "layer")
    if config.norm == "rms1":
        return ShiftedRMSNorm(graph, width, config.eps)
    return nn.RMSNorm(graph, width, config.eps)


class Attention(nn.Module):
    """Causal attention over the cache: grouped heads, rotary positions, windows, soft caps."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, layer: int, rotary: Rotary | None,
        storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__()
        self.config, self.rotary, self.layer = config, rotary, layer
        inner, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        bias = config.attention_bias
        twice = inner * (2 if config.attention_gate else 1)
        self.q_proj = projection(graph, config.width, twice, bias, storage, "q_proj")
        self.k_proj = projection(graph, config.width, kv, bias, storage, "k_proj")
        self.v_proj = projection(graph, config.width, kv, bias, storage, "v_proj")
        bias = config.output_bias
        self.o_proj = projection(graph, inner, config.width, bias, storage, "o_proj")
        self.sinks = nn.init.filled(graph, (config.heads,), 0) if config.sinks else None
        self.attn_sub_norm = norm(graph, config, inner) if config.sub_norms else None
        self.q_norm = self.k_norm = None
        if config.qk_norm is not None:
            whole = config.qk_norm == "whole"
            self.q_norm = norm(graph, config, inner if whole else config.head_dim)
            self.k_norm = norm(graph, config, kv if whole else config.head_dim)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        """x: (tokens, width)."""
        config = self.config
        query, key = self.q_proj(x), self.k_proj(x)
        if self.q_norm is not None and self.k_norm is not None and config.qk_norm == "whole":
            query, key = self.q_norm(query), self.k_norm(key)
        query = query.unflatten(-1, (config.heads, -1)).transpose(0, 1)  # (heads, tokens, head_dim)
        gate = query[..., config.head_dim :]  # nothing, where there is none
        query = query.narrow(-1, 0, config.head_dim)
        key = self._heads(key, config.kv_heads)
        value = self._heads(self.v_proj(x), config.kv_heads)
        if self.q_norm is not None and self.k_norm is not None and config.qk_norm == "head":
            query, key = self.q_norm(query), self.k_norm(key)
        if self.rotary is not None:
            query, key = self.rotary.turn(query, cache), self.rotary.turn(key, cache)
        out = cache.attend(self.layer, query, key, value, self.sinks)  # (heads, tokens, head_dim)
        if config.attention_gate:
            out = out * ops.sigmoid(gate)
        return self.o_proj(_through(self.attn_sub_norm, out.transpose(0, 1).flatten(1, 2)))

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.config.head_dim)).transpose(0, 1)


class FeedForward(nn.Module):
    """Widen, activate, narrow; gated: activation(gate x) * up x between."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, storage: Storage, hidden: int | None = None
    ) -> None:
        """hidden: width inside, if not that of the config."""
        super().__init__()
        width, hidden, bias = config.width, hidden or config.hidden, config.mlp_bias
        self.activation = activation(config.activation)
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
            wide = self.activation(self.gate_proj(x)) * up
        return self.down_proj(_through(self.ffn_sub_norm, wide))


class Layer(nn.Module):
    """Attention and a feed-forward part, with norms and residuals around (`BLOCKS`)."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, layer: int, rotary: Rotary | None,
        storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__()
        wanted, self.parallel = BLOCKS[config.block]
        norms = [norm(graph, config, config.width) if there else None for there in wanted]
        self.scale = config.residual_scale
        self.input_layernorm, self.attention_output_norm = norms[:2]
        self.post_attention_layernorm, self.mlp_output_norm = norms[2:]
        attention = Attention if config.latent is None else LatentAttention
        mixer = config.mixer(layer)
        if mixer is None:
            self.self_attn = attention(graph, config, layer, rotary, storage.below("self_attn"))
        else:
            self.mixer = mixer.module(graph, config, layer, storage.below("mixer"))
        self.mixes = "self_attn" if mixer is None else "mixer"
        inside = storage.below("mlp")
        self.mlp: nn.Module | None = None
        if config.has_experts(layer):
            self.mlp = MixtureOfExperts(graph, config, activation(config.activation), inside)
            self._add_shared(graph, config, inside)
        elif config.hidden:
            self.mlp = FeedForward(graph, config, inside)

    def _add_shared(self, graph: Graph, config: DecoderConfig, inside: Storage) -> None:
        """The expert of all tokens, in the mixture of the others."""
        assert config.experts is not None and self.mlp is not None
        if config.experts.shared:
            below, width = inside.below("shared_expert"), config.experts.shared
            self.mlp.shared_expert = FeedForward(graph, config, below, width)
        if config.experts.shared_gate:
            self.mlp.shared_expert_gate = nn.Linear(graph, config.width, 1, bias=False)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        """x: (tokens, width)."""
        normed = _through(self.input_layernorm, x)
        attended = _through(self.attention_output_norm, self._modules[self.mixes](normed, cache))
        before, x = x, self._added(x, attended)
        if self.mlp is None:
            return x
        if not self.parallel:
            normed = x
        elif self.post_attention_layernorm is not None:
            normed = before
        widened = self.mlp(_through(self.post_attention_layernorm, normed))
        return self._added(x, _through(self.mlp_output_norm, widened))

    def _added(self, x: Tensor, more: Tensor) -> Tensor:
        return x + (more if self.scale is None else more * self.scale)


def _through(norm: nn.Module | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


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
        for n, name in enumerate(config.rotary):
            rotary = None if name is None else rotaries[name]
            self.layers.append(Layer(graph, config, n, rotary, storage.below(f"layers.{n}")))
        self.norm = norm(graph, config, config.width)

    def forward(self, ids: Tensor, cache: Cache, pictures: Tensor | None = None) -> Tensor:
        """Hidden states (tokens, width) of ids (tokens,), before the final norm."""
        words = None if pictures is None else ids < self.config.vocabulary
        x = self.embed_tokens.rows(ids if words is None else ops.where(words, ids, 0))
        if self.config.embedding_scale is not None:
            x = x * self.config.embedding_scale
        if words is not None and pictures is not None:
            x = ops.where(words.unsqueeze(-1), x, pictures)
        if self.config.learned_positions:
            x = x + cache.rows(self.embed_positions.weight)
        for layer in self.layers:
            x = layer(x, cache)
        return x


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
