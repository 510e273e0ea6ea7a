"""Where in the user's source something happened, and errors that say so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn, TypeAlias

from ..errors import LuminalError

Location: TypeAlias = tuple[str, int]  # file, line

_PACKAGE = str(Path(__file__).resolve().parents[1])


def user_location() -> Location:
    """File and line of the innermost frame that is outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def fail(kind: type[LuminalError], message: str) -> NoReturn:
    """Raise an error whose message ends with the user's file and line."""
    file, line = user_location()
    raise kind(f"{message}\n  at {file}:{line}")
