"""Blocks of quantised weights in GGUF files: their numbers in plain arrays, and their values.

A type is (weights, bytes) of a block. Layouts follow ggml's `block_q*` structures; the values equal
those of ggml's dequantisation bit for bit (products and differences in f32, in its order).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

PLAIN = {
    "F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "F64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16), "I8": np.dtype(np.int8), "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32), "I64": np.dtype(np.int64),
}  # fmt: skip
BLOCKS = {name: (1, kind.itemsize) for name, kind in PLAIN.items()} | {
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34),
    "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210),
}  # fmt: skip


@dataclass(frozen=True)
class Quants:
    """weight = (quant - shift) * scale - minimum, over blocks of a row.

    quants: (rows, blocks, block) i8 or u8. scales and minima (None: 0): (rows, blocks), f16; or
    integers that count units (rows, units) f16, each for as many blocks.
    """

    quants: np.ndarray
    scales: np.ndarray
    minima: np.ndarray | None = None
    shift: int = 0
    scales_units: np.ndarray | None = None
    minima_units: np.ndarray | None = None

    def values(self) -> np.ndarray:
        """The weights (rows, row) f32."""
        wide = self.quants.astype(np.float32) - np.float32(self.shift)
        wide *= _in_units(self.scales, self.scales_units)[..., None]
        if self.minima is not None:
            wide -= _in_units(self.minima, self.minima_units)[..., None]
        return wide.reshape(len(wide), -1)

    def numbers(self) -> dict[str, np.ndarray]:
        """What there is beside the quants, by name."""
        names = ("scales", "scales_units", "minima", "minima_units")
        return {name: found for name in names if (found := getattr(self, name)) is not None}


def _in_units(numbers: np.ndarray, units: np.ndarray | None) -> np.ndarray:
    """Scales or minima f32 (rows, blocks)."""
    wide = numbers.astype(np.float32)
    if units is not None:
        wide *= np.repeat(units.astype(np.float32), wide.shape[1] // units.shape[1], 1)
    return wide


def dequantise(kind: str, raw: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The values of raw rows (rows, bytes): floats and integers as stored, blocks as f32."""
    if kind in PLAIN:
        if raw.ctypes.data % PLAIN[kind].itemsize:
            raw = raw.copy()
        return raw.view(PLAIN[kind]).reshape(shape)
    return unpack(kind, raw).values().reshape(shape)


def unpack(kind: str, raw: np.ndarray) -> Quants:
    """The quants, scales and minima of raw rows (rows, bytes) of a block type."""
    blocks = raw.reshape(len(raw), -1, BLOCKS[kind][1])  # (rows, blocks, bytes)
    return UNPACK[kind](blocks)


def split_halves(kind: str, raw: np.ndarray) -> Quants | None:
    """As `unpack` of rows (rows, bytes) in which byte i of a block holds quants i and i + 16, whose
    bytes stay as they are: (rows, blocks, 16) u8; None for other types."""
    if kind not in ("Q4_0", "Q4_1"):
        return None
    blocks = raw.reshape(len(raw), -1, BLOCKS[kind][1])
    if kind == "Q4_0":
        return Quants(blocks[..., 2:], _half(blocks, 0), shift=8)
    return Quants(blocks[..., 4:], _half(blocks, 0), -_half(blocks, 2))


def _half(blocks: np.ndarray, start: int) -> np.ndarray:
    """The f16 at a byte of each block."""
    return np.ascontiguousarray(blocks[..., start : start + 2]).view(np.float16)[..., 0]


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """Bytes (..., n) -> u8 (..., 2 n): all low halves, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], -1)


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """4 bytes (..., 4) -> u8 (..., 32): bit i, moved to the fifth place."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << 4


def _q8_0(b: np.ndarray) -> Quants:
    return Quants(b[..., 2:].view(np.int8), _half(b, 0))


def _q4_0(b: np.ndarray) -> Quants:
    return Quants(_nibbles(b[..., 2:]), _half(b, 0), shift=8)


def _q4_1(b: np.ndarray) -> Quants:
    return Quants(_nibbles(b[..., 4:]), _half(b, 0), -_half(b, 2))


def _q5_0(b: np.ndarray) -> Quants:
    quants = _nibbles(b[..., 6:]) | _fifth_bits(b[..., 2:6])
    return Quants(quants, _half(b, 0), shift=16)


def _q5_1(b: np.ndarray) -> Quants:
    quants = _nibbles(b[..., 8:]) | _fifth_bits(b[..., 4:8])
    return Quants(quants, _half(b, 0), -_half(b, 2))


def _k_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """12 bytes -> eight 6-bit scales and eight 6-bit minima."""
    first, second, third = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], -1)
    minima = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], -1)
    return scales, minima


def _k_nibbles(packed: np.ndarray) -> np.ndarray:
    """128 bytes -> u8 (..., 8, 32): each 32 bytes hold two sub-blocks, low and high halves."""
    groups = packed.reshape(*packed.shape[:-1], 4, 32)
    pairs = np.stack([groups & 15, groups >> 4], -2)  # (..., 4, 2, 32)
    return pairs.reshape(*packed.shape[:-1], 8, 32)


def _k_quants(b: np.ndarray, quants: np.ndarray) -> Quants:
    """Q4_K and Q5_K: units of scales and minima, then these, then what became quants (rows,
    blocks, 8, 32)."""
    scales, minima = (n.reshape(len(b), -1) for n in _k_scales(b[..., 4:16]))
    return Quants(
        quants.reshape(len(b), -1, 32), scales, minima,
        scales_units=_half(b, 0), minima_units=_half(b, 2),
    )  # fmt: skip


def _q4_k(b: np.ndarray) -> Quants:
    return _k_quants(b, _k_nibbles(b[..., 16:]))


def _q5_k(b: np.ndarray) -> Quants:
    bits = np.arange(8, dtype=np.uint8)[:, None]
    high = ((b[..., None, 16:48] >> bits) & 1) << 4  # (rows, blocks, 8, 32)
    return _k_quants(b, _k_nibbles(b[..., 48:]) | high)


def _q6_k(b: np.ndarray) -> Quants:
    """Low four bits of 256 weights, then their high two bits, then sixteen i8 scales."""
    low = b[..., :128].reshape(*b.shape[:-1], 2, 64)
    low = np.concatenate([low & 15, low >> 4], -1)  # (rows, blocks, 2, 128)
    high = b[..., 128:192].reshape(*b.shape[:-1], 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = ((high >> shifts) & 3).reshape(*b.shape[:-1], 2, 128)
    quants = (low | (high << 4)).astype(np.int8) - np.int8(32)
    scales = b[..., 192:208].view(np.int8).reshape(len(b), -1)
    return Quants(quants.reshape(len(b), -1, 16), scales, scales_units=_half(b, 208))


UNPACK: dict[str, Callable[[np.ndarray], Quants]] = {
    "Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q4_K": _q4_k,
    "Q5_K": _q5_k, "Q6_K": _q6_k,
}  # fmt: skip
