"""The tokenizers package: loaded where a text is met, its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, LuminalError, WeightsError, to_install
from ..weights.fields import regular

MAX_BATCH = 1024  # texts that an encoder reads at once
MOST_TOKENIZER = 64 << 20  # bytes of a tokenizer.json; those of 262,144 tokens have 33 MB


def batches(texts: Sequence[Any], size: int) -> Iterator[list[int]]:
    """The numbers of the texts (or pairs) of each batch: of about the same length, so that little
    is padding. Raises InputError."""
    if isinstance(texts, str):
        raise InputError("a list of texts is wanted, not one text")
    if not 1 <= size <= MAX_BATCH:
        raise InputError(f"batch_size is from 1 to {MAX_BATCH}, not {size}")
    order = sorted(range(len(texts)), key=lambda n: len(str(texts[n])))
    for start in range(0, len(order), size):
        yield order[start : start + size]


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


def spaced(model: Any, prefix: bool, more: Sequence[Any] = ()) -> Any:
    """A tokenizer of whole texts whose spaces are "▁", with one before the text if prefix. more:
    normalizers that come first."""
    package = tokenizers()
    raw = package.Tokenizer(model)
    spaces = [package.normalizers.Prepend("▁")] if prefix else []
    steps = [*more, *spaces, package.normalizers.Replace(" ", "▁")]
    raw.normalizer = package.normalizers.Sequence(steps)
    steps = [package.decoders.Replace("▁", " "), package.decoders.ByteFallback(),
             package.decoders.Fuse()]  # fmt: skip
    if prefix:
        steps.append(package.decoders.Strip(" ", 1, 0))
    raw.decoder = package.decoders.Sequence(steps)
    return raw


def merges_of(
    tokens: list[str], scores: Any, vocabulary: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the token of the best score first."""
    found, ranks = [], (-np.asarray(scores, np.float64)).tolist()
    for rank, token in zip(ranks, tokens):
        for cut in range(1, len(token)):
            left = token[:cut]
            if left in vocabulary and token[cut:] in vocabulary:
                right = token[cut:]
                found.append((rank, vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(found)]
