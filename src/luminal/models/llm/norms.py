"""Kinds of norms."""

from __future__ import annotations

from ... import nn, ops
from ...graph import Graph, Tensor
from .config import DecoderConfig


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


def plain_norm(x: Tensor, eps: float) -> Tensor:
    """RMS norm without weights, over the last dimension."""
    return ops.rms_norm(x, x.shape[-1:], None, eps)


def through(norm: nn.Module | None, x: Tensor) -> Tensor:
    """x, normed where there is a norm."""
    return x if norm is None else norm(x)


class HeadNorms(nn.Module):
    """Layer norms of heads side by side, each with weights of its own (heads, head_dim)."""

    def __init__(self, graph: Graph, width: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.init.filled(graph, (width // head_dim, head_dim), 1)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., heads * head_dim)."""
        heads = x.unflatten(-1, self.weight.shape)
        normed = ops.layer_norm(heads, heads.shape[-1:], None, None, self.eps)
        return (normed * self.weight).flatten(-2, -1)
