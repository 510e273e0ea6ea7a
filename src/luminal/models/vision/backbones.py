"""Nets that classify pictures, under names of their own: vision transformers (DINOv2's: Oquab et
al. 2023, https://arxiv.org/abs/2304.07193) and ConvNeXt (Liu et al. 2022,
https://arxiv.org/abs/2201.03545); and the names of Hugging Face's checkpoints as ours."""

from __future__ import annotations

from dataclasses import dataclass

from ... import nn, ops
from ...graph import Graph, Tensor
from ...nn import init
from ...nn.activation import BY_NAME, activation_of
from ...weights.fields import Fields
from .layers import Block

EPS = 1e-6
TRANSFORMER = (
    (r"^(vit|dinov2)\.", ""),
    (r"^(encoder\.layer|layers)\.", "blocks."),
    (r"\.attention\.(attention\.query|q_proj)\.", ".self_attn.q_proj."),
    (r"\.attention\.(attention\.key|k_proj)\.", ".self_attn.k_proj."),
    (r"\.attention\.(attention\.value|v_proj)\.", ".self_attn.v_proj."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".self_attn.out_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"\.(layernorm_before|norm1)\.", ".layer_norm1."),
    (r"\.(layernorm_after|norm2)\.", ".layer_norm2."),
    (r"\.layer_scale([12])\.lambda1$", r".scale\1"),
    (r"^embeddings\.", ""),
    (r"^patch_embeddings\.", ""),
)
CONVOLUTIONAL = ((r"^convnext\.", ""), (r"^encoder\.", ""), (r"^embeddings\.", ""))


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a ViT or a DINOv2, under the names of its config.json."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    inner: int
    image_size: int
    patch_size: int
    hidden_act: str
    eps: float
    bias: bool
    scaled: bool  # DINOv2: what layers add is scaled, and the mean of patches is looked at too

    @staticmethod
    def read(given: Fields) -> TransformerConfig:
        """Raises WeightsError."""
        width, scaled = given.count("hidden_size", 768), given.text("model_type") == "dinov2"
        inner = given.count("mlp_ratio", 4) * width if scaled else 3072
        if scaled and given.flag("use_swiglu_ffn"):
            raise given.wrong("use_swiglu_ffn", "false, which alone is built")
        return TransformerConfig(
            width, given.count("num_hidden_layers", 12), given.count("num_attention_heads", 12),
            inner if scaled else given.count("intermediate_size", inner),
            given.count("image_size", 224), given.count("patch_size", 14 if scaled else 16),
            given.text("hidden_act", "gelu", among=BY_NAME),
            given.number("layer_norm_eps", 1e-6 if scaled else 1e-12, low=0, high=1),
            given.flag("qkv_bias", True), scaled,
        )  # fmt: skip


class Transformer(nn.Module):
    """pixels (batch, 3, size, size) to scores (batch, classes)."""

    def __init__(self, graph: Graph, config: TransformerConfig, classes: int) -> None:
        super().__init__()
        width, self.config = config.hidden_size, config
        places = (config.image_size // config.patch_size) ** 2 + 1
        self.projection = nn.Conv2d(graph, 3, width, config.patch_size, config.patch_size)
        self.cls_token = init.normal(graph, (1, 1, width), 0.02)
        self.position_embeddings = init.normal(graph, (1, places, width), 0.02)
        self.blocks = nn.ModuleList(
            Block(graph, width, config.num_attention_heads, config.inner, config.hidden_act,
                  config.eps, config.bias, config.scaled) for _ in range(config.num_hidden_layers)
        )  # fmt: skip
        self.layernorm = nn.LayerNorm(graph, width, config.eps)
        self.classifier = nn.Linear(graph, width * (2 if config.scaled else 1), classes)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.projection(pixels).flatten(2, 3).transpose(1, 2)
        first = self.cls_token.expand(x.shape[0], 1, x.shape[2])
        x = ops.cat([first, x], 1) + self.position_embeddings
        for block in self.blocks:
            x = block(x)
        x = self.layernorm(x)
        seen = x[:, 0]
        if self.config.scaled:
            seen = ops.cat([seen, x[:, 1:].mean(1)], -1)
        return self.classifier(seen)


@dataclass(frozen=True)
class ConvNeXtConfig:
    """Sizes of a ConvNeXt, under the names of its config.json."""

    hidden_sizes: tuple[int, ...]
    depths: tuple[int, ...]
    patch_size: int
    hidden_act: str
    eps: float
    scaled: bool
    image_size: int

    @staticmethod
    def read(given: Fields) -> ConvNeXtConfig:
        """Raises WeightsError."""
        depths = given.counts("depths") if given.has("depths") else [3, 3, 9, 3]
        usual = [96, 192, 384, 768]
        sizes = given.counts("hidden_sizes", len(depths)) if given.has("hidden_sizes") else usual
        return ConvNeXtConfig(
            tuple(sizes), tuple(depths), given.count("patch_size", 4),
            given.text("hidden_act", "gelu", among=BY_NAME),
            given.number("layer_norm_eps", 1e-12, low=0, high=1),
            given.number("layer_scale_init_value", 1e-6) > 0, given.count("image_size", 224),
        )  # fmt: skip


def _first(x: Tensor) -> Tensor:
    """Channels before height and width."""
    return x.permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    """Channels behind them."""
    return x.permute(0, 2, 3, 1)


class ConvNeXtLayer(nn.Module):
    """A window of 7 in each channel, then an MLP in each pixel; the input is added."""

    def __init__(self, graph: Graph, width: int, config: ConvNeXtConfig) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(graph, width, width, 7, padding=3, groups=width)
        self.layernorm = nn.LayerNorm(graph, width, EPS)
        self.pwconv1 = nn.Linear(graph, width, 4 * width)
        self.pwconv2 = nn.Linear(graph, 4 * width, width)
        self.activation, self.scaled = activation_of(config.hidden_act), config.scaled
        if config.scaled:
            self.layer_scale_parameter = init.filled(graph, (width,), 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layernorm(_last(self.dwconv(x)))
        y = self.pwconv2(self.activation(self.pwconv1(y)))
        return x + _first(y * self.layer_scale_parameter if self.scaled else y)


class ConvNeXtStage(nn.Module):
    """A halving of the size, then layers."""

    def __init__(self, graph: Graph, config: ConvNeXtConfig, place: int) -> None:
        super().__init__()
        width, self.halved = config.hidden_sizes[place], place > 0
        if self.halved:
            before = config.hidden_sizes[place - 1]
            self.downsampling_layer = nn.ModuleList(
                [nn.LayerNorm(graph, before, EPS), nn.Conv2d(graph, before, width, 2, 2)]
            )
        self.layers = nn.ModuleList(
            ConvNeXtLayer(graph, width, config) for _ in range(config.depths[place])
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.halved:
            norm, halve = self.downsampling_layer
            x = halve(_first(norm(_last(x))))
        for layer in self.layers:
            x = layer(x)
        return x


class ConvNeXt(nn.Module):
    """pixels (batch, 3, size, size) to scores (batch, classes)."""

    def __init__(self, graph: Graph, config: ConvNeXtConfig, classes: int) -> None:
        super().__init__()
        sizes, patch = config.hidden_sizes, config.patch_size
        self.patch_embeddings = nn.Conv2d(graph, 3, sizes[0], patch, patch)
        self.embedding_norm = nn.LayerNorm(graph, sizes[0], EPS)
        self.stages = nn.ModuleList(ConvNeXtStage(graph, config, n) for n in range(len(sizes)))
        self.layernorm = nn.LayerNorm(graph, sizes[-1], config.eps)
        self.classifier = nn.Linear(graph, sizes[-1], classes)

    def forward(self, pixels: Tensor) -> Tensor:
        x = _first(self.embedding_norm(_last(self.patch_embeddings(pixels))))
        for stage in self.stages:
            x = stage(x)
        return self.classifier(self.layernorm(x.mean([2, 3])))
