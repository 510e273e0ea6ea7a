"""Resize, Upsample, GridSample, AffineGrid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import f32
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import dim_of, extent
from .base import op

if TYPE_CHECKING:
    from ..record import Recorder

MOST_TAPS = 16  # products with a matrix of weights beyond


@op("Upsample")
def upsample(
    at: Recorder, x: Tensor, given: Tensor | None = None, *, mode: str = "nearest",
    scales: Sequence[float] | None = None,
) -> Tensor:  # fmt: skip
    factors = list(scales or ()) if given is None else [*map(float, at.array(given).reshape(-1))]
    return _each(at, x, range(x.ndim), [(None, f) for f in factors], mode, "asymmetric", "floor")


@op("Resize")
def resize(
    at: Recorder, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None,
    sizes: Tensor | None = None, *, antialias: int = 0, axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    if at.version < 11:
        return upsample(at, x, roi, mode=mode)
    dims = list(range(x.ndim)) if axes is None else [dim_of(x, d) for d in axes]
    targets: list[tuple[Any, Any]]
    if scales is not None and Index.of(scales.shape[0]) != 0:
        targets = [(None, float(f)) for f in at.array(scales).reshape(-1)]
    else:
        assert sizes is not None
        targets = [(size, None) for size in at.sizes(sizes)]
        if keep_aspect_ratio_policy != "stretch":
            targets = _kept_aspect(x, dims, targets, keep_aspect_ratio_policy)
    region = None
    if coordinate_transformation_mode == "tf_crop_and_resize":
        assert roi is not None
        region = [float(v) for v in at.array(roi).reshape(-1)]
    return _each(
        at, x, dims, targets, mode, coordinate_transformation_mode, nearest_mode,
        cubic_coeff_a, bool(exclude_outside), bool(antialias), region, extrapolation_value,
    )  # fmt: skip


def _kept_aspect(
    x: Tensor, dims: Sequence[int], targets: Sequence[tuple[Any, Any]], policy: str
) -> list[tuple[Any, Any]]:
    old = [int(extent(x, d)) for d in dims]
    ratios = [int(size) / n for (size, _), n in zip(targets, old)]
    factor = max(ratios) if policy == "not_smaller" else min(ratios)
    return [(math.floor(factor * n + 0.5), factor) for n in old]


def _each(
    at: Recorder, x: Tensor, dims: Sequence[int], targets: Sequence[tuple[Any, Any]], mode: str,
    place: str, nearest: str, cubic: float = -0.75, exclude: bool = False,
    antialias: bool = False, region: Sequence[float] | None = None, outside: float = 0.0,
) -> Tensor:  # fmt: skip
    """One dimension after the other."""
    kept = x.dtype
    beyond = []
    for number, (d, (size, factor)) in enumerate(zip(dims, targets)):
        n = extent(x, d)
        if size is not None and factor is None and Index.of(size) is n and region is None:
            continue
        if factor == 1.0 and region is None:
            continue
        if factor is not None and size is None and mode == "nearest" and not n.is_constant:
            x = _by_view(x, d, factor, place, nearest)
            continue
        if not n.is_constant or (size is not None and not Index.of(size).is_constant):
            x = _symbolic(at, x, d, size, factor, mode, place, nearest)
            continue
        length = n.constant
        new = int(np.float32(length) * np.float32(factor)) if size is None else int(Index.of(size))
        if not new:
            x = x[(slice(None),) * d + (slice(0, 0),)]
            continue
        scale = factor if factor is not None else new / length
        ends = None
        if region is not None:
            ends = region[number], region[number + len(dims)]
        points = _points(np.arange(new), length, new, scale, place, ends)
        if ends is not None:
            beyond.append((d, (points < 0) | (points > length - 1)))
        x = _sampled(x, d, points, scale, mode, nearest, cubic, exclude, antialias)
    for d, hidden in beyond:
        mask = x.graph.constant(hidden).reshape((-1, *(1,) * (x.ndim - d - 1)))
        x = ops.where(mask, outside, x)
    return x if x.dtype is kept else _rounded(x, kept)


def _rounded(x: Tensor, kind: Any) -> Tensor:
    if kind.is_float:
        return x.cast(kind)
    return ops.round(ops.clamp(x, float(kind.lowest), float(kind.highest))).cast(kind)


def _points(at: np.ndarray, old: int, new: int, scale: float, place: str, ends: Any) -> np.ndarray:
    """Where each element of the result lies in the source: in f32, in which a third of 3 is 1."""
    i, by = at.astype(np.float32), np.float32(scale)
    if place == "asymmetric":
        return i / by
    if place == "half_pixel" or (place == "pytorch_half_pixel" and new > 1):
        return (i + 0.5) / by - 0.5
    if place == "pytorch_half_pixel":
        return i * 0.0
    if place == "align_corners":
        exact = old * by
        return i * ((old - 1) / (exact - 1)) if exact != 1 else i * 0.0
    if place == "half_pixel_symmetric":
        exact = by * old
        adjust = new / exact
        return old / 2 * (1 - adjust) + (i + 0.5) / by - 0.5
    if place == "tf_half_pixel_for_nn":
        return (i + 0.5) / by
    if place == "tf_crop_and_resize":
        start, end = ends
        if new > 1:
            return start * (old - 1) + i * (end - start) * (old - 1) / (new - 1)
        return i * 0.0 + 0.5 * (start + end) * (old - 1)
    raise Unsupported(f"coordinate_transformation_mode {place!r}")


def _nearest_of(points: np.ndarray, mode: str) -> np.ndarray:
    if mode == "floor":
        return np.floor(points)
    if mode == "ceil":
        return np.ceil(points)
    return np.ceil(points - 0.5) if mode == "round_prefer_floor" else np.floor(points + 0.5)


def _sampled(
    x: Tensor, d: int, points: np.ndarray, scale: float, mode: str, nearest: str, cubic: float,
    exclude: bool, antialias: bool,
) -> Tensor:  # fmt: skip
    n = int(extent(x, d))
    if mode == "nearest":
        places = np.clip(_nearest_of(points, nearest), 0, n - 1).astype(np.int64)
        return _taken(x, d, places)
    x = x if x.dtype.is_float and x.dtype.bytes >= 4 else x.cast(f32)
    places, weights = _taps(points, n, scale if antialias else 1.0, mode, cubic, exclude)
    if places.shape[1] > MOST_TAPS:
        return _by_matrix(x, d, places, weights)
    total = None
    for tap in range(places.shape[1]):
        held = np.clip(places[:, tap], 0, n - 1)
        share = x.graph.constant(weights[:, tap].astype(x.dtype.numpy))
        part = ops.mul(_taken(x, d, held), share.reshape((-1, *(1,) * (x.ndim - d - 1))))
        total = part if total is None else ops.add(total, part)
    assert total is not None
    return total


def _by_matrix(x: Tensor, d: int, places: np.ndarray, weights: np.ndarray) -> Tensor:
    table = np.zeros((places.shape[0], int(extent(x, d))), x.dtype.numpy)
    held = np.clip(places, 0, table.shape[1] - 1)
    for row, (columns, shares) in enumerate(zip(held, weights)):
        np.add.at(table[row], columns, shares)
    moved = x.movedim(d, -1)
    return ops.matmul(moved, x.graph.constant(table).T).movedim(-1, d)


def _taps(
    points: np.ndarray, n: int, scale: float, mode: str, cubic: float, exclude: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(places, weights) of the elements near each point: (points, taps)."""
    stretch = max(1.0, 1.0 / scale)  # where a smaller image is smoothed
    reach = (1 if mode == "linear" else 2) * stretch
    first = np.floor(points - reach + 1e-9).astype(np.int64)
    count = int(np.ceil(reach)) * 2 + (1 if stretch > 1 else 0)
    if stretch == 1.0:
        first = np.floor(points).astype(np.int64) - (0 if mode == "linear" else 1)
    places = first[:, None] + np.arange(count)[None, :] + (1 if stretch > 1 else 0)
    distance = np.abs(places - points[:, None]) / stretch
    if mode == "linear":
        weights = np.maximum(0.0, 1.0 - distance)
    else:
        a = cubic
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    if exclude or stretch > 1:
        weights = np.where((places < 0) | (places >= n), 0.0, weights) if exclude else weights
        weights = weights / weights.sum(1, keepdims=True)
    return places, weights


