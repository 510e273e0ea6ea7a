"""Pooling over windows, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....graph.dtype import f32, i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import extent, full_like
from ....ops.maxima import first_best
from ....ops.reduction import reduce
from .base import op
from .conv import Pair, around, each, paddings

if TYPE_CHECKING:
    from ..record import Recorder


class Windows:
    """The windows of an image: where they lie, and an image cut into them."""

    def __init__(
        self, at: Recorder, x: Tensor, kernel: Sequence[int], auto_pad: str,
        ceil_mode: int, dilations: Sequence[int] | None, pads: Sequence[int] | None,
        strides: Sequence[int] | None,
    ) -> None:  # fmt: skip
        self.n = x.ndim - 2
        self.kernel = each(kernel, self.n)
        self.steps, self.spread = each(strides, self.n), each(dilations, self.n)
        self.pads: list[Pair] = paddings(
            at, x, self.kernel, self.steps, self.spread, auto_pad, pads
        )
        self.inner = tuple(range(x.ndim, x.ndim + self.n))
        self.beyond = [(0, self._excess(x, d)) if ceil_mode else (0, 0) for d in range(self.n)]

    def _excess(self, x: Tensor, d: int) -> Any:
        """What the last window reaches beyond the padding, if it starts inside."""
        size = ops.base.static(extent(x, x.ndim - self.n + d), "a size that is rounded up")
        before, after = self.pads[d]
        step, reach = self.steps[d], self.spread[d] * (self.kernel[d] - 1) + 1
        room = size + before + after - reach
        count = -(-room // step) + 1
        if (count - 1) * step >= size + before:
            count -= 1
        return max(0, (count - 1) * step - room)

    def of(self, x: Tensor, fill: Any, beyond: Any = None) -> Tensor:
        """(..., *size, *kernel)."""
        none = [(0, 0)] * (x.ndim - self.n)
        if any(p != (0, 0) for p in self.pads):
            x = x.pad([*none, *self.pads], fill)
        if any(p != (0, 0) for p in self.beyond):
            x = x.pad([*none, *self.beyond], fill if beyond is None else beyond)
        first = x.ndim - self.n
        return x.windows(range(first, x.ndim), self.kernel, self.steps, self.spread)


@op("MaxPool")
def max_pool(
    at: Recorder, x: Tensor, kernel_shape: Sequence[int], auto_pad: str = "NOTSET",
    ceil_mode: int = 0, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    windows = Windows(at, x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    low = x.dtype.lowest
    if not at.wants(1):
        return reduce("max", windows.of(x, low), windows.inner)
    dims = [0, 1, *(range(x.ndim - 1, 1, -1) if storage_order else range(2, x.ndim))]
    flat = Index.of(0)
    for d in dims:
        flat = flat * extent(x, d) + Index.of(f"i{d}")
    numbers = windows.of(x.graph.iota(x.shape, flat, i64), i64.highest)
    return first_best(windows.of(x, low), numbers, windows.n)


@op("AveragePool")
def average_pool(
    at: Recorder, x: Tensor, kernel_shape: Sequence[int], auto_pad: str = "NOTSET",
    ceil_mode: int = 0, count_include_pad: int = 0, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    windows = Windows(at, x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    wide = x.cast(f32) if x.dtype.bytes < 4 else x
    total = reduce("sum", windows.of(wide, 0.0), windows.inner)
    padded = any(p != (0, 0) for p in windows.pads)
    if any(p != (0, 0) for p in windows.beyond) or (padded and not count_include_pad):
        inside = 1.0 if count_include_pad else 0.0
        number = windows.of(full_like(wide, 1.0), inside, 0.0)
        return ops.div(total, reduce("sum", number, windows.inner)).cast(x.dtype)
    size = 1
    for k in kernel_shape:
        size *= k
    return ops.mul(total, 1 / size).cast(x.dtype)


@op("LpPool")
def lp_pool(
    at: Recorder, x: Tensor, kernel_shape: Sequence[int], p: float = 2,
    auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    windows = Windows(at, x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    total = reduce("sum", _power(windows.of(x, 0.0), p), windows.inner)
    return ops.sqrt(total) if p == 2 else ops.pow(total, 1 / p)


def _power(x: Tensor, p: float) -> Tensor:
    return ops.square(x) if p == 2 else ops.abs(x) if p == 1 else ops.pow(ops.abs(x), float(p))


@op("GlobalAveragePool")
def global_average_pool(at: Recorder, x: Tensor) -> Tensor:
    return ops.mean(x, range(2, x.ndim), True) if x.ndim > 2 else x


@op("GlobalMaxPool")
def global_max_pool(at: Recorder, x: Tensor) -> Tensor:
    return ops.amax(x, range(2, x.ndim), True) if x.ndim > 2 else x


@op("GlobalLpPool")
def global_lp_pool(at: Recorder, x: Tensor, p: float = 2) -> Tensor:
    total = _power(x, p)
    total = reduce("sum", total, range(2, x.ndim), True) if x.ndim > 2 else total
    return ops.sqrt(total) if p == 2 else ops.pow(total, 1 / p)


@op("MaxUnpool")
def max_unpool(
    at: Recorder, x: Tensor, indices: Tensor, shape: Tensor | None = None, *,
    kernel_shape: Sequence[int], pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Values back at the places that MaxPool gave, which count in the smallest image; a larger one
    has zeros around it."""
    n = x.ndim - 2
    steps, given = each(strides, n), around(pads, n)
    least = [
        (extent(x, 2 + d) - 1) * steps[d] - given[d] - given[n + d] + kernel_shape[d]
        for d in range(n)
    ]
    sizes: list[Any] = [*x.shape[:2], *least]
    total = Index.of(1)
    for size in sizes:
        total = total * size
    blank = ops.zeros(x.graph, (total,), x.dtype)
    small = ops.scatter(blank, 0, indices.reshape(-1), x.reshape(-1)).reshape(sizes)
    if shape is None:
        return small
    wanted = at.sizes(shape)
    if len(wanted) == n:
        wanted = [*x.shape[:2], *wanted]
    widths = [(0, Index.of(w) - Index.of(n)) for w, n in zip(wanted, small.shape)]
    return small.pad(widths, 0)


