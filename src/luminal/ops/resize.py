"""Changing the size of images: every sample is a read at an exact integer index."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError, Unsupported
from ..graph.dtype import i64
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import Size, extent, floating, size_value
from .elementwise import add, mul, sub


def interpolate(
    x: Tensor, size: Size | Sequence[Size] | None = None,
    scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """x: (batch, channels, *spatial), as `torch.nn.functional.interpolate`.

    mode: nearest, nearest-exact, linear, bilinear, trilinear (one linear step for each dimension),
    bicubic, area. A scale factor must give whole ratios or sizes; use `size` for others.
    """
    n = x.ndim - 2
    sizes = _sizes(x, n, size, scale_factor)
    if mode == "area":
        from .pooling import _adaptive

        return _adaptive(n, x, [int(s) for s in sizes], "mean")
    linear = {"linear": 1, "bilinear": 2, "trilinear": 3}
    for d, wanted in enumerate(sizes, 2):
        if mode in ("nearest", "nearest-exact"):
            x = _nearest(x, d, wanted, exact=mode == "nearest-exact")
        elif linear.get(mode) == n:
            x = _linear(x, d, wanted, bool(align_corners))
        elif mode == "bicubic" and n == 2:
            x = _cubic(x, d, wanted, bool(align_corners))
        else:
            raise Unsupported(f"interpolate mode {mode!r} for {n} spatial dimensions")
    return x


def upsample(x: Tensor, scale_factor: int, mode: str = "nearest") -> Tensor:
    """interpolate by a factor."""
    return interpolate(x, scale_factor=scale_factor, mode=mode)


def _sizes(
    x: Tensor, n: int, size: Size | Sequence[Size] | None,
    factor: float | Sequence[float] | None,
) -> list[Index]:  # fmt: skip
    if (size is None) == (factor is None):
        raise ShapeError("interpolate takes either size or scale_factor")
    if size is not None:
        listed = [size] * n if isinstance(size, (int, str, Index)) else list(size)
        return [x.graph.size(s) for s in listed]
    factors = [factor] * n if isinstance(factor, (int, float)) else list(factor or ())
    return [_scaled(extent(x, 2 + d), f) for d, f in enumerate(factors)]


def _scaled(size: Index, factor: float) -> Index:
    """floor(size factor), where the factor is a ratio of the two sizes."""
    up, down = int(factor), round(1 / factor)
    if up == factor:
        return size * up
    whole = not size.is_constant or size.constant % down == 0
    if abs(down * factor - 1) < 1e-9 and whole:
        return size // down
    if size.is_constant and size.constant * factor == int(size.constant * factor):
        return Index.of(int(size.constant * factor))
    raise Unsupported(f"interpolate: factor {factor} of size {size} gives no whole size; use size=")


def _read_along(x: Tensor, dim: int, size: Index, at: Index) -> Tensor:
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    index[dim] = at
    return x.read([*x.shape[:dim], size, *x.shape[dim + 1 :]], index)


def _nearest(x: Tensor, dim: int, size: Index, exact: bool) -> Tensor:
    """floor(i n / size), or floor((2 i + 1) n / (2 size))."""
    n, here = extent(x, dim), Index.of(f"i{dim}")
    at = ((here * 2 + 1) * n) // (size * 2) if exact else (here * n) // size
    return _read_along(x, dim, size, at)


def _source(n: Index, size: Index, dim: int, align_corners: bool) -> tuple[Index, Index]:
    """Where sample i lies, as numerator and denominator."""
    here = Index.of(f"i{dim}")
    if align_corners:
        return here * (n - 1), (size - 1).maximum(1)
    return (here * 2 + 1) * n - size, size * 2


def _fraction(x: Tensor, dim: int, size: Index, rest: Index, whole: Index) -> Tensor:
    """rest / whole at each position of the dimension, shaped to broadcast against x."""
    shape = [1] * x.ndim
    shape[dim] = size  # type: ignore[call-overload]
    number = x.graph.iota(shape, rest, i64).cast(x.dtype)
    return number / size_value(x.graph, whole, i64).cast(x.dtype)


@floating
def _linear(x: Tensor, dim: int, size: Index, align_corners: bool) -> Tensor:
    """The two nearest elements, weighted by distance."""
    n = extent(x, dim)
    numerator, denominator = _source(n, size, dim, align_corners)
    numerator = numerator.maximum(0)
    low = numerator // denominator
    weight = _fraction(x, dim, size, numerator - low * denominator, denominator)
    first = _read_along(x, dim, size, low.minimum(n - 1))
    second = _read_along(x, dim, size, (low + 1).minimum(n - 1))
    return add(mul(first, sub(1.0, weight)), mul(second, weight))


@floating
def _cubic(x: Tensor, dim: int, size: Index, align_corners: bool) -> Tensor:
    """The four nearest elements, by the cubic convolution with a = -0.75."""
    n = extent(x, dim)
    numerator, denominator = _source(n, size, dim, align_corners)
    low = numerator // denominator
    t = _fraction(x, dim, size, numerator - low * denominator, denominator)
    distances = [add(t, 1.0), t, sub(1.0, t), sub(2.0, t)]
    total = None
    for tap, distance in enumerate(distances):
        weight = _far(distance) if tap in (0, 3) else _near(distance)
        at = (low + (tap - 1)).maximum(0).minimum(n - 1)
        part = mul(_read_along(x, dim, size, at), weight)
        total = part if total is None else add(total, part)
    assert total is not None
    return total


def _near(d: Tensor) -> Tensor:
    """(a + 2) d^3 - (a + 3) d^2 + 1."""
    return add(mul(mul(sub(mul(d, 1.25), 2.25), d), d), 1.0)


def _far(d: Tensor) -> Tensor:
    """a d^3 - 5 a d^2 + 8 a d - 4 a."""
    return mul(sub(mul(add(mul(sub(d, 5.0), d), 8.0), d), 4.0), -0.75)
