"""InternVL 3 (Zhu et al. 2025, https://arxiv.org/abs/2504.10479): squares of a picture through a
tower, four neighbouring patches joined to one token of the decoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ... import nn, ops
from ...errors import Unsupported
from ...graph import Graph, Tensor
from ...nn import init
from ...nn.activation import activation_of
from ...weights.fields import Fields
from ..llm.pictures import Pictures
from .images import pillow
from .layers import MLP
from .sight import CLIP_MEAN, CLIP_STD, Eyes, SquareSight
from .towers import TowerConfig

PLACE, START, END = "<IMG_CONTEXT>", "<img>", "</img>"
MOST_SQUARES = 12


@dataclass(frozen=True)
class Form:
    """How a tower's blocks are made: whether projections have biases, queries and keys norms; the
    kind of norms."""

    bias: bool
    qk_norm: bool
    rms: bool

    def norm(self, graph: Graph, width: int, eps: float) -> nn.Module:
        return (nn.RMSNorm if self.rms else nn.LayerNorm)(graph, width, eps)


class InternBlock(nn.Module):
    """Attention and an MLP, each after a norm and with a factor for each feature."""

    def __init__(self, graph: Graph, config: TowerConfig, form: Form) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.attention = nn.Attention(
            graph, width, config.num_attention_heads, bias=form.bias, out_bias=True,
            names=("q_proj", "k_proj", "v_proj", "projection_layer"), whole_norm=True,
            norm=(lambda graph, size: nn.RMSNorm(graph, size, 1e-6)) if form.qk_norm else None,
        )  # fmt: skip
        self.mlp = MLP(graph, width, config.intermediate_size, config.hidden_act)
        self.layernorm_before, self.layernorm_after = (
            form.norm(graph, width, eps) for _ in range(2)
        )
        self.lambda_1, self.lambda_2 = (init.filled(graph, (width,), 1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.lambda_1 * self.attention(self.layernorm_before(x))
        return x + self.lambda_2 * self.mlp(self.layernorm_after(x))


class InternNet(nn.Module):
    """pixels (1, channels, size, size) to rows (1, tokens, width); under Hugging Face's names."""

    def __init__(self, graph: Graph, config: TowerConfig, width: int, given: Fields) -> None:
        super().__init__()
        tower, wide = given.fields("vision_config"), config.hidden_size
        form = Form(tower.flag("attention_bias"), tower.flag("use_qk_norm"),
                    tower.text("norm_type", "layer_norm") == "rms_norm")  # fmt: skip
        self.side, self.layer = config.side, int(given.number("vision_feature_layer", -1))
        self.skip = given.text("vision_feature_select_strategy", "default") == "default"
        self.cls_token = init.filled(graph, (1, 1, wide), 0)
        self.position_embeddings = init.filled(graph, (1, self.side**2 + 1, wide), 0)
        patch = config.patch_size
        self.projection = nn.Conv2d(graph, config.num_channels, wide, patch, patch)
        self.layers = nn.ModuleList(
            [InternBlock(graph, config, form) for _ in range(config.num_hidden_layers)]
        )
        self.layernorm: nn.Module | None = None
        if not tower.flag("use_mean_pooling", True):
            self.layernorm = nn.LayerNorm(graph, wide, config.layer_norm_eps)
        self.factor = factor_of(given)
        self.layer_norm = nn.LayerNorm(graph, wide * self.factor**2)
        self.linear_1 = nn.Linear(graph, wide * self.factor**2, width)
        self.linear_2 = nn.Linear(graph, width, width)
        self.activation = activation_of(given.text("projector_hidden_act", "gelu"))

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.projection(pixels).flatten(2, 3).transpose(1, 2)
        states = [ops.cat([self.cls_token, x], 1) + self.position_embeddings]
        for layer in self.layers:
            states.append(layer(states[-1]))
        x = states[self.layer]
        if self.layer == -1 and self.layernorm is not None:
            x = self.layernorm(x)
        cut = x[:, 1:].unflatten(1, (self.side, self.side)).unflatten(2, (-1, self.factor))
        # (batch, rows, factor, columns, factor, width)
        cut = cut.unflatten(1, (-1, self.factor)).permute(0, 1, 3, 2, 4, 5)
        x = self.layer_norm(cut.flatten(3, 5).flatten(1, 2))
        return self.linear_2(self.activation(self.linear_1(x)))


class InternSight(SquareSight):
    """Squares of a picture, as many and in such rows as come nearest to its form, and the whole of
    it."""

    mean, std, place = CLIP_MEAN, CLIP_STD, PLACE
    renames = (
        (r"^model\.", ""), (r"^multi_modal_projector\.", ""),
        (r"^vision_tower\.encoder\.layer\.", "layers."), (r"^vision_tower\.", ""),
        (r"^embeddings\.(patch_embeddings\.)?", ""),
    )  # fmt: skip

    row = PLACE

    def __init__(self, eyes: Eyes, pictures: Pictures) -> None:
        super().__init__(eyes, pictures)
        given, where = self.given, self.given.where
        tower = given.fields("vision_config")
        if given.text("vision_feature_select_strategy", "default") != "default":
            raise Unsupported(f"{where}: rows of the class token")
        if not tower.flag("use_absolute_position_embeddings", True):
            raise Unsupported(f"{where}: a tower without positions")
        size = self.processor.fields("size").count("height", self.size)
        if size != self.size or self.tower.side % factor_of(given):
            raise Unsupported(f"{where}: squares of {size} for a tower of {self.size}")

    def net(self, graph: Graph) -> nn.Module:
        return InternNet(graph, self.tower, self.pictures.width, self.given)

    def grid(self, size: tuple[int, int]) -> tuple[int, int]:
        """(columns, rows) of squares for a picture of that width and height."""
        least = self.processor.count("min_patches", 1)
        most = self.processor.count("max_patches", MOST_SQUARES)
        return nearest(*size, self.size, least, most)

    def squares(self, image: Any) -> list[Any]:
        (columns, rows), side = self.grid(image.size), self.size
        bicubic = pillow().Resampling.BICUBIC
        whole = image.resize((columns * side, rows * side), bicubic)
        found = [whole.crop((x * side, y * side, (x + 1) * side, (y + 1) * side))
                 for y in range(rows) for x in range(columns)]  # fmt: skip
        return found if len(found) == 1 else [*found, image.resize((side, side), bicubic)]

    def places(self, image: Any) -> str:
        columns, rows = self.grid(image.size)
        count = columns * rows + int(columns * rows > 1)
        each = (self.tower.side // factor_of(self.given)) ** 2
        return f"{START}{PLACE * (each * count)}{END}"


def factor_of(given: Fields) -> int:
    """How many patches in a row become one."""
    return round(1 / given.number("downsample_ratio", 0.5, low=0.01, high=1))


@lru_cache(64)
def nearest(width: int, height: int, side: int, least: int, most: int) -> tuple[int, int]:
    """The (columns, rows) whose form is nearest to a picture's, fewest squares first; of equal ones
    the larger, while the picture has more than half of its pixels."""
    every = ((x, y) for x in range(1, most + 1) for y in range(1, most + 1))
    ranked = sorted((g for g in every if least <= g[0] * g[1] <= most), key=lambda g: g[0] * g[1])
    best, far = (1, 1), float("inf")
    for columns, rows in ranked:
        off = abs(width / height - columns / rows)
        large = width * height > 0.5 * side * side * columns * rows
        if off < far or (off == far and large):
            best, far = (columns, rows), off
    return best
