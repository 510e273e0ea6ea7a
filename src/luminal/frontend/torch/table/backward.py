"""Gradients that ATen has as operations of their own and does not expand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import f32
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import extent, full_like, per_dim
from .base import rule
from .neural import convolution

Numbers = Sequence[int]


@rule("convolution_backward.default")
def convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, stride: Numbers, padding: Numbers,
    dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
    mask: Sequence[bool],
) -> Any:  # fmt: skip
    """(of the input, of the weight, of the bias), each only where the mask asks for it."""
    if transposed:
        raise Unsupported("the gradient of a transposed convolution")
    kind = grad.dtype
    if kind.is_float and kind.bytes < 4:
        grad, x, weight = grad.cast(f32), x.cast(f32), weight.cast(f32)
    n = weight.ndim - 2
    steps, around, spread = (per_dim(v, n, "size") for v in (stride, padding, dilation))
    of_x = _of_input(grad, x, weight, steps, around, spread, groups) if mask[0] else None
    of_weight = _of_weight(grad, x, weight, steps, around, spread, groups) if mask[1] else None
    of_bias = ops.sum(grad, (0, *range(2, grad.ndim))) if mask[2] else None
    return of_x, of_weight, of_bias


def _of_input(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Numbers, padding: Numbers,
    dilation: Numbers, groups: int,
) -> Tensor:  # fmt: skip
    """The transposed convolution, with what the stride cut off added to the output."""
    extra = []
    for d in range(weight.ndim - 2):
        reach = dilation[d] * (int(extent(weight, 2 + d)) - 1) + 1 - 2 * padding[d]
        reached = (extent(grad, 2 + d) - 1) * stride[d] + reach
        extra.append(int(extent(x, 2 + d) - reached))
    return convolution(grad, weight, None, stride, padding, dilation, True, extra, groups)


def _of_weight(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Numbers, padding: Numbers,
    dilation: Numbers, groups: int,
) -> Tensor:  # fmt: skip
    """sum over batch and positions: grad (b, g o, p) times the windows of x (b, g i, p, tap)."""
    n = weight.ndim - 2
    padded = x.pad([(0, 0), (0, 0), *((p, p) for p in padding)])
    kernel = [extent(weight, 2 + d) for d in range(n)]
    windows = padded.windows(range(2, 2 + n), kernel, stride, dilation)
    for d in range(n):
        windows = windows.narrow(2 + d, 0, extent(grad, 2 + d))
    places, taps = "xyz"[:n], "uvw"[:n]
    result = ops.einsum(
        f"bgo{places},bgi{places}{taps}->goi{taps}",
        grad.unflatten(1, (groups, -1)),
        windows.unflatten(1, (groups, -1)),
    )
    return result.flatten(0, 1)


@rule("avg_pool2d_backward.default")
def avg_pool2d_backward(
    grad: Tensor, x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers, ceil_mode: bool,
    include: bool, divisor: int | None,
) -> Tensor:  # fmt: skip
    """Every element takes the shares of all windows that it lies in."""
    if ceil_mode or (any(padding) and not include):
        raise Unsupported("the gradient of this average pooling")
    sizes = per_dim(kernel, 2, "kernel")
    steps = per_dim(stride, 2, "stride") if stride else sizes
    around = per_dim(padding, 2, "padding")
    share = ops.mul(grad, 1.0 / (divisor or sizes[0] * sizes[1]))
    return _spread(share, x, sizes, steps, around)


def _spread(share: Tensor, x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers) -> Tensor:
    """Sum over taps of the share of the window in which each element is that tap."""
    first = x.ndim - 2
    shape = [*x.shape, *kernel]
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    inside = []
    for n in range(2):
        d = first + n
        reach = Index.of(f"i{d}") + padding[n] - Index.of(f"i{x.ndim + n}")
        index[d] = reach // stride[n]
        inside += [reach, (extent(share, d) - 1) * stride[n] - reach]
        if stride[n] > 1:
            inside.append(-(reach % stride[n]))
    return ops.sum(share.read(shape, index, inside, 0), (x.ndim, x.ndim + 1))


@rule("max_pool2d_with_indices_backward.default")
def max_pool2d_backward(
    grad: Tensor, x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers,
    dilation: Numbers, ceil_mode: bool, places: Tensor,
) -> Tensor:  # fmt: skip
    """The gradient of each window goes to where its largest element stood."""
    flat = full_like(x, 0).flatten(-2)
    return ops.scatter_add(flat, -1, places.flatten(-2), grad.flatten(-2)).reshape(x.shape)


@rule("_adaptive_avg_pool2d_backward.default")
def adaptive_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Where windows do not overlap: each element takes its window's share."""
    for d in (x.ndim - 2, x.ndim - 1):
        size, windows = int(extent(x, d)), int(extent(grad, d))
        if size % windows:
            raise Unsupported("the gradient of an adaptive pooling with windows of several sizes")
        grad = ops.mul(grad, windows / size).repeat_interleave(size // windows, d)
    return grad
