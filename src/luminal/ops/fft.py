"""Fourier transforms under the names of `torch.fft`: real tensors or `Complex` pairs in, pairs out
(real tensors of `irfft`, `irfft2`, `irfftn`). Sizes of transformed dimensions are constant.

`norm`: "backward" (None) divides the inverse by the number n of elements, "forward" the forward
one, "ortho" both by its root. `n` or `s`: what is longer is cut at the end, what is shorter filled
up with zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import ShapeError
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from . import fourier
from .base import dim_of, extent, full_like, static
from .complex import Complex, conj
from .elementwise import mul
from .movement import roll

Dims = int | Sequence[int] | None
Number = Tensor | Complex


def fft(x: Number, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """out[k] = sum over j of x[j] e^(-2 pi i j k / n)."""
    return fftn(x, _one(n), (dim,), norm)


def ifft(x: Number, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The inverse of `fft`."""
    return ifftn(x, _one(n), (dim,), norm)


def rfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The n // 2 + 1 first frequencies of a real tensor: the others are their conjugates."""
    return rfftn(x, _one(n), (dim,), norm)


def irfft(x: Number, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`; n: the length of the result, 2 (frequencies - 1) if None."""
    return irfftn(x, _one(n), (dim,), norm)


def hfft(x: Number, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """`fft` of n numbers of which the first half is given: the others are their conjugates."""
    return irfft(conj(_pair(x)), n, dim, _other(norm))


def ihfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The inverse of `hfft`."""
    return conj(rfft(x, n, dim, _other(norm)))


def fft2(
    x: Number, s: Sequence[int] | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Complex:
    """`fft` along two dimensions."""
    return fftn(x, s, dim, norm)


def ifft2(
    x: Number, s: Sequence[int] | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Complex:
    """`ifft` along two dimensions."""
    return ifftn(x, s, dim, norm)


def rfft2(
    x: Tensor, s: Sequence[int] | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Complex:
    """`rfft` along the last of two dimensions, `fft` along the other."""
    return rfftn(x, s, dim, norm)


def irfft2(
    x: Number, s: Sequence[int] | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Tensor:
    """The inverse of `rfft2`."""
    return irfftn(x, s, dim, norm)


def fftn(
    x: Number, s: Sequence[int] | None = None, dim: Dims = None, norm: str | None = None
) -> Complex:
    """`fft` along several dimensions: `dim`, or as many at the end as `s` has, or all."""
    return _complex(x, s, dim, norm, forward=True)


def ifftn(
    x: Number, s: Sequence[int] | None = None, dim: Dims = None, norm: str | None = None
) -> Complex:
    """`ifft` along several dimensions."""
    return _complex(x, s, dim, norm, forward=False)


def rfftn(
    x: Tensor, s: Sequence[int] | None = None, dim: Dims = None, norm: str | None = None
) -> Complex:
    """`rfft` along the last of the dimensions, `fft` along the others."""
    if isinstance(x, Complex):
        raise ShapeError("a transform of real numbers: fft takes complex ones")
    dims, sizes = _places(x, s, dim)
    x = _resized(_floating(x), dims, sizes)
    scale = _scale(norm, math.prod(sizes), forward=True)
    return fourier.real_to_half(x, dims).each(mul, scale)


def irfftn(
    x: Number, s: Sequence[int] | None = None, dim: Dims = None, norm: str | None = None
) -> Tensor:
    """The inverse of `rfftn`; s[-1]: as n of `irfft`."""
    pair = _pair(x)
    dims, sizes = _places(pair.real, s, dim)
    if s is None or s[-1] == -1:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if sizes[-1] < 1:
        raise ShapeError(f"a result of {sizes[-1]} elements")
    halves = [*sizes[:-1], sizes[-1] // 2 + 1]
    result = fourier.half_to_real(pair.each(_resized, dims, halves), dims, sizes[-1])
    return mul(result, _scale(norm, math.prod(sizes), forward=False))


def fftfreq(graph: Graph, n: int, d: float = 1.0) -> Tensor:
    """The frequencies of `fft` for samples d apart, f32: 0, 1, ..., -2, -1 over n d."""
    return graph.constant(np.fft.fftfreq(n, d).astype(np.float32))


def rfftfreq(graph: Graph, n: int, d: float = 1.0) -> Tensor:
    """The frequencies of `rfft` for samples d apart, f32."""
    return graph.constant(np.fft.rfftfreq(n, d).astype(np.float32))


def fftshift(x: Number, dim: Dims = None) -> Number:
    """The zero frequency moves to the middle, of all dimensions if None are named."""
    return _shifted(x, dim, lambda size: size // 2)


def ifftshift(x: Number, dim: Dims = None) -> Number:
    """The inverse of `fftshift`."""
    return _shifted(x, dim, lambda size: -(size // 2))


def _complex(
    x: Number, s: Sequence[int] | None, dim: Dims, norm: str | None, forward: bool
) -> Complex:
    pair = _pair(x)
    dims, sizes = _places(pair.real, s, dim)
    scale = _scale(norm, math.prod(sizes), forward)
    return fourier.transform(pair.each(_resized, dims, sizes), dims, forward).each(mul, scale)


def _one(n: int | None) -> tuple[int] | None:
    return None if n is None else (n,)


def _floating(x: Tensor) -> Tensor:
    return x if x.dtype.is_float else x.cast("f32")


def _pair(x: Number) -> Complex:
    if isinstance(x, Complex):
        return x
    x = _floating(x)
    return Complex(x, full_like(x, 0))


def _places(x: Tensor, s: Sequence[int] | None, dim: Dims) -> tuple[list[int], list[int]]:
    """(dimensions, their sizes). Raises ShapeError."""
    if dim is None:
        dim = range(x.ndim) if s is None else range(-len(s), 0)
    dims = [dim_of(x, d) for d in ((dim,) if isinstance(dim, int) else dim)]
    own = [static(extent(x, d), "the length of a Fourier transform") for d in dims]
    sizes = own if s is None else [n if given == -1 else given for given, n in zip(s, own)]
    if (s is not None and len(s) != len(dims)) or len(set(dims)) < len(dims) or not dims:
        raise ShapeError(f"sizes {s} along the dimensions {dim} of {x}")
    if min(sizes) < 1:
        raise ShapeError(f"a transform of {min(sizes)} elements")
    return dims, list(sizes)


def _resized(x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Cut or filled up with zeros at the ends."""
    for d, size in zip(dims, sizes):
        here = int(extent(x, d))
        if here > size:
            x = x.narrow(d, 0, size)
        elif here < size:
            x = x.pad([(0, size - here if e == d else 0) for e in range(x.ndim)])
    return x


def _scale(norm: str | None, count: int, forward: bool) -> float:
    if norm not in (None, "backward", "forward", "ortho"):
        raise ShapeError(f'norm is "backward", "forward" or "ortho", not {norm!r}')
    if norm == "ortho":
        return count**-0.5
    return 1 / count if forward == (norm == "forward") else 1.0


def _other(norm: str | None) -> str | None:
    """What scales the inverse as this does the forward transform."""
    return {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)


def _shifted(x: Number, dim: Dims, by: Callable[[int], int]) -> Number:
    like = x.real if isinstance(x, Complex) else x
    dims = list(range(like.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    shifts = [by(static(extent(like, dim_of(like, d)), "a shifted dimension")) for d in dims]
    return x.each(roll, shifts, dims) if isinstance(x, Complex) else roll(x, shifts, dims)
