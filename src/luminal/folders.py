"""Where what is kept between processes lies (tuned choices, programs, packed weights), and who may
write there: whoever can, can have this process run any code."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

OTHERS_WRITE = 0o022  # the group's and everybody's right to write


def user_folder() -> Path | None:
    """Where this user's caches lie, in the platform's place; None, with a warning, where the user
    has no home, or a relative one."""
    try:
        folder = _base() / "luminal"
        if folder.is_absolute():
            return folder
        raise RuntimeError(f"the home folder, {Path.home()}, is no absolute path")
    except RuntimeError as error:
        warnings.warn(f"nothing is kept between processes: {error}", stacklevel=2)
        return None


def _base() -> Path:
    """Raises RuntimeError."""
    if sys.platform == "win32":
        return _set("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return _set("XDG_CACHE_HOME") or Path.home() / ".cache"


def _set(variable: str) -> Path | None:
    """A relative path is none: it would be another folder in every working directory."""
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def why_unsafe(path: Path) -> str | None:
    """Why a file or a folder may hold what somebody else has put there; None where it cannot. Its
    owner must be this user or root, and nobody else may write to it. Raises OSError."""
    if not hasattr(os, "geteuid"):  # Windows: the rights are those of the user's profile
        return None
    state = path.stat()
    if state.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (number {state.st_uid})"
    if state.st_mode & OTHERS_WRITE:
        return "other users may write to it (chmod go-w, if nobody has)"
    return None


def make_private(folder: Path) -> None:
    """Make a folder, and those around it that are missing, for this user alone. Raises OSError."""
    for missing in reversed([folder, *folder.parents]):
        if not missing.exists():
            missing.mkdir(0o700, exist_ok=True)
