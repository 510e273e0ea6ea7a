"""Which weights have changed since a program took them in.

PyTorch counts what is written into a tensor, but not what is written through `.data` (as moving
averages and clipped weights are). So a few elements of each weight are compared as well, which
shows whatever changes most of a weight; `forget_weights` is for a few elements changed that way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch

SAMPLES = 4  # of each weight, each of a word
WORD = 4  # bytes
NONE = np.empty(0, np.uint32)

_forgotten = 0  # how often all weights were to be read anew


class Known:
    """The weights that a program has: for each where it lies and its version, and samples."""

    def __init__(self, count: int) -> None:
        self._states: list[tuple[int, int, int] | None] = [None] * count
        self._words = [NONE] * count
        self._samples = b""

    def changed(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """The numbers of those to be taken in again; they are known from now on."""
        states = [version(tensor) for tensor in tensors]
        if states == self._states and None not in states:
            # the same memory, which the caller holds: the words may be read
            if self._read() == self._samples:
                return []
            self._samples = self._read()
            return list(range(len(tensors)))
        pairs = enumerate(zip(states, self._states))
        found = [n for n, (state, known) in pairs if state is None or state != known]
        self._states = states
        for number in found:
            self._words[number] = _words(tensors[number])
        self._samples = self._read()
        return found

    def _read(self) -> bytes:
        return np.concatenate(self._words).tobytes() if self._words else b""


def version(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """What changes when a tensor is written to; None for tensors that keep no count."""
    if tensor.is_inference():
        return None
    return tensor.data_ptr(), tensor._version, _forgotten


def forget_weights() -> None:
    """Every program reads its weights anew at its next call."""
    global _forgotten
    _forgotten += 1


def _words(tensor: torch.Tensor) -> np.ndarray:
    """A view of words far apart, from the first element to the last. It does not keep the tensor's
    memory alive: it must be read only while the tensor is there."""
    spans = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())]
    elements = 1 + sum(spans) if tensor.numel() else 0
    count = elements * tensor.itemsize // WORD
    if not count:
        return NONE
    memory = (ctypes.c_uint32 * count).from_address(tensor.data_ptr())
    return np.ctypeslib.as_array(memory)[:: max(1, (count - 1) // (SAMPLES - 1))][:SAMPLES]
