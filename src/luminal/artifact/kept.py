"""What a program has made of its parameters, kept on disk: the packed weights of a model are made
once, and read back as they lie. What runs hardly read, such as a table of embeddings, stays there.

    head       magic, version, start and length of the table, its SHA-256
    pieces     at multiples of a page
    table      JSON: [place, start, bytes] of each piece
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..runtime.contract import Load
from ..runtime.executable import Executable
from ..store import Store, whole

MAGIC, VERSION = b"lumkept\n", 2
HEAD = struct.Struct("<8sQQQ32s")
PAGE = mmap.ALLOCATIONGRANULARITY  # bytes at whose multiples a mapping may begin


def set_parameters(
    program: Executable, load: Load, identity: str, store: Store | None = None
) -> None:
    """As `program.set_parameters(load)`, which is not called where what the program makes of these
    parameters was kept earlier; else it is kept now.

    identity: a file name that stands for exactly these values. store: the user's if None.
    """
    store = store or Store.of_weights()
    made = program.key_of_made
    key = None if made is None else f"{identity}-{made}"
    if store.find(key, partial(read, program=program)):
        return
    if not store.keep(key, partial(write, program=program, load=load), program.parameter_bytes):
        program.set_parameters(load)


def read(path: Path, program: Executable) -> bool:
    """Give a program the pieces of a file. Raises OSError, ValueError."""
    program.take({place: Stretch(path, start, size) for place, start, size in _table(path)})
    return True


def write(path: Path, program: Executable, load: Load) -> None:
    """Set the parameters of a program, and write what it makes of them; whoever opens the file
    meets all of it or nothing. Raises OSError, and what `load` raises."""
    with whole(path) as file:
        writer = _Writer(file)
        program.set_parameters(load, writer.spill)
        for place, piece in (program.made() or {}).items():
            writer.add(place, piece)
        writer.finish()


@dataclass(frozen=True)
class Stretch:
    """Bytes of a file (a `Piece`)."""

    path: Path
    start: int
    nbytes: int

    def read(self, room: np.ndarray) -> None:
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.start)
            target = room.data
            while target:
                count = file.readinto(target)
                if not count:
                    raise ValueError("truncated")
                target = target[count:]

    def mapped(self) -> np.ndarray:
        with self.path.open("rb") as file:
            return _mapped(file, self.start, self.nbytes)


class _Writer:
    """Pieces, one after the other, into a file that is opened for writing and reading."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._end = file, PAGE
        self._table: dict[int, tuple[int, int]] = {}

    def add(self, place: int, piece: np.ndarray) -> None:
        """Write a piece, unless the file has it."""
        if place in self._table:
            return
        self._table[place] = self._end, piece.nbytes
        self._file.seek(self._end)
        self._file.write(piece.reshape(-1).view(np.uint8).data)
        self._end += -(-piece.nbytes // PAGE) * PAGE

    def spill(self, place: int, array: np.ndarray) -> np.ndarray:
        """Write an array; the same one as it lies in the file."""
        self.add(place, array)
        self._file.flush()
        found = _mapped(self._file, self._table[place][0], array.nbytes)
        return found.view(array.dtype).reshape(array.shape)

    def finish(self) -> None:
        """Write the table and the head."""
        table = [[place, *stretch] for place, stretch in self._table.items()]
        text = json.dumps(table).encode()
        self._file.seek(self._end)
        self._file.write(text)
        self._file.seek(0)
        digest = hashlib.sha256(text).digest()
        self._file.write(HEAD.pack(MAGIC, VERSION, self._end, len(text), digest))


def _mapped(file: BinaryIO, start: int, size: int) -> np.ndarray:
    found = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, offset=start)
    return np.frombuffer(found, np.uint8)


def _table(path: Path) -> list[tuple[int, int, int]]:
    """(place, start, bytes) of the pieces of a file. Raises OSError, ValueError."""
    with path.open("rb") as file:
        raw = file.read(HEAD.size)
        if len(raw) < HEAD.size:
            raise ValueError("truncated")
        magic, version, start, length, digest = HEAD.unpack(raw)
        file.seek(min(start, 1 << 62))
        text = file.read(length) if length <= path.stat().st_size else b""
    if (magic, version) != (MAGIC, VERSION) or hashlib.sha256(text).digest() != digest:
        raise ValueError("damaged, or cut off")
    return [(int(place), int(start), int(size)) for place, start, size in json.loads(text)]
