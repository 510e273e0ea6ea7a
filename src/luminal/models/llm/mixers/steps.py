"""What all layers with states are made of: convolutions over the last tokens, and steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .... import nn, ops
from ....graph import Graph, Tensor
from ..cache import Cache
from ..carry import Carry


class Carrying(Cache, Protocol):
    """A cache that has states too."""

    carry: Carry


def with_earlier(x: Tensor, rows: int, carry: Carry, layer: int, name: str) -> Tensor:
    """x (sequences, steps, ...) behind the `rows` tokens before it, which are carried."""
    whole = ops.cat([carry.before(x.graph, layer, name), x], 1)
    carry.after(layer, name, carry.last(whole, rows))
    return whole


class CausalConv(nn.Module):
    """Each channel of a token from those of it and the tokens before: weight (channels, 1, kernel),
    as a Conv1d with a group for each channel stores it. Carries the last kernel - 1 tokens."""

    def __init__(self, graph: Graph, channels: int, kernel: int, bias: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = nn.init.filled(graph, (channels, 1, kernel), 0)
        self.bias = nn.init.filled(graph, (channels,), 0) if bias else None

    def forward(self, x: Tensor, carry: Carry, layer: int, name: str = "conv") -> Tensor:
        """x: (sequences, steps, channels)."""
        whole, steps = with_earlier(x, self.kernel - 1, carry, layer, name), x.shape[1]
        parts = [whole.narrow(1, k, steps) * self.weight[:, 0, k] for k in range(self.kernel)]
        y = parts[0]
        for part in parts[1:]:
            y = y + part
        return y if self.bias is None else y + self.bias


def stepped(
    carry: Carry, step: Callable[..., tuple[Tensor, Tensor]], state: Tensor, *xs: Tensor
) -> tuple[Tensor, Tensor]:
    """(the last state, ys (sequences, steps, ...)) of `state, y = step(state, *x)` for every step
    of xs (sequences, steps, ...), the state staying where a step is no token."""
    given = [x.transpose(0, 1) for x in xs]
    if carry.real is not None:
        given.append(carry.real.transpose(0, 1))

    def one(old: Tensor, x: list[Tensor]) -> tuple[Tensor, Tensor]:
        new, y = step(old, *x[: len(xs)])
        if carry.real is not None:
            new = ops.where(x[-1].reshape(-1, *[1] * (new.ndim - 1)), new, old)
        return new, y

    found, ys = ops.scan(one, state, given)
    return found, ys.transpose(0, 1)


def gated_norm(x: Tensor, gate: Tensor, weight: Tensor | None, groups: int, eps: float) -> Tensor:
    """RMS norm of x silu(gate) (..., features), group by group of features."""
    gated = (x * ops.silu(gate)).unflatten(-1, (groups, -1))
    normed = ops.rms_norm(gated, gated.shape[-1:], None, eps).flatten(-2, -1)
    return normed if weight is None else normed * weight
