"""The tokenizers package: loaded where a text is met, its errors as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import LuminalError, WeightsError, to_install
from ..weights.fields import regular

MOST_TOKENIZER = 64 << 20  # bytes of a tokenizer.json; those of 262,144 tokens have 33 MB


def read_tokenizer(file: Path) -> Any:
    """The tokenizer of the tokenizers package in a tokenizer.json. Raises WeightsError."""
    if not file.exists():
        raise WeightsError(f"{file}: no such file; a fast tokenizer is needed for text")
    size = regular(file).stat().st_size
    if size > MOST_TOKENIZER:
        raise WeightsError(f"{file}: {size} bytes; at most {MOST_TOKENIZER} are read")
    try:
        return tokenizers().Tokenizer.from_file(str(file))
    except BaseException as error:
        raise refused(error, f"{file}: not a tokenizer") from None


def refused(error: BaseException, what: str) -> WeightsError:
    """What to raise for an error of the tokenizers package: it raises bare Exception, and Rust's
    panics are none. Raises what is no fault of the package's."""
    if isinstance(error, LuminalError):
        raise error
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    return WeightsError(f"{what}: {error}")


def tokenizers() -> Any:
    """The tokenizers package. Raises WeightsError where it is not installed."""
    try:
        import tokenizers as package
    except ImportError:
        raise WeightsError(f"texts need the tokenizers package: {to_install('text')}") from None
    return package
