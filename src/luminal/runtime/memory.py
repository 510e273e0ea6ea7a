"""Memory that the runtime owns: aligned, never smaller than a cache line."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import OutOfMemory
from ..graph.dtype import DType
from .arena import round_up

LINE, PAGE = 64, 4096  # bytes: of memory that is there as a whole, or not at all
SHARED = 1 << 20  # bytes from which a copy is shared out among threads
SMALL, LEAST = 1 << 16, 8 << 20  # bytes: less is not cut from a pool's pieces; the least of these
Allocate = Callable[[Sequence[int], Any], np.ndarray]  # shape, NumPy dtype -> aligned array


class Pool:
    """Cuts memory for what stays from few large pieces: they lie in huge pages, of which none is
    left half empty, and nothing that comes and goes leaves gaps between. A piece is free again when
    all that was cut from it is."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._rest = np.empty(0, np.uint8)
        self._total = 0

    def __call__(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        size = round_up(math.prod(shape) * np.dtype(dtype).itemsize)
        if size < SMALL:
            return self._allocate(shape, dtype)
        if size > len(self._rest):
            self._rest = self._allocate((max(size, LEAST, self._total),), np.dtype(np.uint8))
        found, self._rest = self._rest[:size], self._rest[size:]
        self._total += size
        return found.view(dtype).reshape(tuple(shape))


class Block:
    """A piece of memory that is handed out as arrays."""

    def __init__(self, allocate: Allocate, size: int) -> None:
        self.bytes = round_up(size)
        try:
            self._raw = allocate((self.bytes,), np.dtype(np.uint8))
        except (OSError, MemoryError, OverflowError):
            raise OutOfMemory(
                f"a run at these sizes needs {self.bytes / 1e6:,.0f} MB in one piece, which the "
                "system does not give: take smaller batches, or train.checkpoint() parts of a model"
            ) from None
        self.address = int(self._raw.ctypes.data)
        self._owner = _owner(self._raw)
        self._own_references = sys.getrefcount(self._owner)

    @classmethod
    def lying(cls, raw: np.ndarray) -> Block:
        """Bytes that are there already, in a file: they are read only."""
        return cls(lambda *_: raw, len(raw))

    @property
    def writable(self) -> bool:
        return bool(self._raw.flags.writeable)

    def array(self, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
        """The memory as an array of this dtype and shape."""
        count = int(np.prod(shape, dtype=np.int64))
        return self._raw[: count * dtype.bytes].view(dtype.numpy).reshape(shape)

    def array_of_bytes(self) -> np.ndarray:
        return self._raw

    @property
    def held(self) -> bool:
        """Somebody else keeps an array that lies in this memory, which could change."""
        return self.writable and sys.getrefcount(self._owner) > self._own_references


def copy(target: np.ndarray, source: np.ndarray, threads: int) -> None:
    """Copy an array of any strides into a contiguous one of its shape, on several threads."""
    target, source = _widened(target, source)
    count = min(threads, len(target)) if target.nbytes >= SHARED and target.ndim else 1
    ends = [len(target) * n // count for n in range(count + 1)] if count > 1 else []
    if not ends:
        target[...] = source
        return
    with ThreadPoolExecutor(count) as pool:
        parts = [slice(*pair) for pair in pairwise(ends)]
        list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))


def _widened(target: np.ndarray, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Elements that lie side by side in both, as fewer wide ones: NumPy copies one by one."""
    if source.ndim and source.shape[-1] > 1 and source.strides[-1] == source.itemsize:
        row = source.shape[-1] * source.itemsize
        for kind in (np.uint64, np.uint32, np.uint16):
            wide = np.dtype(kind)
            if wide.itemsize > source.itemsize and row % wide.itemsize == 0:
                return target.view(wide), source.view(wide)
    return target, source


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that all views refer to: NumPy skips those in between."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Lent:
    """Arrays that are read where the caller has them. Masked reads may touch a whole cache line, of
    which one that ends a page has less: it is copied, and again before each run."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._arrays: dict[int, np.ndarray] = {}
        self._copies: dict[int, Block] = {}

    def take(self, memory: int, array: np.ndarray) -> int:
        """Where to read it."""
        self._arrays[memory] = array
        address = int(array.ctypes.data)
        if array.nbytes >= LINE or address % PAGE <= PAGE - LINE:
            self._copies.pop(memory, None)
            return address
        block = self._copies[memory] = Block(self._allocate, LINE)
        self.renew()
        return block.address

    def renew(self) -> None:
        for memory, block in self._copies.items():
            array = self._arrays[memory]
            block.array_of_bytes()[: array.nbytes] = array.reshape(-1).view(np.uint8)

    @property
    def bytes(self) -> int:
        return sum(block.bytes for block in self._copies.values())
