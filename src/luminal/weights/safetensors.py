"""Safetensors files, memory-mapped: names to NumPy arrays without a copy.

Format (https://huggingface.co/docs/safetensors): 8 bytes little-endian length of a JSON header; the
header maps names to dtype, shape and [begin, end) offsets into the data that follows. A sharded
model has an index file, `*.safetensors.index.json`, whose `weight_map` tells each tensor's file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import WeightsError
from .fields import MOST_JSON, Fields, exists, parse_json, read_json, regular

DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
USUAL = "model.safetensors"
MOST_BYTES = 2**62
MOST_RANK = 32
METADATA = "__metadata__"  # an entry of the header that is no tensor: texts


class Safetensors(Mapping[str, np.ndarray]):
    """The tensors of a file, an index file, or a directory, as read-only memory-mapped arrays.

    Raises WeightsError for a file that is truncated, malformed or of an unknown dtype, or whose
    tensors overlap or leave gaps, before any tensor is read.
    """

    def __init__(self, path: str | Path) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        for file in _files(Path(path)):
            arrays = _read(file)
            twice = self._arrays.keys() & arrays.keys()
            if twice:
                raise WeightsError(f"{file}: {sorted(twice)[0]!r} stands in another shard too")
            self._arrays.update(arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._arrays[name]
        except KeyError:
            raise WeightsError(f"no tensor {name!r} among {len(self._arrays)} tensors") from None

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _files(path: Path) -> list[Path]:
    """The shards behind a path, in a fixed order. Without an index what is called as usual stands
    alone: other files beside it are the same in another type."""
    if exists(path) and path.is_dir():
        indices = sorted(path.glob("*.safetensors.index.json"))
        single = sorted(path.glob("*.safetensors"))
        if indices:
            return _files(indices[0])
        if not single:
            raise WeightsError(f"{path}: no *.safetensors file in this directory")
        return [file for file in single if file.name == USUAL] or single
    if not exists(path):
        raise WeightsError(f"{path}: no such file")
    if not regular(path).name.endswith(".index.json"):
        return [path]
    return shards(path, Fields(read_json(path), str(path)))


def shards(path: Path, index: Fields) -> list[Path]:
    """The files that an index names. Raises WeightsError."""
    names = index.fields("weight_map")
    return [_shard(path, name) for name in sorted({names.text(name) for name in names.values})]


def _shard(index: Path, name: str) -> Path:
    """The file of a shard, which lies in the folder of the index or below. (A link may stand there:
    the hub's own cache is made of them.)"""
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or Path(name).is_absolute() or ".." in Path(name).parts:
        raise WeightsError(f"{index}: shard {name!r} is outside of the model's folder")
    if not exists(index.parent / name):
        raise WeightsError(f"{index}: shard {name} is missing")
    return regular(index.parent / name)


def _read(file: Path) -> dict[str, np.ndarray]:
    size = regular(file).stat().st_size
    header, start = _header(file, size)
    spans = {name: _span(header.fields(name)) for name in header.values if name != METADATA}
    _check_cover(file, spans, size - start)
    data = np.memmap(file, np.uint8, "r", start) if size > start else np.zeros(0, np.uint8)
    return {name: _array(data, span) for name, span in spans.items()}


def _header(file: Path, size: int) -> tuple[Fields, int]:
    """The header and the position of the data."""
    with open(file, "rb") as stream:
        first = stream.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length > min(MOST_JSON, size - 8):
            raise WeightsError(f"{file}: not a safetensors file, or truncated ({size} bytes)")
        header = parse_json(stream.read(length), f"{file}: the header", once=True)
    found = Fields(header, f"{file}: the header")
    metadata = found.fields(METADATA)
    for key in metadata.values:
        metadata.text(key)
    return found, 8 + length


@dataclass(frozen=True)
class _Span:
    """Where a tensor lies in the data."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def _span(entry: Fields) -> _Span:
    dtype, shape = DTYPES[entry.text("dtype", among=DTYPES)], entry.counts("shape", high=MOST_BYTES)
    begin, end = entry.counts("data_offsets", 2, high=MOST_BYTES)
    wanted = math.prod(shape) * dtype.itemsize
    if end - begin != wanted:
        raise WeightsError(
            f"{entry.where}: {dtype} {shape} needs {wanted} bytes, has {end - begin}"
        )
    whole = math.prod(max(1, n) for n in shape) * dtype.itemsize  # what NumPy looks at
    if len(shape) > MOST_RANK or whole > MOST_BYTES:
        raise WeightsError(f"{entry.where}: no array has the shape {shape}")
    return _Span(dtype, tuple(shape), begin, end)


def _check_cover(file: Path, spans: Mapping[str, _Span], size: int) -> None:
    """The tensors cover the data: no byte belongs to two of them, or to none."""
    place = 0
    for name, span in sorted(spans.items(), key=lambda item: (item[1].begin, item[1].end)):
        if span.end > size:
            raise WeightsError(
                f"{file}: truncated: tensor {name!r} ends at byte {span.end}, the data at {size}"
            )
        if span.begin != place:
            raise WeightsError(
                f"{file}: tensor {name!r} begins at byte {span.begin} of the data, where those "
                f"before it end at {place}"
            )
        place = span.end
    if place != size:
        raise WeightsError(f"{file}: {size} bytes of data, of which tensors take {place}")


def _array(data: np.ndarray, span: _Span) -> np.ndarray:
    raw = data[span.begin : span.end]
    if raw.ctypes.data % span.dtype.itemsize:
        raw = raw.copy()  # old writers did not align
    return raw.view(span.dtype).reshape(span.shape)
