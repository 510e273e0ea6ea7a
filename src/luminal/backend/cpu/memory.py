"""Memory for buffers: aligned to cache lines, and in huge pages where it is large."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LINE = 64  # bytes: alignment of every buffer, and the least size of one
HUGE_PAGE = 2 << 20
LARGE = 4 << 20  # bytes from which a mapping of its own pays


def empty(shape: Sequence[int], dtype: np.dtype[Any] | type) -> np.ndarray:
    """An uninitialised array on a cache line. Masked reads may touch its first 64 bytes."""
    return _array(shape, dtype, np.empty)


def _array(
    shape: Sequence[int], dtype: np.dtype[Any] | type, make: Callable[..., np.ndarray]
) -> np.ndarray:
    """make: NumPy's function for what is too small for a mapping, which is of zeros."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    bytes_ = max(LINE, -(-count * dtype.itemsize // LINE) * LINE)
    raw = _mapped(bytes_) if bytes_ >= LARGE else _small(bytes_, make)
    return raw[: count * dtype.itemsize].view(dtype).reshape(tuple(shape))


def zeros(shape: Sequence[int], dtype: np.dtype[Any] | type) -> np.ndarray:
    """As `empty`, filled with zeros: what nobody writes takes no memory."""
    return _array(shape, dtype, np.zeros)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy of an array in memory of this kind."""
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def _small(bytes_: int, make: Callable[..., np.ndarray] = np.zeros) -> np.ndarray:
    raw = make(bytes_ + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + bytes_]


def _mapped(bytes_: int) -> np.ndarray:
    """A private mapping: only such pages become huge (Python's default mapping is shared)."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return _small(bytes_)
    pages = mmap.mmap(-1, bytes_ + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(pages, np.uint8)
    start = -raw.ctypes.data % HUGE_PAGE
    return raw[start : start + bytes_]