@op("RoiAlign")
def roi_align(
    at: Recorder, x: Tensor, rois: Tensor, batch: Tensor, *,
    coordinate_transformation_mode: str | None = None, mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """Means (or maxima) of samples between pixels in each bin of each region (x1, y1, x2, y2)."""
    chosen = coordinate_transformation_mode or (
        "half_pixel" if at.version >= 16 else "output_half_pixel"
    )
    half = 0.5 if chosen == "half_pixel" else 0.0
    ends = [ops.sub(ops.mul(rois.select(1, k), spatial_scale), half) for k in range(4)]
    sides = [ops.sub(ends[3], ends[1]), ops.sub(ends[2], ends[0])]  # height, width
    if not half:
        sides = [ops.clamp(side, 1.0) for side in sides]
    counts = (output_height, output_width)
    if sampling_ratio <= 0:
        widths = [at.array(side) for side in sides]
        ratios = [-(-w // c) for w, c in zip(widths, counts)]
        if any((r != r.reshape(-1)[0]).any() for r in ratios):
            from ....errors import Unsupported

            raise Unsupported("regions that take different numbers of samples")
        samples = [max(int(r.reshape(-1)[0]), 1) for r in ratios]
    else:
        samples = [sampling_ratio] * 2
    points = []
    for k in range(2):
        place = ops.add(ops.arange(x.graph, counts[k] * samples[k]).cast(f32), 0.5)
        step = ops.div(sides[k], float(counts[k] * samples[k]))
        points.append(ops.add(ends[1 - k].unsqueeze(1), ops.mul(step.unsqueeze(1), place)))
    taken = _bilinear(ops.index_select(x, 0, batch), points)
    split = taken.unflatten(3, (counts[1], samples[1])).unflatten(2, (counts[0], samples[0]))
    if mode == "max":
        return ops.amax(split, (3, 5))
    return ops.mean(split, (3, 5))


def _bilinear(image: Tensor, points: Sequence[Tensor]) -> Tensor:
    """image (regions, channels, h, w) at rows points[0] and columns points[1] (regions, places);
    a little outside counts as the border, further outside as 0."""
    rows = None
    for d, point in enumerate(points):
        n = int(extent(image, 2 + d))
        inside = ops.logical_and(point >= -1.0, point <= float(n))
        held = ops.clamp(point, 0.0, float(n - 1))
        low = ops.clamp(ops.floor(held), 0.0, float(max(n - 2, 0)))
        share = ops.sub(held, low)
        first, second = low.cast(i64), ops.clamp(ops.add(low, 1.0), 0.0, float(n - 1)).cast(i64)
        weights = []
        for place, part in ((first, ops.sub(1.0, share)), (second, share)):
            here = ops.arange(image.graph, n)
            hit = ops.eq(place.unsqueeze(-1), here).cast(f32)
            weights.append(ops.mul(hit, ops.where(inside, part, 0.0).unsqueeze(-1)))
        matrix = ops.add(*weights).unsqueeze(1)  # (regions, 1, places, n)
        rows = ops.matmul(matrix, image) if d == 0 else ops.matmul(rows, matrix.mT)  # type: ignore[arg-type]
    assert rows is not None
    return rows
