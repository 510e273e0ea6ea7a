"""A saved program as a file: a container (see container.py) whose table holds the rows of a `Saved`
(see codec.py) and whose blobs are object code, then arrays, which are mapped, not read.

Object code runs as it is: trust such a file as you would a shared library. All digests are checked
before anything in a file is used; whether this machine can run its code is for the reader to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import container
from ..container import Blob, whole
from ..errors import ArtifactError
from ..graph.dtype import BY_NAME, dtype
from .codec import decode, encode
from .saved import Saved

MAGIC = b"luminal\n"
OPEN = 0o666  # less the umask: the rights of a file that a user saves


def write(saved: Saved, path: Path, key: str | None = None) -> None:
    """Write a program to a file; whoever opens the file meets all of it or nothing. key: where it
    is kept for this user alone."""
    made = [(place, piece.reshape(-1).view(np.uint8)) for place, piece in saved.made.items()]
    arrays = [(n, np.asarray(array, order="C")) for n, array in (*saved.arrays.items(), *made)]
    about = {
        "rows": encode(saved.described()),
        "codes": len(saved.codes),
        "arrays": [[n, str(dtype(array.dtype)), array.shape] for n, array in arrays],
        "made": len(made),  # of the arrays, the last
    }
    with whole(path, OPEN if key is None else 0o600) as file:
        writer = container.Writer(file, MAGIC)
        for code in saved.codes:
            writer.add(code)
        for _, array in arrays:
            writer.add(array)
        writer.finish(key, about)


def read(path: Path, key: str | None = None) -> Saved:
    """The program in a file; its arrays stay in the file, mapped. key: that it is kept under.
    Raises ArtifactError, OSError."""
    about, blobs = container.read(path, MAGIC, key)
    try:
        saved = decode(about["rows"])
        if not isinstance(saved, Saved):
            raise ValueError(f"a {type(saved).__name__} is no program")
        count = int(about["codes"])
        codes = tuple(blob.bytes() for blob in blobs[:count])
        described = zip(about["arrays"], blobs[count:], strict=True)
        arrays = [(n, _array(kind, shape, blob)) for (n, kind, shape), blob in described]
        given = len(arrays) - int(about["made"])
    except ArtifactError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ArtifactError(f"{path}: damaged: {error}") from error
    return replace(saved, codes=codes, arrays=dict(arrays[:given]), made=dict(arrays[given:]))


def _array(kind: str, shape: Sequence[int], blob: Blob) -> Any:
    found: Any = blob.mapped().view(BY_NAME[kind].numpy).reshape(shape)
    return found
