"""How far off right arithmetic may be.

Every inexact result is pushed away by what rounding, another order of a sum or another way to
compute a function may cost. What is exact stays exact, so that cancellation, overflow and
conditions are as sensitive here as they are in fact.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ...graph.dtype import DType, f64
from ...graph.scalars import compute
from .arrays import Array

UNITS = 2  # in the last place: what native functions keep within
EXTENDED = DType("extended", np.dtype(np.longdouble).itemsize, "float", np.dtype(np.longdouble))


class Rounding:
    """One way of being off; two with the same seed and other signs are off the other way each.

    A sum whose parts might overflow is NaN in one and infinite in the other, for an odd seed as it
    is; a product that another factor first would keep finite does not overflow in the second.
    skips: products with zero are zero, as where masked elements are never looked at. flushes:
    subnormal numbers are zeros.
    """

    def __init__(self, seed: int, sign: int, skips: bool = False, flushes: bool = False) -> None:
        self._rng, self._sign, self._skips = np.random.default_rng(seed), sign, skips
        self._flushes = flushes
        self._wild = sign > 0 or seed % 2 == 0

    def read(self, array: Array) -> Array:
        """What a program finds in memory, or computes. Numbers of 16 bits are computed in 32."""
        if not self._flushes or array.dtype.kind in "iub":
            return array
        least = np.finfo(np.float64 if array.dtype.itemsize > 4 else np.float32).tiny
        with np.errstate(all="ignore"):
            return np.where(np.abs(array) < least, array * array.dtype.type(0), array)

    def applied(self, op: str, dtype: DType, args: list[Array]) -> Array:
        """The result of an operation, some units in the last place off unless it is exact."""
        args = [self.read(a) for a in args]
        wide = EXTENDED if dtype is f64 else f64
        args = [a if a.dtype.kind in "iub" else a.astype(wide.numpy) for a in args]
        exact = compute(op, wide, *args)
        if self._skips and op == "mul":
            exact = np.where((args[0] == 0) | (args[1] == 0), 0.0, exact)
        with np.errstate(all="ignore"):
            rounded = exact.astype(dtype.numpy)
            inexact = np.isfinite(exact) & (rounded.astype(wide.numpy) != exact)
            if not inexact.any():
                return self.read(np.asarray(rounded))
            info: Any = ml_dtypes.finfo(dtype.numpy)
            least = float(info.tiny) * (1.0 if dtype.bytes > 2 else float(info.eps))
            error = UNITS * (float(info.eps) * np.abs(exact) + least)
            moved = self._bounded(exact + self._signs(exact.shape) * error, info)
            return self.read(np.where(inexact, moved.astype(dtype.numpy), rounded))

    def reduced(self, dtype: DType, total: Array, squares: Array, count: int) -> Array:
        """The sum or product of `count` terms, off as another order may be: the roundings of the
        partial results add up like a random walk. squares: the sum of the terms' squares."""
        info: Any = ml_dtypes.finfo(dtype.numpy)
        with np.errstate(all="ignore"):
            size = np.sqrt(squares)
            step = UNITS * np.sqrt(count)
            off = step * (float(info.eps) / 2 * (np.abs(total) + size) + float(info.tiny))
            off = off * self._signs(np.shape(total))
            moved = np.where(np.isfinite(total), total + off, total)
            anything = np.nan if self._sign > 0 else -np.copysign(np.inf, total)
            anything = anything if self._wild else moved
            return np.where(size * np.sqrt(count) > float(info.max), anything, moved)

    def _bounded(self, array: Array, info: Any) -> Array:
        most = float(info.max)
        return array if self._sign > 0 else np.clip(array, -most, most)

    def _signs(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self._sign * (1 - 2 * self._rng.integers(0, 2, shape, np.int8)))


def finite(array: Array) -> Array:
    """With zeros in the place of what is not finite."""
    return np.where(np.isfinite(array), array, 0.0)
