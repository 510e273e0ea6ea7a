"""Kernels written by hand, on the simulator."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from luminal.backend.cuda.simulator import MESSAGE, Launch, Slot, library
from luminal.errors import WrongResult


class Kernels:
    """Texts by name, each with a kernel `k`, compiled together."""

    def __init__(self, texts: Mapping[str, str], sanitize: str = "") -> None:
        self._numbers = {name: number for number, name in enumerate(texts)}
        named = enumerate(texts.values())
        kernels = tuple((f"k{n}", text.replace("void k(", f"void k{n}(")) for n, text in named)
        self._library = library(kernels, sanitize)

    def run(
        self, name: str, arrays: Sequence[np.ndarray], blocks: int = 1, threads: int = 32,
        shared: int = 0, order: int = 2, races: bool = True,
        together: bool = False,
    ) -> None:  # fmt: skip
        """On arrays in place. Raises WrongResult."""
        slots = (Slot * len(arrays))(*(Slot(a.ctypes.data, a.nbytes, 1) for a in arrays))
        how = Launch(blocks, threads, shared, order, 1, races, together)
        message = bytearray(MESSAGE)
        view = (ctypes.c_char * MESSAGE).from_buffer(message)
        kernel = getattr(self._library, f"simulated_{self._numbers[name]}")
        if self._library.simulate(kernel, slots, len(arrays), ctypes.byref(how), view):
            raise WrongResult(bytes(message).split(b"\0")[0].decode())
