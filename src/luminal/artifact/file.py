"""A saved program as a file: a container (see container.py) whose table holds the rows of a `Saved`
(see codec.py) and whose blobs are object code, then arrays, which are mapped, not read.

Object code runs as it is: trust such a file as you would a shared library. All digests are checked
before anything in a file is used; whether this machine can run its code is for the reader to ask.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import container
from ..container import OPEN, Blob, whole
from ..errors import ArtifactError
from ..graph.dtype import BY_NAME, dtype
from ..sources import COMPILING, code_of
from .codec import decode, encode
from .recording import FAULTS, Recording
from .saved import Saved

MAGIC = b"luminal\n"


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
        "recording": saved.recording,
        "code": code_of(*COMPILING),
    }
    with whole(path, OPEN if key is None else 0o600) as file:
        writer = container.Writer(file, MAGIC)
        for code in saved.codes:
            writer.add(code)
        for _, array in arrays:
            writer.add(array)
        writer.finish(key, about)


class OtherVersion(ArtifactError):
    """A file that other code wrote: machine code in it may call and be called in other ways."""


def read(path: Path, key: str | None = None) -> Saved:
    """The program in a file; its arrays stay in the file, mapped. key: that it is kept under.
    Raises ArtifactError, OtherVersion where other code wrote it, OSError."""
    about, blobs = container.read(path, MAGIC, key)
    with _clear(path, about):
        if about["code"] != code_of(*COMPILING):
            raise OtherVersion(f"{path}: written by another version of luminal: compile it again")
        saved = decode(about["rows"])
        if not isinstance(saved, Saved):
            raise ValueError(f"a {type(saved).__name__} is no program")
        codes = tuple(blob.bytes() for blob in blobs[: int(about["codes"])])
        arrays, made = _arrays(about, blobs)
        recording = about["recording"]
    return replace(saved, codes=codes, arrays=arrays, made=made, recording=recording)


def read_recording(path: Path) -> tuple[Recording, dict[int, np.ndarray]]:
    """The graph in a file, and the values that its sources have there; nothing else of the file is
    looked at. Raises ArtifactError, OSError."""
    about, blobs = container.read(path, MAGIC)
    with _clear(path, about):
        if not about["recording"]:
            raise ValueError("there is no graph in it")
        recording = decode(about["recording"])
        if not isinstance(recording, Recording):
            raise ValueError(f"a {type(recording).__name__} is no graph")
        return recording, _arrays(about, blobs)[0]


@contextlib.contextmanager
def _clear(path: Path, about: Any) -> Iterator[None]:
    """What a forged description ends in, or one that other code wrote, as an ArtifactError."""
    try:
        yield
    except ArtifactError:
        raise
    except FAULTS as error:
        if isinstance(about, dict) and about.get("code") != code_of(*COMPILING):
            raise ArtifactError(
                f"{path}: written by another version of luminal: compile it again ({error})"
            ) from error
        raise ArtifactError(f"{path}: damaged: {error}") from error


def _arrays(about: Any, blobs: Sequence[Blob]) -> tuple[dict[int, Any], dict[int, Any]]:
    """Those of ports, and those that were made of parameters."""
    described = zip(about["arrays"], blobs[int(about["codes"]) :], strict=True)
    arrays = [(n, _array(kind, shape, blob)) for (n, kind, shape), blob in described]
    given = len(arrays) - int(about["made"])
    return dict(arrays[:given]), dict(arrays[given:])


def _array(kind: str, shape: Sequence[int], blob: Blob) -> Any:
    found: Any = blob.mapped().view(BY_NAME[kind].numpy).reshape(shape)
    return found
