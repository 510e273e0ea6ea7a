"""Files of weights as CTranslate2 writes them (model.bin, versions 5 and 6, little-endian):

    u32 version, text name of the model, u32 revision of it,
    u32 count, then of each tensor: text name, u8 rank, u32 sizes, u8 dtype, u32 bytes, the bytes;
    u32 count, then of each other name of a tensor: text name, text of which tensor

where a text is u16 length with a zero byte at the end, and the text. Matrices of i8 have a tensor
NAME_scale, by which their rows are divided.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from ..errors import WeightsError
from .fields import regular

VERSIONS = (5, 6)
DTYPES = [np.dtype(kind) for kind in
          ("f4", "i1", "i2", "i4", "f2", ml_dtypes.bfloat16)]  # fmt: skip
MOST_RANK = 8


class CTranslate2(Mapping[str, np.ndarray]):
    """The tensors of a file, or of one that was cut into several. model: the name that it says.

    Raises WeightsError for what is truncated or malformed.
    """

    def __init__(self, files: Path | Sequence[Path]) -> None:
        parts = [files] if isinstance(files, Path) else list(files)
        self._where, self._place = str(parts[0]), 0
        data = [np.memmap(regular(part), np.uint8, "r") if part.stat().st_size else
                np.zeros(0, np.uint8) for part in parts]  # fmt: skip
        self._data = data[0] if len(data) == 1 else np.concatenate(data)
        version = self._number("I")
        if version not in VERSIONS:
            raise WeightsError(f"{self._where}: no weights of CTranslate2, or of its version "
                               f"{version}; versions {VERSIONS} are read")  # fmt: skip
        self.model = self._text()
        self._number("I")
        self._arrays = dict(self._tensor() for _ in range(self._number("I")))
        for _ in range(self._number("I")):
            name, of = self._text(), self._text()
            if of not in self._arrays:
                raise WeightsError(f"{self._where}: {name!r} is another name of {of!r}: no tensor")
            self._arrays[name] = self._arrays[of]

    def __getitem__(self, name: str) -> np.ndarray:
        """A tensor; one of integers with a scale as f32."""
        if name not in self._arrays:
            raise WeightsError(f"{self._where}: no tensor {name!r}")
        value, scale = self._arrays[name], self._arrays.get(f"{name}_scale")
        if scale is None:
            return value
        rows = scale.astype(np.float32).reshape(-1, *(1,) * (value.ndim - 1))
        return value.astype(np.float32) / rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def _bytes(self, count: int) -> np.ndarray:
        start, self._place = self._place, self._place + count
        if self._place > len(self._data):
            raise WeightsError(f"{self._where}: truncated: {len(self._data)} bytes")
        return self._data[start : self._place]

    def _number(self, kind: str) -> int:
        size = struct.calcsize(f"<{kind}")
        return int(struct.unpack(f"<{kind}", self._bytes(size).tobytes())[0])

    def _text(self) -> str:
        raw = self._bytes(self._number("H")).tobytes().rstrip(b"\0")
        return raw.decode("utf-8", "replace")

    def _tensor(self) -> tuple[str, np.ndarray]:
        name, rank = self._text(), self._number("B")
        if rank > MOST_RANK:
            raise WeightsError(f"{self._where}: {name!r} has {rank} dimensions")
        shape = [self._number("I") for _ in range(rank)]
        number, size = self._number("B"), self._number("I")
        if number >= len(DTYPES) or math.prod(shape) * DTYPES[number].itemsize != size:
            raise WeightsError(f"{self._where}: {name!r}: {size} bytes of {shape}, dtype {number}")
        raw = self._bytes(size)
        if raw.ctypes.data % DTYPES[number].itemsize:
            raw = raw.copy()
        return name, raw.view(DTYPES[number]).reshape(shape)
