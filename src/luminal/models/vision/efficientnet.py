"""EfficientNet (Tan and Le 2019, https://arxiv.org/abs/1905.11946) as a classifier."""

from __future__ import annotations

import math

from ... import ops
from ...graph import Tensor
from ...nn.activation import BY_NAME, activation_of
from ...weights.fields import Fields
from .named import Activation, Named

NAMES = ((r"^efficientnet\.", ""),)
STRIDES, REPEATS = [1, 2, 2, 2, 1, 2, 1], [1, 2, 2, 3, 3, 4, 1]


def efficientnet(w: Named, pixels: Tensor, config: Fields) -> Tensor:
    """Scores (1, classes) of pixels (1, 3, height, width)."""
    eps = config.number("batch_norm_eps", 1e-3, low=0, high=1)
    act = activation_of(config.text("hidden_act", "swish", among=BY_NAME))
    whole = config.counts_or("depthwise_padding", [])
    x = pixels.pad([(0, 0), (0, 0), (0, 1), (0, 1)])
    x = act(w["embeddings"].conv_norm(x, "convolution", "batchnorm", 2, 0, eps))
    for number, (stride, first) in enumerate(_plan(config)):
        x = _block(w["encoder"]["blocks"][number], x, stride, first, number in whole, eps, act)
    x = act(w["encoder"].conv_norm(x, "top_conv", "top_bn", eps=eps))
    largest = config.text("pooling_type", "mean", among=("mean", "max")) == "max"
    return w["classifier"].linear(x.amax([2, 3]) if largest else x.mean([2, 3]))


def _plan(config: Fields) -> list[tuple[int, bool]]:
    """(stride, whether it is the first of its stage) of each block."""
    strides = config.counts_or("strides", STRIDES)
    repeats = config.counts_or("num_block_repeats", REPEATS, len(strides))
    deeper = config.number("depth_coefficient", 3.1, low=0, high=100)
    return [(stride if n == 0 else 1, n == 0)
            for stride, count in zip(strides, repeats)
            for n in range(math.ceil(deeper * count))]  # fmt: skip


def _block(
    w: Named, x: Tensor, stride: int, first: bool, whole: bool, eps: float, act: Activation
) -> Tensor:
    """More channels, a window in each of them, shares of channels, fewer channels. whole: padding
    is the same on both sides."""
    y = x
    if w.has("expansion"):
        y = act(w["expansion"].conv_norm(y, "expand_conv", "expand_bn", eps=eps))
    deep = w["depthwise_conv"]
    around = deep["depthwise_conv"].array().shape[2] // 2
    if stride == 2:
        sides = (around if whole else around - 1, around)
        y = y.pad([(0, 0), (0, 0), sides, sides])
    padding = 0 if stride == 2 else around
    y = act(deep.conv_norm(y, "depthwise_conv", "depthwise_norm", stride, padding, eps))
    squeeze = w["squeeze_excite"]
    share = squeeze["reduce"].conv2d(y.mean([2, 3], True))
    y = y * ops.sigmoid(squeeze["expand"].conv2d(act(share)))
    y = w["projection"].conv_norm(y, "project_conv", "project_bn", eps=eps)
    return x + y if stride == 1 and not first else y
