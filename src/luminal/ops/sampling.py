"""Sampling of images and volumes at points that are data. Rounded to the dtype after each step, as
PyTorch does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product

import numpy as np

from ..errors import ShapeError, Unsupported
from ..graph.dtype import boolean, i64
from ..graph.tensor import Tensor
from .base import extent, full_like, static
from .clamping import clamp
from .elementwise import abs, add, div, floor, maximum, minimum, mul, neg, round, sub
from .indexing import gather
from .linalg import matmul
from .logic import eq, ge, gt, logical_and, logical_xor, lt, where
from .remainders import fmod
from .resize import cubic_shares

NOWHERE = -100.0  # where PyTorch puts points that no integer can hold
PADDING = {"zeros": 0, "border": 1, "reflection": 2}
REFLECTED = 2


def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """x (batch, channels, *spatial) at points (batch, ..., n) between -1 and 1, the last coordinate
    first: (batch, channels, ...). mode: bilinear, nearest, bicubic (images only); padding_mode:
    zeros, border, reflection. align_corners: -1 and 1 are the middles of the last elements.

    >>> a, b = cx.constant([[[[1.0, 2.0]]]]), cx.constant([[[[0.0, 0.0], [1.0, 0.0]]]])
    >>> picture, points = a, b
    >>> ops.grid_sample(picture, points, align_corners=True).numpy()
    array([[[[1.5, 2. ]]]], dtype=float32)
    """
    if padding_mode not in PADDING or mode not in ("bilinear", "nearest", "bicubic"):
        raise Unsupported(f"grid_sample: mode {mode!r}, padding_mode {padding_mode!r}")
    if x.ndim not in (4, 5) or grid.ndim != x.ndim or extent(grid, grid.ndim - 1) != x.ndim - 2:
        raise ShapeError(f"grid_sample: points {grid} do not fit {x}")
    padding, align = PADDING[padding_mode], bool(align_corners)
    if mode == "bicubic":
        if x.ndim != 4:
            raise Unsupported("grid_sample: bicubic takes images")
        return _bicubic(x, grid, padding, align)
    points = [place for place, _ in places_of(x, grid, padding, align)]
    if mode == "nearest":
        return elements(x, nearest(points))
    terms = [
        mul(elements(x, places), product_of(shares).unsqueeze(1))
        for places, shares, _ in corners(points)
    ]
    return reduce(add, terms)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The points that a matrix (batch, n, n + 1) maps a regular grid to, for grid_sample: (batch,
    *spatial, n). size: (batch, channels, *spatial).

    >>> a = cx.constant([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]]])
    >>> ops.affine_grid(a, (1, 1, 1, 2), align_corners=True).numpy()
    array([[[[-1. ,  0.5],
             [ 1. ,  0.5]]]], dtype=float32)
    """
    spatial, lines = list(size[2:]), []
    for length in spatial:
        ends = np.linspace(-1, 1, length) if length > 1 else np.zeros(1)
        inner = (length - 1) / length if not align_corners else 1.0
        lines.append(ends * inner)
    grids = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*grids[::-1], np.ones(spatial)], -1).reshape(-1, len(spatial) + 1)
    base = theta.graph.constant(points.astype(np.float64)).cast(theta.dtype)
    return matmul(base, theta.transpose(1, 2)).unflatten(1, spatial)


# ---- parts, of which the gradients are made as well


def product_of(factors: Sequence[Tensor]) -> Tensor:
    """The last dimension first, as PyTorch multiplies."""
    return reduce(mul, reversed(factors))


def nearest(points: Sequence[Tensor]) -> list[Tensor]:
    """The places of the nearest elements."""
    return [round(point).cast(i64) for point in points]


def corners(
    points: Sequence[Tensor],
) -> Iterator[tuple[list[Tensor], list[Tensor], tuple[int, ...]]]:
    """(places, their shares along each dimension, which are above the points)."""
    below = [floor(point).cast(i64) for point in points]
    for corner in product((0, 1), repeat=len(points)):
        shares = [
            sub(point, low) if up else sub(add(low, 1), point)
            for point, low, up in zip(points, below, corner)
        ]
        yield [add(low, up) for low, up in zip(below, corner)], shares, corner


