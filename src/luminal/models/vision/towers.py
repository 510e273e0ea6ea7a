"""Encoders of pictures: the vision towers of CLIP, SigLIP (Zhai et al. 2023, arXiv 2303.15343) and
Idefics 3, under Hugging Face's names."""

from __future__ import annotations

from dataclasses import dataclass

from ... import nn, ops
from ...graph import Graph, Tensor
from ...nn import init
from ...weights.fields import Fields
from .clip import Encoder
from .layers import Block, sizes

KINDS = {  # model_type -> whether there is a class token, and a norm before all blocks
    "clip_vision_model": True, "siglip_vision_model": False, "idefics3_vision": False,
    "smolvlm_vision": False, "internvl_vision": True,
}  # fmt: skip
LARGE = {"hidden_size": 1152, "num_attention_heads": 16}
USUAL: dict[str, dict[str, int]] = {  # of a kind, where its file leaves it out
    "siglip_vision_model": {"patch_size": 16}, "idefics3_vision": LARGE, "smolvlm_vision": LARGE,
}  # fmt: skip


@dataclass(frozen=True)
class TowerConfig:
    """Sizes of a tower, under the names of its config.json; the defaults are CLIP's."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    image_size: int = 224
    patch_size: int = 32
    num_channels: int = 3
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    classed: bool = True

    @staticmethod
    def read(given: Fields) -> TowerConfig:
        """Raises WeightsError."""
        classed = KINDS[given.text("model_type", among=KINDS)]
        act, eps = ("quick_gelu", 1e-5) if classed else ("gelu_pytorch_tanh", 1e-6)
        if given.text("model_type") == "internvl_vision":
            act, eps = "gelu", 1e-6
            sides = {name: _side(given, name) for name in ("image_size", "patch_size")}
            given = Fields({**given.values, **sides}, given.where)
        own = USUAL.get(given.text("model_type"), {})
        usual = TowerConfig(hidden_act=act, layer_norm_eps=eps, classed=classed, **own)
        return sizes(usual, given)

    @property
    def side(self) -> int:
        """Patches of a side."""
        return self.image_size // self.patch_size


def _side(given: Fields, name: str) -> int:
    """Of squares that may be told by both sides. Raises WeightsError."""
    if not isinstance(given.values.get(name), (list, tuple)):
        return given.count(name)
    sides = set(given.counts(name, 2))
    if len(sides) > 1:
        raise given.wrong(name, "the side of a square")
    return sides.pop()


class Embeddings(nn.Module):
    """Patches and their places, behind a class token if there is one."""

    def __init__(self, graph: Graph, config: TowerConfig) -> None:
        super().__init__()
        width, patch, self.classed = config.hidden_size, config.patch_size, config.classed
        self.patch_embedding = nn.Conv2d(
            graph, config.num_channels, width, patch, patch, bias=not self.classed
        )
        if self.classed:
            self.class_embedding = init.normal(graph, (width,), 0.02)
        self.position_embedding = nn.Embedding(graph, config.side**2 + self.classed, width)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patch_embedding(pixels).flatten(2, 3).transpose(1, 2)
        if self.classed:
            first = self.class_embedding.unsqueeze(0).unsqueeze(0).expand(x.shape[0], 1, x.shape[2])
            x = ops.cat([first, x], 1)
        return x + self.position_embedding.weight


class Tower(nn.Module):
    """pixels (batch, 3, size, size) to (the states before and after every block, each (batch,
    tokens, width); the last one normalised)."""

    def __init__(self, graph: Graph, config: TowerConfig) -> None:
        super().__init__()
        self.classed = config.classed
        self.embeddings = Embeddings(graph, config)
        width, eps = config.hidden_size, config.layer_norm_eps
        if self.classed:
            self.pre_layrnorm = nn.LayerNorm(graph, width, eps)
        self.encoder = Encoder(graph, [
            Block(graph, width, config.num_attention_heads, config.intermediate_size,
                  config.hidden_act, eps) for _ in range(config.num_hidden_layers)
        ])  # fmt: skip
        self.post_layernorm = nn.LayerNorm(graph, width, eps)

    def forward(self, pixels: Tensor) -> tuple[list[Tensor], Tensor]:
        x = self.embeddings(pixels)
        states = self.encoder(self.pre_layrnorm(x) if self.classed else x)
        return states, self.post_layernorm(states[-1])
