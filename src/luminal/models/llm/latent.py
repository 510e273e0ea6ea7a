"""Multi-head latent attention: what is kept of a token serves all heads, keys and values alike."""

from __future__ import annotations

from ... import nn, ops
from ...graph import Graph, Tensor
from .cache import Cache
from .config import DecoderConfig
from .projection import Projection, projection
from .rotary import Rotary
from .storage import Storage

EPS = 1e-6  # of the norms within, whatever that of the layers is


class LatentAttention(nn.Module):
    """Attention over the latent numbers themselves, as DeepSeek-V2 (section 2.1.2) absorbs what
    makes keys and values of them into queries and outputs: one head of keys, whose first numbers
    are the values.

    Matrices: k_b_proj (heads, plain, rank) makes keys of latents, v_b_proj (heads, value, rank)
    values.
    """

    def __init__(
        self, graph: Graph, config: DecoderConfig, layer: int, rotary: Rotary | None,
        storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__()
        assert config.latent is not None
        self.config, self.latent, self.rotary, self.layer = config, config.latent, rotary, layer
        latent, heads, width = config.latent, config.heads, config.width
        bias, out = config.attention_bias, heads * (latent.plain + latent.turning)
        self.q_a_proj: Projection | None = None
        if latent.query is None:
            self.q_proj = projection(graph, width, out, False, storage, "q_proj")
        else:
            self.q_a_proj = projection(graph, width, latent.query, bias, storage, "q_a_proj")
            self.q_a_layernorm = nn.RMSNorm(graph, latent.query, EPS)
            self.q_proj = projection(graph, latent.query, out, False, storage, "q_proj")
        kept, stack = latent.rank + latent.turning, (heads,)
        self.kv_a_proj = projection(graph, width, kept, bias, storage, "kv_a_proj")
        self.kv_a_layernorm = nn.RMSNorm(graph, latent.rank, EPS)
        rank = latent.rank
        self.k_b_proj = projection(graph, rank, latent.plain, False, storage, "k_b_proj", stack)
        self.v_b_proj = projection(graph, rank, latent.value, False, storage, "v_b_proj", stack)
        inner = heads * latent.value
        self.o_proj = projection(graph, inner, width, config.output_bias, storage, "o_proj")

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        """x: (tokens, width)."""
        latent, rotary = self.latent, self.rotary
        assert rotary is not None
        narrow = x if self.q_a_proj is None else self.q_a_layernorm(self.q_a_proj(x))
        query = self.q_proj(narrow).unflatten(-1, (self.config.heads, -1)).transpose(0, 1)
        plain, turning = query.narrow(-1, 0, latent.plain), query[..., latent.plain :]
        kept = self.kv_a_proj(x).unsqueeze(0)  # (1, tokens, rank + turning)
        key = self.kv_a_layernorm(kept.narrow(-1, 0, latent.rank))
        key = ops.cat([key, rotary.turn(kept[..., latent.rank :], cache)], -1)
        plain = ops.matmul(plain, self.k_b_proj.whole())  # (heads, tokens, rank)
        query = ops.cat([plain, rotary.turn(turning, cache)], -1)
        out = cache.attend(self.layer, query, key, None)  # (heads, tokens, rank)
        out = ops.matmul(out, self.v_b_proj.whole().mT)  # (heads, tokens, value)
        return self.o_proj(out.transpose(0, 1).flatten(1, 2))
