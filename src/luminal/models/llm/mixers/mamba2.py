"""Mamba 2 (Dao and Gu 2024, https://arxiv.org/abs/2405.21060): each head's state H decays by a
number and takes up the outer product of an input x and B: H = exp(A dt) H + dt x B, y = H C + D x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .... import nn, ops
from ....graph import Graph, Tensor
from ....nn.activation import activation_of
from ..config import DecoderConfig
from ..projection import projection
from ..storage import Storage
from .chunks import decayed
from .steps import Carrying, CausalConv, gated_norm


@dataclass(frozen=True)
class Mamba2:
    """groups: of heads, which share B and C. state: numbers of B and C. limits: of dt."""

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    bias: bool = False
    conv_bias: bool = True
    limits: tuple[float | None, float | None] = (None, None)

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Of the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    def states(self, config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
        each = (self.groups, self.heads // self.groups, self.head_dim, self.state)
        return {"conv": (self.kernel - 1, self.channels), "ssm": each}

    def module(
        self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage
    ) -> nn.Module:
        return Mamba2Layer(graph, self, config, layer, storage)


class Mamba2Layer(nn.Module):
    """See the file. in_proj makes a gate, x, B, C and dt."""

    def __init__(
        self, graph: Graph, own: Mamba2, config: DecoderConfig, layer: int, storage: Storage
    ) -> None:
        super().__init__()
        self.own, self.layer, self.eps, width = own, layer, config.eps, config.width
        self.activation = activation_of(config.activation)
        rows = own.inner + own.channels + own.heads
        self.in_proj = projection(graph, width, rows, own.bias, storage, "in_proj")
        self.conv1d = CausalConv(graph, own.channels, own.kernel, own.conv_bias)
        self.dt_bias, self.A_log, self.D = (
            nn.init.filled(graph, (own.heads,), 0) for _ in range(3)
        )
        self.norm = nn.RMSNorm(graph, own.inner, config.eps)
        self.out_proj = projection(graph, own.inner, width, own.bias, storage, "out_proj")

    def forward(self, x: Tensor, cache: Carrying) -> Tensor:
        """x: (tokens, width)."""
        own, carry, wide = self.own, cache.carry, self.in_proj(x)
        gate = wide.narrow(-1, 0, own.inner)
        mixed = self.conv1d(
            carry.apart(wide.narrow(-1, own.inner, own.channels)), carry, self.layer
        )
        dt = ops.softplus(wide[..., own.inner + own.channels :] + self.dt_bias)
        if own.limits != (None, None):
            dt = ops.clamp(dt, *own.limits)
        y = carry.together(self._recurrent(self.activation(mixed), carry.apart(dt), cache))
        y = gated_norm(y, gate, self.norm.weight, own.groups, self.eps)
        return self.out_proj(y)

    def _recurrent(self, mixed: Tensor, dt: Tensor, cache: Carrying) -> Tensor:
        """(sequences, steps, inner) of x, B, C and dt."""
        own, heads = self.own, (self.own.groups, -1)
        both = own.groups * own.state
        x = mixed.narrow(-1, 0, own.inner).unflatten(-1, (*heads, own.head_dim))
        b, c = (
            mixed.narrow(-1, own.inner + start, both).unflatten(-1, heads) for start in (0, both)
        )  # (sequences, steps, groups, state)
        decay = (dt * -ops.exp(self.A_log)).unflatten(-1, heads)
        taken = x * dt.unflatten(-1, heads).unsqueeze(-1)  # (..., groups, heads of it, head_dim)
        carry = cache.carry
        state = carry.before(mixed.graph, self.layer, "ssm")
        state, y = decayed(carry, state, decay, taken, b, c)
        carry.after(self.layer, "ssm", state)
        return (y + x * self.D.unflatten(0, heads).unsqueeze(-1)).flatten(2, -1)
