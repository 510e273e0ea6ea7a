"""The eyes of Gemma 3 (Gemma Team 2025, https://arxiv.org/abs/2503.19786): SigLIP, means of
neighbouring patches, a matrix."""

from __future__ import annotations

import math
from typing import Any

from ... import nn, ops
from ...graph import Graph, Tensor
from ...nn import init
from ..llm.norms import ShiftedRMSNorm
from .images import pillow
from .sight import HALF, Llava, SquareSight
from .towers import Tower, TowerConfig

TOKENS = 256  # of a picture


class GemmaNet(nn.Module):
    """pixels to (batch, tokens, width)."""

    def __init__(self, graph: Graph, tower: TowerConfig, width: int, tokens: int) -> None:
        super().__init__()
        self.vision_tower, self.side = Tower(graph, tower), tower.side
        self.step = tower.side // math.isqrt(tokens)
        self.mm_soft_emb_norm = ShiftedRMSNorm(graph, tower.hidden_size, tower.layer_norm_eps)
        self.mm_input_projection_weight = init.normal(graph, (tower.hidden_size, width), 0.02)

    def forward(self, pixels: Tensor) -> Tensor:
        _, seen = self.vision_tower(pixels)
        image = seen.transpose(1, 2).unflatten(2, (self.side, self.side))
        seen = ops.avg_pool2d(image, self.step).flatten(2, 3).transpose(1, 2)
        return ops.matmul(self.mm_soft_emb_norm(seen), self.mm_input_projection_weight)


class GemmaSight(SquareSight):
    """The whole picture as a square."""

    mean, std, place = HALF, HALF, "<start_of_image>"
    row, end = "<image_soft_token>", "<end_of_image>"
    around = "", ""
    renames = Llava.renames

    @property
    def tokens(self) -> int:
        """Of a picture."""
        return self.given.count("mm_tokens_per_image", TOKENS)

    def net(self, graph: Graph) -> nn.Module:
        return GemmaNet(graph, self.tower, self.pictures.width, self.tokens)

    def squares(self, image: Any) -> list[Any]:
        return [image.resize((self.size, self.size), pillow().Resampling.BILINEAR)]

    def places(self, image: Any) -> str:
        return f"\n\n{self.place}{self.row * self.tokens}{self.end}\n\n"
