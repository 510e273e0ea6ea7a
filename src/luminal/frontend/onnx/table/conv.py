"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import ShapeError, Unsupported
from ....graph.dtype import f32, i32, i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import extent
from ....ops.conv import convolution, transposed_convolution
from ....ops.slicing import clamped
from .base import op

if TYPE_CHECKING:
    from ..record import Recorder

Pair = tuple[Any, Any]


def paddings(
    at: Recorder, x: Tensor, kernel: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int], auto_pad: str, pads: Sequence[int] | None,
) -> list[Pair]:  # fmt: skip
    """(before, after) for each spatial dimension."""
    n = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for d in range(n):
            size, step = extent(x, x.ndim - n + d), strides[d]
            reach = dilations[d] * (kernel[d] - 1) + 1
            total = (size.ceil_div(step) - 1) * step + reach - size
            total = clamped(at.graph, total, Index.of(0), None)
            small = total // 2
            pair = (small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small)
            found.append(tuple(p.constant if p.is_constant else p for p in pair))
        return found  # type: ignore[return-value]
    if auto_pad not in ("NOTSET", "VALID", ""):
        raise Unsupported(f"auto_pad {auto_pad!r}")
    given = around(None if auto_pad == "VALID" else pads, n)
    return list(zip(given[:n], given[n:]))


def each(values: Sequence[int] | None, n: int) -> list[int]:
    """A number of at least 1 for each spatial dimension, 1 where none is given."""
    return _listed(values, n, 1, 1)


def around(pads: Sequence[int] | None, n: int) -> list[int]:
    """What lies before each of n dimensions, then what lies after each."""
    return _listed(pads, 2 * n, 0, None)


def _listed(values: Sequence[int] | None, n: int, usual: int, least: int | None) -> list[int]:
    numbers = list(values) if values else [usual] * n
    if len(numbers) != n or (least is not None and any(v < least for v in numbers)):
        raise ShapeError(f"{numbers}: {n} numbers are expected, of at least {least}")
    return numbers