def _taken(x: Tensor, d: int, places: np.ndarray) -> Tensor:
    """Elements at known places along a dimension: a view where a formula says them."""
    formula = _formula(places, f"i{d}")
    if formula is None:
        return ops.index_select(x, d, x.graph.constant(places))
    index = [Index.of(f"i{k}") for k in range(x.ndim)]
    index[d] = formula
    return x.read([*x.shape[:d], len(places), *x.shape[d + 1 :]], index)


def _formula(places: np.ndarray, name: str) -> Index | None:
    """floor((i up + shift) / down), cut to the range of the places, if that is what they are."""
    count, low, high = len(places), int(places.min()), int(places.max())
    i = np.arange(count)
    slope = Fraction(high - low, max(count - 1, 1)).limit_denominator(64)
    inner = np.flatnonzero((places > low) & (places < high))
    if len(inner) > 1:
        a, b = inner[0], inner[-1]
        if b > a:
            slope = Fraction(int(places[b] - places[a]), int(b - a)).limit_denominator(64)
    rates = {slope, Fraction(1), Fraction(1, 2), Fraction(2), Fraction(1, 4), Fraction(0)}
    for rate in sorted(rates, key=lambda r: r != slope):
        up, down = rate.numerator, rate.denominator
        for shift in range(low * down - 2 * down, low * down + 2 * down + 1):
            found = np.clip((i * up + shift) // down, low, high)
            if np.array_equal(found, places):
                plain = (i * up + shift) // down
                index = (Index.of(name) * up + shift) // down
                if plain.min() < low:
                    index = index.maximum(low)
                return index.minimum(high) if plain.max() > high else index
    return None


# ---- sizes of a run


def _by_view(x: Tensor, d: int, factor: float, place: str, nearest: str) -> Tensor:
    """The nearest elements, for a factor that is a ratio of small numbers."""
    ratio = Fraction(factor).limit_denominator(1 << 10)
    up, down = ratio.denominator, ratio.numerator
    n = extent(x, d)
    here, size = Index.of(f"i{d}"), n * ratio.numerator // ratio.denominator
    # the point is (i up) / down, or ((2 i + 1) up - down) / (2 down)
    if place == "asymmetric":
        top, bottom = here * up * 2, down * 2
    elif place in ("half_pixel", "pytorch_half_pixel"):
        top, bottom = (here * 2 + 1) * up - down, down * 2
    elif place == "tf_half_pixel_for_nn":
        top, bottom = (here * 2 + 1) * up, down * 2
    else:
        raise Unsupported(f"coordinate_transformation_mode {place!r} for sizes of a run")
    half = bottom // 2
    at = {
        "floor": top // bottom, "ceil": (top + bottom - 1) // bottom,
        "round_prefer_ceil": (top + half) // bottom,
        "round_prefer_floor": (top + half - 1) // bottom,
    }[nearest]  # fmt: skip
    index = [Index.of(f"i{k}") for k in range(x.ndim)]
    index[d] = at.maximum(0).minimum(n - 1)
    return x.read([*x.shape[:d], size, *x.shape[d + 1 :]], index)


def _symbolic(
    at: Recorder, x: Tensor, d: int, size: Any, factor: float | None, mode: str, place: str,
    nearest: str,
) -> Tensor:  # fmt: skip
    """By PyTorch's rule, where ONNX means the same."""
    corners = place == "align_corners"
    same_rule = mode == "linear" and place in ("half_pixel", "pytorch_half_pixel", "align_corners")
    simple = mode == "nearest" and place == "asymmetric" and nearest == "floor"
    if not (same_rule or simple):
        at.settle()
    flat = x.movedim(d, -1)
    image = flat.reshape((1, -1, flat.shape[-1]))
    found = ops.interpolate(
        image, None if size is None else (size,), factor if size is None else None, mode,
        corners if mode == "linear" else None,
    )  # fmt: skip
    return found.reshape((*flat.shape[:-1], found.shape[-1])).movedim(-1, d)


# ---- samples at points that are data


@op("GridSample")
def grid_sample(
    at: Recorder, x: Tensor, grid: Tensor, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:  # fmt: skip
    names = {"linear": "bilinear", "cubic": "bicubic"}
    return ops.grid_sample(x, grid, names.get(mode, mode), padding_mode, bool(align_corners))


@op("AffineGrid")
def affine_grid(at: Recorder, theta: Tensor, size: Tensor, align_corners: int = 0) -> Tensor:
    return ops.affine_grid(theta, at.ints(size), bool(align_corners))
