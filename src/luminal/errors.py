"""Every error that a user can meet. A message says what was expected, what was got, and where."""


class LuminalError(Exception):
    """Base of all errors of this package."""


class ShapeError(LuminalError, ValueError):
    """Shapes of an operation do not fit together."""


class DTypeError(LuminalError, TypeError):
    """An operation is not defined for these dtypes."""


class DimError(LuminalError, ValueError):
    """A symbolic size is unknown, missing, or outside its bounds."""


class InputError(LuminalError, ValueError):
    """An array given to a program is missing or does not fit its tensor."""


class DeviceError(LuminalError, ValueError):
    """The device does not exist on this machine."""


class WeightsError(LuminalError, ValueError):
    """A weight file is truncated, mistyped, or does not fit the model."""


class Unsupported(LuminalError, NotImplementedError):
    """What was asked for is not built yet; the message says what."""


class CompileError(LuminalError, RuntimeError):
    """The compiler failed on a valid program: a fault of the compiler."""


class Illegal(CompileError):
    """A schedule that cannot be lowered; a search drops the candidate."""


class VerifyError(CompileError):
    """An intermediate representation breaks its own rules."""
