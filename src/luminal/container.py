"""A file of blobs, and a table that says what they are; nothing damaged comes out of it.

    head      magic, version, start and length of the table, its SHA-256
    blobs     at multiples of `align` bytes
    table     JSON: [key, about, [start, bytes, digest of each 4 MiB] of each blob]

A digest is the CRC-32 of sums: of the rows and of the columns of a matrix of 64-bit words, which
NumPy adds up at the speed of memory. A flipped bit, a missing or other stretch and two that changed
places all show. Nothing here is meant to stop a forger, who could write the digests too.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import struct
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .errors import ArtifactError

VERSION = 5
HEAD = struct.Struct("<8sQQQ32s")
BLOCK = 4 << 20  # bytes under one digest
CACHED = 512 << 10  # bytes that are still in a core's cache when they have been read
ROW = 512  # words
PAGE = mmap.ALLOCATIONGRANULARITY  # bytes at whose multiples a mapping may begin
OPEN = 0o666  # less the umask: the rights of a file that a user saves
PART = ".part"  # how the names of files end that are not whole yet


class OtherFormat(ArtifactError):
    """Written by an earlier luminal, or a later one."""


@dataclass(frozen=True, eq=False)
class Blob:
    """Bytes of a file (a `Piece`), as they were written or not at all: what finds them damaged
    raises ArtifactError. raw: where they lie, mapped."""

    path: Path
    start: int
    raw: np.ndarray
    digests: Sequence[int]

    @property
    def nbytes(self) -> int:
        return len(self.raw)

    def read(self, room: np.ndarray) -> None:
        """Copy them into an array of so many bytes. Raises ArtifactError, OSError."""
        self._check_length()
        room[...] = self.raw
        self._check(room)

    def bytes(self) -> bytes:
        """A copy. Raises ArtifactError, OSError."""
        room = np.empty(self.nbytes, np.uint8)
        self.read(room)
        return room.tobytes()

    def mapped(self) -> np.ndarray:
        """Them where they lie, u8, after a look at all of them. Raises ArtifactError, OSError."""
        self._check_length()
        self._check(self.raw)
        return self.raw

    def _check_length(self) -> None:
        """A mapped page that a file has no more cannot be looked at."""
        if self.path.stat().st_size < self.start + self.nbytes:
            raise ArtifactError(f"{self.path}: damaged, or cut off")

    def _check(self, data: np.ndarray) -> None:
        if _digests(data) != list(self.digests):
            raise ArtifactError(f"{self.path}: damaged at byte {self.start} or later")


class Writer:
    """Blobs, one after the other, into a file that is open for writing and reading."""

    def __init__(self, file: BinaryIO, magic: bytes, align: int = 64) -> None:
        self._file, self._magic, self._align = file, magic, align
        self._blobs: list[tuple[int, int, list[int]]] = []
        self._left: list[tuple[int, np.ndarray]] = []  # to be written
        self._end = _round_up(HEAD.size, align)

    def add(self, data: bytes | np.ndarray, later: bool = False) -> int:
        """Write a blob; where it begins. later: when `finish` is called, which another thread may
        do; if the data are others by then, they count as damaged."""
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else _raw(data)
        start = self._end
        self._blobs.append((start, len(raw), _digests(raw)))
        self._end = _round_up(start + len(raw), self._align)
        self._left.append((start, raw))
        if not later:
            self._write()
        return start

    def _write(self) -> None:
        for start, raw in self._left:
            self._file.seek(start)
            self._file.write(raw.data)
        self._left.clear()

    def finish(self, key: str | None, about: Any) -> None:
        """Write what is left, the table and the head. key: the name that the file is kept under, if
        any; about: what JSON can hold."""
        self._write()
        text = json.dumps([key, about, self._blobs], separators=(",", ":")).encode()
        self._file.seek(self._end)
        self._file.write(text)
        self._file.seek(0)
        digest = hashlib.sha256(text).digest()
        self._file.write(HEAD.pack(self._magic, VERSION, self._end, len(text), digest))


def read(path: Path, magic: bytes, key: str | None = None) -> tuple[Any, list[Blob]]:
    """What the file is about, and its blobs. key: that it must be kept under, if any. Raises
    ArtifactError (OtherFormat), OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD.size)
        if head[: len(magic)] != magic:
            raise ArtifactError(f"{path}: not a file of this kind of luminal's")
        if len(head) < HEAD.size:
            raise ArtifactError(f"{path}: cut off")
        _, version, start, length, digest = HEAD.unpack(head)
        if version != VERSION:
            raise OtherFormat(f"{path}: format {version}; this luminal reads format {VERSION}")
        if start + length > size:
            raise ArtifactError(f"{path}: damaged, or cut off")
        file.seek(start)
        text, raw = file.read(length), mapped(file, 0, start)
    if hashlib.sha256(text).digest() != digest:
        raise ArtifactError(f"{path}: damaged: its table is not what was written")
    try:
        known, about, blobs = json.loads(text)
        found = [_blob(path, raw, *blob) for blob in blobs]
    except (ValueError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{path}: damaged: {error}") from None
    if key is not None and known != key:
        raise ArtifactError(f"{path}: holds what was kept under another name")
    return about, found


def _blob(path: Path, raw: np.ndarray, start: int, size: int, digests: list[int]) -> Blob:
    """Raises ValueError, TypeError."""
    if not 0 <= start <= start + size <= len(raw) or len(digests) != -(-size // BLOCK):
        raise ValueError(f"a blob of {size} bytes at {start}, of {len(raw)}")
    return Blob(path, start, raw[start : start + size], digests)


def mapped(file: BinaryIO, start: int, size: int) -> np.ndarray:
    """Bytes of a file, u8, read when they are used. start: any byte."""
    if not size:
        return np.empty(0, np.uint8)
    before = start % PAGE
    found = mmap.mmap(file.fileno(), before + size, access=mmap.ACCESS_READ, offset=start - before)
    return np.frombuffer(found, np.uint8, size, before)


def _digest(chunk: np.ndarray, before: int) -> int:
    """Of bytes, and of what stood before them."""
    size = len(chunk) // (8 * ROW) * (8 * ROW)
    words = chunk[:size].view("<u8").reshape(-1, ROW)
    for part in (np.add.reduce(words, 1), np.add.reduce(words, 0), chunk[size:]):
        before = zlib.crc32(part.data, before)
    return before


def _digests(raw: np.ndarray) -> list[int]:
    """Of each block."""
    found = []
    for start in range(0, len(raw), BLOCK):
        block, digest = raw[start : start + BLOCK], 0
        for at in range(0, len(block), CACHED):
            digest = _digest(block[at : at + CACHED], digest)
        found.append(digest)
    return found


def _raw(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, order="C").reshape(-1).view(np.uint8)


def _round_up(size: int, align: int) -> int:
    return -(-size // align) * align


class Unfinished:
    """A file to write: whoever opens the path meets all of it or nothing, also after a power cut.
    mode: the rights that it gets, less the user's umask. Raises OSError."""

    def __init__(self, path: Path, mode: int = 0o600) -> None:
        if path.exists() and not path.is_file():  # a device would be replaced
            raise OSError(errno.EEXIST, "what is there is no file", str(path))
        self.path, self._own = path, path.with_name(f".luminal-{os.urandom(8).hex()}{PART}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            number = os.open(self._own, flags | getattr(os, "O_BINARY", 0), mode)
        except OSError as error:  # in terms of the file that was asked for
            raise OSError(error.errno, error.strerror, str(path)) from None
        self.file: BinaryIO = os.fdopen(number, "w+b")

    def finish(self) -> None:
        """It is whole. Raises OSError."""
        self.file.flush()
        os.fsync(self.file.fileno())
        os.replace(self._own, self.path)
        _sync(self.path.parent)

    def drop(self) -> None:
        """Nothing is left where it was not finished."""
        with contextlib.suppress(OSError):  # what could not be written
            self.file.close()
        self._own.unlink(missing_ok=True)


@contextmanager
def whole(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """The file of an `Unfinished`, finished in the end."""
    new = Unfinished(path, mode)
    try:
        yield new.file
        new.finish()
    finally:
        new.drop()


def write_over(path: Path, data: bytes) -> None:
    """A user's file, all of it new or as it was; or into what is no file. Raises OSError."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    with whole(path.resolve(), OPEN) as file:
        file.write(data)


_written: dict[Path, threading.Thread] = {}


def finish_later(new: Unfinished, work: Callable[[], None]) -> None:
    """Do the rest of the work on a file, and finish it, beside what comes next: a disk may take
    seconds. The process does not end before; if it is killed, there is no file."""

    def finish() -> None:
        try:
            work()
            new.finish()
        except OSError as error:
            warnings.warn(f"{new.path} was not kept: {error}", stacklevel=2)
        finally:
            new.drop()
            _written.pop(new.path, None)

    thread = threading.Thread(target=finish, name="luminal-keep")
    _written[new.path] = thread
    thread.start()


def wait_for(path: Path) -> None:
    """Until this process has finished the file, if it is at it."""
    thread = _written.get(path)
    if thread is not None:
        thread.join()


def _sync(folder: Path) -> None:
    """That a file was renamed is on the disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
