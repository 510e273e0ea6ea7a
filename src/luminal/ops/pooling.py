"""Pooling by means and norms: a reduction over windows. (Maxima are in `maxima`.)"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import ShapeError
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import extent, floating, full_like, per_dim
from .conv import Numbers, pad_spatial
from .elementwise import abs, div, mul
from .powers import pow
from .reduction import mean, powered, reduce


def pool_windows(
    n: int, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, fill: float, beyond: float | None = None,
) -> Tensor:  # fmt: skip
    """(..., *spatial) to (..., *size, *kernel); with ceil_mode a last window may reach beyond the
    padding, where it reads `beyond` (by default what the padding is filled with)."""
    first, excess, lengths = x.ndim - n, [], []
    for d, (k, s, p, spread) in enumerate(zip(kernel, stride, padding, dilation)):
        if 2 * p > k:
            raise ShapeError(f"pooling: padding {p} is more than half of the kernel {k}")
        size, reach = extent(x, first + d), spread * (k - 1) + 1
        more = 0
        if ceil_mode and size.is_constant:
            more = _ceil_excess(int(size), reach, s, p)
        elif ceil_mode:
            more = s - 1
            if p + s > reach:  # a last window might start outside
                lengths.append((first + d, (size + p - 1) // s + 1))
        excess.append((0, more))
    padded = pad_spatial(x, [(p, p) for p in padding], fill)
    whole = pad_spatial(padded, excess, fill if beyond is None else beyond)
    found = whole.windows(range(first, x.ndim), kernel, stride, dilation)
    for dim, most in lengths:
        found = found.narrow(dim, 0, extent(found, dim).minimum(most))
    return found


def _ceil_excess(size: int, reach: int, s: int, p: int) -> int:
    """Padding at the end that gives the last, partial window, if it starts inside."""
    room = size + 2 * p - reach
    count = min(-(-room // s) + 1, (size + p - 1) // s + 1)
    return max(0, (count - 1) * s - room)


@floating
def _avg_pool(
    x: Tensor, n: int, kernel_size: Numbers, stride: Numbers | None, padding: Numbers,
    ceil_mode: bool, count_include_pad: bool, divisor: int | None,
) -> Tensor:  # fmt: skip
    kernel = per_dim(kernel_size, n, "kernel_size")
    steps = kernel if stride is None else per_dim(stride, n, "stride")
    paddings, ones = per_dim(padding, n, "padding", 0), (1,) * n
    inner = tuple(range(x.ndim, x.ndim + n))
    windows = pool_windows(n, x, kernel, steps, paddings, ones, ceil_mode, 0.0)
    total = reduce("sum", windows, inner)
    padded = any(p != 0 for p in paddings)
    if divisor is not None or not (ceil_mode or (padded and not count_include_pad)):
        size = divisor or _product(kernel)
        return mul(total, 1.0 / size)
    inside = 1.0 if count_include_pad else 0.0
    counted = full_like(x, 1.0)
    numbers = pool_windows(n, counted, kernel, steps, paddings, ones, ceil_mode, inside, 0.0)
    return div(total, reduce("sum", numbers, inner))


def _product(numbers: Sequence[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def avg_pool1d(
    x: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window.

    >>> ops.avg_pool1d(cx.constant([[1.0, 3.0, 5.0, 7.0]]), 2).numpy()
    array([[2., 6.]], dtype=float32)
    """
    return _avg_pool(
        x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool2d(
    x: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window.

    >>> x = cx.constant(np.arange(16.0, dtype="f").reshape(1, 1, 4, 4))
    >>> ops.avg_pool2d(x, 2).numpy()
    array([[[[ 2.5,  4.5],
             [10.5, 12.5]]]], dtype=float32)
    """
    return _avg_pool(
        x, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    x: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window.

    >>> ops.avg_pool3d(ops.ones(cx, (1, 2, 4, 4, 4)), 2).shape
    (1, 2, 2, 2, 2)
    """
    return _avg_pool(
        x, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@floating
def _lp_pool(
    x: Tensor, n: int, norm_type: float, kernel_size: Numbers, stride: Numbers | None,
    ceil_mode: bool,
) -> Tensor:  # fmt: skip
    """The p-norm of each window, from the mean of its powers, as PyTorch has it."""
    kernel = per_dim(kernel_size, n, "kernel_size")
    if math.isinf(norm_type):
        steps = kernel if stride is None else per_dim(stride, n, "stride")
        op, fill = ("max", 0.0) if norm_type > 0 else ("min", math.inf)
        rest = kernel, steps, (0,) * n, (1,) * n
        inner = tuple(range(x.ndim, x.ndim + n))
        return reduce(op, pool_windows(n, abs(x), *rest, ceil_mode, fill), inner)
    size = _product(kernel)
    total = _avg_pool(pow(x, norm_type), n, kernel_size, stride, 0, ceil_mode, True, None)
    return powered(mul(total, size), 1.0 / norm_type)


def lp_pool1d(
    x: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The p-norm of each window (without absolute values, as PyTorch has it for even p).

    >>> ops.lp_pool1d(cx.constant([[3.0, 4.0]]), 2, 2).numpy().round(3)
    array([[5.]], dtype=float32)
    """
    return _lp_pool(x, 1, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    x: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The p-norm of each window (without absolute values, as PyTorch has it for even p).

    >>> ops.lp_pool2d(cx.constant([[[3.0, 4.0]]]), 2, (1, 2)).numpy().round(3)
    array([[[5.]]], dtype=float32)
    """
    return _lp_pool(x, 2, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    x: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The p-norm of each window (without absolute values, as PyTorch has it for even p).

    >>> ops.lp_pool3d(ops.ones(cx, (1, 4, 4, 4)), 2, 2).shape
    (1, 2, 2, 2)
    """
    return _lp_pool(x, 3, norm_type, kernel_size, stride, ceil_mode)


# ---- adaptive: window i of o covers floor(i n / o) .. ceil((i + 1) n / o) - 1


def adaptive_windows(x: Tensor, dim: int, size: int, fill: float) -> Tensor:
    """A new last dimension walks inside the windows; `fill` where a window is shorter."""
    n = extent(x, dim)
    if n.is_constant and n.constant % size == 0:
        return x.unfold(dim, n.constant // size, n.constant // size)
    here, inside = Index.of(f"i{dim}"), Index.of(f"i{x.ndim}")
    start, end = (here * n) // size, ((here + 1) * n).ceil_div(size)
    longest = (n - 1) // size + (2 if size > 1 else 1)
    longest = longest.minimum(n) if n.is_constant else longest
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    index[dim] = start + inside
    shape = [*x.shape[:dim], size, *x.shape[dim + 1 :], longest]
    return x.read(shape, index, [end - 1 - index[dim]], fill)


def adaptive_sizes(n: int, output_size: Sequence[int | None] | int | None) -> list[int | None]:
    """One size for each of n dimensions; None keeps a dimension as it is."""
    if isinstance(output_size, (int, type(None))):
        output_size = [output_size] * n
    if len(output_size) != n or any(size is not None and size < 0 for size in output_size):
        raise ShapeError(f"adaptive pooling: {n} sizes, not {output_size}")
    return list(output_size)


def _adaptive(n: int, x: Tensor, output_size: Sequence[int | None] | int | None) -> Tensor:
    for d, size in enumerate(adaptive_sizes(n, output_size), x.ndim - n):
        if size is None:
            continue
        if size == 0:
            x = x.narrow(d, 0, 0)
        elif size == 1:
            x = mean(x, d, keepdim=True)
        else:
            counted = adaptive_windows(full_like(x, 1.0), d, size, 0.0)
            total = reduce("sum", adaptive_windows(x, d, size, 0.0), x.ndim)
            x = div(total, reduce("sum", counted, x.ndim))
    return x


@floating
def adaptive_avg_pool1d(x: Tensor, output_size: int) -> Tensor:
    """Means over windows that give the size wanted.

    >>> ops.adaptive_avg_pool1d(cx.constant([[1.0, 3.0, 5.0, 7.0]]), 2).numpy()
    array([[2., 6.]], dtype=float32)
    """
    return _adaptive(1, x, output_size)


@floating
def adaptive_avg_pool2d(x: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Means over windows that give the size wanted.

    >>> ops.adaptive_avg_pool2d(cx.tensor((1, 8, 7, 9)), 1).shape
    (1, 8, 1, 1)
    """
    return _adaptive(2, x, output_size)


@floating
def adaptive_avg_pool3d(x: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Means over windows that give the size wanted.

    >>> ops.adaptive_avg_pool3d(ops.ones(cx, (1, 2, 4, 4, 4)), 2).shape
    (1, 2, 2, 2, 2)
    """
    return _adaptive(3, x, output_size)
