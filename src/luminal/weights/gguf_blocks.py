"""Blocks of quantised weights in GGUF files: their numbers in plain arrays, and their values.

A type is (weights, bytes) of a block. Layouts follow ggml's `block_q*` structures; the values equal
those of ggml's dequantisation bit for bit (products and differences in f32, in its order).
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from . import gguf_grids as grids
from .quants import Quants, half, nibbles

PLAIN = {
    "F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "F64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16), "I8": np.dtype(np.int8), "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32), "I64": np.dtype(np.int64),
}  # fmt: skip
BLOCKS = {name: (1, kind.itemsize) for name, kind in PLAIN.items()} | {
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34),
    "Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176),
    "Q6_K": (256, 210), "IQ1_S": (256, 50), "IQ1_M": (256, 56), "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74), "IQ2_S": (256, 82), "IQ3_XXS": (256, 98), "IQ3_S": (256, 110),
    "IQ4_NL": (32, 18), "IQ4_XS": (256, 136), "TQ1_0": (256, 54), "TQ2_0": (256, 66),
    "MXFP4": (32, 17), "NVFP4": (64, 36), "Q1_0": (128, 18), "Q8_1": (32, 36), "Q8_K": (256, 292),
}  # fmt: skip


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
        return Quants(blocks[..., 2:], half(blocks, 0), shift=8)
    return Quants(blocks[..., 4:], half(blocks, 0), -half(blocks, 2))


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """4 bytes (..., 4) -> u8 (..., 32): bit i, moved to the fifth place."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << 4


def _q8_0(b: np.ndarray) -> Quants:
    return Quants(b[..., 2:].view(np.int8), half(b, 0))


def _q8_1(b: np.ndarray) -> Quants:
    """As Q8_0, with the sum of the block, which products need and values do not."""
    return Quants(b[..., 4:].view(np.int8), half(b, 0))


def _q8_k(b: np.ndarray) -> Quants:
    """An f32 scale, 256 quants, sums of sixteen each."""
    scales = np.ascontiguousarray(b[..., :4]).view(np.float32).reshape(len(b), -1)
    quants = np.ascontiguousarray(b[..., 4:260]).view(np.int8)
    return Quants(quants.reshape(len(b), -1, 32), np.repeat(scales, 8, 1))


def _q4_0(b: np.ndarray) -> Quants:
    return Quants(nibbles(b[..., 2:]), half(b, 0), shift=8)


def _q4_1(b: np.ndarray) -> Quants:
    return Quants(nibbles(b[..., 4:]), half(b, 0), -half(b, 2))


def _q5_0(b: np.ndarray) -> Quants:
    quants = nibbles(b[..., 6:]) | _fifth_bits(b[..., 2:6])
    return Quants(quants, half(b, 0), shift=16)


def _q5_1(b: np.ndarray) -> Quants:
    quants = nibbles(b[..., 8:]) | _fifth_bits(b[..., 4:8])
    return Quants(quants, half(b, 0), -half(b, 2))


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
        scales_units=half(b, 0), minima_units=half(b, 2),
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
    return Quants(quants.reshape(len(b), -1, 16), scales, scales_units=half(b, 208))


def _pairs(packed: np.ndarray) -> np.ndarray:
    """64 bytes (..., 64) -> u8 0 .. 3 (..., 256): each 32 bytes hold four times 32 quants."""
    groups = packed.reshape(*packed.shape[:-1], 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return ((groups >> shifts) & 3).reshape(*packed.shape[:-1], 256)


def _q2_k(b: np.ndarray) -> Quants:
    """Sixteen bytes of a 4-bit scale and minimum, the quants, units of scales and of minima."""
    scales, minima = ((b[..., :16] >> at & 15).reshape(len(b), -1) for at in (0, 4))
    quants = _pairs(b[..., 16:80]).reshape(len(b), -1, 16)
    return Quants(quants, scales, minima, 0, half(b, 80), half(b, 82))


def _q3_k(b: np.ndarray) -> Quants:
    """Third bits of the quants, their low two bits, sixteen 6-bit scales, the unit."""
    bits = np.arange(8, dtype=np.uint8)[:, None]
    high = ((b[..., None, :32] >> bits) & 1).reshape(*b.shape[:-1], 256)
    quants = (_pairs(b[..., 32:96]) | (high << 2)).reshape(len(b), -1, 16)
    low, top = nibbles(b[..., 96:104]), b[..., None, 104:108] >> np.array([[0], [2], [4], [6]])
    scales = low | ((top & 3) << 4).reshape(low.shape)
    return Quants(quants, _less(scales, 32).reshape(len(b), -1), None, 4, half(b, 108))


def _less(numbers: np.ndarray, shift: int) -> np.ndarray:
    """As i8, after a shift is taken from them."""
    return numbers.astype(np.int8) - np.int8(shift)


IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)  # doubled


