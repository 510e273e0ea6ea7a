"""Files kept between processes, each under its key: compiled programs, packed weights.

Readers and writers need no lock: a file appears whole, under a name that says all that its contents
depend on, and any file may vanish at any time. What is damaged is removed and made again. Nothing
is read from where others may write, and nothing is removed that no store has written: a folder may
hold a user's own files too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from . import container
from .container import whole
from .errors import ArtifactError
from .folders import make_private, user_folder, why_unsafe

SPARE = 0.1  # of the disk stays free of files that are large
SMALL = 1 / 64  # of what is free
SHARES = 16  # of its bound, one of which a store writes between two looks at its folder
LIST = ".luminal-kept"  # in each folder: the names of the files that stores have written
UNFINISHED = re.compile(rf"\.luminal-[0-9a-f]{{16}}{re.escape(container.PART)}")
MOST_LISTED = 4096  # names, then those of files that are gone are dropped
ABANDONED = 3600.0  # seconds since the last write to a file that is not whole
FACT = b"lumfact\n"
Read = TypeVar("Read")


@dataclass(frozen=True)
class Store:
    """Files of one kind. folder None: nothing is found, nothing is kept. most_bytes: beyond, those
    that were used longest ago go (of processes that write at once, each may add a share)."""

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
            return Store(_own("programs"))
        return Store(Path(wanted))

    @staticmethod
    def of_weights() -> Store:
        """The user's packed weights."""
        return Store(_own("weights"), 64 << 30, "weights", ".weights")

    @staticmethod
    def of_prefixes() -> Store:
        """Keys and values of the beginnings of conversations."""
        return Store(_own("prefixes"), 8 << 30, "prefixes", ".pages")

    @staticmethod
    def of_machine() -> Store:
        """What this machine is, and code that every process needs."""
        return Store(_own("machine"), 16 << 20, "facts", ".machine")

    def remembered(self, key: str, make: Callable[[], bytes]) -> bytes:
        """What `make` has returned when it was called for this key; it is called now if need be."""
        found = self.find(key, lambda path: _read_fact(path, key))
        if found is None:
            made = found = make()
            self.keep(key, lambda path: _write_fact(path, key, made), len(made))
        return found

    def find(self, key: str | None, read: Callable[[Path], Read]) -> Read | None:
        """What `read` makes of the file of a key; None where there is none, or one of another
        format; with a warning where `read` raises OSError, or ArtifactError or ValueError for what
        is damaged."""
        if self.folder is None or key is None:
            return None
        path = self.folder / (key + self.suffix)
        container.wait_for(path)
        try:
            if self._unsafe(self.folder) or self._unsafe(path):
                return None
            found = read(path)
        except (FileNotFoundError, NotADirectoryError, container.OtherFormat):
            return None  # nobody need do anything about it
        except OSError as error:  # it may be whole
            warnings.warn(f"{path}: kept {self.kind} are not used: {error}", stacklevel=2)
            return None
        except (ArtifactError, ValueError) as error:
            warnings.warn(f"kept {self.kind} are made anew: {path}: {error}", stacklevel=2)
            self._remove([path])
            return None
        with contextlib.suppress(OSError):  # used now; others' files keep their times
            os.utime(path)
        return found

    def keep(self, key: str | None, write: Callable[[Path], None], size: int = 0) -> bool:
        """Have a file written, of `size` bytes as far as known. Where that cannot be, nothing is
        kept, and the answer is False: silently beyond the bound, else with a warning."""
        if self.folder is None or key is None or size > self.most_bytes:
            return False
        try:
            make_private(self.folder)
            if self._unsafe(self.folder):
                return False
            self._make_room(size)
            disk = shutil.disk_usage(self.folder)
            if size <= max(disk.free * SMALL, disk.free - SPARE * disk.total):
                path = self.folder / (key + self.suffix)
                self._list(path)
                write(path)
                self._count(path, size)
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
        """Forget everything. Raises OSError for what cannot be removed."""
        for _, _, path in self._files():
            path.unlink(missing_ok=True)
        if self.folder is not None and not self._files():
            with contextlib.suppress(OSError):
                (self.folder / LIST).unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """For so many bytes, and for a share of the bound: this process looks at the folder again
        only when it has written that much itself."""
        share = self.most_bytes // SHARES
        if _written.get(self, share) + size >= share:
            self._shrink(self.most_bytes - share - size)
            _written[self] = 0

    def _count(self, path: Path, size: int) -> None:
        """A file was written, or will be by another thread, of `size` bytes as far as known."""
        with contextlib.suppress(FileNotFoundError):
            size = max(size, path.stat().st_size)
        _written[self] += size
        if _written[self] >= self.most_bytes // SHARES:
            self._shrink(self.most_bytes)

    def _shrink(self, most: int) -> None:
        """Keep the youngest that fit."""
        total, gone, now = 0, [], time.time()
        for used, size, path in sorted(self._files(), reverse=True):
            total += size
            whole = not UNFINISHED.fullmatch(path.name)
            if total > most if whole else now - used > ABANDONED:
                gone.append(path)
        self._remove(gone)

    def _unsafe(self, path: Path) -> bool:
        """Somebody else may have written what is there. Raises OSError where there is nothing."""
        why = why_unsafe(path)
        if why is not None:
            _tell(f"{path} is not used to keep {self.kind}: {why}")
        return why is not None

    # ---- which files are ours

    def _files(self) -> list[tuple[float, int, Path]]:
        """(last used, bytes, path) of every file that a store has written."""
        found: list[tuple[float, int, Path]] = []
        if self.folder is None:
            return found
        for name in self._listed() | self._unfinished():
            with contextlib.suppress(OSError):  # another process may have removed it
                state = (self.folder / name).lstat()
                found.append((state.st_mtime, state.st_size, self.folder / name))
        return found

    def _unfinished(self) -> set[str]:
        """Files that a writer has open, or had when it was killed."""
        try:
            return {name for name in os.listdir(self.folder) if UNFINISHED.fullmatch(name)}
        except OSError:
            return set()

    def _listed(self) -> set[str]:
        """Names of files with our suffix, there or removed already. A damaged list has less."""
        assert self.folder is not None
        try:
            names = (self.folder / LIST).read_text("ascii", "replace").splitlines()
        except OSError:
            return set()
        ours = (n for n in names if n.endswith(self.suffix) and n.isprintable())
        return {n for n in ours if os.path.basename(n) == n}

    def _list(self, path: Path) -> None:
        """From now on this file is ours. Raises OSError where it is somebody else's."""
        there = path.exists()  # asked first: another process may list and write it meanwhile
        if path.name in self._listed():
            return
        if there:
            raise FileExistsError(f"{path} is there, and no store has written it")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        number = os.open(path.with_name(LIST), flags, 0o600)
        line = f"\n{path.name}\n".encode()  # what is there may be cut off
        try:
            if os.write(number, line) < len(line):
                raise OSError(errno.ENOSPC, "no room for its name", str(path))
        finally:
            os.close(number)

    def _remove(self, paths: list[Path]) -> None:
        ours = self._listed() if paths else set()
        for path in paths:
            if path.name in ours or UNFINISHED.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        if len(ours) > MOST_LISTED:
            self._shorten(ours)

    def _shorten(self, listed: set[str]) -> None:
        """Drop names of files that are gone. A name that another process adds meanwhile is lost:
        that file stays until it is kept again."""
        assert self.folder is not None
        there = sorted(listed.intersection(os.listdir(self.folder)))
        if len(there) < len(listed) // 2:
            with whole(self.folder / LIST) as file:
                file.write("".join(f"{name}\n" for name in there).encode())


_written: dict[Store, int] = {}  # bytes by this process since it made room in a store


def _own(name: str) -> Path | None:
    folder = user_folder()
    return None if folder is None else folder / name


@cache
def _tell(text: str) -> None:
    """A warning, once."""
    warnings.warn(text, stacklevel=4)


def _read_fact(path: Path, key: str) -> bytes:
    """Raises ArtifactError, OSError."""
    _, (blob,) = container.read(path, FACT, key)
    return blob.bytes()


def _write_fact(path: Path, key: str, data: bytes) -> None:
    with whole(path) as file:
        writer = container.Writer(file, FACT)
        writer.add(data)
        writer.finish(key, None)
