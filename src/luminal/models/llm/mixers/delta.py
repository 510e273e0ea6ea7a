"""The gated delta rule (Yang and others 2024, https://arxiv.org/abs/2412.06464), as in Qwen3-Next:
each head's state S decays, and what it says of a key is moved towards the value by a share beta:
S = a S, S = S + k (beta (v - k S)), y = q S."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .... import nn, ops
from ....graph import Graph, Tensor
from ....nn.activation import activation_of
from ..config import DecoderConfig
from ..projection import projection
from ..storage import Storage
from .chunks import delta
from .steps import Carrying, CausalConv

EPS = 1e-6  # of the lengths of queries and keys


@dataclass(frozen=True)
class GatedDelta:
    """heads: of values; each of the `keys` heads of queries and keys serves several. key, value:
    numbers of a head's. kernel: tokens that the convolution sees. tiled: heads follow each other so
    that the next one has the next head of keys (GGUF), not those of a head of keys together."""

    heads: int
    keys: int
    key: int
    value: int
    kernel: int
    tiled: bool = False

    @property
    def channels(self) -> int:
        """Of the convolution: queries, keys, values."""
        return 2 * self.keys * self.key + self.heads * self.value

    def states(self, config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
        each = (self.keys, self.heads // self.keys, self.key, self.value)
        return {"conv": (self.kernel - 1, self.channels), "delta": each}

    def module(
        self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage
    ) -> nn.Module:
        return GatedDeltaLayer(graph, self, config, layer, storage)


class GatedDeltaLayer(nn.Module):
    """See the file. Matrices: qkv_proj, z_proj (a gate), b_proj (beta), a_proj (the decay)."""

    def __init__(
        self, graph: Graph, own: GatedDelta, config: DecoderConfig, layer: int, storage: Storage
    ) -> None:
        super().__init__()
        self.own, self.layer, width = own, layer, config.width
        self.activation = activation_of(config.activation)
        inner = own.heads * own.value
        self.qkv_proj = projection(graph, width, own.channels, False, storage, "qkv_proj")
        self.z_proj = projection(graph, width, inner, False, storage, "z_proj")
        self.b_proj = projection(graph, width, own.heads, False, storage, "b_proj")
        self.a_proj = projection(graph, width, own.heads, False, storage, "a_proj")
        self.conv1d = CausalConv(graph, own.channels, own.kernel, False)
        self.dt_bias, self.A_log = (nn.init.filled(graph, (own.heads,), 0) for _ in range(2))
        self.norm = nn.RMSNorm(graph, own.value, config.eps)
        self.out_proj = projection(graph, inner, width, False, storage, "out_proj")

    def forward(self, x: Tensor, cache: Carrying) -> Tensor:
        """x: (tokens, width)."""
        own, carry = self.own, cache.carry
        mixed = self.conv1d(carry.apart(self.qkv_proj(x)), carry, self.layer)
        mixed = self.activation(mixed)
        beta = self._grouped(ops.sigmoid(self.b_proj(x)).unsqueeze(-1)).squeeze(-1)
        decay = -ops.exp(self.A_log) * ops.softplus(self.a_proj(x) + self.dt_bias)  # logarithms
        decay = self._grouped(decay.unsqueeze(-1)).squeeze(-1)
        y = carry.together(self._recurrent(mixed, carry.apart(beta), carry.apart(decay), cache))
        y = y.transpose(1, 2) if own.tiled else y
        gate = self.z_proj(x).unflatten(-1, (own.heads, own.value))
        y = self.norm(y.flatten(1, 2)) * ops.silu(gate)  # (tokens, heads, value)
        return self.out_proj(y.flatten(1, 2))

    def _grouped(self, x: Tensor) -> Tensor:
        """(..., heads, numbers) --> (..., keys, heads of each, numbers)"""
        if not self.own.tiled:
            return x.unflatten(-2, (self.own.keys, -1))
        return x.unflatten(-2, (-1, self.own.keys)).transpose(-2, -3)

    def _recurrent(self, mixed: Tensor, beta: Tensor, decay: Tensor, cache: Carrying) -> Tensor:
        """(sequences, steps, keys, heads of each, value)."""
        own, both, carry = self.own, self.own.keys * self.own.key, cache.carry
        query, key = (
            _unit(mixed.narrow(-1, start, both).unflatten(-1, (own.keys, own.key)))
            for start in (0, both)
        )
        value = self._grouped(mixed[..., 2 * both :].unflatten(-1, (-1, own.value)))
        state = carry.before(mixed.graph, self.layer, "delta")
        state, y = delta(carry, state, decay, query * own.key**-0.5, key, value, beta)
        carry.after(self.layer, "delta", state)
        return y


def _unit(x: Tensor) -> Tensor:
    """Of length 1, nearly."""
    return x * ops.rsqrt((x * x).sum(-1, keepdim=True) + EPS)