def _iq4_nl(b: np.ndarray) -> Quants:
    return Quants(IQ4[nibbles(b[..., 2:])], half(b, 0))


def _iq4_xs(b: np.ndarray) -> Quants:
    """The unit, high two bits of eight scales, their low four bits, then eight times 32 quants."""
    places = np.arange(0, 16, 2, dtype=np.uint16)
    high = (np.ascontiguousarray(b[..., 2:4]).view("<u2") >> places) & 3
    low = np.stack([b[..., 4:8] & 15, b[..., 4:8] >> 4], -1).reshape(high.shape)
    scales = _less(low | (high << 4), 32).reshape(len(b), -1)
    quants = IQ4[nibbles(b[..., 8:].reshape(len(b), -1, 16))]
    return Quants(quants, scales, scales_units=half(b, 0))


def _ternary(b: np.ndarray, quants: np.ndarray, at: int) -> Quants:
    """Quants 0, 1, 2 of 256 weights that share a scale, as blocks of 32."""
    return Quants(quants.reshape(len(b), -1, 32), np.repeat(half(b, at), 8, 1), shift=1)


def _q1_0(b: np.ndarray) -> Quants:
    """A bit a weight: the scale, or less it. As quants 0 and 2 of blocks of 32."""
    bits = np.unpackbits(b[..., 2:], axis=-1, bitorder="little") << 1
    return Quants(bits.reshape(len(b), -1, 32), np.repeat(half(b, 0), 4, 1), shift=1)


def _tq1_0(b: np.ndarray) -> Quants:
    """Five ternary digits a byte, as a fraction of 256: 32 bytes, 16, and four bytes of four."""
    digits = []
    for start, end, count in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        moved = b[..., None, start:end] * (3 ** np.arange(count)[:, None]).astype(np.uint8)
        digits.append(moved.reshape(*b.shape[:-1], -1))  # modulo 256: the digits before are gone
    quants = (np.concatenate(digits, -1).astype(np.uint16) * 3 >> 8).astype(np.uint8)
    return _ternary(b, quants, 52)


def _tq2_0(b: np.ndarray) -> Quants:
    return _ternary(b, _pairs(b[..., :64]), 64)


def mx_scales(exponents: np.ndarray) -> np.ndarray:
    """2 ** (exponent - 128) of u8, bf16: the unit of doubled E2M1 numbers."""
    wide = exponents.astype(np.uint16)
    bits = np.where(wide < 2, 0x20 << wide, (wide - 1) << 7)  # the first two are subnormal
    return bits.astype(np.uint16).view(ml_dtypes.bfloat16)


def _mxfp4(b: np.ndarray) -> Quants:
    return Quants(E2M1[nibbles(b[..., 1:])], mx_scales(b[..., 0]))


def _nvfp4(b: np.ndarray) -> Quants:
    """Four scales (unsigned E4M3), then four times 16 quants."""
    given = b[..., :4].reshape(len(b), -1) & 0x7F
    scales = np.where(given < 0x7F, given, 0).view(ml_dtypes.float8_e4m3fn).astype(np.float16)
    return Quants(E2M1[nibbles(b[..., 4:].reshape(len(b), -1, 8))], scales * np.float16(0.5))


UNPACK: dict[str, Callable[[np.ndarray], Quants]] = {
    "Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q2_K": _q2_k,
    "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs, "TQ1_0": _tq1_0, "TQ2_0": _tq2_0, "MXFP4": _mxfp4, "NVFP4": _nvfp4,
    "IQ1_S": grids.iq1_s, "IQ1_M": grids.iq1_m, "IQ2_XXS": grids.iq2_xxs, "IQ2_XS": grids.iq2_xs,
    "IQ2_S": grids.iq2_s, "IQ3_XXS": grids.iq3_xxs, "IQ3_S": grids.iq3_s, "Q1_0": _q1_0,
    "Q8_1": _q8_1, "Q8_K": _q8_k,
}  # fmt: skip
