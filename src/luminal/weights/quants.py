"""Small integers with scales: the numbers of quantised weights in plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Quants:
    """weight = (quant - shift) * scale - minimum, over blocks of a row.

    quants: (..., blocks, block) i8 or u8. scales and minima (None: 0): (..., blocks), floats; or
    integers that count units (..., units) f16, each for as many blocks.
    """

    quants: np.ndarray
    scales: np.ndarray
    minima: np.ndarray | None = None
    shift: int = 0
    scales_units: np.ndarray | None = None
    minima_units: np.ndarray | None = None

    def values(self) -> np.ndarray:
        """The weights (..., row) f32."""
        wide = self.quants.astype(np.float32) - np.float32(self.shift)
        wide *= _in_units(self.scales, self.scales_units)[..., None]
        if self.minima is not None:
            wide -= _in_units(self.minima, self.minima_units)[..., None]
        return wide.reshape(*wide.shape[:-2], -1)

    def numbers(self) -> dict[str, np.ndarray]:
        """What there is beside the quants, by name."""
        names = ("scales", "scales_units", "minima", "minima_units")
        return {name: found for name in names if (found := getattr(self, name)) is not None}


    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Quants:
        """With other arrays in place of its own."""
        found: dict[str, Any] = {name: change(value) for name, value in self.numbers().items()}
        return replace(self, quants=change(self.quants), **found)

    @staticmethod
    def stack(all: Sequence[Any]) -> Quants:
        """Several of one form: (several, ...)."""
        names = {"quants": None} | dict.fromkeys(all[0].numbers())
        found = {name: np.stack([getattr(each, name) for each in all]) for name in names}
        return Quants(**found, shift=all[0].shift)


def _in_units(numbers: np.ndarray, units: np.ndarray | None) -> np.ndarray:
    """Scales or minima f32 (..., blocks)."""
    wide = numbers.astype(np.float32)
    if units is not None:
        wide *= np.repeat(units.astype(np.float32), wide.shape[-1] // units.shape[-1], -1)
    return wide


def half(blocks: np.ndarray, start: int) -> np.ndarray:
    """The f16 at a byte of each block: where it lies, if such numbers may lie there."""
    step, width = blocks.strides[-1], np.dtype(np.float16).itemsize
    places = (blocks.ctypes.data + start, *blocks.strides[:-1])
    if step == 1 and not any(place % width for place in places):
        return blocks[..., start : start + width].view(np.float16)[..., 0]
    return np.ascontiguousarray(blocks[..., start : start + width]).view(np.float16)[..., 0]


def nibbles(packed: np.ndarray) -> np.ndarray:
    """Bytes (..., n) -> u8 (..., 2 n): all low halves, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], -1)
