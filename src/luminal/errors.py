"""Every error that a user can meet. A message says what was expected, what was got, and where."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import TypeAlias

Location: TypeAlias = tuple[str, int]  # file, line

DISTRIBUTION = "luminal-compiler"  # on the package index, where another package has our name
_PACKAGE = str(Path(__file__).resolve().parent)
AT = "\n  at "


def user_location() -> Location:
    """File and line of the innermost frame that is outside this package."""
    frame, _ = _users_frame()
    return frame.f_code.co_filename, frame.f_lineno


def stack_level() -> int:
    """Of a warning by the caller: that of the innermost frame that is outside this package."""
    return _users_frame()[1] - 1


def _users_frame() -> tuple[FrameType, int]:
    """That frame, and how many are inside of it."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return frame, level


def to_install(extra: str) -> str:
    """What to type for an optional part."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


class LuminalError(Exception):
    """Base of all errors of this package. Messages can be printed: half a surrogate pair, which
    names in files may hold, is shown as its number.

    >>> issubclass(luminal.ShapeError, luminal.LuminalError)
    True
    """

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
    """Shapes of an operation do not fit together.

    >>> cx.tensor((2, 3)) @ cx.tensor((2, 3))
    Traceback (most recent call last):
        ...
    luminal.errors.ShapeError: matmul: inner sizes 3 and 2 differ, of Tensor(%0: f32(2, ...
    """


class DTypeError(Located, TypeError):
    """An operation is not defined for these dtypes.

    >>> cx.constant([True]) - cx.constant([False])
    Traceback (most recent call last):
        ...
    luminal.errors.DTypeError: sub is not defined for bool; use logical_not or cast it ...
    """


class DimError(Located, ValueError):
    """A symbolic size is unknown, missing, or outside its bounds.

    >>> cx.dim("s", 8, 4)
    Traceback (most recent call last):
        ...
    luminal.errors.DimError: dim s: bounds 8 .. 4 are not 0 <= low <= high...
    """


class InputError(Located, ValueError):
    """An array given to a program is missing or does not fit its tensor.

    >>> y = cx.tensor(2, name="x").exp().output()
    >>> cx.compile(device="reference").run()
    Traceback (most recent call last):
        ...
    luminal.errors.InputError: missing input 'x': set rt[tensor] = array before run()...
    """


class LossyInput(InputError, DTypeError):
    """An array or number that its tensor's dtype cannot hold without loss."""


class DeviceError(LuminalError, ValueError):
    """The device does not exist on this machine.

    >>> y = cx.tensor(2).exp().output()
    >>> cx.compile(device="abacus")
    Traceback (most recent call last):
        ...
    luminal.errors.DeviceError: there is no device 'abacus'; there are 'auto', 'cpu', ...
    """


class WeightsError(LuminalError, ValueError):
    """A weight file is truncated, mistyped, or does not fit the model.

    >>> from luminal.weights.safetensors import Safetensors
    >>> open("cut.safetensors", "w").close()
    >>> Safetensors("cut.safetensors")
    Traceback (most recent call last):
        ...
    luminal.errors.WeightsError: cut.safetensors: not a safetensors file, or truncated ...
    """


class ArtifactError(LuminalError, ValueError):
    """A saved program is damaged, of another version, or for another machine.

    >>> open("broken.luminal", "w").close()
    >>> luminal.load("broken.luminal")
    Traceback (most recent call last):
        ...
    luminal.errors.ArtifactError: broken.luminal: not a file of this kind of luminal's
    """


class Unsupported(LuminalError, NotImplementedError):
    """What was asked for is not built yet; the message says what.

    >>> ops.unique(cx.tensor(3))
    Traceback (most recent call last):
        ...
    luminal.errors.Unsupported: unique: how many elements are distinct is data; give ...
    """


class CompileError(LuminalError, RuntimeError):
    """The compiler failed on a valid program: a fault of the compiler.

    >>> issubclass(luminal.CompileError, RuntimeError)
    True
    """


class Illegal(CompileError):
    """A schedule that cannot be lowered; a search drops the candidate."""


class WrongResult(LuminalError, RuntimeError):
    """A compiled program does not compute what it means: a fault of the compiler."""


class NotFinite(LuminalError, ArithmeticError):
    """A value of a training became NaN or infinite.

    >>> issubclass(luminal.NotFinite, ArithmeticError)
    True
    """


class OutOfMemory(LuminalError, MemoryError):
    """The system gives no memory for what a run needs at its sizes."""


class VerifyError(CompileError):
    """An intermediate representation breaks its own rules."""
