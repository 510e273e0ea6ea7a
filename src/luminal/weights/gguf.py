"""GGUF files, memory-mapped: metadata, and tensors as their raw blocks.

Format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian, versions 2 and 3:
magic, version, number of tensors and of metadata entries; the entries; names, shapes (innermost
dimension first), types and offsets of the tensors; then the data, aligned.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np

from ..errors import Unsupported, WeightsError
from .fields import Fields, regular
from .gguf_blocks import BLOCKS, dequantise

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
TEXT, ARRAY = 8, 9
LENGTH = struct.Struct("<Q")
LIMIT = 1 << 28  # entries of one array or list; more is a damaged file
MOST_ENTRIES = 1 << 20  # of the head: metadata, tensors, lists in lists
MOST_DEPTH = 4  # of lists in lists
MOST_PARTS = 10_000
FIRST = re.compile(r"(.*)-00001-of-(\d{5})\.gguf")  # the name of a file that is in parts
LATER = re.compile(r".*-(?!00001)\d{5}-of-\d{5}\.gguf")
TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip


@dataclass(frozen=True)
class GGUFTensor:
    """raw: the bytes (rows, bytes of a row) u8 of a tensor of this shape and type."""

    name: str
    type: str
    shape: tuple[int, ...]
    raw: np.ndarray

    def array(self) -> np.ndarray:
        """The values: floats as they are stored, blocks as f32."""
        return dequantise(self.type, self.raw, self.shape)

    def take(self, rows: np.ndarray) -> GGUFTensor:
        """Some rows of a matrix, in this order."""
        return replace(self, shape=(len(rows), *self.shape[1:]), raw=self.raw[rows])

    def rows(self, start: int, end: int) -> GGUFTensor:
        """A part of it along the first dimension: of a matrix, or of a vector of floats."""
        shape = (end - start, *self.shape[1:])
        raw = self.raw.reshape(self.shape[0], -1)[start:end]
        return replace(self, shape=shape, raw=raw if self.shape[1:] else raw.reshape(1, -1))


@dataclass(frozen=True)
class Texts(Sequence[str]):
    """A list of texts in a file, each made when it is asked for: a vocabulary has 100,000 and more.
    starts: of each one's length, which stands before it; and the end of the last."""

    data: memoryview
    starts: array[int]
    where: str

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[str]:
        first, size = self.starts[0], LENGTH.size
        raw = self.data[first : self.starts[-1]].tobytes()  # slices of bytes are the cheapest
        for number, (start, end) in enumerate(pairwise(self.starts)):
            try:
                yield raw[start - first + size : end - first].decode()
            except UnicodeDecodeError as error:
                raise self._not_utf8(number, error) from None

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        start, end = self.starts[number] + LENGTH.size, self.starts[number + 1]
        try:
            return str(self.data[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise self._not_utf8(number, error) from None

    def _not_utf8(self, number: int, error: UnicodeDecodeError) -> WeightsError:
        return WeightsError(f"{self.where}: text {number} of a list is not UTF-8: {error}")


class GGUF(Mapping[str, GGUFTensor]):
    """The tensors of a GGUF file by name, with those of its further parts, as llama.cpp splits
    files (name-00001-of-00003.gguf); `metadata` holds the rest. part: which one this is.

    Raises WeightsError for a file that is truncated or malformed, Unsupported for a tensor type
    that is not known, before any tensor is read.
    """

    def __init__(self, path: str | Path, part: int = 0) -> None:
        self.path = Path(path)
        self._map = _mapped(self.path)
        data = np.frombuffer(self._map, np.uint8)
        self.bytes = len(data)
        reader = _Reader(self.path, data)
        tensors, entries = reader.head()
        self.metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = reader.text()
            if key in self.metadata:
                raise WeightsError(f"{self.path}: metadata {key!r} stands twice")
            self.metadata[key] = reader.value(reader.scalar("<I"))
        table = [reader.entry() for _ in range(tensors)]
        given = Fields(self.metadata, str(path))
        alignment = given.count("general.alignment", 32, high=1 << 20)
        start = -(-reader.place // alignment) * alignment
        self._tensors = {row[0]: _tensor(self.path, data, start, *row) for row in table}
        _check_apart(self.path, data, list(self._tensors.values()), len(table))
        self._later = [GGUF(file, n) for n, file in enumerate(_later(self.path, given, part), 1)]
        for later in self._later:
            if twice := self._tensors.keys() & later._tensors:
                raise WeightsError(f"{later.path}: tensor {min(twice)!r} is in another part too")
            self._tensors |= later._tensors
            self.bytes += later.bytes

    @property
    def files(self) -> list[Path]:
        """That of every part."""
        return [self.path, *(later.path for later in self._later)]

    def release(self) -> None:
        """Give back the memory of what was read; it is read again where it is used again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for file in (self, *self._later):
                file._map.madvise(mmap.MADV_DONTNEED)

    def __getitem__(self, name: str) -> GGUFTensor:
        try:
            return self._tensors[name]
        except KeyError:
            count = len(self._tensors)
            raise WeightsError(f"{self.path}: no tensor {name!r} among {count}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _mapped(path: Path) -> mmap.mmap:
    """The bytes of a file, read-only."""
    try:
        with open(regular(path), "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise WeightsError(f"{path}: cannot be read: {error}") from None


def _later(path: Path, given: Fields, part: int) -> list[Path]:
    """The files of the further parts, where this is the first. part: which it should be."""
    count = given.count("split.count", 1, low=0, high=MOST_PARTS)
    number = given.count("split.no", 0, low=0)
    if number != part:
        raise WeightsError(f"{path}: part {number + 1} of {count} of a model: name the first one")
    if part or count < 2:
        return []
    named = FIRST.fullmatch(path.name)
    if named is None or int(named[2]) != count:
        usual = f"NAME-00001-of-{count:05}.gguf"
        raise WeightsError(f"{path}: the first of {count} parts, which must be called {usual}")
    names = (f"{named[1]}-{n:05}-of-{count:05}.gguf" for n in range(2, count + 1))
    return [path.with_name(name) for name in names]


def gguf_file(path: Path) -> Path | None:
    """A file of GGUF, by its name or its first bytes; the only one of a folder without a config,
    but for those of eyes (mmproj) and further parts."""
    if path.is_dir():
        found = [] if (path / "config.json").exists() else sorted(path.glob("*.gguf"))
        found = [file for file in found if "mmproj" not in file.name] or found
        found = [file for file in found if not LATER.fullmatch(file.name)] or found
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise WeightsError(f"{path}: which of {names}? Name the file")
        return found[0] if found else None
    if path.suffix == ".gguf":
        return path
    with contextlib.suppress(OSError), path.open("rb") as file:
        return path if file.read(len(MAGIC)) == MAGIC else None
    return None


def architecture_of(path: Path) -> str | None:
    """Of a GGUF file, which is its first entry; no more is read. None where it is not. Raises
    WeightsError."""
    with open(regular(path), "rb") as file:
        reader = _Reader(path, np.frombuffer(file.read(4096), np.uint8))
    reader.head()
    named = reader.text() == "general.architecture" and reader.scalar("<I") == TEXT
    return reader.text() if named else None


class _Reader:
    """A place in the head of a file."""

    def __init__(self, path: Path, data: np.ndarray) -> None:
        self.path, self.data, self.place = path, data, 0
        self.lists = 0  # in other lists, so far

    def bytes(self, count: int) -> bytes:
        if count < 0 or self.place + count > len(self.data):
            raise WeightsError(
                f"{self.path}: truncated: {count} bytes wanted at {self.place} of {len(self.data)}"
            )
        self.place += count
        return self.data[self.place - count : self.place].tobytes()

    def scalar(self, form: str) -> Any:
        return struct.unpack(form, self.bytes(struct.calcsize(form)))[0]

    def count(self, most: int = LIMIT) -> int:
        number = int(self.scalar("<Q"))
        if number > most:
            raise WeightsError(f"{self.path}: damaged: a count of {number} at {self.place - 8}")
        return number

    def text(self) -> str:
        raw = self.bytes(self.count())
        return raw.decode("utf-8", "backslashreplace")

    def texts(self, count: int) -> Texts:
        data, starts, place = self.data.data, array("q"), self.place
        end, size, length = len(data) - LENGTH.size, LENGTH.size, LENGTH.unpack_from
        for _ in range(count):
            if place > end:
                break
            starts.append(place)
            place += size + length(data, place)[0]
        if len(starts) < count or place > len(data):
            raise WeightsError(f"{self.path}: truncated in a list of {count} texts")
        self.place = place
        starts.append(place)
        return Texts(data, starts, str(self.path))

    def head(self) -> tuple[int, int]:
        """The numbers of tensors and of metadata entries."""
        if self.bytes(4) != MAGIC:
            raise WeightsError(f"{self.path}: not a GGUF file")
        version = self.scalar("<I")
        if version in (each << 24 for each in VERSIONS):
            raise Unsupported(f"{self.path}: a big-endian GGUF file; little-endian ones are read")
        if version not in VERSIONS:
            raise WeightsError(f"{self.path}: GGUF version {version}; 2 and 3 can be read")
        return self.count(MOST_ENTRIES), self.count(MOST_ENTRIES)

    def value(self, kind: int, depth: int = 0) -> Any:
        """A metadata value: a number, a text, or a list (of numbers: an array)."""
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            inner, count = self.scalar("<I"), self.count()
            if inner == TEXT:
                return self.texts(count)
            if inner not in SCALARS:
                self.lists += count
                if depth == MOST_DEPTH or self.lists > MOST_ENTRIES:
                    raise WeightsError(f"{self.path}: damaged: lists in lists at {self.place}")
                return [self.value(inner, depth + 1) for _ in range(count)]
            form = np.dtype(SCALARS[inner])
            return np.frombuffer(self.bytes(count * form.itemsize), form)
        if kind not in SCALARS:
            raise WeightsError(f"{self.path}: metadata of unknown type {kind}")
        return self.scalar(SCALARS[kind])

    def entry(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape (outermost dimension first), type and offset of a tensor."""
        name, rank = self.text(), self.scalar("<I")
        if rank > 4:
            raise WeightsError(f"{self.path}: tensor {name!r} with {rank} dimensions")
        shape = tuple(self.count() for _ in range(rank))[::-1]
        if 0 in shape:
            raise WeightsError(f"{self.path}: tensor {name!r} of shape {shape}")
        return name, shape, self.scalar("<I"), int(self.scalar("<Q"))


def _tensor(
    path: Path, data: np.ndarray, start: int, name: str, shape: tuple[int, ...], number: int,
    offset: int,
) -> GGUFTensor:  # fmt: skip
    kind = TYPES.get(number, "")
    if kind not in BLOCKS:
        known = ", ".join(BLOCKS)
        raise Unsupported(f"{path}: tensor {name!r} of type {kind or number}; there are {known}")
    weights, size = BLOCKS[kind]
    row = shape[-1] if shape else 1
    if row % weights:
        raise WeightsError(f"{path}: tensor {name!r}: rows of {row} are no blocks of {weights}")
    rows, width = math.prod(shape[:-1]), row // weights * size
    first = start + offset
    if first + rows * width > len(data):
        raise WeightsError(
            f"{path}: truncated: tensor {name!r} ends at byte {first + rows * width}, the file at "
            f"{len(data)}"
        )
    raw = data[first : first + rows * width].reshape(rows, width)
    return GGUFTensor(name, kind, shape, raw)


def _check_apart(path: Path, data: np.ndarray, tensors: list[GGUFTensor], count: int) -> None:
    """Every name is given once, and no byte belongs to two tensors."""
    if len(tensors) < count:
        raise WeightsError(f"{path}: {count} tensors have {len(tensors)} names")
    place, before = 0, ""
    base = data.ctypes.data
    for tensor in sorted(tensors, key=lambda each: each.raw.ctypes.data):
        first = tensor.raw.ctypes.data - base
        if first < place:
            raise WeightsError(f"{path}: tensors {before!r} and {tensor.name!r} overlap")
        place, before = first + tensor.raw.nbytes, tensor.name
