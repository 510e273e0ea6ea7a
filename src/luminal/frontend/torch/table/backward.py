"""Gradients that ATen has as operations of their own and does not expand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import f32, i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.bags import bag_of
from ....ops.base import Size, extent, full_like, per_dim, static, tensor_of
from .base import Rule, rule
from .index import MAXIMUM, MEAN
from .neural import convolution

Numbers = Sequence[int]


@rule("convolution_backward.default")
def convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, stride: Numbers, padding: Numbers,
    dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
    mask: Sequence[bool],
) -> Any:  # fmt: skip
    """(of the input, of the weight, of the bias), each only where the mask asks for it."""
    kind = grad.dtype
    if kind.is_float and kind.bytes < 4:
        grad, x, weight = grad.cast(f32), x.cast(f32), weight.cast(f32)
    n = weight.ndim - 2
    steps, around, spread = (per_dim(v, n, "size", 0) for v in (stride, padding, dilation))
    rest = (steps, around, spread, groups)
    of_x = of_weight = None
    if mask[0] and transposed:
        of_x = convolution(grad, weight, None, steps, around, spread, False, (0,) * n, groups)
        for d in range(2, 2 + n):  # an output padding of a stride and more is further places
            of_x = of_x.narrow(d, 0, extent(x, d))
    elif mask[0]:
        of_x = _of_input(grad, x, weight, *rest)
    if mask[1]:  # a transposed convolution is an ordinary one from its result to its input
        low, high = (x, grad) if transposed else (grad, x)
        of_weight = _of_weight(low, high, weight, *rest)
    of_bias = ops.sum(grad, (0, *range(2, grad.ndim))) if mask[2] else None
    return of_x, of_weight, of_bias


def _of_input(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Numbers, padding: Numbers,
    dilation: Numbers, groups: int,
) -> Tensor:  # fmt: skip
    """The transposed convolution, with what the stride cut off added to the output: of a size
    known at run time as much as it may be, and the rest cut off again."""
    extra, cut = [], []
    for d in range(weight.ndim - 2):
        reach = dilation[d] * (int(extent(weight, 2 + d)) - 1) + 1 - 2 * padding[d]
        lost = extent(x, 2 + d) - (extent(grad, 2 + d) - 1) * stride[d] - reach
        extra.append(int(lost) if lost.is_constant else stride[d] - 1)
        cut += [] if lost.is_constant else [2 + d]
    made = convolution(grad, weight, None, stride, padding, dilation, True, extra, groups)
    for d in cut:
        made = made.narrow(d, 0, extent(x, d))
    return made


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


def _avg_backward(name: str, n: int) -> None:
    @rule(name)
    def backward(
        grad: Tensor, x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers,
        ceil_mode: bool, include: bool, divisor: int | None,
    ) -> Tensor:  # fmt: skip
        """Every element takes the shares of all windows that it lies in."""
        sizes = per_dim(kernel, n, "kernel")
        steps = per_dim(stride, n, "stride") if stride else sizes
        around = per_dim(padding, n, "padding", 0)
        share = ops.mul(grad, 1.0 / divisor) if divisor else grad
        for d in range(n) if not divisor else ():
            place = x.ndim - n + d
            start, size = Index.of("i0") * steps[d] - around[d], extent(x, place)
            rim = around[d] if include else 0  # of the padding, what counts as image
            covered = (start + sizes[d]).minimum(size + rim) - start.maximum(-rim)
            number = x.graph.iota((extent(grad, place),), covered, i64).cast(share.dtype)
            share = ops.div(share, number.reshape((-1, *(1,) * (x.ndim - place - 1))))
        return _spread(share, x, sizes, steps, around)


_avg_backward("avg_pool2d_backward.default", 2)
_avg_backward("avg_pool3d_backward.default", 3)


def _spread(share: Tensor, x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers) -> Tensor:
    """Sum over taps of the share of the window in which each element is that tap."""
    n = len(kernel)
    first = x.ndim - n
    shape = [*x.shape, *kernel]
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    inside = []
    for k in range(n):
        d = first + k
        reach = Index.of(f"i{d}") + padding[k] - Index.of(f"i{x.ndim + k}")
        index[d] = reach // stride[k]
        inside += [reach, (extent(share, d) - 1) * stride[k] - reach]
        if stride[k] > 1:
            inside.append(-(reach % stride[k]))
    return ops.sum(share.read(shape, index, inside, 0), tuple(range(x.ndim, x.ndim + n)))


def _to_places(n: int) -> Rule:
    def backward(grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
        """The gradient of each window goes to where its largest element stood: the places are the
        last argument."""
        flat, places = full_like(x, 0).flatten(-n), rest[-1].flatten(-n)
        return ops.scatter_add(flat, -1, places, grad.flatten(-n)).reshape(x.shape)

    return backward


for _n in (2, 3):
    rule(
        f"max_pool{_n}d_with_indices_backward.default", f"adaptive_max_pool{_n}d_backward.default",
        f"fractional_max_pool{_n}d_backward.default",
    )(_to_places(_n))  # fmt: skip


def _adaptive_backward(name: str, n: int) -> None:
    @rule(name)
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        """Each element takes its share of every window that it lies in."""
        result = grad if grad.dtype.bytes >= 4 else grad.cast(f32)
        for d in range(x.ndim - n, x.ndim):
            result = _adaptive_shares(result, d, extent(x, d))
        return result


def _adaptive_shares(grad: Tensor, d: int, size: Index) -> Tensor:
    """Along one dimension: window i of o covers floor(i n / o) .. ceil((i + 1) n / o) - 1."""
    if size is extent(grad, d):
        return grad
    windows = static(extent(grad, d), "the result of a pool")
    if size.is_constant and size.constant % windows == 0:
        each = size.constant // windows
        return ops.mul(grad, 1 / each).repeat_interleave(each, d)
    here, place = Index.of("i0"), Index.of("i1")
    start, end = here * size // windows, ((here + 1) * size).ceil_div(windows)
    after, before, length = (
        grad.graph.iota((windows, size), index, i64)
        for index in (place - start, end - 1 - place, end - start)
    )
    inside = ops.logical_and(ops.ge(after, 0), ops.ge(before, 0))
    shares = ops.where(inside, ops.reciprocal(length.cast(grad.dtype)), 0.0)
    return ops.matmul(grad.movedim(d, -1), shares).movedim(-1, d)


_adaptive_backward("_adaptive_avg_pool2d_backward.default", 2)
_adaptive_backward("_adaptive_avg_pool3d_backward.default", 3)


def _replication_backward(name: str, n: int) -> None:
    @rule(name)
    def backward(grad: Tensor, x: Tensor, padding: Numbers) -> Tensor:
        """What stood outside was the nearest element's."""
        for d in range(n):
            place = x.ndim - 1 - d
            size = static(extent(x, place), "an image")
            at = np.arange(-padding[2 * d], size + padding[2 * d + 1]).clip(0, size - 1)
            shape = [*grad.shape[:place], size, *grad.shape[place + 1 :]]
            zeros = full_like(grad, 0).narrow(place, 0, 1).expand(shape)
            grad = ops.index_add(zeros, place, grad.graph.constant(at), grad)
        return grad


