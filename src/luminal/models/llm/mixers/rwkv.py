"""RWKV 7 (Peng and others 2025, https://arxiv.org/abs/2503.14456): each head's state S (keys,
values) decays key by key, forgets a removal key's value and takes up another:
S = diag(w) S - (a k') (k'^T S) + k v^T, y = r S. What a token is made of is between it and the
last one; what its feed-forward part is made of too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .... import nn, ops
from ....graph import Graph, Tensor
from ..carry import Carry
from ..config import DecoderConfig
from ..projection import projection
from ..storage import Storage
from .chunks import removing
from .steps import Carrying, with_earlier

DECAY = -0.606531  # -exp(-1/2): the logarithm of the fastest decay
EPS = 64e-5  # of the norm of heads of 64 numbers, in proportion for others


def between(x: Tensor, carry: Carry, layer: int) -> tuple[Tensor, Tensor]:
    """(x, the token before it less x), (tokens, width) both."""
    apart = carry.apart(x)
    earlier = with_earlier(apart, 1, carry, layer, "shift").narrow(1, 0, apart.shape[1])
    return x, carry.together(earlier) - x


@dataclass(frozen=True)
class TimeMix:
    """decay, rate, value, gate: ranks of the matrices that make w, a, v's share and the gate."""

    heads: int
    head_dim: int
    decay: int
    rate: int
    value: int
    gate: int

    def states(self, config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
        return {"shift": (1, config.width), "wkv": (self.heads, self.head_dim, self.head_dim)}

    def module(
        self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage
    ) -> nn.Module:
        return TimeMixLayer(graph, self, config, layer, storage)


class LowRank(nn.Module):
    """Two matrices, with an activation between."""

    def __init__(
        self, graph: Graph, width: int, rank: int, out: int, bias: bool, storage: Storage
    ) -> None:
        super().__init__()
        self.down = projection(graph, width, rank, False, storage, "down")
        self.up = projection(graph, rank, out, bias, storage, "up")

    def forward(self, x: Tensor, activation: object = None) -> Tensor:
        narrow = self.down(x)
        return self.up(activation(narrow) if callable(activation) else narrow)


class TimeMixLayer(nn.Module):
    """See the file. The first layer's values are mixed into those of all others."""

    def __init__(
        self, graph: Graph, own: TimeMix, config: DecoderConfig, layer: int, storage: Storage
    ) -> None:
        super().__init__()
        self.own, self.layer = own, layer
        width, inner = config.width, own.heads * own.head_dim
        self.x_r, self.x_w, self.x_k, self.x_v, self.x_a, self.x_g = (
            nn.init.filled(graph, (width,), 0) for _ in range(6)
        )
        self.k_k, self.k_a = (nn.init.filled(graph, (inner,), 0) for _ in range(2))
        self.r_k = nn.init.filled(graph, (own.heads, own.head_dim), 0)
        self.r_proj, self.k_proj, self.v_proj = (
            projection(graph, width, inner, False, storage, name)
            for name in ("r_proj", "k_proj", "v_proj")
        )
        self.o_proj = projection(graph, inner, width, False, storage, "o_proj")

        def low(name: str, rank: int, bias: bool = True) -> LowRank:
            return LowRank(graph, width, rank, inner, bias, storage.below(name))

        self.w_lora, self.a_lora = low("w_lora", own.decay), low("a_lora", own.rate)
        self.g_lora = low("g_lora", own.gate, False)
        self.v_lora = low("v_lora", own.value) if layer else None
        self.g_norm = nn.GroupNorm(graph, own.heads, inner, EPS * own.head_dim / 64)

    def forward(self, x: Tensor, cache: Carrying) -> Tensor:
        """x: (tokens, width)."""
        carry = cache.carry
        x, change = between(x, carry, self.layer)
        r = self.r_proj(x + change * self.x_r)
        k, v = self.k_proj(x + change * self.x_k), self._values(x + change * self.x_v, carry)
        w = DECAY * ops.sigmoid(self.w_lora(x + change * self.x_w, ops.tanh))
        a = ops.sigmoid(self.a_lora(x + change * self.x_a))
        gate = self.g_lora(x + change * self.x_g, ops.sigmoid)
        removed = ops.normalize(self._heads(k * self.k_k), dim=-1)
        r, k, v, w, a = (self._heads(t) for t in (r, k * ((a - 1.0) * self.k_a + 1.0), v, w, a))
        y = self._recurrent(carry, r, k, v, w, removed, a)  # (tokens, heads, head_dim)
        y = self.g_norm(y.flatten(1, 2)) + ((r * k * self.r_k).sum(-1, True) * v).flatten(1, 2)
        return self.o_proj(y * gate)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.own.heads, self.own.head_dim))

    def _values(self, x: Tensor, carry: Carry) -> Tensor:
        v = self.v_proj(x)
        if self.v_lora is None:
            carry.shared["values"] = v
            return v
        return v + (carry.shared["values"] - v) * ops.sigmoid(self.v_lora(x))

    def _recurrent(
        self, carry: Carry, r: Tensor, k: Tensor, v: Tensor, w: Tensor, removed: Tensor, a: Tensor
    ) -> Tensor:
        """What every token reads (tokens, heads, head_dim). w: logarithms of decays."""
        given = (w, r, k, v, removed, removed * a)
        state = carry.before(r.graph, self.layer, "wkv")
        state, y = removing(carry, state, *(carry.apart(t) for t in given))
        carry.after(self.layer, "wkv", state)
        return carry.together(y)


@dataclass(frozen=True)
class ChannelMix:
    """hidden: width inside. gated: another mixture of both tokens says how much is let through, as
    in RWKV 6."""

    hidden: int
    gated: bool = False

    def states(self, config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
        return {"shift": (1, config.width)}

    def module(
        self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage
    ) -> nn.Module:
        return ChannelMixLayer(graph, self, config, layer, storage)


class ChannelMixLayer(nn.Module):
    """Widen, square of what is above zero, narrow."""

    def __init__(
        self, graph: Graph, own: ChannelMix, config: DecoderConfig, layer: int, storage: Storage
    ) -> None:
        super().__init__()
        self.layer, width = layer, config.width
        self.x_k = nn.init.filled(graph, (width,), 0)
        self.key = projection(graph, width, own.hidden, False, storage, "key")
        self.value = projection(graph, own.hidden, width, False, storage, "value")
        self.x_r = nn.init.filled(graph, (width,), 0) if own.gated else None
        self.receptance = (
            projection(graph, width, width, False, storage, "receptance") if own.gated else None
        )

    def forward(self, x: Tensor, cache: Carrying) -> Tensor:
        """x: (tokens, width)."""
        x, change = between(x, cache.carry, self.layer)
        wide = ops.relu(self.key(x + change * self.x_k))
        made = self.value(wide * wide)
        if self.x_r is None or self.receptance is None:
            return made
        return ops.sigmoid(self.receptance(x + change * self.x_r)) * made
