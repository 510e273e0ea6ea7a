"""Convolutions as modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from ..ops.base import per_dim
from ..ops.conv import sides_of
from . import init
from .module import Module

Numbers = int | Sequence[int]


def _weights(
    graph: Graph, shape: tuple[int, ...], fan_in: int, channels: int, bias: bool, dtype: Any
) -> tuple[Tensor, Tensor | None]:
    weight = init.fan_in_uniform(graph, shape, fan_in, dtype)
    return weight, init.fan_in_uniform(graph, (channels,), fan_in, dtype) if bias else None


class _Convolution(Module):
    """What Conv1d, Conv2d and Conv3d share."""

    spatial: int
    function: Callable[..., Tensor]

    def __init__(
        self, graph: Graph, in_channels: int, out_channels: int, kernel_size: Numbers,
        stride: Numbers = 1, padding: Numbers | str = 0, dilation: Numbers = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        _check_groups(in_channels, out_channels, groups)
        kernel = per_dim(kernel_size, self.spatial, "kernel_size")
        fan_in = in_channels // groups * math.prod(kernel)
        shape = (out_channels, in_channels // groups, *kernel)
        self.weight, self.bias = _weights(graph, shape, fan_in, out_channels, bias, dtype)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.groups, self.padding_mode = dilation, groups, padding_mode

    def forward(self, x: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            given = (self.kernel_size, self.dilation, self.stride)
            sides = sides_of(padding, *(per_dim(v, self.spatial, "windows") for v in given))
            widths = [w for side in reversed(sides) for w in side]
            x, padding = ops.pad(x, widths, self.padding_mode), 0
        return type(self).function(
            x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


def _check_groups(in_channels: int, out_channels: int, groups: int) -> None:
    if in_channels % groups or out_channels % groups:
        raise ShapeError(f"channels {in_channels} and {out_channels} in {groups} equal groups")


class Conv1d(_Convolution):
    """(batch, in, length) to (batch, out, new length).

    >>> nn.Conv1d(cx, 3, 8, 5)(cx.tensor((2, 3, 32))).shape
    (2, 8, 28)
    """

    spatial, function = 1, staticmethod(ops.conv1d)


class Conv2d(_Convolution):
    """(batch, in, height, width) to (batch, out, new height, new width).

    >>> nn.Conv2d(cx, 3, 8, 3, padding=1)(cx.tensor((1, 3, 32, 32))).shape
    (1, 8, 32, 32)
    """

    spatial, function = 2, staticmethod(ops.conv2d)


class Conv3d(_Convolution):
    """(batch, in, depth, height, width) to (batch, out, new sizes).

    >>> nn.Conv3d(cx, 1, 4, 3)(cx.tensor((2, 1, 8, 8, 8))).shape
    (2, 4, 6, 6, 6)
    """

    spatial, function = 3, staticmethod(ops.conv3d)


class _Transposed(Module):
    """What the transposed convolutions share."""

    spatial: int
    function: Callable[..., Tensor]

    def __init__(
        self, graph: Graph, in_channels: int, out_channels: int, kernel_size: Numbers,
        stride: Numbers = 1, padding: Numbers = 0, output_padding: Numbers = 0, groups: int = 1,
        bias: bool = True, dilation: Numbers = 1, padding_mode: str = "zeros", dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_mode != "zeros":
            raise ShapeError(f"a transposed convolution pads with zeros, not {padding_mode!r}")
        _check_groups(in_channels, out_channels, groups)
        kernel = per_dim(kernel_size, self.spatial, "kernel_size")
        fan_in = out_channels // groups * math.prod(kernel)
        shape = (in_channels, out_channels // groups, *kernel)
        self.weight, self.bias = _weights(graph, shape, fan_in, out_channels, bias, dtype)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.groups, self.dilation = groups, dilation

    def forward(self, x: Tensor) -> Tensor:
        return type(self).function(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding,
            self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_Transposed):
    """The transposed convolution over one dimension.

    >>> nn.ConvTranspose1d(cx, 3, 8, 4, stride=2)(cx.tensor((2, 3, 16))).shape
    (2, 8, 34)
    """

    spatial, function = 1, staticmethod(ops.conv_transpose1d)


class ConvTranspose2d(_Transposed):
    """The transposed convolution over two dimensions.

    >>> nn.ConvTranspose2d(cx, 3, 8, 2, stride=2)(cx.tensor((2, 3, 16, 16))).shape
    (2, 8, 32, 32)
    """

    spatial, function = 2, staticmethod(ops.conv_transpose2d)


class ConvTranspose3d(_Transposed):
    """The transposed convolution over three dimensions.

    >>> nn.ConvTranspose3d(cx, 3, 8, 2, stride=2)(cx.tensor((2, 3, 4, 4, 4))).shape
    (2, 8, 8, 8, 8)
    """

    spatial, function = 3, staticmethod(ops.conv_transpose3d)
