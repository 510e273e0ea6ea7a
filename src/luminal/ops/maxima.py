"""Pooling by maxima, with their places if asked for: the index in the flattened image of the first
largest element (NaN counts as largest) of each window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..errors import ShapeError
from ..graph.dtype import i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import composite, extent, full_like, literal, per_dim, static
from .conv import Numbers
from .creation import arange
from .elementwise import add, mul, sub
from .indexing import gather, scatter
from .logic import eq, isnan, logical_or, where
from .pooling import adaptive_sizes, adaptive_windows, pool_windows
from .random import Seed, rand
from .reduction import reduce
from .shape import cat

Pooled = Tensor | tuple[Tensor, Tensor]
Windows = Callable[[Tensor, float], Tensor]  # of an image, and of what stands outside it


def _maxima(x: Tensor, n: int, windows: Windows, return_indices: bool) -> Pooled:
    """Over the last n dimensions of the windows."""
    elements = windows(x, x.dtype.lowest)
    if not return_indices:
        return _first(elements, tuple(range(elements.ndim - n, elements.ndim)))
    flat = Index.of(0)
    for d in range(x.ndim - n, x.ndim):
        flat = flat * extent(x, d) + Index.of(f"i{d}")
    return first_best(elements, windows(x.graph.iota(x.shape, flat, i64), i64.highest), n)


@composite
def _first(elements: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The maxima; all the slope is that of the first element that attains one."""
    return reduce("max", elements, dims)


