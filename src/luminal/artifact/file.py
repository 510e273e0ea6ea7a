"""A saved program as a file.

    head          magic, version, length and SHA-256 of the description
    description   JSON: the rows of a `Saved` (see codec.py), and where each blob lies
    blobs         at multiples of 64 bytes: object code, then arrays, which are mapped, not read

A file is checked from the outside inwards (magic, version, lengths, digests) before anything in it
is used; whether this machine can run its code is for the reader to ask.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArtifactError
from ..graph.dtype import BY_NAME, dtype
from ..runtime.arena import round_up
from ..store import whole
from .codec import decode, encode
from .saved import Saved

MAGIC = b"luminal\n"
VERSION = 3
HEAD = struct.Struct("<8sQQ32s")


def write(saved: Saved, path: Path) -> None:
    """Write a program to a file; whoever opens the file meets all of it or nothing."""
    made = [(place, piece.reshape(-1).view(np.uint8)) for place, piece in saved.made.items()]
    arrays = [(n, np.asarray(array, order="C")) for n, array in (*saved.arrays.items(), *made)]
    blobs: list[bytes | memoryview] = [*saved.codes]
    blobs += [array.reshape(-1).view(np.uint8).data for _, array in arrays]
    description = {
        "rows": encode(saved.described()),
        "codes": [[len(code), hashlib.sha256(code).hexdigest()] for code in saved.codes],
        "arrays": [[n, str(dtype(array.dtype)), array.shape] for n, array in arrays],
        "made": len(made),  # of the arrays, the last
    }
    text = json.dumps(description, separators=(",", ":")).encode()
    head = HEAD.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest()) + text
    with whole(path) as file:
        for piece in (head, *blobs):
            file.write(piece)
            file.write(bytes(round_up(len(piece)) - len(piece)))


def read(path: Path) -> Saved:
    """The program in a file; its arrays stay in the file, mapped. Raises ArtifactError, OSError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < HEAD.size:
            raise ArtifactError(f"{path}: too short to be a saved program")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    description, end = _description(path, memoryview(mapped))
    try:
        saved = decode(description["rows"])
        if not isinstance(saved, Saved):
            raise ValueError(f"a {type(saved).__name__} is no program")
        pieces = _Pieces(mapped, end)
        codes = tuple(pieces.code(*described) for described in description["codes"])
        arrays = [(n, pieces.array(*described)) for n, *described in description["arrays"]]
        given = len(arrays) - int(description["made"])
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ArtifactError(f"{path}: damaged: {error}") from error
    return replace(saved, codes=codes, arrays=dict(arrays[:given]), made=dict(arrays[given:]))


def _description(path: Path, data: memoryview) -> tuple[dict[str, Any], int]:
    """The description, and where the blobs begin."""
    magic, version, length, digest = HEAD.unpack(data[: HEAD.size])
    if magic != MAGIC:
        raise ArtifactError(f"{path}: not a saved program of luminal")
    if version != VERSION:
        raise ArtifactError(f"{path}: format {version}; this luminal reads format {VERSION}")
    text = data[HEAD.size : HEAD.size + length]
    if hashlib.sha256(text).digest() != digest:
        raise ArtifactError(f"{path}: damaged, or cut off: its description is not what was written")
    return json.loads(bytes(text)), round_up(HEAD.size + length)


class _Pieces:
    """The blobs of a file, one after the other."""

    def __init__(self, data: mmap.mmap, start: int) -> None:
        self._data, self._next = data, start

    def _take(self, length: int) -> int:
        start, self._next = self._next, self._next + round_up(length)
        if self._next > len(self._data):
            raise ValueError("cut off")
        return start

    def code(self, length: int, digest: str) -> bytes:
        start = self._take(length)
        code = self._data[start : start + length]
        if hashlib.sha256(code).hexdigest() != digest:
            raise ValueError("its machine code is not what was written")
        return code

    def array(self, kind: str, shape: Sequence[int]) -> np.ndarray:
        wanted, count = BY_NAME[kind], int(np.prod(shape, dtype=np.int64))
        start = self._take(count * wanted.bytes)
        return np.frombuffer(self._data, wanted.numpy, count, start).reshape(shape)
