"""Discrete Fourier transforms of complex pairs, along dimensions of fixed size.

A short or prime length is a product with the matrix of roots of unity; a composite one is split as
Cooley and Tukey did: n = a b, transforms of a, a turn of each element, transforms of b; a long
prime one is a convolution with a chirp, as Bluestein did.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph.tensor import Tensor
from .base import count, dim_of, extent, full_like, static
from .complex import Complex, conj, matmul_complex, mul_complex
from .elementwise import mul
from .linalg import matmul
from .shape import cat

SHORT = 64  # elements: up to so many one product is cheaper than two and a transposition
LONGEST_PRIME = 512  # its matrix has the square of this
LONGEST_REAL = 512  # half a matrix and no imaginary part: one product is cheaper for longer


def dft(x: Complex, dim: int, forward: bool = True) -> Complex:
    """sum over j of x[j] e^(-+ 2 pi i j k / n), not normalised."""
    dim = dim_of(x.real, dim)
    size = static(extent(x.real, dim), "the length of a Fourier transform")
    last = x.each(lambda part: part.movedim(dim, -1))
    return _along_last(last, size, forward).each(lambda part: part.movedim(-1, dim))


def _along_last(x: Complex, n: int, forward: bool) -> Complex:
    if n == 1:
        return x
    a = _factor(n)
    if n <= SHORT or a == n:
        if n > LONGEST_PRIME:
            return _by_chirp(x, n, forward)
        return matmul_complex(x, _roots(x.real, np.outer(np.arange(n), np.arange(n)), n, forward))
    b = n // a
    split = x.each(lambda part: part.unflatten(-1, (a, b)).transpose(-1, -2))
    inner = _along_last(split, a, forward)  # (..., b, a)
    turns = _roots(x.real, np.outer(np.arange(b), np.arange(a)), n, forward)
    turned = mul_complex(inner, turns).each(lambda part: part.transpose(-1, -2))
    return _along_last(turned, b, forward).each(lambda part: part.transpose(-1, -2).flatten(-2))


def _by_chirp(x: Complex, n: int, forward: bool) -> Complex:
    """j k = (j^2 + k^2 - (k - j)^2) / 2: turn, convolve with the turns the other way, turn."""
    size = 1 << (2 * n - 1).bit_length()
    angles = np.pi * (np.arange(n) ** 2 % (2 * n)) / n
    chirp = np.exp((-1j if forward else 1j) * angles)
    around = np.zeros(size, np.complex128)
    around[:n] = chirp.conj()
    around[size - n + 1 :] = chirp.conj()[:0:-1]
    turns, kernel = (_constant(x.real, a) for a in (chirp, np.fft.fft(around) / size))
    wide = mul_complex(x, turns).each(lambda part: part.pad((0, size - n)))
    product = mul_complex(_along_last(wide, size, True), kernel)
    result = _along_last(product, size, False).each(lambda part: part.narrow(-1, 0, n))
    return mul_complex(result, turns)


def _factor(n: int) -> int:
    """The largest divisor up to SHORT, or the smallest above where there is none; n for a prime."""
    short = [d for d in range(2, SHORT + 1) if n % d == 0]
    if short:
        return short[-1]
    return next((d for d in range(SHORT + 1, int(n**0.5) + 1) if n % d == 0), n)


def _roots(like: Tensor, powers: np.ndarray, n: int, forward: bool) -> Complex:
    """e^(-+ 2 pi i powers / n), exact to the dtype."""
    return _constant(like, np.exp((-2j if forward else 2j) * np.pi * (powers % n) / n))


def _constant(like: Tensor, values: np.ndarray) -> Complex:
    """Complex numbers in the dtype of another tensor."""
    parts = (values.real, values.imag)
    return Complex(*(like.graph.constant(part.astype(like.dtype.numpy)) for part in parts))


def transform(x: Complex, dims: list[int], forward: bool = True) -> Complex:
    """The transform along several dimensions."""
    for dim in dims:
        x = dft(x, dim, forward)
    return x


def real_to_half(x: Tensor, dims: list[int]) -> Complex:
    """The transform of a real tensor, with the n // 2 + 1 first frequencies of the last of the
    dimensions: the others are their conjugates."""
    last = dim_of(x, dims[-1])
    n = static(extent(x, last), "the length of a Fourier transform")
    half = n // 2 + 1
    if n <= LONGEST_REAL:
        roots = _roots(x, np.outer(np.arange(n), np.arange(half)), n, True)
        spectrum = roots.each(lambda part: matmul(x.movedim(last, -1), part).movedim(-1, last))
    else:
        whole = dft(Complex(x, full_like(x, 0)), last)
        spectrum = whole.each(lambda part: part.narrow(last, 0, half))
    return transform(spectrum, dims[:-1])


def half_to_real(x: Complex, dims: list[int], size: int) -> Tensor:
    """The real tensor, of that size in the last of the dimensions, whose half spectrum this is."""
    last = dim_of(x.real, dims[-1])
    x = transform(x, dims[:-1], forward=False)
    half = size // 2 + 1
    x = x.each(lambda part: part.narrow(last, 0, half))
    if size <= LONGEST_REAL:
        roots = _roots(x.real, np.outer(np.arange(half), np.arange(size)), size, False)
        doubled = x.real.graph.constant(np.where(_alone(size), 1, 2)).cast(x.real.dtype)
        turned = x.each(lambda part: mul(part.movedim(last, -1), doubled))
        return matmul_complex(turned, roots).real.movedim(-1, last)
    rest = x.each(lambda part: part.narrow(last, 1, (size - 1) // 2).flip(last))
    whole = Complex(*(cat([a, b], last) for a, b in zip(x, conj(rest))))
    return dft(whole, last, forward=False).real


def _alone(size: int) -> np.ndarray:
    """Which frequencies of a half spectrum have no conjugate in the other half."""
    return np.arange(size // 2 + 1) * 2 % size == 0


def factor(x: Tensor, dims: Sequence[int], mode: int) -> float:
    """By what PyTorch multiplies a transform of that real shape: 1 (mode 0), the root of the number
    of elements transformed (1) or that number (2), inverted."""
    number = static(count(x, [dim_of(x, d) for d in dims]), "the elements of a transform")
    return {0: 1.0, 1: number**-0.5, 2: 1 / number}[mode]
