"""Pooling of images, and new sizes without aliasing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.tensor import Tensor
from ....ops.base import static
from ....ops.maxima import fractional_max_pool
from ....ops.resize import by_shares, smooth_shares
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
        return pool(x, kernel, stride or None, padding, dilation, ceil_mode, return_indices=True)


def _adaptive_max(name: str, n: int) -> None:
    pool = getattr(ops, f"adaptive_max_pool{n}d")

    @rule(name)
    def maxima(x: Tensor, size: Sequence[int]) -> Any:
        return pool(x, size, return_indices=True)


def _fractional(name: str, drawn: Sequence[int]) -> None:
    """drawn: which of the numbers drawn for a plane rules each dimension."""

    @rule(name)
    def maxima(x: Tensor, kernel: Sequence[int], size: Sequence[int], samples: Tensor) -> Any:
        return _batched(fractional_max_pool, len(drawn), x, kernel, size, samples, drawn)


_max("max_pool2d_with_indices.default", 2)
_max("max_pool3d_with_indices.default", 3)
_adaptive_max("adaptive_max_pool2d.default", 2)
_adaptive_max("adaptive_max_pool3d.default", 3)
_fractional("fractional_max_pool2d.default", (1, 0))
_fractional("fractional_max_pool3d.default", (0, 1, 2))


# ---- new sizes without aliasing: a product with a matrix of shares along each dimension


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
    if not x.dtype.is_float:
        raise Unsupported("smooth resizing of integers")
    shares = [smooth_shares(kind, static(old, "an image"), new, align, factor)
              for old, new, factor in zip(shape[2:], size, (*factors, None, None))]  # fmt: skip
    return by_shares(x, [each.T for each in shares] if turned else shares)


_smooth("bilinear")
_smooth("bicubic")
