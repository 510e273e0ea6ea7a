"""Tokens of pictures: ids beyond the vocabulary, each of which stands for a row that the decoder is
given in place of an embedding."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np

from ...errors import InputError
from ...graph import Graph, Tensor
from ...graph.index import Index
from .config import DecoderConfig

MOST_ROWS = 1 << 16  # of all pictures that are held; the one not seen for longest goes first


class Pictures:
    """Rows of pictures. A picture that comes again has the ids that it had, so that what a cache
    holds of it still serves; ids are never given twice. Several threads may use it."""

    def __init__(self, vocabulary: int, width: int) -> None:
        self.vocabulary, self.width = vocabulary, width
        self._held: OrderedDict[bytes, tuple[int, np.ndarray]] = OrderedDict()
        self._next, self._lock = vocabulary, threading.Lock()

    def find(self, key: bytes) -> list[int] | None:
        """The ids of a picture that is held."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            start, rows = self._held[key]
            return list(range(start, start + len(rows)))

    def add(self, key: bytes, rows: np.ndarray) -> list[int]:
        """Hold a picture's rows (tokens, width); its ids."""
        with self._lock:
            start, self._next = self._next, self._next + len(rows)
            self._held[key] = start, np.asarray(rows, np.float32)
            while len(self._held) > 1 and sum(len(r) for _, r in self._held.values()) > MOST_ROWS:
                self._held.popitem(last=False)
        return list(range(start, start + len(rows)))

    def rows(self, ids: Sequence[int]) -> np.ndarray:
        """(tokens, width) f32: the rows of pictures, zeros for other tokens. Raises InputError for
        an id of a picture that is not held."""
        found = np.zeros((len(ids), self.width), np.float32)
        wanted = np.asarray(ids, np.int64)
        left = wanted >= self.vocabulary
        with self._lock:
            for start, rows in self._held.values() if left.any() else ():
                here = (wanted >= start) & (wanted < start + len(rows))
                found[here] = rows[wanted[here] - start]
                left &= ~here
        if left.any():
            raise InputError(f"token {wanted[left][0]} is of no picture that is held")
        return found


_shared: WeakValueDictionary[Path, Pictures] = WeakValueDictionary()


def pictures_for(directory: Path, config: DecoderConfig) -> Pictures:
    """Those of a folder: one for all programs that run its model."""
    place = directory.resolve()
    found = _shared.get(place)
    if found is None:
        found = _shared[place] = Pictures(config.vocabulary, config.width)
    return found


def given_rows(graph: Graph, config: DecoderConfig, tokens: Index) -> Tensor | None:
    """The input for rows of pictures (tokens, width), of a model that sees any."""
    return graph.tensor((tokens, config.width), name="pictures") if config.pictures else None


def check_tokens(ids: Sequence[int], vocabulary: int, pictures: Pictures | None) -> None:
    """Raises InputError for an id that is no token's, nor of a picture that is held."""
    if min(ids) < 0 or (pictures is None and max(ids) >= vocabulary):
        raise InputError(f"token ids go from 0 to {vocabulary - 1}")
    if pictures is not None:
        pictures.rows(ids)
