"""Full pages of a cache, kept on disk when an engine closes: the beginnings of conversations, a
long system message say, need not be computed again by the next one.

A container (see container.py) of the pages' keys, and for each state of the cache its rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ... import container
from ...container import whole
from ...errors import ArtifactError
from ...store import Store
from .batch import BatchProgram
from .pages import Pages

MAGIC = b"lumpage\n"


class Prefixes:
    """identity: of the weights, the code and all else that keys and values depend on."""

    def __init__(self, program: BatchProgram, identity: str, store: Store | None = None) -> None:
        shapes = [(shape[1:], str(dtype)) for shape, dtype in program.states]
        facts = repr((identity, program.page, shapes))
        self._program, self._key = program, hashlib.sha256(facts.encode()).hexdigest()
        self._store = store or Store.of_prefixes()

    def read(self, pages: Pages) -> int:
        """Fill free pages with what is kept; how many."""
        return self._store.find(self._key, partial(self._read, pages)) or 0

    def write(self, pages: Pages) -> None:
        """Keep all pages whose contents are known."""
        known = pages.known()
        if known:
            size = sum(self._sizes()) * len(known)
            self._store.keep(self._key, partial(self._write, known), size)

    def _sizes(self) -> list[int]:
        """Bytes of a page in each state."""
        page = self._program.page
        return [page * math.prod(shape[1:]) * kind.itemsize for shape, kind in self._program.states]

    def _write(self, known: Sequence[tuple[bytes, int]], path: Path) -> None:
        numbers = [page for _, page in known]
        with whole(path, 0o600) as file:
            writer = container.Writer(file, MAGIC)
            for number in range(len(self._program.states)):
                rows = self._in_pages(self._program.cached(number))[numbers]
                writer.add(rows.reshape(-1).view(np.uint8))
            writer.finish(self._key, [key.hex() for key, _ in known])

    def _read(self, pages: Pages, path: Path) -> int:
        keys, blobs = container.read(path, MAGIC, self._key)
        count = min(len(keys), pages.available)
        if [blob.nbytes for blob in blobs] != [size * len(keys) for size in self._sizes()]:
            raise ArtifactError(f"{path}: not the states of this cache")
        found = [blob.mapped() for blob in blobs]  # all are looked at before one is used
        places = pages.adopt([bytes.fromhex(key) for key in keys[:count]])
        for number, raw in enumerate(found):
            array = self._program.cached(number)
            rows = self._in_pages(array)
            rows[places] = raw.view(array.dtype).reshape(len(keys), *rows.shape[1:])[:count]
            self._program.set_cached(number, array)
        return count

    def _in_pages(self, array: np.ndarray) -> np.ndarray:
        """(pages, rows of a page, ...)"""
        return array.reshape(-1, self._program.page, *array.shape[1:])
