"""Which weights have changed since a program took them in.

PyTorch counts what is written into a tensor, but not what is written through `.data` or an array
over its memory. So a few elements of each weight are compared as well, which shows at once whatever
changes most of a weight. And all their memory is read over and over, a piece after each call, in a
hundredth of the time of the calls: what was changed in a few elements only is found late, and said.
"""

from __future__ import annotations

import ctypes
import time
import warnings
import weakref
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

SAMPLES = 4  # of each weight, each of a word
WORD = 4  # bytes
NONE = np.empty(0, np.uint32)
SHARE = 0.01  # of the time of a call, for looking through memory
PIECE = 1 << 20  # bytes, looked through at once: some 40 us
LONGEST = 1e-4  # seconds that a piece counts for: more was the turn of other programs
COLUMNS = 1021  # sums of every 1021st word: a prime, so that rows which change places are seen

_forgotten = 0  # how often all weights were to be read anew


class Known:
    """The weights that a program has: for each where it lies and its version, and samples."""

    def __init__(self, count: int) -> None:
        self._states: list[tuple[int, int, int] | None] = [None] * count
        self._words = [NONE] * count
        self._samples = [b""] * count
        self._tensors: list[weakref.ref[torch.Tensor] | None] = [None] * count
        self._memory = Memory()

    def changed(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """The numbers of those to be taken in again; they are known from now on."""
        states = [version(tensor) for tensor in tensors]
        pairs = enumerate(zip(states, self._states))
        found = [n for n, (state, known) in pairs if state is None or state != known]
        if self._written(set(found)):
            found = list(range(len(tensors)))
        self._states = states
        for number in found:
            self._words[number] = _words(tensors[number])
            self._samples[number] = self._words[number].tobytes()
            self._tensors[number] = weakref.ref(tensors[number], partial(self._gone, number))
            self._memory.take(number, tensors[number])
        return found

    def _gone(self, number: int, tensor: weakref.ref[torch.Tensor]) -> None:
        """Another tensor may lie where this one lay."""
        self._states[number] = None

    def _written(self, others: set[int]) -> bool:
        """Whether samples have changed, of all but these: what lies where it lay, the caller
        holds, so that it may be read."""
        read, known = self._words, self._samples
        if others:
            read = [words for n, words in enumerate(read) if n not in others]
            known = [sample for n, sample in enumerate(known) if n not in others]
        return bool(read) and np.concatenate(read).tobytes() != b"".join(known)

    def look(self, seconds: float) -> None:
        """Go on looking through the memory of the weights, after a call that took so long; what
        has changed is taken in at the next call."""
        number = self._memory.look(seconds * SHARE)
        if number is not None:
            self._states[number] = None
            warnings.warn(STALE, RuntimeWarning, stacklevel=2)


STALE = (
    "a weight was written past PyTorch's version counter (through .data, or an array over its "
    "memory) and is taken in now; earlier calls may have used its old values. Call "
    "luminal.torch.reset() after such writes, or compile with options={'freeze': False}"
)


class Memory:
    """All bytes of the weights in pieces, each with a digest. It keeps none of them alive: `look`
    must be called only while the tensors that were taken are there."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, np.ndarray, int]] = []
        self._next = 0
        self._seconds = 0.0  # that may still be spent

    def take(self, number: int, tensor: torch.Tensor) -> None:
        """A weight as it is now, in place of an earlier one of this number."""
        kept = [piece for piece in self._pieces if piece[0] != number]
        whole = _bytes(tensor) if not tensor.is_inference() else np.empty(0, np.uint8)
        starts = range(0, len(whole), PIECE)
        parts = [whole[start : start + PIECE] for start in starts]
        self._pieces = kept + [(number, part, _digest(part)) for part in parts]

    def look(self, seconds: float) -> int | None:
        """The number of a weight that has changed, as far as can be seen in this time and what
        was left of earlier ones."""
        self._seconds += seconds
        start = time.perf_counter()
        while self._pieces and self._seconds > 0:
            self._next = (self._next + 1) % len(self._pieces)
            number, part, digest = self._pieces[self._next]
            changed = _digest(part) != digest
            now = time.perf_counter()
            self._seconds, start = self._seconds - min(now - start, LONGEST), now
            if changed:
                return number
        return None


def _digest(part: np.ndarray) -> int:
    words = len(part) // (8 * COLUMNS) * COLUMNS
    sums = np.add.reduce(part[: 8 * words].view(np.uint64).reshape(-1, COLUMNS), axis=0)
    return hash((sums.tobytes(), part[8 * words :].tobytes()))


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
    """A view of words far apart, from the first element to the last; see `_bytes`."""
    whole = _bytes(tensor)
    count = len(whole) // WORD
    if not count:
        return NONE
    words = whole[: count * WORD].view(np.uint32)
    return words[:: max(1, (count - 1) // (SAMPLES - 1))][:SAMPLES]


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """A view of a tensor's memory, from the first element to the last. It does not keep the memory
    alive: it must be read only while the tensor is there."""
    spans = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())]
    count = (1 + sum(spans)) * tensor.itemsize if tensor.numel() else 0
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(tensor.data_ptr()))
