"""Files kept between processes, each under its key: compiled programs, packed weights.

Readers and writers need no lock: a file appears whole, under a name that says all that its contents
depend on, and any file may vanish at any time. What cannot be read is removed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from .errors import ArtifactError
from .folders import user_folder

SPARE = 0.1  # of the disk stays free
Read = TypeVar("Read")


@dataclass(frozen=True)
class Store:
    """Files of one kind. folder None: nothing is found, nothing is kept. most_bytes: beyond, those
    that were used longest ago go."""

    folder: Path | None
    most_bytes: int = 1 << 30
    kind: str = "programs"
    suffix: str = ".luminal"

    @staticmethod
    def of(wanted: str | Path | bool | None) -> Store:
        """Compiled programs. A folder; None or True: the user's; False: none."""
        if wanted is False:
            return Store(None)
        if wanted is None or wanted is True:
            return Store(user_folder() / "programs")
        return Store(Path(wanted))

    @staticmethod
    def of_weights() -> Store:
        """The user's packed weights."""
        return Store(user_folder() / "weights", 64 << 30, "weights", ".weights")

    @staticmethod
    def of_machine() -> Store:
        """What this machine is, and code that every process needs."""
        return Store(user_folder() / "machine", 16 << 20, "facts", ".machine")

    def remembered(self, key: str, make: Callable[[], bytes]) -> bytes:
        """What `make` has returned when it was called for this key; it is called now if need be."""
        found = self.find(key, _digested)
        if found is None:
            found = make()
            self.keep(key, partial(_write_digested, found), len(found))
        return found

    def find(self, key: str | None, read: Callable[[Path], Read]) -> Read | None:
        """What `read` makes of the file of a key; None where there is none, or where `read` raises
        ArtifactError, OSError or ValueError."""
        if self.folder is None or key is None:
            return None
        path = self.folder / (key + self.suffix)
        try:
            found = read(path)
            os.utime(path)  # used now
            return found
        except FileNotFoundError:
            return None
        except (ArtifactError, OSError, ValueError) as error:
            warnings.warn(f"kept {self.kind} are made anew: {path}: {error}", stacklevel=2)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    def keep(self, key: str | None, write: Callable[[Path], None], size: int = 0) -> bool:
        """Have a file written, of `size` bytes as far as known. Where that cannot be, nothing is
        kept, and the answer is False: silently for want of room, else with a warning."""
        if self.folder is None or key is None or size > self.most_bytes:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._shrink(self.most_bytes - size)
            disk = shutil.disk_usage(self.folder)
            if size <= max(0.0, disk.free - SPARE * disk.total):
                write(self.folder / (key + self.suffix))
                self._shrink(self.most_bytes)
                return True
            warnings.warn(f"{self.folder}: no room on the disk to keep {self.kind}", stacklevel=2)
        except OSError as error:
            warnings.warn(f"{self.folder}: {self.kind} were not kept: {error}", stacklevel=2)
        return False

    def describe(self) -> str:
        """One line for people."""
        files = self._files()
        size = sum(size for _, size, _ in files) / (1 << 20)
        return f"{self.folder}: {self.kind}, {len(files)} files, {size:.1f} MiB"

    def clear(self) -> None:
        """Forget everything."""
        self._shrink(-1)

    def _shrink(self, most: int) -> None:
        """Keep the youngest that fit."""
        total = 0
        for _, size, path in sorted(self._files(), reverse=True):
            total += size
            if total > most:
                path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, int, Path]]:
        """(last used, bytes, path) of every file."""
        found = []
        for path in self.folder.glob("*" + self.suffix) if self.folder is not None else ():
            with contextlib.suppress(OSError):  # another process may have removed it
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        return found


def _digested(path: Path) -> bytes:
    """Raises OSError, ValueError."""
    data = path.read_bytes()
    digest, data = data[:32], data[32:]
    if hashlib.sha256(data).digest() != digest:
        raise ValueError("damaged")
    return data


def _write_digested(data: bytes, path: Path) -> None:
    with whole(path) as file:
        file.write(hashlib.sha256(data).digest() + data)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write: whoever opens the path meets all of it or nothing."""
    own = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident():x}")
    try:
        with own.open("w+b") as file:
            yield file
        os.replace(own, path)
    finally:
        own.unlink(missing_ok=True)
