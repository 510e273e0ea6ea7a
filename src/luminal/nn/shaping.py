"""Modules without parameters: pooling, padding, resizing, other shapes, distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import ops
from ..graph.tensor import Tensor
from ..ops.base import per_dim
from .function import function_module


def _same(x: Tensor) -> Tensor:
    """x.

    >>> nn.Identity()(cx.constant([1, 2])).numpy()
    array([1, 2])
    """
    return x


def _unflatten(x: Tensor, dim: int, unflattened_size: Sequence[int]) -> Tensor:
    """A dimension split into several.

    >>> nn.Unflatten(1, (2, 3))(cx.tensor(("batch", 6))).shape
    (batch, 2, 3)
    """
    return x.unflatten(dim, unflattened_size)


Identity = function_module("Identity", _same)
Flatten = function_module("Flatten", ops.flatten, start_dim=1, end_dim=-1)
Unflatten = function_module(
    "Unflatten", _unflatten, "dim", "unflattened_size",
)  # fmt: skip
Unfold = function_module("Unfold", ops.unfold, "kernel_size", dilation=1, padding=0, stride=1)
Fold = function_module(
    "Fold", ops.fold, "output_size", "kernel_size", dilation=1, padding=0, stride=1
)
PixelShuffle = function_module("PixelShuffle", ops.pixel_shuffle, "upscale_factor")
PixelUnshuffle = function_module("PixelUnshuffle", ops.pixel_unshuffle, "downscale_factor")
ChannelShuffle = function_module("ChannelShuffle", ops.channel_shuffle, "groups")
Upsample = function_module(
    "Upsample", ops.interpolate, size=None, scale_factor=None, mode="nearest", align_corners=None,
    recompute_scale_factor=None,
)  # fmt: skip
UpsamplingNearest2d = function_module(
    "UpsamplingNearest2d", ops.upsample_nearest, size=None, scale_factor=None
)
UpsamplingBilinear2d = function_module(
    "UpsamplingBilinear2d", ops.upsample_bilinear, size=None, scale_factor=None
)
LocalResponseNorm = function_module(
    "LocalResponseNorm", ops.local_response_norm, "size", alpha=1e-4, beta=0.75, k=1.0
)
CosineSimilarity = function_module("CosineSimilarity", ops.cosine_similarity, dim=1, eps=1e-8)
PairwiseDistance = function_module(
    "PairwiseDistance", ops.pairwise_distance, p=2.0, eps=1e-6, keepdim=False
)

# ---- pooling

_SPREAD = {"stride": None, "padding": 0, "dilation": 1, "return_indices": False, "ceil_mode": False}
MaxPool1d = function_module("MaxPool1d", ops.max_pool1d, "kernel_size", **_SPREAD)
MaxPool2d = function_module("MaxPool2d", ops.max_pool2d, "kernel_size", **_SPREAD)
MaxPool3d = function_module("MaxPool3d", ops.max_pool3d, "kernel_size", **_SPREAD)
MaxUnpool1d = function_module(
    "MaxUnpool1d", ops.max_unpool1d, "kernel_size", stride=None, padding=0
)
MaxUnpool2d = function_module(
    "MaxUnpool2d", ops.max_unpool2d, "kernel_size", stride=None, padding=0
)
MaxUnpool3d = function_module(
    "MaxUnpool3d", ops.max_unpool3d, "kernel_size", stride=None, padding=0
)

_MEAN = {"stride": None, "padding": 0, "ceil_mode": False, "count_include_pad": True}
AvgPool1d = function_module("AvgPool1d", ops.avg_pool1d, "kernel_size", **_MEAN)
AvgPool2d = function_module(
    "AvgPool2d", ops.avg_pool2d, "kernel_size", **_MEAN, divisor_override=None
)
AvgPool3d = function_module(
    "AvgPool3d", ops.avg_pool3d, "kernel_size", **_MEAN, divisor_override=None
)
_NORM: tuple[str, str] = ("norm_type", "kernel_size")
LPPool1d = function_module("LPPool1d", ops.lp_pool1d, *_NORM, stride=None, ceil_mode=False)
LPPool2d = function_module("LPPool2d", ops.lp_pool2d, *_NORM, stride=None, ceil_mode=False)
LPPool3d = function_module("LPPool3d", ops.lp_pool3d, *_NORM, stride=None, ceil_mode=False)
_RATIO = {"output_size": None, "output_ratio": None, "return_indices": False,
          "_random_samples": None}  # fmt: skip
FractionalMaxPool2d = function_module(
    "FractionalMaxPool2d", ops.fractional_max_pool2d, "kernel_size", **_RATIO
)
FractionalMaxPool3d = function_module(
    "FractionalMaxPool3d", ops.fractional_max_pool3d, "kernel_size", **_RATIO
)
AdaptiveAvgPool1d = function_module("AdaptiveAvgPool1d", ops.adaptive_avg_pool1d, "output_size")
AdaptiveAvgPool2d = function_module("AdaptiveAvgPool2d", ops.adaptive_avg_pool2d, "output_size")
AdaptiveAvgPool3d = function_module("AdaptiveAvgPool3d", ops.adaptive_avg_pool3d, "output_size")
AdaptiveMaxPool1d = function_module(
    "AdaptiveMaxPool1d", ops.adaptive_max_pool1d, "output_size", return_indices=False
)
AdaptiveMaxPool2d = function_module(
    "AdaptiveMaxPool2d", ops.adaptive_max_pool2d, "output_size", return_indices=False
)
AdaptiveMaxPool3d = function_module(
    "AdaptiveMaxPool3d", ops.adaptive_max_pool3d, "output_size", return_indices=False
)

# ---- padding

PADDED = {
    "constant": "with one value", "circular": "with what stands at the other end",
    "reflect": "mirrored, without the edge itself", "replicate": "with the edge",
}  # fmt: skip


def _padding(name: str, mode: str) -> Any:
    """(before, after) pairs of the last dimensions, the last first; or one number for all."""
    n, constant = int(name[-2]), name.startswith("Constant")

    def pad(x: Tensor, padding: int | Sequence[int], value: float = 0.0) -> Tensor:
        return ops.pad(x, per_dim(padding, 2 * n, "padding", None), mode, value)

    shape, given = (1, *(4,) * n), "1, 0.0" if constant else "1"
    pad.__doc__ = f"""The last {n} dimensions, padded: {PADDED[mode]}. {_padding.__doc__}

    >>> nn.{name}({given})(ops.ones(cx, {shape})).shape
    {(1, *(6,) * n)}
    """
    return function_module(name, pad, "padding", *(("value",) if constant else ()))


ConstantPad1d, ConstantPad2d, ConstantPad3d = (
    _padding(f"ConstantPad{n}d", "constant") for n in (1, 2, 3)
)
ZeroPad1d, ZeroPad2d, ZeroPad3d = (_padding(f"ZeroPad{n}d", "constant") for n in (1, 2, 3))
CircularPad1d, CircularPad2d, CircularPad3d = (
    _padding(f"CircularPad{n}d", "circular") for n in (1, 2, 3)
)
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (
    _padding(f"ReflectionPad{n}d", "reflect") for n in (1, 2, 3)
)
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (
    _padding(f"ReplicationPad{n}d", "replicate") for n in (1, 2, 3)
)
