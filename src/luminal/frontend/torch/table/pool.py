"""Pooling and sampling of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import ops
from ....graph.dtype import i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import extent, full_like, per_dim
from ....ops.pooling import _adaptive_windows, _pool_windows
from .base import rule

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
