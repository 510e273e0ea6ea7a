"""Boxes in the graph: from centres and sizes to corners, overlaps, non-maximum suppression."""

from __future__ import annotations

from ... import ops
from ...graph import Tensor

CANDIDATES = 1024  # boxes of the highest scores that suppression looks at


def corners(boxes: Tensor) -> Tensor:
    """(x, y) of centres, widths and heights (..., 4) as left, top, right, bottom."""
    centre, half = boxes[..., :2], boxes[..., 2:] * 0.5
    return ops.cat([centre - half, centre + half], -1)


def overlaps(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of corners (n, 4) and (m, 4): (n, m)."""
    low = ops.maximum(a[:, :2].unsqueeze(1), b[:, :2].unsqueeze(0))
    high = ops.minimum(a[:, 2:].unsqueeze(1), b[:, 2:].unsqueeze(0))
    shared = area(ops.clamp(high - low, min=0))
    both = area(a[:, 2:] - a[:, :2]).unsqueeze(1) + area(b[:, 2:] - b[:, :2]).unsqueeze(0)
    return shared / ops.clamp(both - shared, min=1e-9)


def area(sizes: Tensor) -> Tensor:
    """Widths times heights (..., 2)."""
    return sizes.select(-1, 0) * sizes.select(-1, 1)


def suppressed(
    boxes: Tensor, scores: Tensor, labels: Tensor, most: Tensor | float,
    least: Tensor | float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(scores (k,), highest first, 0 where a box is dropped; which boxes they are (k,) i64).

    boxes: corners (n, 4); scores, labels: (n,). Dropped are scores up to `least`, and boxes that
    overlap one of the same label and a higher score, that is kept, by more than `most`. k is n, or
    CANDIDATES if that is fewer.
    """
    count = min(int(boxes.shape[0]), CANDIDATES)
    best, place = ops.topk(scores, count)
    chosen = ops.index_select(boxes, 0, place)
    label = ops.index_select(labels, 0, place)
    same = label.unsqueeze(0) == label.unsqueeze(1)
    number = ops.arange(boxes.graph, count)
    before = number.unsqueeze(0) < number.unsqueeze(1)  # [i, j]: j has the higher score
    hides = ops.logical_and(ops.logical_and(overlaps(chosen, chosen) > most, same), before)

    def step(kept: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        at, hidden = row
        fate = 1 - (hidden * kept).amax(0)
        return ops.where(number == at, fate, kept), None

    start = (best > least).cast("f32")
    kept, _ = ops.scan(step, start, (number, hides.cast("f32")))
    kept = kept * start
    return best * kept, place
