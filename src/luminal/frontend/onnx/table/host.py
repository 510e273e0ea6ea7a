"""What the host computes between programs: results that are as large as their values say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kinds
from .base import host

if TYPE_CHECKING:
    from ..stages import Host


@host("NonZero")
def nonzero(at: Host, x: np.ndarray) -> Any:
    return np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)


@host("Compress")
def compress(at: Host, x: np.ndarray, condition: np.ndarray, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    places = np.flatnonzero(condition[: x.shape[axis]])
    return np.take(x, places, axis)


@host("Unique")
def unique(at: Host, x: np.ndarray, axis: int | None = None, sorted: int = 1) -> Any:
    """(values, first places, which value each is, counts)."""
    values, first, which, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    which = which.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        values = np.take(values, order, 0 if axis is None else axis)
        first, which, counts = first[order], back[which], counts[order]
    return values, first.astype(np.int64), which.astype(np.int64), counts.astype(np.int64)


@host("NonMaxSuppression")
def non_max_suppression(
    at: Host, boxes: np.ndarray, scores: np.ndarray, most: Any = None, iou: Any = None,
    least: Any = None, center_point_box: int = 0,
) -> Any:  # fmt: skip
    """Rows (batch, class, box): of the best boxes, those that no better one overlaps."""
    limit = 0 if most is None else int(np.asarray(most).reshape(-1)[0])
    overlap = 0.0 if iou is None else float(np.asarray(iou).reshape(-1)[0])
    floor = None if least is None else float(np.asarray(least).reshape(-1)[0])
    found: list[tuple[int, int, int]] = []
    for batch, (box, score) in enumerate(zip(_corners(boxes, center_point_box), scores)):
        for kind, row in enumerate(score):
            kept = _kept(box, row, limit, overlap, floor)
            found += [(batch, kind, place) for place in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray, centred: int) -> np.ndarray:
    """(y1, x1, y2, x2), the smaller first."""
    if centred:
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    low, high = (
        np.minimum(boxes[..., :2], boxes[..., 2:]),
        np.maximum(boxes[..., :2], boxes[..., 2:]),
    )
    return np.concatenate([low, high], -1)


def _kept(
    boxes: np.ndarray, scores: np.ndarray, limit: int, overlap: float, floor: float | None
) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if floor is not None:
        order = order[scores[order] > floor]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    kept: list[int] = []
    while len(order) and len(kept) < limit:
        best, rest = order[0], order[1:]
        kept.append(int(best))
        low = np.maximum(boxes[best, :2], boxes[rest, :2])
        high = np.minimum(boxes[best, 2:], boxes[rest, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=-1)
        union = areas[best] + areas[rest] - shared
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        order = rest[ratio <= overlap]
    return kept


@host("BitCast")
def bit_cast(at: Host, x: np.ndarray, to: int) -> Any:
    return np.ascontiguousarray(x).view(kinds.numpy_of(to))
