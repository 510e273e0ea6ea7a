"""What a program has made of its parameters, kept on disk: the packed weights of a model are made
once, and read back as they lie.

    head       magic, version, length and SHA-256 of the table
    table      JSON: [place, start, bytes] of each piece
    pieces     at multiples of a page
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import struct
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .memory import Allocate, Block
from .store import user_folder

MAGIC, VERSION = b"lumkept\n", 1
HEAD = struct.Struct("<8sQQ32s")
PAGE = 4096
SUFFIX = ".weights"
MOST_BYTES = 64 << 30  # then the files that were used longest ago go
SPARE = 0.1  # of the disk stays free


@dataclass(frozen=True)
class Kept:
    """Files by key. folder None: nothing is found, nothing is kept."""

    folder: Path | None
    most_bytes: int = MOST_BYTES

    @staticmethod
    def of_user() -> Kept:
        return Kept(user_folder() / "weights")

    def find(self, key: str, allocate: Allocate, threads: int) -> dict[int, Block] | None:
        """The pieces by place, in memory of their own; None where there are none. A file that
        cannot be read is removed, with a warning."""
        if self.folder is None:
            return None
        path = self.folder / (key + SUFFIX)
        try:
            table = _table(path)
            blocks = {place: Block(allocate, size) for place, _, size in table}
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda row: _fill(path, row, blocks[row[0]]), table))
            os.utime(path)  # used now
            return blocks
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            warnings.warn(f"weights are packed anew: {path}: {error}", stacklevel=2)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    def keep(self, key: str, pieces: Mapping[int, np.ndarray]) -> None:
        """Write pieces (bytes by place); whoever opens the file meets all of it or nothing."""
        size = sum(piece.nbytes for piece in pieces.values())
        if self.folder is None or size > self.most_bytes:
            return
        own = self.folder / f".{key}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._shrink(self.most_bytes - size)
            disk = shutil.disk_usage(self.folder)
            if size > disk.free - SPARE * disk.total:
                return
            _write(own, pieces)
            os.replace(own, self.folder / (key + SUFFIX))
        except OSError as error:
            warnings.warn(f"{self.folder}: packed weights were not kept: {error}", stacklevel=2)
        finally:
            own.unlink(missing_ok=True)

    def describe(self) -> str:
        """One line for people."""
        files = self._files()
        size = sum(size for _, size, _ in files) / (1 << 20)
        return f"{self.folder}: weights of {len(files)} models, {size:.1f} MiB"

    def clear(self) -> None:
        """Forget everything."""
        self._shrink(-1)

    def _shrink(self, most: int) -> None:
        """Keep the youngest that fit."""
        total = 0
        for _, size, path in self._files():
            total += size
            if total > most:
                path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, int, Path]]:
        """(last use, bytes, path), youngest first."""
        found = []
        for path in self.folder.glob("*" + SUFFIX) if self.folder else ():
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path.stat().st_size, path))
        return sorted(found, reverse=True)


def _table(path: Path) -> list[tuple[int, int, int]]:
    """(place, start, bytes) of the pieces of a file. Raises OSError, ValueError."""
    with path.open("rb") as file:
        raw = file.read(HEAD.size)
        if len(raw) < HEAD.size:
            raise ValueError("truncated")
        magic, version, length, digest = HEAD.unpack(raw)
        text = file.read(length)
    if (magic, version) != (MAGIC, VERSION) or hashlib.sha256(text).digest() != digest:
        raise ValueError("damaged")
    table = [(int(place), int(start), int(size)) for place, start, size in json.loads(text)]
    if any(start + size > path.stat().st_size for _, start, size in table):
        raise ValueError("truncated")
    return table


def _fill(path: Path, row: tuple[int, int, int], block: Block) -> None:
    _, start, size = row
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        target = block.array_of_bytes()[:size].data
        while target:
            read = file.readinto(target)
            if not read:
                raise ValueError("truncated")
            target = target[read:]


def _write(path: Path, pieces: Mapping[int, np.ndarray]) -> None:
    table, start = [], 0
    for place, piece in pieces.items():
        table.append([place, start, piece.nbytes])
        start += -(-piece.nbytes // PAGE) * PAGE
    room = PAGE * (1 + (HEAD.size + 60 * len(table)) // PAGE)  # more than the table takes
    text = json.dumps([[place, at + room, size] for place, at, size in table]).encode()
    with path.open("wb") as file:
        file.write(HEAD.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest()) + text)
        for (_, at, _), piece in zip(table, pieces.values(), strict=True):
            file.seek(at + room)
            file.write(piece.reshape(-1).view(np.uint8).data)
