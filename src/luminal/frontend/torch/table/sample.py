"""Sampling of images and volumes at points that are data, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.tensor import Tensor
from ....ops.base import full_like
from ....ops.sampling import (
    PADDING,
    corners,
    elements,
    flat_places,
    nearest,
    places_of,
    product_of,
    sizes_of,
)
from .base import rule

MODES = ("bilinear", "nearest", "bicubic")
NEAREST, CUBIC = 1, 2


@rule("grid_sampler_3d.default")
def grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    return ops.grid_sample(x, grid, MODES[mode], tuple(PADDING)[padding], align)


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
    both = places_of(x, grid, padding, align)
    points = [place for place, _ in both]
    if mode == NEAREST:
        of_x = _spread(x, [(nearest(points), grad)]) if mask[0] else None
        return of_x, full_like(grid, 0)
    slopes = [full_like(point, 0) for point in points]
    parts = []
    for places, shares, corner in corners(points):
        parts.append((places, ops.mul(grad, product_of(shares).unsqueeze(1))))
        weight = ops.sum(ops.mul(grad, elements(x, places)), 1)
        for d, up in enumerate(corner):
            term = product_of([weight, *shares[:d], *shares[d + 1 :]])
            slopes[d] = ops.add(slopes[d], term) if up else ops.sub(slopes[d], term)
    of_points = [ops.mul(slope, factor) for slope, (_, factor) in zip(slopes, both)]
    return _spread(x, parts) if mask[0] else None, ops.stack(of_points[::-1], -1)


def _spread(x: Tensor, parts: Sequence[tuple[Sequence[Tensor], Tensor]]) -> Tensor:
    """What values (batch, channels, ...) at places (batch, ...) add up to in the shape of x."""
    channels, sizes = (x.shape[0], x.shape[1]), sizes_of(x)
    indices, values = [], []
    for places, value in parts:
        flat, inside = flat_places(places, sizes)
        indices.append(flat.flatten(1).unsqueeze(1).expand((*channels, -1)))
        values.append(ops.where(inside.unsqueeze(1), value, 0).flatten(2))
    zeros = full_like(x, 0).flatten(2)
    return ops.scatter_add(zeros, 2, ops.cat(indices, 2), ops.cat(values, 2)).reshape(x.shape)
