"""What a program has made of its parameters, kept on disk: the packed weights of a model are made
once, and read back as they lie. What runs hardly read, such as a table of embeddings, stays there.

The file is a container (see container.py) with the place of each blob, which begins at a page.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from .. import container
from ..container import Unfinished, finish_later
from ..errors import ArtifactError
from ..runtime.contract import Load
from ..runtime.executable import Executable
from ..store import Store

MAGIC = b"lumkept\n"


def set_parameters(
    program: Executable, load: Load, identity: str, store: Store | None = None
) -> None:
    """As `program.set_parameters(load)`, which is not called where what the program makes of these
    parameters was kept earlier; else it is kept now.

    identity: a file name that stands for exactly these values. store: the user's if None.
    """
    store = store or Store.of_weights()
    made = program.key_of_made
    key = "" if made is None else f"{identity}-{made}"
    if store.find(key or None, partial(read, program=program, key=key)):
        return
    fresh = partial(write, program=program, load=load, key=key)
    if not store.keep(key or None, fresh, program.parameter_bytes):
        program.set_parameters(load)


def read(path: Path, program: Executable, key: str) -> bool:
    """Give a program the pieces of a file. Raises ArtifactError, OSError."""
    places, blobs = container.read(path, MAGIC, key)
    if len(places) != len(blobs):
        raise ArtifactError(f"{path}: {len(places)} places for {len(blobs)} pieces")
    program.take(dict(zip(places, blobs)))
    return True


def write(path: Path, program: Executable, load: Load, key: str) -> None:
    """Set the parameters of a program, and write what it makes of them, most of it beside what
    comes next. Raises OSError, and what `load` raises."""
    new = Unfinished(path)
    try:
        pieces = _Pieces(new.file)
        program.set_parameters(load, pieces.spill)
        for place, piece in (program.made() or {}).items():
            pieces.add(place, piece, later=True)
    except BaseException:
        new.drop()
        raise
    finish_later(new, partial(pieces.finish, key))


class _Pieces:
    """Pieces, one after the other, into a file that is open for writing and reading."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._writer = file, container.Writer(file, MAGIC, container.PAGE)
        self._starts: dict[int, int] = {}  # by place

    def add(self, place: int, piece: np.ndarray, later: bool = False) -> None:
        """Write a piece, unless the file has it."""
        if place not in self._starts:
            self._starts[place] = self._writer.add(piece, later)

    def spill(self, place: int, array: np.ndarray) -> np.ndarray:
        """Write an array; the same one as it lies in the file."""
        self.add(place, array)
        self._file.flush()
        found = container.mapped(self._file, self._starts[place], array.nbytes)
        return found.view(array.dtype).reshape(array.shape)

    def finish(self, key: str) -> None:
        self._writer.finish(key, list(self._starts))
