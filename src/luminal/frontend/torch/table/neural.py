"""Convolutions and normalisations, kept whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import f32
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import Size, extent, literal, size_value
from ....ops.loss import picked
from ....ops.normalisation import affine, moments, per_channel
from .base import rule, same, widened

NONE, MEAN = 0, 1  # at::Reduction

same("pixel_shuffle.default", ops.pixel_shuffle)
same("pixel_unshuffle.default", ops.pixel_unshuffle)


@rule("convolution.default")
def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    n = weight.ndim - 2
    if not 1 <= n <= 3:
        raise Unsupported(f"a convolution over {n} dimensions")
    if transposed:
        name = f"conv_transpose{n}d"
        args: tuple[Any, ...] = (stride, padding, output_padding, groups, dilation)
    else:
        name, args = f"conv{n}d", (stride, padding, dilation, groups)
    kind = x.dtype
    if kind.is_float and kind.bytes < 4:
        x, weight = x.cast(f32), weight.cast(f32)
        bias = None if bias is None else bias.cast(f32)
    result: Tensor = getattr(ops, name)(x, weight, bias, *args)
    return result.cast(kind)


# ---- normalisations: (result, mean, 1 / deviation)


@rule("native_layer_norm.default")
def layer_norm(
    x: Tensor, shape: Sequence[Size], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    result, mean, factor = moments(widened(x), dims, eps)
    return affine(result, weight, bias).cast(x.dtype), mean, factor


@rule("native_group_norm.default")
def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: Size, channels: Size,
    rest: Size, groups: int, eps: float,
) -> Any:  # fmt: skip
    split = widened(x).unflatten(1, (groups, -1))
    result, mean, factor = moments(split, tuple(range(2, split.ndim)), eps)
    shape = (batch, groups)
    whole = affine(result.flatten(1, 2), per_channel(x, weight), per_channel(x, bias))
    return whole.cast(x.dtype), mean.reshape(shape), factor.reshape(shape)


@rule("_native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    result = ops.batch_norm(x, mean, variance, weight, bias, eps=eps)
    empty = literal(x.graph, 0, widened(x).dtype).expand((0,))
    return result, empty, empty


@rule("_native_batch_norm_legit_functional.default")
def batch_norm_training(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None,
    variance: Tensor | None, training: bool, momentum: float, eps: float,
) -> Any:  # fmt: skip
    """(result, batch mean, 1 / batch deviation, new running mean, new running variance)."""
    if not training:
        assert mean is not None and variance is not None
        inferred = batch_norm_inference(x, weight, bias, mean, variance, momentum, eps)
        return *inferred, mean, variance
    result, own, factor, spread = _batch_statistics(x, weight, bias, eps)
    number = Index.of(1)
    for d in range(x.ndim):
        number = number * (extent(x, d) if d != 1 else 1)
    wide = spread.dtype
    count, less = (size_value(x.graph, size, wide) for size in (number, number - 1))
    unbiased = ops.mul(spread, ops.div(count, less))
    return (
        result, own, factor, _running(mean, own, momentum), _running(variance, unbiased, momentum),
    )  # fmt: skip


@rule("_native_batch_norm_legit.no_stats")
def batch_norm_alone(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    return _batch_statistics(x, weight, bias, eps)[:3]


def _batch_statistics(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    dims = (0, *range(2, x.ndim))
    wide = widened(x)
    result, mean, factor = moments(wide, dims, eps)
    whole = affine(result, per_channel(x, weight), per_channel(x, bias)).cast(x.dtype)
    spread = ops.mean(ops.square(ops.sub(wide, mean)), dims)
    return whole, mean.reshape(-1), factor.reshape(-1), spread


def _running(old: Tensor | None, new: Tensor, momentum: float) -> Tensor | None:
    if old is None:
        return None
    wide = ops.mul(old.cast(new.dtype), 1 - momentum)
    return ops.add(wide, ops.mul(new, momentum)).cast(old.dtype)


@rule("_fused_rms_norm.default")
def rms_norm(x: Tensor, shape: Sequence[Size], weight: Tensor | None, eps: float | None) -> Any:
    """(result, 1 / root mean square)."""
    dims, wide = tuple(range(x.ndim - len(shape), x.ndim)), widened(x)
    small = {8: 2.0**-52}.get(wide.dtype.bytes, 2.0**-23) if eps is None else eps
    factor = ops.rsqrt(ops.add(ops.mean(ops.square(wide), dims, keepdim=True), small))
    return affine(ops.mul(wide, factor), weight, None).cast(x.dtype), factor


@rule("_trilinear.default")
def trilinear(
    a: Tensor, b: Tensor, c: Tensor, more_a: Sequence[int], more_b: Sequence[int],
    more_c: Sequence[int], summed: Sequence[int], unroll: int = 1,
) -> Tensor:  # fmt: skip
    """The sum over dimensions of a product of three, each with new dimensions where it says."""
    parts = [widened(part) if part.dtype.is_float else part for part in (a, b, c)]
    for place, more in enumerate((more_a, more_b, more_c)):
        for d in sorted(more):
            parts[place] = parts[place].unsqueeze(d)
    product = ops.mul(ops.mul(parts[0], parts[1]), parts[2])
    return ops.sum(product, tuple(summed)) if summed else product


@rule("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """(the loss, the weights of all targets together): whole, as what an error is raised for."""
    losses, weights = picked(widened(x), target, weight, ignored)
    each, total = ops.mul(losses, weights), ops.sum(weights)
    if reduction == NONE:
        return each, ops.mul(total, 0.0)
    return (ops.div(ops.sum(each), total) if reduction == MEAN else ops.sum(each)), total


@rule("torch_nn._linear_cross_entropy_batch_chunked.default")
def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, classes: Tensor | None,
    reduction: str, ignored: int, *options: Any,
) -> Any:  # fmt: skip
    """(the loss of x weight^T + bias, its gradients): without gradients."""
    if any(options[-3:]):
        raise Unsupported("gradients beside the loss")
    wide = [None if part is None else widened(part) for part in (weight, bias, classes)]
    logits = ops.linear(widened(x), wide[0], wide[1])  # type: ignore[arg-type]
    loss = ops.cross_entropy(logits, target, wide[2], ignore_index=ignored, reduction=reduction)
    return loss, None, None, None


@rule("torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default")
def linear_cross_entropy_each(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, classes: Tensor | None,
    ignored: int, *options: Any,
) -> Tensor:  # fmt: skip
    return linear_cross_entropy(x, weight, target, bias, classes, "none", ignored, False)[0]
