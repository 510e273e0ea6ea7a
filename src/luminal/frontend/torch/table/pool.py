"""Pooling and sampling of images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import boolean, i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import extent, full_like, per_dim, static
from ....ops.pooling import _adaptive_windows, _pool_windows
from .base import rule, widened

Numbers = int | Sequence[int]


def _batched(function: Any, n: int, x: Tensor, *args: Any) -> Any:
    """With a batch of one where there is none."""
    if x.ndim == n + 2:
        return function(x, *args)
    result = function(x.unsqueeze(0), *args)
    parts = result if isinstance(result, tuple) else (result,)
    squeezed = tuple(part.squeeze(0) for part in parts)
    return squeezed if isinstance(result, tuple) else squeezed[0]


def _avg(name: str, n: int) -> None:
    pool = getattr(ops, f"avg_pool{n}d")

    @rule(name)
    def averages(
        x: Tensor, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
        ceil_mode: bool = False, include: bool = True, divisor: int | None = None,
    ) -> Tensor:  # fmt: skip
        args = (kernel, stride or None, padding, ceil_mode, include, divisor)
        result: Tensor = _batched(pool, n, x, *args)
        return result


_avg("avg_pool2d.default", 2)
_avg("avg_pool3d.default", 3)


@rule("_adaptive_avg_pool2d.default")
def adaptive_2d(x: Tensor, size: Sequence[int]) -> Any:
    return _batched(ops.adaptive_avg_pool2d, 2, x, list(size))


@rule("_adaptive_avg_pool3d.default")
def adaptive_3d(x: Tensor, size: Sequence[int]) -> Any:
    return _batched(ops.adaptive_avg_pool3d, 3, x, list(size))


def _max(name: str, n: int) -> None:
    pool = getattr(ops, f"max_pool{n}d")

    @rule(name)
    def maxima(
        x: Tensor, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
        dilation: Numbers = 1, ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        def both(image: Tensor) -> Any:
            args = (kernel, stride or None, padding, dilation, ceil_mode)
            return pool(image, *args), max_places(image, n, *args)

        return _batched(both, n, x)


def max_places(
    x: Tensor, n: int, kernel: Numbers, stride: Numbers | None, padding: Numbers,
    dilation: Numbers, ceil_mode: bool,
) -> Tensor:  # fmt: skip
    """Where in the flattened image the first largest element of each window stands."""
    sizes = per_dim(kernel, n, "kernel")
    steps = sizes if stride is None else per_dim(stride, n, "stride")
    rest = (sizes, steps, per_dim(padding, n, "padding"), per_dim(dilation, n, "dilation"))
    return _first_best(x, n, lambda part, fill: _pool_windows(n, part, *rest, ceil_mode, fill))[1]


def _first_best(x: Tensor, n: int, windows: Any) -> tuple[Tensor, Tensor]:
    """(the largest element of each window, where in the flattened image the first one stands).
    windows: of an image and of what stands outside it; the last n dimensions walk inside."""
    flat = Index.of(0)
    for d in range(x.ndim - n, x.ndim):
        flat = flat * extent(x, d) + Index.of(f"i{d}")
    elements = windows(x, x.dtype.lowest)
    numbers = windows(x.graph.iota(x.shape, flat, i64), i64.highest)
    inner = tuple(range(x.ndim, x.ndim + n))
    best = ops.amax(elements, inner, keepdim=True)
    hit = ops.eq(elements, best)
    if x.dtype.is_float:
        hit = ops.logical_or(hit, ops.isnan(elements))
    places = ops.amin(ops.where(hit, numbers, full_like(numbers, i64.highest)), inner)
    return best.squeeze(inner), places


def _adaptive_max(name: str, n: int) -> None:
    @rule(name)
    def maxima(x: Tensor, size: Sequence[int]) -> Any:
        def windows(image: Tensor, fill: float) -> Tensor:
            for d, wanted in enumerate(size, image.ndim - n):
                image = _adaptive_windows(image, d, wanted, fill)
            return image

        return _first_best(x, n, windows)


_adaptive_max("adaptive_max_pool2d.default", 2)
_adaptive_max("adaptive_max_pool3d.default", 3)
_max("max_pool2d_with_indices.default", 2)
_max("max_pool3d_with_indices.default", 3)


# ---- new sizes without aliasing: a product with a matrix of shares along each dimension


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys's cubic convolution with a = -1/2, as ATen and Pillow have it."""
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x**2 + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


FILTERS = {"bilinear": (_triangle, 1), "bicubic": (_cubic, 2)}  # and how far each reaches


