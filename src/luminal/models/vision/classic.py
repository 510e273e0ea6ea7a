"""Image classifiers: ResNets (He et al. 2015, https://arxiv.org/abs/1512.03385) under torchvision's
names, vision transformers (Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929) under timm's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import nn, ops
from ...graph import Graph, Tensor
from ...nn import init


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 to four times the width; the input is added."""

    def __init__(self, graph: Graph, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(graph, channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(graph, width)
        self.conv2 = nn.Conv2d(graph, width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(graph, width)
        self.conv3 = nn.Conv2d(graph, width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(graph, 4 * width)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != 4 * width:
            projection = nn.Conv2d(graph, channels, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(graph, projection, nn.BatchNorm2d(graph, 4 * width))

    def forward(self, x: Tensor) -> Tensor:
        residual = x if self.downsample is None else self.downsample(x)
        x = ops.relu(self.bn1(self.conv1(x)))
        x = ops.relu(self.bn2(self.conv2(x)))
        return ops.relu(self.bn3(self.conv3(x)) + residual)


class ResNet(nn.Module):
    """Images (batch, 3, height, width) to class scores (batch, classes).

    blocks: bottlenecks of the four stages; (3, 4, 6, 3) is ResNet-50.
    """

    def __init__(
        self, graph: Graph, blocks: Sequence[int] = (3, 4, 6, 3), classes: int = 1000,
        width: int = 64,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv1 = nn.Conv2d(graph, 3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(graph, width)
        channels = width
        for stage, count in enumerate(blocks):
            inner, layers = width << stage, []
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(graph, channels, inner, stride))
                channels = 4 * inner
            setattr(self, f"layer{stage + 1}", nn.Sequential(graph, layers))
        self.stages = len(blocks)
        self.fc = nn.Linear(graph, channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = ops.max_pool2d(ops.relu(self.bn1(self.conv1(images))), 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean([2, 3]))  # (batch, channels, height, width) to (batch, classes)


@dataclass(frozen=True)
class ViTConfig:
    """Sizes of a vision transformer; the defaults are ViT-B/16 at 224 x 224."""

    image: int = 224
    patch: int = 16
    width: int = 768
    depth: int = 12
    heads: int = 12
    classes: int = 1000

    @property
    def tokens(self) -> int:
        """Patches, and the class token."""
        return (self.image // self.patch) ** 2 + 1


class ViTMlp(nn.Module):
    """To four times the width and back."""

    def __init__(self, graph: Graph, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(graph, width, 4 * width)
        self.fc2 = nn.Linear(graph, 4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(ops.gelu(self.fc1(x)))


class ViTBlock(nn.Module):
    """Attention and MLP, each after a norm, with residuals around both."""

    def __init__(self, graph: Graph, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(graph, config.width, 1e-6)
        self.attn = nn.Attention(graph, config.width, config.heads, names=("qkv", "proj"))
        self.norm2 = nn.LayerNorm(graph, config.width, 1e-6)
        self.mlp = ViTMlp(graph, config.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbedding(nn.Module):
    """Images (batch, 3, height, width) to patches (batch, patches, width)."""

    def __init__(self, graph: Graph, config: ViTConfig) -> None:
        super().__init__()
        self.proj = nn.Conv2d(graph, 3, config.width, config.patch, config.patch)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2, 3).transpose(1, 2)


class VisionTransformer(nn.Module):
    """Images (batch, 3, image, image) to class scores (batch, classes)."""

    def __init__(self, graph: Graph, config: ViTConfig | None = None) -> None:
        super().__init__()
        config = config or ViTConfig()
        self.cls_token = init.normal(graph, (1, 1, config.width), 0.02)
        self.pos_embed = init.normal(graph, (1, config.tokens, config.width), 0.02)
        self.patch_embed = PatchEmbedding(graph, config)
        self.blocks = nn.Sequential(graph, [ViTBlock(graph, config) for _ in range(config.depth)])
        self.norm = nn.LayerNorm(graph, config.width, 1e-6)
        self.head = nn.Linear(graph, config.width, config.classes)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images)
        token = self.cls_token.expand(patches.shape[0], 1, patches.shape[2])
        x = ops.cat([token, patches], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x)).select(1, 0))