_replication_backward("replication_pad1d_backward.default", 1)
_replication_backward("replication_pad2d_backward.default", 2)
_replication_backward("replication_pad3d_backward.default", 3)


@rule("_cdist_backward.default")
def cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """Of the points a; the distance of equal points has no direction: 0."""
    if p == 0:
        return full_like(a, 0)
    gap = ops.sub(a.unsqueeze(-2), b.unsqueeze(-3))  # (batch, points of a, points of b, size)
    length = distances.unsqueeze(-1)
    size, slope = ops.abs(gap), ops.sign(gap)
    if p == math.inf:
        slope = ops.where(ops.eq(size, length), slope, 0)
    elif p != 1:
        flat = ops.eq(size, 0)
        ratio = ops.div(ops.where(flat, 1, size), ops.where(flat, 1, length))
        slope = ops.where(flat, 0, ops.mul(slope, ops.pow(ratio, p - 1)))
    return ops.sum(ops.mul(grad.unsqueeze(-1), slope), -2)


@rule("_embedding_bag_backward.default")
def embedding_bag_backward(
    grad: Tensor, index: Tensor, offsets: Tensor, bag: Tensor, sizes: Tensor, places: Tensor,
    rows: Size, scaled: bool, mode: int, sparse: bool, factors: Tensor | None = None,
    padding: int = -1,
) -> Tensor:  # fmt: skip
    """Of the weight: each row takes the shares of the bags that it is in."""
    if scaled or sparse or mode == MAXIMUM:
        raise Unsupported("gradients of bags that are scaled, sparse or maxima")
    bags, counts = bag_of(index, offsets), ops.ne(index, padding)
    shares = ops.index_select(grad, 0, bags)
    if mode == MEAN:
        number = ops.scatter_add(full_like(grad.select(1, 0), 0, i64), 0, bags, counts.cast(i64))
        over = ops.clamp(ops.gather(number, 0, bags), 1)
        shares = ops.div(shares, over.cast(grad.dtype).unsqueeze(1))
    if factors is not None:
        shares = ops.mul(shares, factors.unsqueeze(1))
    zeros = tensor_of(grad.graph, 0, grad.dtype).expand((rows, grad.shape[1]))
    return ops.index_add(zeros, 0, index, ops.where(counts.unsqueeze(1), shares, 0))


@rule("_embedding_bag_per_sample_weights_backward.default")
def embedding_bag_factors_backward(
    grad: Tensor, weight: Tensor, index: Tensor, offsets: Tensor, bag: Tensor, mode: int,
    padding: int = -1,
) -> Tensor:  # fmt: skip
    shares = ops.index_select(grad, 0, bag_of(index, offsets))
    products = ops.sum(ops.mul(shares, ops.embedding(index, weight)), 1)
    return ops.where(ops.ne(index, padding), products, 0)