def places_of(x: Tensor, grid: Tensor, padding: int, align: bool) -> list[tuple[Tensor, Tensor]]:
    """Along each dimension of the image: where each point is, and how fast it moves there."""
    sizes = sizes_of(x)
    last = len(sizes) - 1
    return [_at(grid.select(-1, last - d), n, padding, align) for d, n in enumerate(sizes)]


def sizes_of(x: Tensor) -> list[int]:
    """The fixed sizes of an image."""
    return [static(extent(x, d), "an image") for d in range(2, x.ndim)]


def _unnormalised(point: Tensor, size: int, align: bool) -> Tensor:
    """-1 .. 1 as a place among elements."""
    if align:
        return mul(div(add(point, 1), 2), size - 1)
    return div(sub(mul(add(point, 1), size), 1), 2)


def _at(point: Tensor, size: int, padding: int, align: bool) -> tuple[Tensor, Tensor]:
    """The place of a point, brought inside as the padding says, and its derivative."""
    place = _unnormalised(point, size, align)
    slope = full_like(place, (size - 1) / 2 if align else size / 2)
    return _padded(place, slope, size, padding, align)


def _padded(
    place: Tensor, slope: Tensor, size: int, padding: int, align: bool
) -> tuple[Tensor, Tensor]:
    if padding == REFLECTED:
        ends = (0, 2 * (size - 1)) if align else (-1, 2 * size - 1)
        place, slope = _reflected(place, slope, *ends)
    if padding:
        inside = logical_and(gt(place, 0), lt(place, size - 1))
        slope = where(inside, slope, 0)
        place = minimum(maximum(place, 0), size - 1)
    return where(lt(abs(place), 2.0**31), place, NOWHERE), slope


def _reflected(
    place: Tensor, slope: Tensor, twice_low: int, twice_high: int
) -> tuple[Tensor, Tensor]:
    """Folded back at both ends, as often as it takes; each fold turns the slope."""
    if twice_low == twice_high:
        return full_like(place, 0), full_like(slope, 0)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    away = abs(sub(place, low))
    rest, folds = fmod(away, span), floor(div(away, span))
    even = eq(fmod(folds, 2), 0)
    place_there = where(even, add(rest, low), add(sub(span, rest), low))
    turned = logical_xor(even, lt(place, low))
    return place_there, where(turned, slope, neg(slope))


def _bicubic(x: Tensor, grid: Tensor, padding: int, align: bool) -> Tensor:
    """The sixteen neighbours, each brought inside by itself."""
    sizes = sizes_of(x)
    taps, shares = [], []
    for d, size in enumerate(sizes):
        place = _unnormalised(grid.select(-1, 1 - d), size, align)
        low = floor(place)
        shares.append(cubic_shares(sub(place, low)))
        near = [add(low, tap) for tap in (-1, 0, 1, 2)]
        moved = [_padded(p, p, size, padding, align)[0] for p in near] if padding else near
        taps.append([where(lt(abs(p), 2.0**31), p, NOWHERE).cast(i64) for p in moved])
    rows = []
    for row, share in zip(taps[0], shares[0]):
        line = [
            mul(elements(x, [row, column]), s.unsqueeze(1)) for column, s in zip(taps[1], shares[1])
        ]
        rows.append(mul(reduce(add, line), share.unsqueeze(1)))
    return reduce(add, rows)


def flat_places(places: Sequence[Tensor], sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(number of the element in the flattened image, of one inside where it is outside; inside)."""
    flat, inside = full_like(places[0], 0), full_like(places[0], True, boolean)
    for place, size in zip(places, sizes):
        flat = add(mul(flat, size), clamp(place, 0, size - 1))
        inside = logical_and(inside, logical_and(ge(place, 0), lt(place, size)))
    return flat, inside


def elements(x: Tensor, places: Sequence[Tensor]) -> Tensor:
    """(batch, channels, ...): x at places (batch, ...), 0 outside."""
    flat, inside = flat_places(places, sizes_of(x))
    channels = (x.shape[0], x.shape[1])
    index = flat.flatten(1).unsqueeze(1).expand((*channels, -1))
    found = gather(x.flatten(2), 2, index).reshape((*channels, *flat.shape[1:]))
    return where(inside.unsqueeze(1), found, 0)
