"""Changing the size of images: every sample is a read at an exact integer index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..errors import ShapeError, Unsupported
from ..graph.dtype import i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import Size, extent, floating, size_value, static
from .elementwise import add, mul, sub
from .linalg import matmul


def interpolate(
    x: Tensor, size: Size | Sequence[Size] | None = None,
    scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """x: (batch, channels, *spatial), as `torch.nn.functional.interpolate`.

    mode: nearest, nearest-exact, linear, bilinear, trilinear (one linear step for each dimension),
    bicubic, area. A size n becomes floor(n scale_factor), and samples lie 1 / scale_factor apart;
    with `size` or recompute_scale_factor, n / size apart. antialias: where an image becomes smaller
    each result is of all that it covers, as in Pillow (bilinear and bicubic, of fixed sizes).

    >>> x = cx.constant([[[1.0, 2.0]]])
    >>> ops.interpolate(x, scale_factor=2).numpy()
    array([[[1., 1., 2., 2.]]], dtype=float32)
    """
    n = x.ndim - 2
    targets = _targets(x, n, size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        from .pooling import _adaptive

        return _adaptive(n, x, [int(target.size) for target in targets])
    if antialias:
        return _smooth(x, targets, mode, bool(align_corners))
    linear = {"linear": 1, "bilinear": 2, "trilinear": 3}
    for d, wanted in enumerate(targets, 2):
        if mode in ("nearest", "nearest-exact"):
            x = _nearest(x, d, wanted, exact=mode == "nearest-exact")
        elif linear.get(mode) == n:
            x = _linear(x, d, wanted, bool(align_corners))
        elif mode == "bicubic" and n == 2:
            x = _cubic(x, d, wanted, bool(align_corners))
        else:
            raise Unsupported(f"interpolate mode {mode!r} for {n} spatial dimensions")
    return x


def upsample(
    x: Tensor, size: Size | Sequence[Size] | None = None,
    scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """interpolate, under its older name.

    >>> ops.upsample(ops.ones(cx, (1, 3, 8, 8)), scale_factor=2).shape
    (1, 3, 16, 16)
    """
    return interpolate(x, size, scale_factor, mode, align_corners)


def upsample_nearest(
    x: Tensor, size: Size | Sequence[Size] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:  # fmt: skip
    """interpolate by the nearest element.

    >>> ops.upsample_nearest(cx.constant([[[[1.0, 3.0]]]]), size=(1, 4)).numpy()
    array([[[[1., 1., 3., 3.]]]], dtype=float32)
    """
    return interpolate(x, size, scale_factor, "nearest")


def upsample_bilinear(
    x: Tensor, size: Size | Sequence[Size] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:  # fmt: skip
    """interpolate linearly in both dimensions, corners on corners.

    >>> ops.upsample_bilinear(cx.constant([[[[1.0, 3.0]]]]), size=(1, 3)).numpy()
    array([[[[1., 2., 3.]]]], dtype=float32)
    """
    return interpolate(x, size, scale_factor, "bilinear", True)


class Target(NamedTuple):
    """A new size, and the distance of its samples: `up` elements in `down` steps."""

    size: Index
    up: Index
    down: Index


def _targets(
    x: Tensor, n: int, size: Size | Sequence[Size] | None,
    factor: float | Sequence[float] | None, recompute: bool,
) -> list[Target]:  # fmt: skip
    if (size is None) == (factor is None):
        raise ShapeError("interpolate takes either size or scale_factor")
    old = [extent(x, 2 + d) for d in range(n)]
    if size is not None:
        listed = [size] * n if isinstance(size, (int, str, Index)) else list(size)
        return [Target(x.graph.size(s), here, x.graph.size(s)) for s, here in zip(listed, old)]
    factors = [factor] * n if isinstance(factor, (int, float)) else list(factor or ())
    return [_scaled(here, f, recompute) for here, f in zip(old, factors)]


def _scaled(size: Index, factor: float, recompute: bool) -> Target:
    """floor(size factor), in floats for a fixed size, as PyTorch has it."""
    ratio = Fraction(factor).limit_denominator(1 << 20)
    if size.is_constant:
        new = Index.of(math.floor(size.constant * factor))
    else:
        new = size * ratio.numerator // ratio.denominator
    if recompute:
        return Target(new, size, new)
    return Target(new, Index.of(ratio.denominator), Index.of(ratio.numerator))


def _read_along(x: Tensor, dim: int, size: Index, at: Index) -> Tensor:
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    index[dim] = at
    return x.read([*x.shape[:dim], size, *x.shape[dim + 1 :]], index)


def _nearest(x: Tensor, dim: int, target: Target, exact: bool) -> Tensor:
    """floor(i up / down), or floor((2 i + 1) up / (2 down)), inside the image."""
    here, (size, up, down) = Index.of(f"i{dim}"), target
    at = ((here * 2 + 1) * up) // (down * 2) if exact else (here * up) // down
    return _read_along(x, dim, size, _inside(x, dim, target, at))


def _inside(x: Tensor, dim: int, target: Target, at: Index) -> Index:
    """A factor may end outside, a ratio of sizes does not."""
    n = extent(x, dim)
    exact = n is target.up and target.size is target.down
    return at if exact else at.minimum(n - 1)


def _source(n: Index, target: Target, dim: int, align_corners: bool) -> tuple[Index, Index]:
    """Where sample i lies, as numerator and denominator."""
    here, (size, up, down) = Index.of(f"i{dim}"), target
    if align_corners:
        return here * (n - 1), (size - 1).maximum(1)
    return (here * 2 + 1) * up - down, down * 2


def _fraction(x: Tensor, dim: int, size: Index, rest: Index, whole: Index) -> Tensor:
    """rest / whole at each position of the dimension, shaped to broadcast against x."""
    shape = [1] * x.ndim
    shape[dim] = size  # type: ignore[call-overload]
    number = x.graph.iota(shape, rest, i64).cast(x.dtype)
    return number / size_value(x.graph, whole, i64).cast(x.dtype)


@floating
def _linear(x: Tensor, dim: int, target: Target, align_corners: bool) -> Tensor:
    """The two nearest elements, weighted by distance."""
    n, size = extent(x, dim), target.size
    numerator, denominator = _source(n, target, dim, align_corners)
    numerator = numerator.maximum(0)
    low = numerator // denominator
    weight = _fraction(x, dim, size, numerator - low * denominator, denominator)
    first = _read_along(x, dim, size, low.minimum(n - 1))
    second = _read_along(x, dim, size, (low + 1).minimum(n - 1))
    return add(mul(first, sub(1.0, weight)), mul(second, weight))


@floating
def _cubic(x: Tensor, dim: int, target: Target, align_corners: bool) -> Tensor:
    """The four nearest elements, by the cubic convolution with a = -0.75."""
    n, size = extent(x, dim), target.size
    numerator, denominator = _source(n, target, dim, align_corners)
    low = numerator // denominator
    t = _fraction(x, dim, size, numerator - low * denominator, denominator)
    total = None
    for tap, weight in enumerate(cubic_shares(t)):
        at = (low + (tap - 1)).maximum(0).minimum(n - 1)
        part = mul(_read_along(x, dim, size, at), weight)
        total = part if total is None else add(total, part)
    assert total is not None
    return total


def cubic_shares(t: Tensor) -> list[Tensor]:
    """The weights of the elements 1 before, at, 1 and 2 after floor(x), where x = floor(x) + t."""
    return [_far(add(t, 1.0)), _near(t), _near(sub(1.0, t)), _far(sub(2.0, t))]


def _near(d: Tensor) -> Tensor:
    """(a + 2) d^3 - (a + 3) d^2 + 1."""
    return add(mul(mul(sub(mul(d, 1.25), 2.25), d), d), 1.0)


def _far(d: Tensor) -> Tensor:
    """a d^3 - 5 a d^2 + 8 a d - 4 a."""
    return mul(sub(mul(add(mul(sub(d, 5.0), d), 8.0), d), 4.0), -0.75)


# ---- without aliasing


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _keys(x: np.ndarray) -> np.ndarray:
    """Keys's cubic convolution with a = -1/2, as ATen and Pillow have it."""
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x**2 + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _smooth(x: Tensor, targets: Sequence[Target], mode: str, align: bool) -> Tensor:
    if x.ndim != 4 or mode not in FILTERS:
        raise Unsupported("interpolate: antialias is for bilinear and bicubic, with 4 dimensions")
    shares = []
    for d, (size, up, down) in enumerate(targets, 2):
        old, new = static(extent(x, d), "an image"), static(size, "a new image")
        factor = None if size is down else down.constant / up.constant
        shares.append(smooth_shares(mode, old, new, align, factor))
    return by_shares(x, shares)


@floating
def by_shares(x: Tensor, shares: Sequence[np.ndarray]) -> Tensor:
    """Products with a matrix (wanted, size) for each of the last dimensions, the last one first."""
    for d in reversed(range(len(shares))):
        matrix, dim = x.graph.constant(shares[d].T).cast(x.dtype), d - len(shares)
        x = matmul(x.movedim(dim, -1), matrix).movedim(-1, dim)
    return x


FILTERS = {"bilinear": (_triangle, 1), "bicubic": (_keys, 2)}  # and how far each reaches


def smooth_shares(
    kind: str, size: int, wanted: int, align: bool = False, factor: float | None = None
) -> np.ndarray:
    """(wanted, size) f64: the weights of the elements in each element of a result without
    aliasing. kind: bilinear, bicubic."""
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
