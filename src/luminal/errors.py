"""Every error that a user can meet. A message says what was expected, what was got, and where."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeAlias

Location: TypeAlias = tuple[str, int]  # file, line

DISTRIBUTION = "luminal-compiler"  # on the package index, where another package has our name
_PACKAGE = str(Path(__file__).resolve().parent)
AT = "\n  at "


def user_location() -> Location:
    """File and line of the innermost frame that is outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def to_install(extra: str) -> str:
    """What to type for an optional part."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


class LuminalError(Exception):
    """Base of all errors of this package. Messages can be printed: half a surrogate pair, which
    names in files may hold, is shown as its number."""

    def __init__(self, message: str) -> None:
        super().__init__(message.encode("utf-8", "backslashreplace").decode())


class Located(LuminalError):
    """A fault in what the user wrote: the message ends with the user's file and line."""

    def __init__(self, message: str) -> None:
        if AT not in message:
            file, line = user_location()
            message = f"{message}{AT}{file}:{line}"
        super().__init__(message)


class ShapeError(Located, ValueError):
    """Shapes of an operation do not fit together."""


class DTypeError(Located, TypeError):
    """An operation is not defined for these dtypes."""


class DimError(Located, ValueError):
    """A symbolic size is unknown, missing, or outside its bounds."""


class InputError(Located, ValueError):
    """An array given to a program is missing or does not fit its tensor."""


class LossyInput(InputError, DTypeError):
    """An array or number that its tensor's dtype cannot hold without loss."""


class DeviceError(LuminalError, ValueError):
    """The device does not exist on this machine."""


class WeightsError(LuminalError, ValueError):
    """A weight file is truncated, mistyped, or does not fit the model."""


class ArtifactError(LuminalError, ValueError):
    """A saved program is damaged, of another version, or for another machine."""


class Unsupported(LuminalError, NotImplementedError):
    """What was asked for is not built yet; the message says what."""


class CompileError(LuminalError, RuntimeError):
    """The compiler failed on a valid program: a fault of the compiler."""


class Illegal(CompileError):
    """A schedule that cannot be lowered; a search drops the candidate."""


class WrongResult(LuminalError, RuntimeError):
    """A compiled program does not compute what it means: a fault of the compiler."""


class NotFinite(LuminalError, ArithmeticError):
    """A value of a training became NaN or infinite."""


class OutOfMemory(LuminalError, MemoryError):
    """The system gives no memory for what a run needs at its sizes."""


class VerifyError(CompileError):
    """An intermediate representation breaks its own rules."""
