"""Safetensors files, memory-mapped: names to NumPy arrays without a copy.

Format (https://huggingface.co/docs/safetensors): 8 bytes little-endian length of a JSON header; the
header maps names to dtype, shape and [begin, end) offsets into the data that follows. A sharded
model has an index file, `*.safetensors.index.json`, whose `weight_map` tells each tensor's file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import WeightsError

DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
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
MAX_HEADER = 100 << 20  # bytes; the reference implementation has the same limit


class Safetensors(Mapping[str, np.ndarray]):
    """The tensors of a file, an index file, or a directory, as read-only memory-mapped arrays.

    Raises WeightsError for a file that is truncated, malformed or of an unknown dtype, before any
    tensor is read.
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
    """The shards behind a path, in a fixed order."""
    if path.is_dir():
        indices = sorted(path.glob("*.safetensors.index.json"))
        single = sorted(path.glob("*.safetensors"))
        if indices:
            return _files(indices[0])
        if not single:
            raise WeightsError(f"{path}: no *.safetensors file in this directory")
        return single
    if not path.exists():
        raise WeightsError(f"{path}: no such file")
    if not regular(path).name.endswith(".index.json"):
        return [path]
    try:
        shards = sorted(set(json.loads(path.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path}: not an index of shards: {error}") from None
    return [_shard(path, name) for name in shards]


def _shard(index: Path, name: Any) -> Path:
    """The file of a shard, which lies in the folder of the index or below. (A link may stand there:
    the hub's own cache is made of them.)"""
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not parts or parts[0] == "/" or Path(name).is_absolute() or ".." in Path(name).parts:
        raise WeightsError(f"{index}: shard {name!r} is outside of the model's folder")
    if not (index.parent / name).exists():
        raise WeightsError(f"{index}: shard {name} is missing")
    return regular(index.parent / name)


def regular(path: Path) -> Path:
    """The path, if a file is there: what is read from a pipe or a device may never end."""
    if not path.is_file():
        raise WeightsError(f"{path}: not a regular file")
    return path


def _read(file: Path) -> dict[str, np.ndarray]:
    size = file.stat().st_size
    header, start = _header(file, size)
    data = np.memmap(file, np.uint8, "r", start) if size > start else np.zeros(0, np.uint8)
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            arrays[name] = _tensor(file, name, entry, data)
    return arrays


def _header(file: Path, size: int) -> tuple[dict[str, Any], int]:
    """The parsed header and the position of the data."""
    with open(file, "rb") as stream:
        first = stream.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length > min(MAX_HEADER, size - 8):
            raise WeightsError(f"{file}: not a safetensors file, or truncated ({size} bytes)")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:
            raise WeightsError(f"{file}: the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise WeightsError(f"{file}: the header is not a JSON object")
    return header, 8 + length


def _tensor(file: Path, name: str, entry: Any, data: np.ndarray) -> np.ndarray:
    try:
        kind, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{file}: entry {name!r} is malformed: {error}") from None
    if kind not in DTYPES:
        raise WeightsError(f"{file}: tensor {name!r} has unknown dtype {kind!r}")
    wanted = math.prod(shape) * DTYPES[kind].itemsize
    if min(shape, default=0) < 0 or begin < 0 or end - begin != wanted:
        raise WeightsError(
            f"{file}: tensor {name!r} of {kind} {shape} needs {wanted} bytes, has {end - begin}"
        )
    if end > len(data):
        raise WeightsError(
            f"{file}: truncated: tensor {name!r} ends at byte {end}, the data at {len(data)}"
        )
    raw = data[begin:end]
    if raw.ctypes.data % DTYPES[kind].itemsize:
        raw = raw.copy()  # old writers did not align
    return raw.view(DTYPES[kind]).reshape(shape)
