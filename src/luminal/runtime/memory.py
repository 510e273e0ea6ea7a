"""Memory that the runtime owns: aligned, never smaller than a cache line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph.dtype import DType
from .arena import round_up

Allocate = Callable[[Sequence[int], Any], np.ndarray]  # shape, NumPy dtype -> aligned array


class Block:
    """A piece of memory that is handed out as arrays."""

    def __init__(self, allocate: Allocate, size: int) -> None:
        self.bytes = round_up(size)
        self._raw = allocate((self.bytes,), np.dtype(np.uint8))
        self.address = int(self._raw.ctypes.data)
        self._owner = _owner(self._raw)
        self._own_references = sys.getrefcount(self._owner)

    def array(self, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
        """The memory as an array of this dtype and shape."""
        count = int(np.prod(shape, dtype=np.int64))
        return self._raw[: count * dtype.bytes].view(dtype.numpy).reshape(shape)

    def array_of_bytes(self) -> np.ndarray:
        return self._raw

    @property
    def held(self) -> bool:
        """Somebody else keeps an array that lies in this memory."""
        return sys.getrefcount(self._owner) > self._own_references


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that all views refer to: NumPy skips those in between."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
