"""Short-time Fourier transforms."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ShapeError
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from . import fft
from .base import extent, static
from .complex import Complex
from .conv import fold
from .elementwise import div, mul, square
from .shape import pad, stack


def hann_window(graph: Graph, window_length: int, periodic: bool = True) -> Tensor:
    """sin^2 (pi i / n), f32; n: the length, or one less for a window that ends as it begins.

    >>> ops.hann_window(cx, 4).numpy().round(3)
    array([0. , 0.5, 1. , 0.5], dtype=float32)
    """
    n = window_length if periodic else max(1, window_length - 1)
    values = np.sin(np.pi * np.arange(window_length) / n) ** 2
    if window_length == 1:
        values = np.ones(1)
    return graph.constant(values.astype(np.float32))


def stft(
    x: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect",
    normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
) -> Complex | Tensor:  # fmt: skip
    """Spectra of windows of n_fft samples, one every hop_length (n_fft // 4): x (samples) or
    (batch, samples) to (..., frequencies, frames). return_complex=False: real and imaginary parts
    as a last dimension.

    >>> ops.stft(ops.zeros(cx, 400), 16, hop_length=4, return_complex=False).shape
    (9, 101, 2)
    """
    hop, window = _steps(x, n_fft, hop_length, win_length, window)
    if center:
        x = pad(x.unsqueeze(0), (n_fft // 2, n_fft // 2), pad_mode).squeeze(0)
    frames = x.unfold(-1, n_fft, hop)  # (..., frames, n_fft)
    frames = frames if window is None else mul(frames, window)
    norm = "ortho" if normalized else None
    transform = fft.fft if onesided is False else fft.rfft
    found = transform(frames, norm=norm).each(lambda part: part.transpose(-1, -2))
    return stack(list(found), -1) if return_complex is False else found


def istft(
    x: Complex, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False,
    onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The inverse of `stft`: windows are added up and divided by the sum of the squares of the
    window. x: (..., frequencies, frames) of constant size. length: of the result.

    >>> spectrum = ops.stft(cx.constant([1.0, 2.0, 3.0, 4.0]), 4, 1)
    >>> ops.istft(spectrum, 4, 1, length=4).numpy().round(3)
    array([1., 2., 3., 4.], dtype=float32)
    """
    if return_complex:
        raise ShapeError("istft gives real numbers")
    hop, window = _steps(x.real, n_fft, hop_length, win_length, window)
    spectra = x.each(lambda part: part.transpose(-1, -2))
    norm = "ortho" if normalized else None
    if onesided is False:
        frames = fft.ifft(spectra, norm=norm).real
    else:
        frames = fft.irfft(spectra, n_fft, norm=norm)
    count = static(extent(frames, frames.ndim - 2), "the number of frames")
    weight = frames.graph.constant(np.ones((1, n_fft), np.float32)).cast(frames.dtype)
    weight = weight if window is None else window.unsqueeze(0)
    size = n_fft + hop * (count - 1)
    total = _added(mul(frames, weight), hop, size)
    below = _added(square(weight).expand((count, n_fft)), hop, size)
    start = n_fft // 2 if center else 0
    end = size - start if length is None else min(size, start + length)
    result = div(total, below).narrow(-1, start, end - start)
    if length is not None and length > end - start:
        result = result.pad([(0, 0)] * (result.ndim - 1) + [(0, length - end + start)])
    return result


def _steps(
    x: Tensor, n_fft: int, hop: int | None, width: int | None, window: Tensor | None
) -> tuple[int, Tensor | None]:
    """(hop, the window with zeros on both sides). Raises ShapeError."""
    hop = n_fft // 4 if hop is None else hop
    width = n_fft if width is None else width
    if not (hop > 0 and 0 < width <= n_fft):
        raise ShapeError(f"windows of {width} every {hop} samples, of transforms of {n_fft}")
    if window is None:
        if width == n_fft:
            return hop, None
        window = x.graph.constant(np.ones(width, np.float32)).cast(x.dtype)
    if window.shape != (width,):
        raise ShapeError(f"a window of the shape {window.shape}, not ({width},)")
    before = (n_fft - width) // 2
    return hop, window.pad([(before, n_fft - width - before)])


def _added(frames: Tensor, hop: int, size: int) -> Tensor:
    """(..., frames, n) to (..., size): each begins hop later than the one before."""
    *around, count, n = (static(extent(frames, d), "spectra") for d in range(frames.ndim))
    flat = frames.transpose(-1, -2).reshape((math.prod(around), n, count))
    return fold(flat, (1, size), (1, n), stride=(1, hop)).reshape((*around, size))
