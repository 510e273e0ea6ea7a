"""Blocks whose quants are numbers of points on a grid: GGUF's IQ1, IQ2 and IQ3.

The grids are the `gguf` package's. A block becomes 8-bit quants, times a sign where there are
signs, and f32 scales; as these have few digits, products are the same in any order.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..errors import WeightsError, to_install
from .quants import Quants, half

PARITY = np.array([n | (n.bit_count() & 1) << 7 for n in range(128)], np.uint8)  # eight signs


@cache
def grid(kind: str) -> np.ndarray:
    """The points (points, 4 or 8) i8 of a type. Raises WeightsError."""
    try:
        from gguf import quants
    except ImportError:
        raise WeightsError(f"weights of type {kind}: {to_install('gguf')}") from None
    owner: Any = getattr(quants, kind)
    owner.init_grid()
    points: np.ndarray = owner.grid.reshape(owner.grid_shape).astype(np.int8)
    return points


def _words(b: np.ndarray, start: int, end: int, kind: str) -> np.ndarray:
    """Integers of several bytes, little-endian."""
    return np.ascontiguousarray(b[..., start:end]).view(kind)


def _bits(packed: np.ndarray, *shifts: int, low: int = 1) -> np.ndarray:
    """(..., n) -> (..., n * shifts): each shifted by each, of which the low bits stay."""
    found = (packed[..., None] >> np.array(shifts, packed.dtype)) & packed.dtype.type(low)
    return found.reshape(*packed.shape[:-1], -1)


def _signed(points: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """i8 points (..., n, 4 or 8) where the bits (..., n, 8 or bytes) say which are negative."""
    negative = np.unpackbits(signs, axis=-1, bitorder="little").reshape(points.shape)
    return np.where(negative, -points, points)


def _quants(b: np.ndarray, points: np.ndarray, scales: np.ndarray, block: int) -> Quants:
    return Quants(points.reshape(len(b), -1, block), scales.reshape(len(b), -1))


def _scales(b: np.ndarray, odd: np.ndarray, share: float) -> np.ndarray:
    """d * (2 * number + 1) * share, f32."""
    unit = half(b, 0).astype(np.float32)[..., None] * np.float32(share)
    return unit * (2 * odd.astype(np.float32) + 1)


def iq2_xxs(b: np.ndarray) -> Quants:
    """Of 32 weights: four points, four times seven signs, whose eighth makes them even; a scale."""
    words = _words(b, 2, 66, "<u4").reshape(*b.shape[:-1], 8, 2)
    points = grid("IQ2_XXS")[np.ascontiguousarray(words[..., 0]).view(np.uint8)]
    signs = PARITY[_bits(words[..., 1], 0, 7, 14, 21, low=127)]
    return _quants(b, _signed(points, signs[..., None]), _scales(b, words[..., 1] >> 28, 1 / 8), 32)


def iq3_xxs(b: np.ndarray) -> Quants:
    """As iq2_xxs, of points of four."""
    words = _words(b, 66, 98, "<u4")
    signs = PARITY[_bits(words, 0, 7, 14, 21, low=127)]
    return _quants(
        b, _signed(grid("IQ3_XXS")[b[..., 2:66]], signs), _scales(b, words >> 28, 1 / 4), 32
    )


def iq2_xs(b: np.ndarray) -> Quants:
    """Of 8 weights: a point and seven signs; of 16 a scale."""
    words = _words(b, 2, 66, "<u2")
    points = _signed(grid("IQ2_XS")[words & 511], PARITY[words >> 9][..., None])
    return _quants(b, points, _scales(b, _bits(b[..., 66:], 0, 4, low=15), 1 / 8), 16)


def iq2_s(b: np.ndarray) -> Quants:
    """Low eight bits of points, signs, high two bits of points, scales of 16 weights."""
    high = _bits(b[..., 66:74], 0, 2, 4, 6, low=3).astype(np.uint16)
    points = grid("IQ2_S")[b[..., 2:34] | high << 8]
    signs = b[..., 34:66, None]
    return _quants(
        b, _signed(points, signs), _scales(b, _bits(b[..., 74:], 0, 4, low=15), 1 / 8), 16
    )


def iq3_s(b: np.ndarray) -> Quants:
    """Low eight bits of points of four, their ninth bits, signs, scales of 32 weights."""
    high = _bits(b[..., 66:74], *range(8)).astype(np.uint16)
    points = grid("IQ3_S")[b[..., 2:66] | high << 8]
    return _quants(
        b, _signed(points, b[..., 74:106]), _scales(b, _bits(b[..., 106:], 0, 4, low=15), 1), 32
    )


def iq1_s(b: np.ndarray) -> Quants:
    """Low eight bits of points; of 32 weights high bits, scale, and the sign of 1/8 that is added.
    Quants count eighths."""
    words = _words(b, 34, 50, "<u2")
    numbers = b[..., 2:34] | _bits(words, 0, 3, 6, 9, low=7) << 8
    more = np.where(words & 0x8000, np.int8(-1), np.int8(1))[..., None, None]
    points = grid("IQ1_S")[numbers].reshape(*words.shape, 4, 8) * np.int8(8) + more
    return _quants(b, points, _scales(b, words >> 12 & 7, 1 / 8), 32)


def iq1_m(b: np.ndarray) -> Quants:
    """As iq1_s, with scales of 16 weights, eighths of 8; the unit lies in high bits of scales."""
    high, words = _bits(b[..., 32:48], 0, 4, low=15), _words(b, 48, 56, "<u2")
    points = grid("IQ1_M")[b[..., :32] | (high & 7).astype(np.uint16) << 8] * np.int8(8)
    points = points + np.where(high & 8, np.int8(-1), np.int8(1))[..., None]
    unit = np.bitwise_or.reduce(words >> 12 << np.array([0, 4, 8, 12], np.uint16), -1)
    bytes_ = unit.astype(np.uint16)[..., None].view(np.uint8)
    return _quants(b, points, _scales(bytes_, _bits(words, 0, 3, 6, 9, low=7), 1 / 8), 16)
