"""Compiled programs kept between processes: a folder of saved programs, each under its key.

Readers and writers need no lock: a file appears whole, under a name that says all that its contents
depend on, and any file may vanish at any time. What cannot be read is removed and made again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArtifactError
from . import artifact
from .saved import Saved

MOST_BYTES = 1 << 30  # then the programs that were used longest ago go
SUFFIX = ".luminal"


@dataclass(frozen=True)
class Store:
    """Programs by key. folder None: nothing is found, nothing is kept."""

    folder: Path | None
    most_bytes: int = MOST_BYTES

    @staticmethod
    def of(wanted: str | Path | bool | None) -> Store:
        """A folder; None or True: the user's; False: none."""
        if wanted is False:
            return Store(None)
        if wanted is None or wanted is True:
            return Store(user_folder() / "programs")
        return Store(Path(wanted))

    def find(self, key: str | None) -> Saved | None:
        """The program of a key."""
        if self.folder is None or key is None:
            return None
        path = self._path(self.folder, key)
        try:
            saved = artifact.read(path)
            os.utime(path)  # used now
            return saved
        except FileNotFoundError:
            return None
        except (ArtifactError, OSError) as error:
            warnings.warn(f"a kept program is compiled anew: {error}", stacklevel=2)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    def keep(self, key: str | None, saved: Saved) -> None:
        """Remember a program. Where the folder cannot be written it is not kept, with a warning."""
        if self.folder is None or key is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            artifact.write(saved, self._path(self.folder, key))
            self._shrink()
        except OSError as error:
            warnings.warn(f"{self.folder}: a compiled program was not kept: {error}", stacklevel=2)

    def describe(self) -> str:
        """One line for people."""
        files = self._files()
        size = sum(size for _, size, _ in files) / (1 << 20)
        return f"{self.folder}: {len(files)} programs, {size:.1f} MiB"

    def clear(self) -> None:
        """Forget everything."""
        for _, _, path in self._files():
            path.unlink(missing_ok=True)

    def _shrink(self) -> None:
        """Keep the youngest that fit."""
        room = self.most_bytes
        for _, size, path in sorted(self._files(), reverse=True):
            room -= size
            if room < 0:
                path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, int, Path]]:
        """(last used, bytes, path) of every program."""
        found = []
        for path in self.folder.glob(f"*{SUFFIX}") if self.folder is not None else ():
            with contextlib.suppress(OSError):  # another process may have removed it
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        return found

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / f"{key}{SUFFIX}"


def user_folder() -> Path:
    """Where this user's caches lie, in the platform's place."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "luminal"