def first_best(elements: Tensor, numbers: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Over the last n dimensions: (the largest element, the smallest number of one so large)."""
    inner = tuple(range(elements.ndim - n, elements.ndim))
    hit = eq(elements, reduce("max", elements, inner, keepdim=True))
    if elements.dtype.is_float:
        hit = logical_or(hit, isnan(elements))
    places = reduce("min", where(hit, numbers, full_like(numbers, i64.highest)), inner)
    return _first(elements, inner), places


def _max_pool(
    n: int, x: Tensor, kernel_size: Numbers, stride: Numbers | None, padding: Numbers,
    dilation: Numbers, ceil_mode: bool, return_indices: bool,
) -> Any:  # fmt: skip
    kernel = per_dim(kernel_size, n, "kernel_size")
    steps = kernel if stride is None else per_dim(stride, n, "stride")
    rest = kernel, steps, per_dim(padding, n, "padding", 0), per_dim(dilation, n, "dilation")
    return _maxima(
        x, n, lambda part, fill: pool_windows(n, part, *rest, ceil_mode, fill), return_indices
    )


def max_pool1d(
    x: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0,
    dilation: Numbers = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window; NaN wins. x: (..., length).

    >>> ops.max_pool1d(cx.constant([[1.0, 3.0, 5.0, 7.0]]), 2).numpy()
    array([[3., 7.]], dtype=float32)
    """
    return _max_pool(1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    x: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0,
    dilation: Numbers = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window; NaN wins. x: (..., height, width).

    >>> x = cx.constant(np.arange(16.0, dtype="f").reshape(1, 1, 4, 4))
    >>> ops.max_pool2d(x, 2).numpy()
    array([[[[ 5.,  7.],
             [13., 15.]]]], dtype=float32)
    """
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    x: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0,
    dilation: Numbers = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window; NaN wins. x: (..., depth, height, width).

    >>> ops.max_pool3d(ops.ones(cx, (1, 2, 4, 4, 4)), 2).shape
    (1, 2, 2, 2, 2)
    """
    return _max_pool(3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _adaptive(
    n: int, x: Tensor, output_size: Sequence[int | None] | int | None, return_indices: bool
) -> Any:
    sizes = tuple(adaptive_sizes(n, output_size))
    return adaptive_at_once(x, sizes, True) if return_indices else _adaptive_max(x, sizes)


@composite
def _adaptive_max(x: Tensor, sizes: Sequence[int | None]) -> Tensor:
    """One dimension after the other, which is less work."""
    for d, size in enumerate(sizes, x.ndim - len(sizes)):
        if size is not None:
            x = reduce("max", adaptive_windows(x, d, size, x.dtype.lowest), x.ndim)
    return x


def adaptive_at_once(
    x: Tensor, sizes: Sequence[int | None], return_indices: bool = False
) -> Any:
    """Over the last dimensions, all at a time; None keeps a dimension as it is."""
    n = len(sizes)

    def windows(image: Tensor, fill: float) -> Tensor:
        for d, size in enumerate(sizes, x.ndim - n):
            image = image.unsqueeze(-1) if size is None else adaptive_windows(image, d, size, fill)
        return image

    return _maxima(x, n, windows, return_indices)


def adaptive_max_pool1d(
    x: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """Maxima over windows that give the size wanted.

    >>> ops.adaptive_max_pool1d(cx.constant([[1.0, 3.0, 5.0, 7.0]]), 2).numpy()
    array([[3., 7.]], dtype=float32)
    """
    return _adaptive(1, x, output_size, return_indices)


def adaptive_max_pool2d(
    x: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """Maxima over windows that give the size wanted.

    >>> ops.adaptive_max_pool2d(cx.constant([[[1.0, 2.0], [3.0, 4.0]]]), 1).numpy()
    array([[[4.]]], dtype=float32)
    """
    return _adaptive(2, x, output_size, return_indices)


def adaptive_max_pool3d(
    x: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """Maxima over windows that give the size wanted.

    >>> ops.adaptive_max_pool3d(ops.ones(cx, (1, 2, 4, 4, 4)), (1, 2, 2)).shape
    (1, 2, 1, 2, 2)
    """
    return _adaptive(3, x, output_size, return_indices)


# ---- back to the places of maxima


def _unpool(
    n: int, x: Tensor, indices: Tensor, kernel_size: Numbers, stride: Numbers | None,
    padding: Numbers, output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    kernel = per_dim(kernel_size, n, "kernel_size")
    steps = kernel if stride is None else per_dim(stride, n, "stride")
    sizes: list[Any] = []
    for d, (k, s, p) in enumerate(zip(kernel, steps, per_dim(padding, n, "padding", 0))):
        sizes.append((extent(x, x.ndim - n + d) - 1) * s - 2 * p + k)
    if output_size is not None:
        sizes = list(output_size)[-n:]
    outer = x.shape[: x.ndim - n]
    total = Index.of(1)
    for size in sizes:
        total = total * size
    start, last = x.ndim - n, -1
    blank = literal(x.graph, 0, x.dtype).expand((*outer, total))
    found = scatter(blank, -1, indices.flatten(start, last), x.flatten(start, last))
    return found.reshape((*outer, *sizes))


def max_unpool1d(
    x: Tensor, indices: Tensor, kernel_size: Numbers, stride: Numbers | None = None,
    padding: Numbers = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Maxima back at the places that max_pool1d gave, 0 elsewhere.

    >>> ops.max_unpool1d(cx.constant([[3.0, 7.0]]), cx.constant([[1, 3]]), 2).numpy()
    array([[0., 3., 0., 7.]], dtype=float32)
    """
    return _unpool(1, x, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Tensor, indices: Tensor, kernel_size: Numbers, stride: Numbers | None = None,
    padding: Numbers = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Maxima back at the places that max_pool2d gave, 0 elsewhere.

    >>> ops.max_unpool2d(cx.constant([[[4.0]]]), cx.constant([[[3]]]), 2).numpy()
    array([[[0., 0.],
            [0., 4.]]], dtype=float32)
    """
    return _unpool(2, x, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Tensor, indices: Tensor, kernel_size: Numbers, stride: Numbers | None = None,
    padding: Numbers = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Maxima back at the places that max_pool3d gave, 0 elsewhere.

    >>> ops.max_unpool3d(ops.ones(cx, (1, 1, 1, 1)), cx.constant([[[[7]]]]), 2).shape
    (1, 2, 2, 2)
    """
    return _unpool(3, x, indices, kernel_size, stride, padding, output_size)


# ---- windows at drawn distances (Graham, "Fractional max-pooling", 2014)


def fractional_max_pool(
    x: Tensor, kernel: Sequence[int], size: Sequence[int], samples: Tensor, drawn: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of x (batch, channels, *spatial). samples: (batch, channels, n) in 0 .. 1;
    drawn: which of them rules each dimension."""
    n, planes = len(drawn), samples.shape[:2]
    flat = full_like(samples.select(-1, 0), 0, i64).reshape((*planes, *(1,) * (2 * n)))
    for d, number in enumerate(drawn):
        length = static(extent(x, 2 + d), "an image")
        starts = _starts(samples.select(-1, number), length, size[d], kernel[d])
        places = add(starts.unsqueeze(-1), arange(x.graph, kernel[d]))
        shape = [1] * (2 * n)  # windows, then elements of a window
        shape[d], shape[n + d] = size[d], kernel[d]
        flat = add(mul(flat, length), places.reshape((*planes, *shape)))
    numbers = flat.expand((*x.shape[:2], *flat.shape[2:]))
    elements = gather(x.flatten(2), 2, numbers.flatten(2))
    return first_best(elements.reshape(numbers.shape), numbers, n)


def _starts(sample: Tensor, length: int, windows: int, kernel: int) -> Tensor:
    """Where windows along a dimension begin, the last at its end: (batch, channels, windows)."""
    last = full_like(sample, length - kernel, i64).unsqueeze(-1)
    if windows == 1:
        return last
    step = (length - kernel) / (windows - 1)
    before = arange(sample.graph, windows - 1).cast(sample.dtype)
    reached = mul(add(before, sample.unsqueeze(-1)), step).cast(i64)
    first = mul(sample, step).cast(i64).unsqueeze(-1)
    return cat([sub(reached, first), last], -1)


def _fractional(
    drawn: Sequence[int], x: Tensor, kernel_size: Numbers, output_size: Numbers | None,
    output_ratio: float | Sequence[float] | None, return_indices: bool, samples: Tensor | None,
    seed: Seed,
) -> Any:  # fmt: skip
    n = len(drawn)
    batch = x if x.ndim == n + 2 else x.unsqueeze(0)
    if (output_size is None) == (output_ratio is None):
        raise ShapeError("fractional pooling takes either output_size or output_ratio")
    if output_size is not None:
        sizes = per_dim(output_size, n, "output_size", 0)
    else:
        ratios = [output_ratio] * n if isinstance(output_ratio, float) else list(output_ratio or ())
        lengths = [static(extent(batch, 2 + d), "an image") for d in range(n)]
        sizes = tuple(int(length * ratio) for length, ratio in zip(lengths, ratios))
    if samples is None:
        samples = rand(x.graph, (*batch.shape[:2], n), seed=seed)
    kernel = per_dim(kernel_size, n, "kernel_size")
    parts = fractional_max_pool(batch, kernel, sizes, samples, drawn)
    if batch is not x:
        parts = (parts[0].squeeze(0), parts[1].squeeze(0))
    return parts if return_indices else parts[0]


def fractional_max_pool2d(
    x: Tensor, kernel_size: Numbers, output_size: Numbers | None = None,
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None, *, seed: Seed = None,
) -> Any:  # fmt: skip
    """Maxima of windows at drawn distances. _random_samples: (batch, channels, 2) in 0 .. 1.

    >>> ops.fractional_max_pool2d(ops.ones(cx, (1, 1, 7, 7)), 2, output_size=3).shape
    (1, 1, 3, 3)
    """
    options = kernel_size, output_size, output_ratio, return_indices, _random_samples, seed
    return _fractional((1, 0), x, *options)


def fractional_max_pool3d(
    x: Tensor, kernel_size: Numbers, output_size: Numbers | None = None,
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None, *, seed: Seed = None,
) -> Any:  # fmt: skip
    """Maxima of windows at drawn distances. _random_samples: (batch, channels, 3) in 0 .. 1.

    >>> ops.fractional_max_pool3d(ops.ones(cx, (1, 1, 7, 7, 7)), 2, output_size=3).shape
    (1, 1, 3, 3, 3)
    """
    options = kernel_size, output_size, output_ratio, return_indices, _random_samples, seed
    return _fractional((0, 1, 2), x, *options)


# ---- the same with their places, under names of their own


def _with_indices(pool: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    @wraps(pool)
    def both(x: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = pool(x, *arguments, **options, return_indices=True)
        return found

    return both


max_pool1d_with_indices = _with_indices(max_pool1d)
max_pool2d_with_indices = _with_indices(max_pool2d)
max_pool3d_with_indices = _with_indices(max_pool3d)
adaptive_max_pool1d_with_indices = _with_indices(adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(adaptive_max_pool3d)
fractional_max_pool2d_with_indices = _with_indices(fractional_max_pool2d)
fractional_max_pool3d_with_indices = _with_indices(fractional_max_pool3d)
