"""Residual nets that others look through: ResNet (He et al. 2015, https://arxiv.org/abs/1512.03385)
and its variant D, under the names of Hugging Face; timm's names as those."""

from __future__ import annotations

from ... import ops
from ...graph import Tensor
from ...nn.activation import BY_NAME, activation_of
from ...weights.fields import Fields
from .named import Activation, Named

PARTS = "convolution", "normalization"
TIMM = (
    *((rf"^layer{n + 1}\.", f"encoder.stages.{n}.layers.") for n in range(4)),
    *((rf"(layers\.\d+)\.(conv|bn){n + 1}\.", rf"\1.layer.{n}.\2.") for n in range(3)),
    (r"^(conv|bn)1\.", r"embedder.embedder.\1."),
    (r"\.downsample\.0\.", ".shortcut.convolution."),
    (r"\.downsample\.1\.", ".shortcut.normalization."),
    (r"\.conv\.(?=weight$)", ".convolution."),
    (r"\.bn\.(?=\w+$)", ".normalization."),
)


def resnet(w: Named, images: Tensor, config: Fields) -> list[Tensor]:
    """Maps (batch, channels, height / 4 ..., width / 4 ...) of all stages, of images (batch, 3,
    height, width)."""
    act = activation_of(config.text("hidden_act", "relu", among=BY_NAME))
    early = config.flag("downsample_in_bottleneck")
    halved = config.flag("downsample_in_first_stage")
    stem = w["embedder"]["embedder"]
    for place, part in enumerate(stem.each() or [stem]):
        images = act(part.conv_norm(images, *PARTS, stride=1 if place else 2))
    x, maps = ops.max_pool2d(images, 3, 2, 1), []
    for number, stage in enumerate(w["encoder"]["stages"].each()):
        for place, layer in enumerate(stage["layers"].each()):
            first = place == 0 and (number > 0 or halved)
            x = _layer(layer, x, 2 if first else 1, act, early)
        maps.append(x)
    return maps


def _layer(w: Named, x: Tensor, stride: int, act: Activation, early: bool) -> Tensor:
    """Two or three convolutions and the input. Of three, the second has the stride, or the first
    one if that is early."""
    parts = w["layer"].each()
    strided = 0 if len(parts) == 2 or early else 1
    y = x
    for place, part in enumerate(parts):
        y = part.conv_norm(act(y) if place else y, *PARTS, stride=stride if place == strided else 1)
    return act(y + _shortcut(w["shortcut"], x, stride))


def _shortcut(w: Named, x: Tensor, stride: int) -> Tensor:
    """The variant D halves by means of four, then has a convolution without a stride."""
    if w.has("1"):
        return w["1"].conv_norm(ops.avg_pool2d(x, 2, 2, ceil_mode=True), *PARTS)
    return w.conv_norm(x, *PARTS, stride=stride) if w.has(PARTS[0]) else x
