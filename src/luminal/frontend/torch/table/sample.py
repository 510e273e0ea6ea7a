"""Sampling of images and volumes at points that are data, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import boolean, i64
from ....graph.tensor import Tensor
from ....ops.base import extent, full_like, static
from .base import rule

NOWHERE = -100.0  # where ATen puts points that no integer can hold
NEAREST, CUBIC = 1, 2
REFLECTED = 2


@rule("grid_sampler_3d.default")
def grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    """x (batch, channels, depth, height, width) at points (batch, ..., xyz) between -1 and 1.

    mode: 0 between the eight neighbours, 1 the nearest. padding: 0 zeros outside, 1 the border, 2
    reflection. Rounded to the dtype after each step, as ATen does.
    """
    points = [place for place, _ in _places(x, grid, padding, align)]
    if mode == NEAREST:
        return _elements(x, _nearest(points))
    terms = [
        ops.mul(_elements(x, places), _product(shares).unsqueeze(1))
        for places, shares, _ in _corners(points)
    ]
    return reduce(ops.add, terms)


@rule("grid_sampler_2d_backward.default", "grid_sampler_3d_backward.default")
def grid_sampler_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool,
    mask: Sequence[bool],
) -> Any:  # fmt: skip
    """(of x, where the mask asks for it; of the points: 0 where the nearest element is taken).

    A share grows with the point where it is that of the upper neighbour, else it shrinks.
    """
    if mode == CUBIC:
        raise Unsupported("gradients of cubic sampling")
    both = _places(x, grid, padding, align)
    points = [place for place, _ in both]
    if mode == NEAREST:
        of_x = _spread(x, [(_nearest(points), grad)]) if mask[0] else None
        return of_x, full_like(grid, 0)
    slopes = [full_like(point, 0) for point in points]
    parts = []
    for places, shares, corner in _corners(points):
        parts.append((places, ops.mul(grad, _product(shares).unsqueeze(1))))
        weight = ops.sum(ops.mul(grad, _elements(x, places)), 1)
        for d, up in enumerate(corner):
            term = _product([weight, *shares[:d], *shares[d + 1 :]])
            slopes[d] = ops.add(slopes[d], term) if up else ops.sub(slopes[d], term)
    of_points = [ops.mul(slope, factor) for slope, (_, factor) in zip(slopes, both)]
    return _spread(x, parts) if mask[0] else None, ops.stack(of_points[::-1], -1)


def _product(factors: Sequence[Tensor]) -> Tensor:
    """The last dimension first, as ATen multiplies."""
    return reduce(ops.mul, reversed(factors))


def _nearest(points: Sequence[Tensor]) -> list[Tensor]:
    return [ops.round(point).cast(i64) for point in points]


def _corners(
    points: Sequence[Tensor],
) -> Iterator[tuple[list[Tensor], list[Tensor], tuple[int, ...]]]:
    """(places, their shares along each dimension, which are above the points)."""
    below = [ops.floor(point).cast(i64) for point in points]
    for corner in product((0, 1), repeat=len(points)):
        shares = [
            ops.sub(point, low) if up else ops.sub(ops.add(low, 1), point)
            for point, low, up in zip(points, below, corner)
        ]
        yield [ops.add(low, up) for low, up in zip(below, corner)], shares, corner


def _places(
    x: Tensor, grid: Tensor, padding: int, align: bool
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """Along each dimension of the image: where each point is, and how fast it moves there."""
    sizes = _sizes(x)
    last = len(sizes) - 1
    return [_at(grid.select(-1, last - d), n, padding, align) for d, n in enumerate(sizes)]


def _sizes(x: Tensor) -> list[int]:
    return [static(extent(x, d), "an image") for d in range(2, x.ndim)]


def _at(point: Tensor, size: int, padding: int, align: bool) -> tuple[Tensor, Tensor]:
    """-1 .. 1 as a place among elements, and its derivative; align: the ends are the middles of
    the last elements."""
    if align:
        place = ops.mul(ops.div(ops.add(point, 1), 2), size - 1)
    else:
        place = ops.div(ops.sub(ops.mul(ops.add(point, 1), size), 1), 2)
    slope = full_like(place, (size - 1) / 2 if align else size / 2)
    if padding == REFLECTED:
        ends = (0, 2 * (size - 1)) if align else (-1, 2 * size - 1)
        place, slope = _reflected(place, slope, *ends)
    if padding:
        inside = ops.logical_and(ops.gt(place, 0), ops.lt(place, size - 1))
        slope = ops.where(inside, slope, 0)
        place = ops.minimum(ops.maximum(place, 0), size - 1)
    return ops.where(ops.lt(ops.abs(place), 2.0**31), place, NOWHERE), slope


def _reflected(
    place: Tensor, slope: Tensor, twice_low: int, twice_high: int
) -> tuple[Tensor, Tensor]:
    """Folded back at both ends, as often as it takes; each fold turns the slope."""
    if twice_low == twice_high:
        return full_like(place, 0), full_like(slope, 0)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    away = ops.abs(ops.sub(place, low))
    rest, folds = ops.fmod(away, span), ops.floor(ops.div(away, span))
    even = ops.eq(ops.fmod(folds, 2), 0)
    place_there = ops.where(even, ops.add(rest, low), ops.add(ops.sub(span, rest), low))
    turned = ops.logical_xor(even, ops.lt(place, low))
    return place_there, ops.where(turned, slope, ops.neg(slope))


def _flat(places: Sequence[Tensor], sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(number of the element in the flattened image, of one inside where it is outside; inside)."""
    flat, inside = full_like(places[0], 0), full_like(places[0], True, boolean)
    for place, size in zip(places, sizes):
        flat = ops.add(ops.mul(flat, size), ops.clamp(place, 0, size - 1))
        inside = ops.logical_and(inside, ops.logical_and(ops.ge(place, 0), ops.lt(place, size)))
    return flat, inside


def _elements(x: Tensor, places: Sequence[Tensor]) -> Tensor:
    """(batch, channels, ...): x at places (batch, ...), 0 outside."""
    flat, inside = _flat(places, _sizes(x))
    channels = (x.shape[0], x.shape[1])
    index = flat.flatten(1).unsqueeze(1).expand((*channels, -1))
    found = ops.gather(x.flatten(2), 2, index).reshape((*channels, *flat.shape[1:]))
    return ops.where(inside.unsqueeze(1), found, 0)


def _spread(x: Tensor, parts: Sequence[tuple[Sequence[Tensor], Tensor]]) -> Tensor:
    """What values (batch, channels, ...) at places (batch, ...) add up to in the shape of x."""
    channels, sizes = (x.shape[0], x.shape[1]), _sizes(x)
    indices, values = [], []
    for places, value in parts:
        flat, inside = _flat(places, sizes)
        indices.append(flat.flatten(1).unsqueeze(1).expand((*channels, -1)))
        values.append(ops.where(inside.unsqueeze(1), value, 0).flatten(2))
    zeros = full_like(x, 0).flatten(2)
    return ops.scatter_add(zeros, 2, ops.cat(indices, 2), ops.cat(values, 2)).reshape(x.shape)
