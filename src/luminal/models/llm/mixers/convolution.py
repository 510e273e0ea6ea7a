"""Short convolutions (LFM2, https://arxiv.org/abs/2511.23404): C conv(B x), all three projected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .... import nn
from ....graph import Graph, Tensor
from ..config import DecoderConfig
from ..projection import projection
from ..storage import Storage
from .steps import Carrying, CausalConv


@dataclass(frozen=True)
class ShortConvolution:
    """kernel: tokens that a convolution sees."""

    kernel: int
    bias: bool = False

    def states(self, config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
        return {"conv": (self.kernel - 1, config.width)}

    def module(
        self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage
    ) -> nn.Module:
        return ShortConvolutionLayer(graph, self, config, layer, storage)


class ShortConvolutionLayer(nn.Module):
    """See the file."""

    def __init__(
        self, graph: Graph, own: ShortConvolution, config: DecoderConfig, layer: int,
        storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layer, width = layer, config.width
        self.in_proj = projection(graph, width, 3 * width, own.bias, storage, "in_proj")
        self.conv = CausalConv(graph, width, own.kernel, own.bias)
        self.out_proj = projection(graph, width, width, own.bias, storage, "out_proj")

    def forward(self, x: Tensor, cache: Carrying) -> Tensor:
        """x: (tokens, width)."""
        b, c, inner = self.in_proj(x).chunk(3, -1)
        carry = cache.carry
        made = carry.together(self.conv(carry.apart(b * inner), carry, self.layer))
        return self.out_proj(c * made)
