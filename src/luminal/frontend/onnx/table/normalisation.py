"""Normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import ops
from ....graph.dtype import f32
from ....graph.tensor import Tensor
from ....ops.base import dim_of, extent
from .base import op

if TYPE_CHECKING:
    from ..record import Recorder


def _channels(x: Tensor, values: Tensor) -> Tensor:
    return values.reshape((-1, *(1,) * (x.ndim - 2)))


@op("BatchNormalization")
def batch_normalization(
    at: Recorder, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor,
    epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0, spatial: int = 1,
    is_test: int = 1,
) -> Any:  # fmt: skip
    if not training_mode:
        wide = x if x.dtype.bytes >= 4 else x.cast(f32)
        factor = ops.div(scale, ops.sqrt(ops.add(var, epsilon))).cast(wide.dtype)
        shift = ops.sub(bias.cast(wide.dtype), ops.mul(mean.cast(wide.dtype), factor))
        return ops.add(ops.mul(wide, _channels(x, factor)), _channels(x, shift)).cast(x.dtype)
    dims = [d for d in range(x.ndim) if d != 1]
    now, spread = ops.mean(x, dims), ops.var(x, dims, False)
    factor = ops.div(scale, ops.sqrt(ops.add(spread, epsilon)))
    centred = ops.sub(x, _channels(x, now))
    found = ops.add(ops.mul(centred, _channels(x, factor)), _channels(x, bias))
    kept = [ops.add(ops.mul(old, momentum), ops.mul(new, 1 - momentum)).cast(old.dtype)
            for old, new in ((mean, now), (var, spread))]  # fmt: skip
    return found.cast(x.dtype), *kept


@op("InstanceNormalization")
def instance_normalization(
    at: Recorder, x: Tensor, scale: Tensor, bias: Tensor, epsilon: float = 1e-5
) -> Tensor:
    return ops.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@op("LayerNormalization")
def layer_normalization(
    at: Recorder, x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1,
    epsilon: float = 1e-5, stash_type: int = 1,
) -> Any:  # fmt: skip
    dims = list(range(dim_of(x, axis), x.ndim))
    wide = x if x.dtype.bytes >= 4 else x.cast(f32)
    mean = ops.mean(wide, dims, True)
    centred = ops.sub(wide, mean)
    inverse = ops.rsqrt(ops.add(ops.mean(ops.square(centred), dims, True), epsilon))
    found = ops.mul(ops.mul(centred, inverse), scale.cast(wide.dtype))
    found = found if bias is None else ops.add(found, bias.cast(wide.dtype))
    return found.cast(x.dtype), mean, inverse


@op("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(
    at: Recorder, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:  # fmt: skip
    return rms(x, scale, list(range(dim_of(x, axis), x.ndim)), epsilon)


def rms(x: Tensor, scale: Tensor, dims: list[int], epsilon: float) -> Tensor:
    """x over the root of its mean square, scaled."""
    wide = x if x.dtype.bytes >= 4 else x.cast(f32)
    inverse = ops.rsqrt(ops.add(ops.mean(ops.square(wide), dims, True), epsilon))
    normed = ops.mul(wide, inverse).cast(x.dtype)
    return ops.mul(normed, scale)


@op("GroupNormalization")
def group_normalization(
    at: Recorder, x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int,
    epsilon: float = 1e-5, stash_type: int = 1,
) -> Tensor:  # fmt: skip
    """Before version 21 scale and bias are one number for each group."""
    if at.version < 21:
        each = extent(x, 1) // num_groups
        scale, bias = (ops.repeat_interleave(v, each, 0) for v in (scale, bias))
    return ops.group_norm(x, num_groups, scale, bias, epsilon)


@op("MeanVarianceNormalization")
def mean_variance(at: Recorder, x: Tensor, axes: Any = (0, 2, 3)) -> Tensor:
    dims = list(axes)
    mean = ops.mean(x, dims, True)
    spread = ops.sub(ops.mean(ops.square(x), dims, True), ops.square(mean))
    return ops.div(ops.sub(x, mean), ops.add(ops.sqrt(spread), 1e-9))


@op("LpNormalization")
def lp_normalization(at: Recorder, x: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    """0 where all are 0."""
    total = ops.sum(ops.square(x) if p == 2 else ops.abs(x), dim_of(x, axis), True)
    size = ops.sqrt(total) if p == 2 else total
    return ops.where(ops.eq(size, 0.0), 0.0, ops.div(x, size))


@op("LRN")
def lrn(
    at: Recorder, x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """x over a power of the mean square of `size` neighbouring channels."""
    before = (size - 1) // 2
    squares = ops.square(x).pad([(0, 0), (before, size - 1 - before)] + [(0, 0)] * (x.ndim - 2))
    total = ops.sum(squares.unfold(1, size, 1), -1)
    return ops.div(x, ops.pow(ops.add(ops.mul(total, alpha / size), bias), beta))