def convolved(
    at: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None, auto_pad: str,
    dilations: Sequence[int] | None, group: int, pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    n = weight.ndim - 2
    steps, spread = each(strides, n), each(dilations, n)
    kernel = [int(extent(weight, 2 + d)) for d in range(n)]
    widths = paddings(at, x, kernel, steps, spread, auto_pad, pads)
    return convolution(x, weight, bias, steps, widths, spread, group)


@op("Conv")
def conv(
    at: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    return convolved(at, x, weight, bias, auto_pad, dilations, group, pads, strides)


def shifted(x: Tensor, zero: Tensor | None, dim: int | None = None) -> Tensor:
    """x - zero in i32. zero: one number, or one for each place along a dimension."""
    wide = x.cast(i32)
    if zero is None:
        return wide
    if zero.ndim == 1 and extent(zero, 0) != 1 and dim is not None:
        zero = zero.reshape((-1, *(1,) * (x.ndim - dim - 1)))
    elif zero.ndim == 1:
        zero = zero.reshape(())
    return ops.sub(wide, zero.cast(i32))


@op("ConvInteger")
def conv_integer(
    at: Recorder, x: Tensor, weight: Tensor, x_zero: Tensor | None = None,
    w_zero: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    return convolved(
        at, shifted(x, x_zero), shifted(weight, w_zero, 0), None, auto_pad, dilations, group,
        pads, strides,
    )  # fmt: skip


@op("ConvTranspose")
def conv_transpose(
    at: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """output_shape: the padding that gives it; what cannot be cut in halves is cut at the end,
    at the start for SAME_UPPER. What is added is added at the end, as onnxruntime does."""
    n = weight.ndim - 2
    steps, spread = each(strides, n), each(dilations, n)
    extra = _listed(output_padding, n, 0, 0)
    given = around(pads, n)
    sides: list[Pair] = list(zip(given[:n], given[n:]))
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    if output_shape or same:
        for d in range(n):
            size, reach = extent(x, 2 + d), spread[d] * (int(extent(weight, 2 + d)) - 1) + 1
            wanted = (
                size * steps[d] if not output_shape else output_shape[len(output_shape) - n + d]
            )
            total = (size - 1) * steps[d] + extra[d] + reach - wanted
            whole = ops.base.static(total, "the padding of ConvTranspose")
            half = whole if whole < 0 and not same else whole // 2
            sides[d] = (half, whole - half) if auto_pad == "SAME_UPPER" else (whole - half, half)
    return transposed_convolution(x, weight, bias, steps, sides, extra, group, spread)


@op("Col2Im")
def col2im(
    at: Recorder, x: Tensor, image: Tensor, block: Tensor, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Columns added up where their blocks overlap, any number of dimensions."""
    sizes, kernel = at.ints(image), at.ints(block)
    n = len(sizes)
    spread, steps, given = each(dilations, n), each(strides, n), around(pads, n)
    wide = [s + a + b for s, a, b in zip(sizes, given[:n], given[n:])]
    counts = [(w - d * (k - 1) - 1) // s + 1 for w, d, k, s in zip(wide, spread, kernel, steps)]
    parts = x.unflatten(1, (-1, *kernel)).unflatten(2 + n, counts)
    place = Index.of(0)
    for d in range(n):
        here = Index.of(f"i{2 + d}") * spread[d] + Index.of(f"i{2 + n + d}") * steps[d]
        place = place * wide[d] + here
    where = x.graph.iota(parts.shape, place, i64).flatten(2)
    total = 1
    for w in wide:
        total *= w
    blank = ops.zeros(x.graph, (*parts.shape[:2], total), x.dtype)
    found = ops.scatter_add(blank, 2, where, parts.flatten(2)).unflatten(2, wide)
    for d, (size, before) in enumerate(zip(sizes, given[:n]), 2):
        found = found.narrow(d, before, size)
    return found


@op("DeformConv")
def deform_conv(
    at: Recorder, x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None,
    mask: Tensor | None = None, *, dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, offset_group: int = 1,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Each tap of the kernel reads between pixels, at its own offset for each place."""
    n, (out, per_group) = weight.ndim - 2, weight.shape[:2]
    kernel = [int(extent(weight, 2 + d)) for d in range(n)]
    steps, spread = each(strides, n), each(dilations, n)
    given = around(pads, n)
    size = offset.shape[2:]
    batch = x.shape[0]
    grouped = offset.reshape((batch, offset_group, *kernel, n, *size))
    points = []
    for d in range(n):
        here = Index.of(f"i{2 + n + d}") * steps[d] + Index.of(f"i{2 + d}") * spread[d] - given[d]
        whole = grouped.select(2 + n, d)  # (batch, groups, *kernel, *size)
        points.append(ops.add(whole, x.graph.iota(whole.shape, here, i64).cast(f32)))
    image = x.reshape((batch, offset_group, -1, *x.shape[2:]))
    taken = between(image, points)  # (batch, groups, channels / groups, *kernel, *size)
    if mask is not None:
        taken = ops.mul(taken, mask.reshape((batch, offset_group, 1, *kernel, *size)))
    columns = taken.reshape((batch, group, per_group, *kernel, -1))
    taps = weight.reshape((group, -1, per_group, *kernel))
    rows = columns.flatten(2, 2 + n)  # (batch, groups, in kernel, places)
    found = ops.matmul(taps.flatten(2, 2 + n), rows)
    result = found.reshape((batch, out, *size))
    return result if bias is None else ops.add(result, bias.reshape((-1, *(1,) * n)))


def between(image: Tensor, points: Sequence[Tensor]) -> Tensor:
    """image (batch, groups, channels, *spatial) at points, each (batch, groups, places..), linear
    between pixels and 0 outside: (batch, groups, channels, places..)."""
    from itertools import product

    total = None
    lows = [ops.floor(p) for p in points]
    flat = image.flatten(3)
    shape = points[0].shape[2:]
    for corner in product((0, 1), repeat=len(points)):
        place, share = None, None
        for d, (point, low, up) in enumerate(zip(points, lows, corner)):
            n = extent(image, 3 + d)
            here = ops.add(low, float(up)).cast(i64)
            part = ops.sub(point, low) if up else ops.sub(ops.add(low, 1.0), point)
            inside = ops.logical_and(here >= 0, here < ops.size_tensor(image.graph, n))
            part = ops.where(inside, part, 0.0)
            held = ops.clamp(here, 0, int(n) - 1)
            place = held if place is None else ops.add(ops.mul(place, int(n)), held)
            share = part if share is None else ops.mul(share, part)
        assert place is not None and share is not None
        wide = (*image.shape[:3], ops.base.count(place, range(2, place.ndim)))
        index = place.flatten(2).unsqueeze(2).expand(wide)
        taken = ops.gather(flat, 3, index).unflatten(3, shape)
        term = ops.mul(taken, share.unsqueeze(2))
        total = term if total is None else ops.add(total, term)
    assert total is not None
    return total
