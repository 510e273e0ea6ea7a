"""Movement: views, slices, joining, padding, tiling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import ShapeError
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import Size, dim_of, extent
from ....ops.slicing import clamped
from .base import op

if TYPE_CHECKING:
    from ..record import Recorder

FAR = 2**31 - 1  # a bound of a slice beyond any size


@op("Shape")
def shape(at: Recorder, x: Tensor, start: int = 0, end: int | None = None) -> Tensor:
    sizes = x.node.shape[slice(start, end)]
    return size_vector(at, sizes)


def size_vector(at: Recorder, sizes: Sequence[Size]) -> Tensor:
    """Sizes as a vector of i64."""
    if all(Index.of(s).is_constant for s in sizes):
        import numpy as np

        return at.graph.constant(np.array([int(Index.of(s)) for s in sizes], np.int64))
    return ops.stack([ops.size_tensor(at.graph, size) for size in sizes])


@op("Size")
def size(at: Recorder, x: Tensor) -> Tensor:
    return ops.size_tensor(at.graph, ops.base.count(x, range(x.ndim)))


@op("Reshape", moves=True)
def reshape(
    at: Recorder, x: Tensor, wanted: Tensor | None = None, *, shape: Sequence[int] | None = None,
    allowzero: int = 0,
) -> Tensor:  # fmt: skip
    """0 keeps a size unless zeros are allowed; -1 is what is left."""
    sizes = [*(shape or ())] if wanted is None else at.sizes(wanted)
    if not allowzero:
        sizes = [extent(x, d) if isinstance(s, int) and s == 0 else s for d, s in enumerate(sizes)]
    return x.reshape(tuple(sizes))


@op("Flatten", moves=True)
def flatten(at: Recorder, x: Tensor, axis: int = 1) -> Tensor:
    dim = axis if axis >= 0 else axis + x.ndim
    rows, rest = ops.base.count(x, range(dim)), ops.base.count(x, range(dim, x.ndim))
    return x.reshape((rows, rest))


@op("Transpose", moves=True)
def transpose(at: Recorder, x: Tensor, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(tuple(perm if perm is not None else reversed(range(x.ndim))))


@op("Squeeze", moves=True)
def squeeze(
    at: Recorder, x: Tensor, given: Tensor | None = None, *, axes: Sequence[int] | None = None
) -> Tensor:
    dims = at.dims(axes if given is None else given)
    if not dims:
        sizes = enumerate(x.node.shape)
        dims = [d for d, n in sizes if at.decided(n - 1) and not at.decided(n - 2)]
    listed = [dim_of(x, d) for d in dims]
    for d in listed:  # a size that is only 1 in this run becomes one of the program
        if extent(x, d) != 1:
            at.graph.require(1 - extent(x, d), f"dimension {d} of {x} must be 1 to be dropped")
            x = x.narrow(d, 0, 1)
    return x.squeeze(listed) if listed else x


@op("Unsqueeze", moves=True)
def unsqueeze(
    at: Recorder, x: Tensor, given: Tensor | None = None, *, axes: Sequence[int] | None = None
) -> Tensor:
    dims = at.dims(axes if given is None else given) or []
    rank = x.ndim + len(dims)
    places = sorted({d % rank for d in dims if -rank <= d < rank})
    if len(places) != len(dims):
        raise ShapeError(f"axes {dims} are no {len(dims)} dimensions of {rank}")
    for d in places:
        x = x.unsqueeze(d)
    return x


@op("Expand", moves=True)
def expand(at: Recorder, x: Tensor, wanted: Tensor) -> Tensor:
    return spread(x, at.sizes(wanted))


def spread(x: Tensor, sizes: Sequence[Size]) -> Tensor:
    """x broadcast against a shape."""
    more = len(sizes) - x.ndim
    wanted = [*(x.shape[: max(-more, 0)]), *sizes]
    x = x.reshape((*(1,) * more, *x.shape)) if more > 0 else x
    shape = [mine if Index.of(s) == 1 else s for mine, s in zip(x.shape, wanted)]
    return x.expand(shape)


@op("Tile", moves=True)
def tile(at: Recorder, x: Tensor, repeats: Tensor, axis: Tensor | None = None) -> Tensor:
    if axis is not None:  # version 1: so many along one dimension
        counts: list[Any] = [1] * x.ndim
        counts[at.ints(axis)[0]] = at.size(repeats)
        return ops.tile(x, *counts)
    counts = at.sizes(repeats)
    if len(counts) != x.ndim:
        raise ShapeError(f"repeats {counts} of a tensor of {x.ndim} dimensions")
    return ops.tile(x, *counts) if x.ndim else x


@op("Concat", moves=True)
def concat(at: Recorder, *parts: Tensor, axis: int = 1) -> Tensor:
    """Weights are joined once, as exporters cut the gates of a recurrent layer to reorder them."""
    found = ops.cat([p.cast(parts[0].dtype) for p in parts], dim_of(parts[0], axis))
    return at.settled(found)


@op("Split", moves=True)
def split(
    at: Recorder, x: Tensor, sizes: Tensor | None = None, *, axis: int = 0,
    split: Sequence[int] | None = None, num_outputs: int | None = None,
) -> Any:  # fmt: skip
    dim = dim_of(x, axis)
    given: list[Any] | None = [*split] if split else at.sizes(sizes) if sizes is not None else None
    if given is None:
        number = len(at.operator.outputs)  # type: ignore[union-attr]
        if num_outputs not in (None, number):
            raise ShapeError(f"num_outputs {num_outputs} of {number}")
        chunk = extent(x, dim).ceil_div(number)
        given = [chunk] * (number - 1) + [extent(x, dim) - chunk * (number - 1)]
    if len(given) != len(at.operator.outputs):  # type: ignore[union-attr]
        raise ShapeError(f"{len(given)} pieces, and other outputs")
    return tuple(ops.split(x, given, dim))


@op("Slice", moves=True)
def slice_of(
    at: Recorder, x: Tensor, first: Tensor | None = None, last: Tensor | None = None,
    along: Tensor | None = None, steps: Tensor | None = None, *,
    starts: Sequence[int] | None = None, ends: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    begin: list[Any] = [*(starts or ())] if first is None else at.sizes(first)
    end: list[Any] = [*(ends or ())] if last is None else at.sizes(last)
    dims = at.dims(axes if along is None else along) or list(range(len(begin)))
    strides = [1] * len(begin) if steps is None else at.ints(steps)
    for start, stop, dim, step in zip(begin, end, dims, strides):
        x = cut(at, x, dim_of(x, dim), start, stop, step)
    return x


def cut(at: Recorder, x: Tensor, dim: int, start: Size, stop: Size, step: int) -> Tensor:
    """A slice whose ends may be sizes; both are cut to x."""
    n = extent(x, dim)
    low, high = (Index.of(0), n) if step > 0 else (Index.of(-1), n - 1)
    first, last = (_end(at, end, n, low, high) for end in (start, stop))
    length = (last - first if step > 0 else first - last).ceil_div(abs(step))
    length = clamped(at.graph, length, Index.of(0), None)
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    index[dim] = first + index[dim] * step
    return x.read([*x.shape[:dim], length, *x.shape[dim + 1 :]], index)


def _end(at: Recorder, given: Size, n: Index, low: Index, high: Index) -> Index:
    end = Index.of(given)
    if end.is_constant:
        if end.constant >= FAR:
            return high
        if end.constant <= -FAR:
            return low
        end = end + n if end.constant < 0 else end
    else:
        if not at.decided(end):
            end = end + n
    return clamped(at.graph, end, low, high)


@op("Pad", moves=True)
def pad(
    at: Recorder, x: Tensor, widths: Tensor | None = None, value: Tensor | float | None = None,
    axes: Tensor | None = None, *, mode: str = "constant", pads: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """value: before opset 11, a number."""
    sizes: list[Any] = [*(pads or ())] if widths is None else at.sizes(widths)
    dims = range(x.ndim) if axes is None else [dim_of(x, d) for d in at.ints(axes)]
    if len(sizes) != 2 * len(dims):
        raise ShapeError(f"{len(sizes)} pads for {len(dims)} dimensions")
    pairs: list[tuple[Any, Any]] = [(0, 0)] * x.ndim
    for number, d in enumerate(dims):
        pairs[d] = sizes[number], sizes[number + len(sizes) // 2]
    if mode == "constant":
        given = at.array(value).reshape(()).item() if isinstance(value, Tensor) else value
        fill = given or 0
        fill = bool(fill) if x.dtype.kind == "bool" else float(fill) if x.dtype.is_float else fill
        return x.pad(pairs, fill)
    name = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode]
    for d, (before, after) in enumerate(pairs):
        if (before, after) != (0, 0):
            x = _bordered(x, d, before, after, name)
    return x


def _bordered(x: Tensor, d: int, before: Any, after: Any, mode: str) -> Tensor:
    """Elements are cut off first; reflections go back and forth, and wraps around, however wide."""
    if isinstance(before, int) and isinstance(after, int) and min(before, after) < 0:
        size = extent(x, d) + min(before, 0) + min(after, 0)
        x = x.narrow(d, max(-before, 0), size)
        before, after = max(before, 0), max(after, 0)
    n = extent(x, d)
    left = [n - 1 - width for width in (before, after)]
    if mode == "replicate" or all(i.is_constant and i.constant >= 0 for i in left):
        return ops.pad(x, [0, 0] * (x.ndim - 1 - d) + [before, after], mode)
    period = n if mode == "circular" else ((n - 1) * 2).maximum(1)
    at = (Index.of(f"i{d}") - before) % period
    index = [Index.of(f"i{k}") for k in range(x.ndim)]
    index[d] = at if mode == "circular" else at.minimum(period - at)
    return x.read([*x.shape[:d], n + before + after, *x.shape[d + 1 :]], index)


@op("DepthToSpace", moves=True)
def depth_to_space(at: Recorder, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return ops.pixel_shuffle(x, blocksize)
    split = x.unflatten(1, (blocksize, blocksize, -1)).permute(0, 3, 4, 1, 5, 2)
    return split.flatten(4, 5).flatten(2, 3)


@op("SpaceToDepth", moves=True)
def space_to_depth(at: Recorder, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    split = x.unflatten(3, (-1, blocksize)).unflatten(2, (-1, blocksize))  # b c h r w s
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return split.permute(order).flatten(1, 3)


@op("ReverseSequence", moves=True)
def reverse_sequence(
    at: Recorder, x: Tensor, lengths: Tensor, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    batch, time = dim_of(x, batch_axis), dim_of(x, time_axis)
    here = ops.base.positions(x, time)
    shape = [1] * x.ndim
    shape[batch] = -1
    length = lengths.cast("i64").reshape(shape)
    there = ops.where(here < length, ops.sub(ops.sub(length, 1), here), here)
    return ops.gather(x, time, there)


@op("CenterCropPad", moves=True)
def center_crop_pad(
    at: Recorder, x: Tensor, wanted: Tensor, axes: Sequence[int] | None = None
) -> Tensor:
    dims = range(x.ndim) if axes is None else [dim_of(x, d) for d in axes]
    for d, target in zip(dims, at.ints(wanted)):
        n = ops.base.static(extent(x, d), "a size that is cropped")
        if target <= n:
            x = x.narrow(d, (n - target) // 2, target)
        else:
            before = (target - n) // 2
            widths = [(0, 0)] * x.ndim
            widths[d] = before, target - n - before
            x = x.pad(widths, False if x.dtype.kind == "bool" else 0)
    return x
