"""ConvNeXt (Liu et al. 2022, https://arxiv.org/abs/2201.03545) as a classifier."""

from __future__ import annotations

from ...graph import Tensor
from ...nn.activation import BY_NAME, activation_of
from ...weights.fields import Fields
from .named import Activation, Named

NAMES = ((r"^convnext\.", ""),)


def convnext(w: Named, pixels: Tensor, config: Fields) -> Tensor:
    """Scores (1, classes) of pixels (1, 3, height, width)."""
    act = activation_of(config.text("hidden_act", "gelu", among=BY_NAME))
    below = w["embeddings"]
    x = below["patch_embeddings"].conv2d(pixels, config.count("patch_size", 4), 0)
    x = below["layernorm"].channel_norm(x)
    for stage in w["encoder"]["stages"].each():
        if stage.has("downsampling_layer"):
            norm, halve = stage["downsampling_layer"].each()
            x = halve.conv2d(norm.channel_norm(x), 2, 0)
        for layer in stage["layers"].each():
            x = _layer(layer, x, act)
    eps = config.number("layer_norm_eps", 1e-12, low=0, high=1)
    return w["classifier"].linear(w["layernorm"].layer_norm(x.mean([2, 3]), eps))


def _layer(w: Named, x: Tensor, act: Activation) -> Tensor:
    """A window of 7 in each channel, then an MLP in each pixel; the input is added."""
    y = w["layernorm"].layer_norm(w["dwconv"].conv2d(x).permute(0, 2, 3, 1), 1e-6)
    y = w.mlp(y, act, "pwconv1", "pwconv2")
    y = y * w.tensor("layer_scale_parameter") if w.has("layer_scale_parameter") else y
    return x + y.permute(0, 3, 1, 2)
