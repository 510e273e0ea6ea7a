"""Convolutions: windows are a view, so a convolution is a contraction like any other."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..graph.dtype import i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import extent, literal, operands, per_dim, same_size
from .elementwise import add
from .linalg import contract

Numbers = int | Sequence[int]


def sides_of(
    padding: Numbers | str, kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int]
) -> list[tuple[int, int]]:
    """(before, after) for each spatial dimension; "same" as PyTorch splits it."""
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        if any(step != 1 for step in stride):
            raise ShapeError(f'padding "same" goes with a stride of 1, not {tuple(stride)}')
        totals = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return [(t // 2, t - t // 2) for t in totals]
    if isinstance(padding, str):
        raise ShapeError(f'padding is a number, "same" or "valid", not {padding!r}')
    return [(p, p) for p in per_dim(padding, len(kernel), "padding", 0)]


def pad_spatial(x: Tensor, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    """Pad the last dimensions."""
    if all(w == (0, 0) for w in widths):
        return x
    return x.pad([(0, 0)] * (x.ndim - len(widths)) + list(widths), value)


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Numbers,
    widths: Sequence[tuple[int, int]], dilation: Numbers, groups: int,
) -> Tensor:  # fmt: skip
    """x: (batch, groups c, *spatial); weight: (out, c, *kernel); the result (batch, out, *size)."""
    n = weight.ndim - 2
    kernel = [int(extent(weight, 2 + d)) for d in range(n)]
    x = pad_spatial(x, widths).unflatten(1, (groups, -1))
    windows = x.windows(
        range(3, 3 + n), kernel, per_dim(stride, n, "stride"), per_dim(dilation, n, "dilation")
    )  # (batch, groups, c, *size, *kernel)
    taps = weight.unflatten(0, (groups, -1))  # (groups, out / groups, c, *kernel)
    size = list(range(3, 3 + n))
    inner = [2, *range(3 + n, 3 + 2 * n)]
    windows = windows.permute([0, 1, *size, *inner]).unsqueeze(2)
    for _ in range(n):
        taps = taps.unsqueeze(2)
    windows, taps = operands(windows, taps)
    # (batch, groups, out / groups, *size, c, *kernel)
    result = contract(windows, taps, range(3 + n, windows.ndim)).flatten(1, 2)
    return result if bias is None else add(result, bias.reshape((-1, *(1,) * n)))


def _conv(
    n: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Numbers,
    padding: Numbers | str, dilation: Numbers, groups: int,
) -> Tensor:  # fmt: skip
    if weight.ndim != n + 2 or x.ndim not in (n + 1, n + 2):
        raise ShapeError(f"conv{n}d takes x (batch, channels, ...) and weight, got {x}, {weight}")
    if x.ndim == n + 1:
        return _conv(n, x.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0)
    if not same_size(extent(x, 1), extent(weight, 1) * groups):
        raise ShapeError(f"conv{n}d: {groups} groups of channels do not fit {x} and {weight}")
    kernel = [int(extent(weight, 2 + d)) for d in range(n)]
    spread, steps = per_dim(dilation, n, "dilation"), per_dim(stride, n, "stride")
    widths = sides_of(padding, kernel, spread, steps)
    return convolution(x, weight, bias, stride, widths, dilation, groups)


def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Numbers = 1,
    padding: Numbers | str = 0, dilation: Numbers = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """x: (batch, in, length), weight: (out, in / groups, kernel).

    >>> y = ops.conv1d(cx.constant([[[1.0, 2.0, 3.0]]]), cx.constant([[[1.0, 1.0]]])).output()
    >>> cx.compile()()
    array([[[3., 5.]]], dtype=float32)
    """
    return _conv(1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Numbers = 1,
    padding: Numbers | str = 0, dilation: Numbers = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """x: (batch, in, height, width), weight: (out, in / groups, kernel height, kernel width).

    >>> image = cx.constant(np.ones((1, 1, 3, 3), "f"))
    >>> kernel = cx.constant(np.ones((1, 1, 2, 2), "f"))
    >>> ops.conv2d(image, kernel).numpy()
    array([[[[4., 4.],
             [4., 4.]]]], dtype=float32)
    """
    return _conv(2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Numbers = 1,
    padding: Numbers | str = 0, dilation: Numbers = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """x: (batch, in, depth, height, width), weight: (out, in / groups, *kernel).

    >>> ops.conv3d(ops.ones(cx, (1, 1, 3, 3, 3)), ops.ones(cx, (1, 1, 3, 3, 3))).numpy().item()
    27.0
    """
    return _conv(3, x, weight, bias, stride, padding, dilation, groups)


# ---- transposed


def _conv_transpose(
    n: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Numbers, padding: Numbers,
    output_padding: Numbers, groups: int, dilation: Numbers,
) -> Tensor:  # fmt: skip
    if weight.ndim != n + 2 or x.ndim not in (n + 1, n + 2):
        raise ShapeError(f"conv_transpose{n}d takes x (batch, channels, ...), got {x}, {weight}")
    if x.ndim == n + 1:
        return _conv_transpose(
            n, x.unsqueeze(0), weight, bias, stride, padding, output_padding, groups, dilation
        ).squeeze(0)
    if not same_size(extent(x, 1), extent(weight, 0)):
        raise ShapeError(f"conv_transpose{n}d: the channels of {x} do not fit {weight}")
    sides = [(p, p) for p in per_dim(padding, n, "padding", 0)]
    given = ((stride, "stride"), (dilation, "dilation"), (output_padding, "output_padding"))
    for step, apart, extra in zip(*(per_dim(value, n, what, 0) for value, what in given)):
        if extra >= max(step, apart):
            raise ShapeError(f"output_padding {extra}: less than stride or dilation is expected")
    return transposed_convolution(x, weight, bias, stride, sides, output_padding, groups, dilation)


def transposed_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Numbers,
    sides: Sequence[tuple[int, int]], output_padding: Numbers, groups: int, dilation: Numbers,
) -> Tensor:  # fmt: skip
    """x: (batch, in, *spatial), weight: (in, out / groups, *kernel). sides: how much is cut off
    before and after, for each spatial dimension.

    A convolution by the flipped weight. Along a dimension of stride s, tap s t + p reaches outputs
    s (i + t) + p only: the outputs of a phase p are a convolution by every s-th tap, and phases are
    channels that are woven afterwards. Where taps are apart too, x gets s - 1 zeros between its
    elements instead."""
    n = weight.ndim - 2
    spread, steps = per_dim(dilation, n, "dilation"), per_dim(stride, n, "stride")
    phases, widths, edges = [1] * n, [], []
    for d, extra in enumerate(per_dim(output_padding, n, "output_padding", 0)):
        kernel, (before, after) = int(extent(weight, 2 + d)), sides[d]
        if steps[d] > 1 and spread[d] == 1:
            phases[d], taps = steps[d], -(-kernel // steps[d])
            whole = taps * steps[d]
            weight = weight.pad([(0, whole - kernel) if k == 2 + d else (0, 0)
                                 for k in range(n + 2)])  # fmt: skip
            widths.append((taps - 1, taps - 1))
            edges.append((-before, kernel - whole - after + extra))
        else:
            x = x.dilate(steps[d], 2 + d) if steps[d] > 1 else x
            reach = spread[d] * (kernel - 1)
            widths.append((reach - before, reach - after + extra))
            edges.append((0, 0))
    y = convolution(x, _by_phase(weight, phases, groups), None, 1, widths, dilation, groups)
    y = pad_spatial(_woven(y, phases), edges)
    return y if bias is None else add(y, bias.reshape((-1, *(1,) * n)))


def _by_phase(weight: Tensor, phases: Sequence[int], groups: int) -> Tensor:
    """(in, out / groups, *kernel) -> (out *phases, in / groups, *(kernel / phases)), flipped."""
    n = len(phases)
    for d, phase in enumerate(phases):
        weight = weight.unflatten(2 + 2 * d, (-1, phase))
    weight = weight.unflatten(0, (groups, -1))  # (groups, in, out, kernel, phase, kernel, ...)
    taps = [3 + 2 * d for d in range(n)]
    weight = weight.permute(0, 2, *(4 + 2 * d for d in range(n)), 1, *taps)
    return weight.flatten(0, 1 + n).flip(*range(2, 2 + n))


def _woven(y: Tensor, phases: Sequence[int]) -> Tensor:
    """(batch, out *phases, *spatial) -> (batch, out, *(spatial phases))."""
    n = len(phases)
    if all(phase == 1 for phase in phases):
        return y
    y = y.unflatten(1, (-1, *phases))
    y = y.permute(0, 1, *(k for d in range(n) for k in (2 + n + d, 2 + d)))
    for d in range(n):
        y = y.flatten(2 + d, 3 + d)
    return y


def conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Numbers = 1,
    padding: Numbers = 0, output_padding: Numbers = 0, groups: int = 1, dilation: Numbers = 1,
) -> Tensor:  # fmt: skip
    """x: (batch, in, length), weight: (in, out / groups, kernel).

    >>> a, b = cx.constant([[[1.0, 2.0]]]), cx.constant([[[1.0, 10.0]]])
    >>> ops.conv_transpose1d(a, b, stride=2).numpy()
    array([[[ 1., 10.,  2., 20.]]], dtype=float32)
    """
    return _conv_transpose(1, x, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Numbers = 1,
    padding: Numbers = 0, output_padding: Numbers = 0, groups: int = 1, dilation: Numbers = 1,
) -> Tensor:  # fmt: skip
    """x: (batch, in, height, width), weight: (in, out / groups, kernel height, kernel width).

    >>> ops.conv_transpose2d(ops.ones(cx, (1, 4, 5, 5)), ops.ones(cx, (4, 2, 3, 3))).shape
    (1, 2, 7, 7)
    """
    return _conv_transpose(2, x, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Numbers = 1,
    padding: Numbers = 0, output_padding: Numbers = 0, groups: int = 1, dilation: Numbers = 1,
) -> Tensor:  # fmt: skip
    """x: (batch, in, depth, height, width), weight: (in, out / groups, *kernel).

    >>> ops.conv_transpose3d(ops.ones(cx, (1, 4, 5, 5, 5)), ops.ones(cx, (4, 2, 3, 3, 3))).shape
    (1, 2, 7, 7, 7)
    """
    return _conv_transpose(3, x, weight, bias, stride, padding, output_padding, groups, dilation)


def unfold(
    x: Tensor, kernel_size: Numbers, dilation: Numbers = 1, padding: Numbers = 0,
    stride: Numbers = 1,
) -> Tensor:  # fmt: skip
    """Patches as columns, as `torch.nn.functional.unfold`: (batch, c kernel, positions), or
    without batch.

    >>> ops.unfold(ops.ones(cx, (1, 3, 8, 8)), 3).shape
    (1, 27, 36)
    """
    if x.ndim == 3:
        return unfold(x.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    if x.ndim != 4:
        raise ShapeError(f"unfold takes (batch, channels, height, width), got {x}")
    kernel = per_dim(kernel_size, 2, "kernel_size")
    spread, steps = per_dim(dilation, 2, "dilation"), per_dim(stride, 2, "stride")
    x = pad_spatial(x, sides_of(padding, kernel, spread, steps))
    windows = x.windows((2, 3), kernel, steps, spread)  # (batch, c, rows, columns, kh, kw)
    return windows.permute(0, 1, 4, 5, 2, 3).flatten(4, 5).flatten(1, 3)


def fold(
    x: Tensor, output_size: Numbers, kernel_size: Numbers, dilation: Numbers = 1,
    padding: Numbers = 0, stride: Numbers = 1,
) -> Tensor:  # fmt: skip
    """Columns back as patches that are added up where they overlap, the transpose of `unfold`:
    (batch, c kernel, positions), or without batch, to (batch, c, *output_size).

    >>> ops.fold(ops.ones(cx, (1, 2, 2)), (1, 3), (1, 2)).numpy()
    array([[[[1., 2., 1.]]]], dtype=float32)
    """
    sizes = per_dim(output_size, 2, "output_size", 0)
    kernel = per_dim(kernel_size, 2, "kernel_size")
    spread, steps = per_dim(dilation, 2, "dilation"), per_dim(stride, 2, "stride")
    sides = per_dim(padding, 2, "padding", 0)
    wide = [n + 2 * p for n, p in zip(sizes, sides)]
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(wide, spread, kernel, steps)]
    if x.ndim not in (2, 3) or extent(x, x.ndim - 1) != counts[0] * counts[1]:
        raise ShapeError(f"fold: {x} are not the columns of {tuple(counts)} patches")
    batch = x if x.ndim == 3 else x.unsqueeze(0)
    parts = batch.unflatten(1, (-1, *kernel)).unflatten(
        -1, counts
    )  # (batch, c, kh, kw, rows, cols)
    tap, block = (Index.of("i2"), Index.of("i3")), (Index.of("i4"), Index.of("i5"))
    row, column = (t * d + b * s for t, d, b, s in zip(tap, spread, block, steps))
    at = x.graph.iota(parts.shape, row * wide[1] + column, i64)
    blank = literal(x.graph, 0, x.dtype).expand((*parts.shape[:2], wide[0] * wide[1]))
    image = blank._scatter(at.flatten(2), parts.flatten(2), 2, "sum").unflatten(2, wide)
    for d, (n, p) in enumerate(zip(sizes, sides), 2):
        image = image.narrow(d, p, n)
    return image if x.ndim == 3 else image.squeeze(0)


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """(..., c r r, h, w) to (..., c, h r, w r).

    >>> ops.pixel_shuffle(cx.constant([[[1]], [[2]], [[3]], [[4]]]), 2).numpy()
    array([[[1, 2],
            [3, 4]]])
    """
    r = upscale_factor
    split = x.unflatten(-3, (-1, r, r))  # (..., c, r, r, h, w)
    n = split.ndim
    order = [*range(n - 4), n - 2, n - 4, n - 1, n - 3]
    return split.permute(order).flatten(n - 2, n - 1).flatten(n - 4, n - 3)


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """(..., c, h r, w r) to (..., c r r, h, w).

    >>> ops.pixel_unshuffle(cx.constant([[[1, 2], [3, 4]]]), 2).numpy().ravel()
    array([1, 2, 3, 4])
    """
    r = downscale_factor
    split = x.unflatten(-1, (-1, r)).unflatten(-3, (-1, r))  # (..., c, h, r, w, r)
    n = split.ndim
    order = [*range(n - 4), n - 3, n - 1, n - 4, n - 2]
    return split.permute(order).flatten(n - 5, n - 3)


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """(batch, g c, ...) to (batch, c g, ...).

    >>> ops.channel_shuffle(cx.constant([[[1], [2], [3], [4]]]), 2).numpy().ravel()
    array([1, 3, 2, 4])
    """
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
