"""Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import f32
from ....graph.tensor import Tensor
from ....ops.base import dim_of, extent, full_like
from ....ops.complex import Complex
from ....ops.fourier import dft as transform
from .base import op

if TYPE_CHECKING:
    from ..record import Recorder


def _pair(x: Tensor) -> Complex:
    """Real numbers (..., 1) or complex ones (..., 2)."""
    real = x.select(-1, 0)
    return Complex(real, full_like(real, 0) if extent(x, x.ndim - 1) == 1 else x.select(-1, 1))


@op("DFT")
def dft(
    at: Recorder, x: Tensor, length: Tensor | None = None, along: Tensor | None = None, *,
    axis: int | None = None, inverse: int = 0, onesided: int = 0,
) -> Tensor:  # fmt: skip
    if along is not None:
        given = at.ints(along)[0]
    else:
        given = axis if axis is not None else 1 if at.version < 20 else -2
    dim = dim_of(x, given)
    pair = _pair(x.cast(f32) if x.dtype.bytes < 4 else x)
    if length is not None:
        size = at.ints(length)[0]
        pair = pair.each(lambda part: _sized(part, dim, size))
    n = ops.base.static(extent(pair.real, dim), "the length of a Fourier transform")
    if onesided and inverse:  # the other half are conjugates
        n = at.ints(length)[0] if length is not None else 2 * (n - 1)
        pair = _pair(x)
        from ....ops.fourier import half_to_real

        real = half_to_real(pair, [dim], n)
        return ops.div(real, float(n)).unsqueeze(-1).cast(x.dtype)
    found = transform(pair, dim, not inverse)
    if inverse:
        found = found.each(lambda part: ops.div(part, float(n)))
    if onesided:
        found = found.each(lambda part: part.narrow(dim, 0, n // 2 + 1))
    return ops.stack(list(found), -1).cast(x.dtype)


def _sized(x: Tensor, dim: int, size: int) -> Tensor:
    n = ops.base.static(extent(x, dim), "the length of a Fourier transform")
    if size <= n:
        return x.narrow(dim, 0, size)
    return x.pad([(0, size - n) if d == dim else (0, 0) for d in range(x.ndim)], 0.0)


@op("STFT")
def stft(
    at: Recorder, x: Tensor, step: Tensor, window: Tensor | None = None,
    frame: Tensor | None = None, *, onesided: int = 1,
) -> Any:  # fmt: skip
    """x (batch, samples, 1 or 2): (batch, frames, frequencies, 2)."""
    pair = _pair(x if x.ndim == 3 else x.unsqueeze(-1))
    if frame is not None:
        size = at.ints(frame)[0]
    elif window is not None:
        size = int(extent(window, 0))
    else:
        raise Unsupported("STFT without a window and a length")
    hop = at.ints(step)[0]
    pair = pair.each(lambda part: part.unfold(1, size, hop))
    if window is not None:
        shape = window
        pair = pair.each(lambda part: ops.mul(part, shape))
    found = transform(pair, 2)
    if onesided:
        found = found.each(lambda part: part.narrow(2, 0, size // 2 + 1))
    return ops.stack(list(found), -1)