def _shares(kind: str, size: int, wanted: int, align: bool, factor: float | None) -> np.ndarray:
    """(wanted, size): the weights of the elements in each element of the result."""
    curve, reach = FILTERS[kind]
    scale = 1 / factor if factor else size / wanted
    if align:
        scale = (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    wide = max(scale, 1.0)
    middle = scale * (np.arange(wanted) + 0.5)[:, None]
    low = np.maximum((middle - reach * wide + 0.5).astype(int), 0)
    high = np.minimum((middle + reach * wide + 0.5).astype(int), size)
    here = np.arange(size)
    weights = np.where((here >= low) & (here < high), curve((here - middle + 0.5) / wide), 0)
    return weights / weights.sum(1, keepdims=True)


def _smooth(kind: str) -> None:
    @rule(f"_upsample_{kind}2d_aa.default")
    def resized(x: Tensor, size: Sequence[int], align: bool, *factors: float | None) -> Tensor:
        return _by_shares(kind, x, size, x.shape, align, factors, False)

    @rule(f"_upsample_{kind}2d_aa_backward.default")
    def backward(
        grad: Tensor, size: Sequence[int], shape: Sequence[int], align: bool,
        *factors: float | None,
    ) -> Tensor:  # fmt: skip
        return _by_shares(kind, grad, size, shape, align, factors, True)


def _by_shares(
    kind: str, x: Tensor, size: Sequence[int], shape: Sequence[Any], align: bool,
    factors: Sequence[float | None], turned: bool,
) -> Tensor:  # fmt: skip
    """Along the last two dimensions; narrow floats in f32, rounded once."""
    if not x.dtype.is_float:
        raise Unsupported("smooth resizing of integers")
    result = widened(x)
    for d, factor in zip((3, 2), (*factors, None, None)[1::-1]):
        shares = _shares(kind, static(shape[d], "an image"), size[d - 2], align, factor)
        matrix = x.graph.constant(shares if turned else shares.T).cast(result.dtype)
        result = ops.matmul(result.movedim(d, -1), matrix).movedim(-1, d)
    return result.cast(x.dtype)


_smooth("bilinear")
_smooth("bicubic")


# ---- sampling at points that are data

NOWHERE = -100.0  # where ATen puts points that no integer can hold


@rule("grid_sampler_3d.default")
def grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    """x (batch, channels, depth, height, width) at points (batch, ..., xyz) between -1 and 1.

    mode: 0 between the eight neighbours, 1 the nearest. padding: 0 zeros outside, 1 the border, 2
    reflection. Rounded to the dtype after each step, as ATen does.
    """
    sizes = [static(extent(x, d), "a volume") for d in (2, 3, 4)]
    points = [_at(grid.select(-1, 2 - d), sizes[d], padding, align) for d in range(3)]
    if mode == 1:
        return _elements(x, [ops.round(point).cast(i64) for point in points], sizes)
    below = [ops.floor(point).cast(i64) for point in points]
    total: Tensor | None = None
    for corner in product((0, 1), repeat=3):
        share: Tensor | None = None
        for point, low, up in reversed(list(zip(points, below, corner))):
            part = ops.sub(point, low) if up else ops.sub(ops.add(low, 1), point)
            share = part if share is None else ops.mul(share, part)
        places = [ops.add(low, up) for low, up in zip(below, corner)]
        term = ops.mul(_elements(x, places, sizes), share.unsqueeze(1))  # type: ignore[union-attr]
        total = term if total is None else ops.add(total, term)
    return total  # type: ignore[return-value]


def _at(point: Tensor, size: int, padding: int, align: bool) -> Tensor:
    """-1 .. 1 as a place among elements; align: the ends are the middles of the last elements."""
    if align:
        place = ops.mul(ops.div(ops.add(point, 1), 2), size - 1)
    else:
        place = ops.div(ops.sub(ops.mul(ops.add(point, 1), size), 1), 2)
    if padding == 2:
        place = _reflected(place, 0 if align else -1, 2 * (size - 1) if align else 2 * size - 1)
    if padding:
        place = ops.minimum(ops.maximum(place, 0), size - 1)
    return ops.where(ops.lt(ops.abs(place), 2.0**31), place, NOWHERE)


def _reflected(place: Tensor, twice_low: int, twice_high: int) -> Tensor:
    """Folded back at both ends, as often as it takes."""
    if twice_low == twice_high:
        return full_like(place, 0)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    away = ops.abs(ops.sub(place, low))
    rest, folds = ops.fmod(away, span), ops.floor(ops.div(away, span))
    even = ops.eq(ops.fmod(folds, 2), 0)
    return ops.where(even, ops.add(rest, low), ops.add(ops.sub(span, rest), low))


def _elements(x: Tensor, places: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """(batch, channels, ...): x at places (batch, ...), 0 outside."""
    flat, inside = full_like(places[0], 0), full_like(places[0], True, boolean)
    for place, size in zip(places, sizes):
        flat = ops.add(ops.mul(flat, size), ops.clamp(place, 0, size - 1))
        inside = ops.logical_and(inside, ops.logical_and(ops.ge(place, 0), ops.lt(place, size)))
    channels = (x.shape[0], x.shape[1])
    index = flat.flatten(1).unsqueeze(1).expand((*channels, -1))
    found = ops.gather(x.flatten(2), 2, index).reshape((*channels, *flat.shape[1:]))
    return ops.where(inside.unsqueeze(1), found, 0)
