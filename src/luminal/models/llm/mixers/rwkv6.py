"""RWKV 6 (Peng and others 2024, https://arxiv.org/abs/2404.05892): each head's state S (keys,
values) decays key by key, as the token says, and takes up an outer product, after it was read:
y = r (S + u k v^T), S = diag(w) S + k v^T. How much of the last token is in each of w, k, v, r and
the gate depends on both tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .... import nn, ops
from ....graph import Graph, Tensor
from ..config import DecoderConfig
from ..projection import projection
from ..storage import Storage
from .rwkv import LowRank, between
from .steps import Carrying, stepped

MIXED = "wkvrg"  # what tokens are mixed for, in the order of the checkpoints' matrices


@dataclass(frozen=True)
class TimeMix6:
    """mix, decay: ranks of the matrices that make shares of the last token, and w. eps: of the norm
    of heads."""

    heads: int
    head_dim: int
    mix: int
    decay: int
    eps: float

    def states(self, config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
        return {"shift": (1, config.width), "wkv": (self.heads, self.head_dim, self.head_dim)}

    def module(
        self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage
    ) -> nn.Module:
        return TimeMix6Layer(graph, self, config, layer, storage)


class TimeMix6Layer(nn.Module):
    """See the file. mix_up: (w k v r g, rank, width)."""

    def __init__(
        self, graph: Graph, own: TimeMix6, config: DecoderConfig, layer: int, storage: Storage
    ) -> None:
        super().__init__()
        self.own, self.layer = own, layer
        width, inner = config.width, own.heads * own.head_dim
        self.x_x = nn.init.filled(graph, (width,), 0)
        self.x_all = nn.init.filled(graph, (len(MIXED), width), 0)
        self.bonus = nn.init.filled(graph, (own.heads, own.head_dim), 0)
        self.mix_down = projection(graph, width, len(MIXED) * own.mix, False, storage, "mix_down")
        self.mix_up = nn.init.filled(graph, (len(MIXED), own.mix, width), 0)
        self.w_lora = LowRank(graph, width, own.decay, inner, True, storage.below("w_lora"))
        self.k_proj, self.v_proj, self.r_proj, self.g_proj = (
            projection(graph, width, inner, False, storage, f"{name}_proj") for name in "kvrg"
        )
        self.o_proj = projection(graph, inner, width, False, storage, "o_proj")
        self.g_norm = nn.GroupNorm(graph, own.heads, inner, own.eps)

    def forward(self, x: Tensor, cache: Carrying) -> Tensor:
        """x: (tokens, width)."""
        carry = cache.carry
        x, change = between(x, carry, self.layer)
        narrow = ops.tanh(self.mix_down(x + change * self.x_x)).unflatten(-1, (len(MIXED), -1))
        shares = ops.einsum("tmr,mrw->tmw", narrow, self.mix_up) + self.x_all
        w, k, v, r, g = ops.unbind(x.unsqueeze(1) + change.unsqueeze(1) * shares, 1)
        w = ops.exp(-ops.exp(self.w_lora(w, ops.tanh)))
        gate = ops.silu(self.g_proj(g))
        given = self.r_proj(r), self.k_proj(k), self.v_proj(v), w
        heads = (self.own.heads, self.own.head_dim)
        state = carry.before(x.graph, self.layer, "wkv")
        state, y = stepped(
            carry, self._step, state, *(carry.apart(t.unflatten(-1, heads)) for t in given)
        )
        carry.after(self.layer, "wkv", state)
        return self.o_proj(self.g_norm(carry.together(y).flatten(1, 2)) * gate)

    def _step(
        self, old: Tensor, r: Tensor, k: Tensor, v: Tensor, w: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(the state (sequences, heads, keys, values), what r reads of it), for one token of each:
        (sequences, heads, numbers)."""
        read = (old * r.unsqueeze(-1)).sum(-2) + (r * self.bonus * k).sum(-1, True) * v
        return old * w.unsqueeze(-1) + k.unsqueeze(-1) * v.unsqueeze(-2), read
