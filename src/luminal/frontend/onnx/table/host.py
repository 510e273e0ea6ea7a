"""What the host computes between programs: results that are as large as their values say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import LuminalError
from .. import kinds
from ..operators import Body
from .base import Typed, host

LONGEST = 2**62  # a loop without a number of steps

if TYPE_CHECKING:
    from ..stages import Host, Runner


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
    return np.ascontiguousarray(x).view(kinds.numpy_of(to)).reshape(x.shape)


# ---- loops whose states change shape


@host("Loop")
def host_loop(at: Host, trips: Any, condition: Any, *states: Any, body: Body) -> Any:
    runner, around = at.runner(body), {n: at.store[n] for n in body.free if n in at.store}
    carried = list(states)
    collected: list[list[Any]] = [[] for _ in body.outputs[1 + len(states) :]]
    most = LONGEST if trips is None else int(np.asarray(trips).reshape(()))
    goes, number = condition is None or bool(np.asarray(condition).reshape(())), 0
    while goes and number < most:
        given = [np.array(number, np.int64), np.array(goes), *carried]
        store = {**around, **dict(zip(body.inputs, given))}
        goes_on, *results = runner.run(store)
        goes, number = bool(np.asarray(goes_on).reshape(())), number + 1
        carried = results[: len(carried)]
        for parts, result in zip(collected, results[len(carried) :]):
            parts.append(result)
    if number:
        return *carried, *map(np.stack, collected)
    given = [np.array(0, np.int64), np.array(True), *carried]
    store = {**around, **dict(zip(body.inputs, given))}
    return *carried, *_no_rows(runner, body, store, len(collected))


def _no_rows(runner: Runner, body: Body, store: dict[str, Any], count: int) -> list[np.ndarray]:
    """What no round collects, in the shapes and element types that one would give."""
    first = len(body.outputs) - count
    try:
        gives = runner.record(runner.start, store, {}, {}, 2).gives
    except LuminalError:
        gives = {}
    found = []
    for number, name in enumerate(body.outputs[first:], first):
        value = store.get(name, gives.get(name))
        if isinstance(value, Typed):
            kind, shape = kinds.numpy_of(value.kind), tuple(map(int, value.tensor.shape))
        elif isinstance(value, np.ndarray):
            kind, shape = value.dtype, value.shape
        else:
            kind, shape = _declared(body, number)
        found.append(np.zeros((0, *shape), kind))
    return found


def _declared(body: Body, number: int) -> tuple[Any, tuple[int, ...]]:
    """As the file says; sizes that it leaves open are 0."""
    assert body.proto is not None
    said = body.proto.output[number].type.tensor_type
    kind = kinds.numpy_of(said.elem_type) if said.elem_type else np.dtype(np.float32)
    return kind, tuple(size.dim_value for size in said.shape.dim)


@host("Scan")
def host_scan(
    at: Host, *operands: Any, body: Body, num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    number = num_scan_inputs
    runner, around = at.runner(body), {n: at.store[n] for n in body.free if n in at.store}
    carried = list(operands[: len(operands) - number])
    axes = scan_input_axes or [0] * number
    scanned = [np.moveaxis(a, axis, 0) for a, axis in zip(operands[len(carried) :], axes)]
    back = scan_input_directions or [0] * number
    collected: list[list[Any]] = [[] for _ in body.outputs[len(carried) :]]
    count = len(scanned[0])
    for step in range(count):
        parts = [np.ascontiguousarray(a[count - 1 - step if r else step])
                 for a, r in zip(scanned, back)]  # fmt: skip
        results = runner.run({**around, **dict(zip(body.inputs, [*carried, *parts]))})
        carried = results[: len(carried)]
        for column, result in zip(collected, results[len(carried) :]):
            column.append(result)
    out_axes = scan_output_axes or [0] * len(collected)
    out_back = scan_output_directions or [0] * len(collected)
    piles = [np.stack(column[::-1] if r else column, axis)
             for column, r, axis in zip(collected, out_back, out_axes)]  # fmt: skip
    return *carried, *piles
