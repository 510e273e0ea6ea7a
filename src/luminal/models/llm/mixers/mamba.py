"""Mamba (Gu and Dao 2023, https://arxiv.org/abs/2312.00752): every channel has a state of its own,
of which each number decays by itself: h = exp(A dt) h + dt x B, y = h C + D x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .... import nn, ops
from ....graph import Graph, Tensor
from ....nn.activation import activation_of
from ..config import DecoderConfig
from ..projection import projection
from ..storage import Storage
from .steps import Carrying, CausalConv, stepped


@dataclass(frozen=True)
class Mamba:
    """inner: channels. rank: numbers of which dt is made. norms: of dt, B and C, as in Jamba;
    bare_norms: the eps of such without weights, as in Falcon Mamba."""

    inner: int
    state: int
    kernel: int
    rank: int
    bias: bool = False
    conv_bias: bool = True
    norms: bool = False
    bare_norms: float | None = None

    def states(self, config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
        return {"conv": (self.kernel - 1, self.inner), "ssm": (self.inner, self.state)}

    def module(
        self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage
    ) -> nn.Module:
        return MambaLayer(graph, self, config, layer, storage)


class MambaLayer(nn.Module):
    """See the file. in_proj makes x and a gate; x_proj makes dt, B and C of x."""

    def __init__(
        self, graph: Graph, own: Mamba, config: DecoderConfig, layer: int, storage: Storage
    ) -> None:
        super().__init__()
        self.own, self.layer, inner, width = own, layer, own.inner, config.width
        self.activation = activation_of(config.activation)
        self.in_proj = projection(graph, width, 2 * inner, own.bias, storage, "in_proj")
        self.conv1d = CausalConv(graph, inner, own.kernel, own.conv_bias)
        parts = own.rank + 2 * own.state
        self.x_proj = projection(graph, inner, parts, False, storage, "x_proj")
        self.dt_proj = projection(graph, own.rank, inner, True, storage, "dt_proj")
        self.A_log = nn.init.filled(graph, (inner, own.state), 0)
        self.D = nn.init.filled(graph, (inner,), 0)
        self.dt_layernorm = self.b_layernorm = self.c_layernorm = None
        if own.norms:
            self.dt_layernorm = nn.RMSNorm(graph, own.rank, config.eps)
            self.b_layernorm = nn.RMSNorm(graph, own.state, config.eps)
            self.c_layernorm = nn.RMSNorm(graph, own.state, config.eps)
        self.out_proj = projection(graph, inner, width, own.bias, storage, "out_proj")

    def forward(self, x: Tensor, cache: Carrying) -> Tensor:
        """x: (tokens, width)."""
        own, carry = self.own, cache.carry
        inside, gate = self.in_proj(x).chunk(2, -1)
        inside = self.conv1d(carry.apart(inside), carry, self.layer)
        inside = self.activation(carry.together(inside))
        parts = self.x_proj(inside)
        dt, b, c = (
            self._normed(part, norm)
            for part, norm in (
                (parts.narrow(-1, 0, own.rank), self.dt_layernorm),
                (parts.narrow(-1, own.rank, own.state), self.b_layernorm),
                (parts[..., own.rank + own.state :], self.c_layernorm),
            )
        )
        dt, a = ops.softplus(self.dt_proj(dt)), -ops.exp(self.A_log)

        def step(
            old: Tensor, dt: Tensor, taken: Tensor, b: Tensor, c: Tensor
        ) -> tuple[Tensor, Tensor]:
            new = old * ops.exp(dt.unsqueeze(-1) * a) + taken.unsqueeze(-1) * b.unsqueeze(1)
            return new, (new * c.unsqueeze(1)).sum(-1)

        state = carry.before(x.graph, self.layer, "ssm")
        xs = [carry.apart(part) for part in (dt, dt * inside, b, c)]
        state, y = stepped(carry, step, state, *xs)
        carry.after(self.layer, "ssm", state)
        return self.out_proj((carry.together(y) + inside * self.D) * ops.silu(gate))

    def _normed(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        if self.own.bare_norms is not None:
            return ops.rms_norm(x, x.shape[-1:], None, self.own.bare_norms)
        return x if norm is None else norm(x)
