"""How the matrices of a model are stored: floats of any width, or blocks of small integers.

Block formats hold the same numbers as GGUF's, in separate arrays for quants, scales and minima.
Quants are unsigned (what x86 multiplies by signed activations):

    q8      (quant - 128) * scale                Q8_0 (also Q5_0: 8 bits a weight instead of 5)
    q4      (quant - 8) * scale                  Q4_0
    q4m     quant * scale - minimum              Q4_1
    q8m     quant * scale - minimum              Q5_1
    q4k     quant * scale - minimum              Q4_K
    q8k     quant * scale - minimum              Q5_K
    q8s     (quant - 128) * scale, blocks of 16  Q6_K
    q4s     (quant - 4) * scale, blocks of 16    Q3_K
    q4n     quant * scale - minimum, blocks of 16  Q2_K
    q8u     (quant - 128) * scale                IQ4_XS
    q8b     (quant - 128) * scale (bf16)         MXFP4
    q8h     (quant - 128) * scale, blocks of 16  NVFP4
    q8f     (quant - 128) * scale (f32)          IQ1_S, IQ2_XXS, IQ3_XXS, IQ3_S
    q8g     (quant - 128) * scale (f32), blocks of 16  IQ1_M, IQ2_XS, IQ2_S, compressed NVFP4
    q4f     (quant - 8) * scale (f32)            compressed-tensors
    q4u32, q4u64, q4u128: quant * scale - minimum, units of as many weights: GPTQ, AWQ

In q4k to q8u and the last a scale is an integer times an f16 unit that 256 weights share, and so
is a minimum. IQ4_NL and Q8_1 become q8; Q1_0, TQ1_0 and TQ2_0 become q4, Q8_K q8f. What has a
grid or a table takes 8 bits a weight: a load from a table for each weight costs more than the bytes
it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.quants import Quants

FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class Format:
    """bits: 8, or 4 (two quants a byte). block: weights that share a scale. minima: a block has one
    too. scale: dtype of scales and minima; integers count f16 units, of which each `unit` weights
    have one (and one for minima). shift: what is taken from a quant first."""

    bits: int
    block: int = 32
    minima: bool = False
    scale: str = "f16"
    shift: int = 0
    unit: int = 0

    @property
    def whole(self) -> int:
        """Weights of which a row has a whole number."""
        return max(self.block, self.unit)

    @property
    def fields(self) -> dict[str, tuple[int, str]]:
        """The arrays beside the quants: their names, weights that share a number, and dtypes."""
        found = {}
        for name in ("scales", "minima")[: 1 + self.minima]:
            found[name] = (self.block, self.scale)
            if self.unit:
                found[f"{name}_units"] = (self.unit, "f16")
        return found


FORMATS = {
    "q8": Format(8, shift=128),
    "q4": Format(4, shift=8),
    "q4m": Format(4, minima=True),
    "q8m": Format(8, minima=True),
    "q4k": Format(4, minima=True, scale="u8", unit=256),
    "q8k": Format(8, minima=True, scale="u8", unit=256),
    "q8s": Format(8, block=16, scale="i8", shift=128, unit=256),
    "q4s": Format(4, block=16, scale="i8", shift=4, unit=256),
    "q4n": Format(4, block=16, minima=True, scale="u8", unit=256),
    "q8u": Format(8, scale="i8", shift=128, unit=256),
    "q8b": Format(8, scale="bf16", shift=128),
    "q8h": Format(8, block=16, shift=128),
    "q8f": Format(8, scale="f32", shift=128),
    "q8g": Format(8, block=16, scale="f32", shift=128),
    "q4f": Format(4, scale="f32", shift=8),
    "q4u32": Format(4, minima=True, scale="u8", unit=32),
    "q4u64": Format(4, minima=True, scale="u8", unit=64),
    "q4u128": Format(4, minima=True, scale="u8", unit=128),
}
KINDS = (*FLOATS, *FORMATS)


@dataclass(frozen=True)
class Storage:
    """The kind of each matrix: of those in `exact` by name, of all others `default`."""

    default: str = "f32"
    exact: Mapping[str, str] = field(default_factory=dict)
    path: str = ""

    def __post_init__(self) -> None:
        for kind in {self.default, *self.exact.values()}:
            if kind not in KINDS:
                raise Unsupported(f"weights of kind {kind!r}; there are {', '.join(KINDS)}")

    def below(self, name: str) -> Storage:
        """The storage of a part."""
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    @property
    def narrow(self) -> bool:
        """Whether any matrix is kept in less than f32."""
        return {self.default, *self.exact.values()} != {"f32"}

    def kind(self, inside: int) -> str:
        """The kind here; rows that are no whole number of blocks stay f32."""
        kind = self.exact.get(self.path, self.default)
        whole = kind in FLOATS or inside % FORMATS[kind].whole == 0
        return kind if whole else "f32"


# ---- the arrays of a `Blocks` module


def block_fields(
    found: Quants, kind: str, halves: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """By name. halves: the quants, where they are stored as `pack_halves` makes them already."""
    format = FORMATS[kind]
    if halves is None:
        halves = found.quants.view(np.uint8) + np.uint8((format.shift - found.shift) % 256)
        halves = pack_halves(halves) if format.bits == 4 else halves
    return {"quants": halves, **found.numbers()}


def block_makers(
    path: str, kind: str, make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, Callable[[], np.ndarray]]:
    """What makes each array under its whole name; make: all at once, called once for them."""
    fields = lru_cache(1)(make)
    names = ["quants", *FORMATS[kind].fields]

    def field(which: str) -> np.ndarray:
        found = fields()[which]
        if which == names[-1]:
            fields.cache_clear()
        return found

    return {f"{path}.{name}": partial(field, name) for name in names}


# ---- quantising floats


def _blocks(weight: np.ndarray) -> np.ndarray:
    wide = np.asarray(weight, np.float32)
    if wide.shape[-1] % 32:
        raise WeightsError(f"rows of {wide.shape[-1]} weights are no whole blocks of 32")
    return wide.reshape(*wide.shape[:-1], -1, 32)


def quantise8(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q8_0: (quants u8 (..., blocks, 32), scales f16 (..., blocks)); the largest becomes 127."""
    blocks = _blocks(weight)
    scales = np.abs(blocks).max(-1) / np.float32(127)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    scaled = blocks * inverse[..., None]
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # half away from zero
    return (rounded + 128).astype(np.uint8), scales.astype(np.float16)


def quantise4(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q4_0: (bytes u8 (..., blocks, 16), scales f16); the largest in size becomes -8."""
    blocks = _blocks(weight)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)[..., 0]
    scales = largest / np.float32(-8)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    quants = np.minimum(15, np.trunc(blocks * inverse[..., None] + np.float32(8.5)))
    return pack_halves(quants.astype(np.uint8)), scales.astype(np.float16)


def pack_halves(quants: np.ndarray) -> np.ndarray:
    """u8 0 .. 15 (..., n) -> bytes (..., n / 2): quant i in the low half of byte i, i + n / 2 in
    the high one."""
    low, high = np.split(quants, 2, -1)
    packed: np.ndarray = low | (high << 4)
    return packed
