"""Tokens of pictures: ids beyond the vocabulary, each of which stands for a row that the decoder is
given in place of an embedding."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np

from ...errors import InputError
from ...graph import Graph, Tensor
from ...graph.index import Index
from .config import DecoderConfig
from .rope import switch_of

MOST_ROWS = 1 << 16  # of all pictures that are held; the one not seen for longest goes first


@dataclass(eq=False)
class Seen:
    """A picture's rows (tokens, width), the id of the first, and (rows, columns) of its tokens
    where these matter."""

    start: int
    rows: np.ndarray
    grid: tuple[int, int] | None

    @property
    def end(self) -> int:
        """The id behind its last one."""
        return self.start + len(self.rows)


class Pictures:
    """Rows of pictures. A picture that comes again has the ids that it had, so that what a cache
    holds of it still serves; ids are never given twice. Several threads may use it."""

    def __init__(self, vocabulary: int, width: int) -> None:
        self.vocabulary, self.width = vocabulary, width
        self._held: OrderedDict[bytes, Seen] = OrderedDict()
        self._known: WeakValueDictionary[int, Seen] = WeakValueDictionary()  # by the first id
        self._next, self._lock = vocabulary, threading.Lock()

    def find(self, key: bytes) -> list[int] | None:
        """The ids of a picture that is held."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            seen = self._held[key]
            return list(range(seen.start, seen.end))

    def add(
        self, key: bytes, rows: np.ndarray, grid: tuple[int, int] | None = None
    ) -> list[int]:  # fmt: skip
        """Hold a picture's rows (tokens, width); its ids. grid: (rows, columns) of its tokens."""
        with self._lock:
            seen = Seen(self._next, np.asarray(rows, np.float32), grid)
            self._held[key] = self._known[seen.start] = seen
            self._next = seen.end
            while len(self._held) > 1 and sum(len(s.rows) for s in self._held.values()) > MOST_ROWS:
                self._held.popitem(last=False)
        return list(range(seen.start, seen.end))

    def known(self, ids: Sequence[int]) -> list[Seen]:
        """The pictures that ids are of, in the order of their ids. Whoever has them keeps them:
        others that come do not take their place."""
        beyond = np.asarray(ids, np.int64)
        beyond = np.sort(beyond[beyond >= self.vocabulary])
        if not len(beyond):
            return []
        with self._lock:
            every = sorted(self._known.values(), key=lambda seen: seen.start)
        return [s for s in every if np.diff(np.searchsorted(beyond, (s.start, s.end)))[0]]

    def rows(self, ids: Sequence[int]) -> np.ndarray:
        """(tokens, width) f32: the rows of pictures, zeros for other tokens. Raises InputError for
        an id of a picture that is not held."""
        found = np.zeros((len(ids), self.width), np.float32)
        wanted = np.asarray(ids, np.int64)
        left = wanted >= self.vocabulary
        for seen in self.known(ids):
            here = (wanted >= seen.start) & (wanted < seen.end)
            found[here] = seen.rows[wanted[here] - seen.start]
            left &= ~here
        if left.any():
            raise InputError(f"token {wanted[left][0]} is of no picture that is held")
        return found

    def places(self, ids: Sequence[int], start: int) -> np.ndarray:
        """(len(ids) - start, 3) i64: the time, row and column of tokens from `start` on. A picture
        is at one time, its rows and columns count from there on; what follows it comes after all of
        these."""
        given, at, time = np.asarray(ids, np.int64), 0, 0
        found = np.empty((len(given), 3), np.int64)
        grids = {seen.start: seen.grid for seen in self.known(ids) if seen.grid is not None}
        for first in np.isin(given, list(grids)).nonzero()[0].tolist():
            words = first - at
            found[at:first] = time + np.arange(words)[:, None]
            rows, columns = grids[int(given[first])]
            here = np.arange(min(rows * columns, len(given) - first))
            time, at = time + words, first + len(here)
            place = np.stack([0 * here, here // columns, here % columns], 1)
            found[first:at] = time + place
            time += max(rows, columns)
        found[at:] = time + np.arange(len(given) - at)[:, None]
        return found[start:]

    def left(self, ids: Sequence[int]) -> np.ndarray:
        """(len(ids),) i64: how many tokens of its picture come after a token."""
        given = np.asarray(ids, np.int64)
        found = np.zeros(len(given), np.int64)
        for seen in self.known(ids):
            here = (given >= seen.start) & (given < seen.end)
            found[here] = seen.end - 1 - given[here]
        return found

    def unbroken(self, ids: Sequence[int], start: int, count: int) -> int:
        """How many of `count` tokens from `start` on run at once so that no picture is cut."""
        end = start + count
        part = ids[start:end]
        if not count or end >= len(ids) or not self.left(part[-1:])[0]:
            return count
        (cut,) = self.known(part[-1:])
        return max(0, count - (part[-1] - cut.start + 1))


_shared: WeakValueDictionary[tuple[Path, Path], Pictures] = WeakValueDictionary()


def pictures_for(directory: Path, config: DecoderConfig, eyes: Path | None = None) -> Pictures:
    """Those of a folder or file: one for all programs that run its model, with these eyes where
    they lie elsewhere."""
    place = directory.resolve(), (eyes or directory).resolve()
    found = _shared.get(place)
    if found is None:
        found = _shared[place] = Pictures(config.vocabulary, config.width * (1 + config.deep))
    return found


def given_rows(graph: Graph, config: DecoderConfig, tokens: Index) -> Tensor | None:
    """The input for rows of pictures (tokens, width), of a model that sees any."""
    if not config.pictures:
        return None
    return graph.tensor((tokens, config.width * (1 + config.deep)), name="pictures")


def given_places(
    graph: Graph, config: DecoderConfig, context: int, tokens: Index
) -> Tensor | None:
    """The input for times, rows and columns of tokens (tokens, 3) i64, of a model whose rotary
    positions have them (Qwen2-VL: Wang et al. 2024, https://arxiv.org/abs/2409.12191); or for
    (tokens,) rows of tables with a `switch`."""
    if config.placed:
        return graph.tensor((tokens, 3), "i64", "turned_at")
    if switch_of(config, context) is None:
        return None
    return graph.tensor((tokens,), "i64", "turned_at")


def given_left(graph: Graph, config: DecoderConfig, tokens: Index) -> Tensor | None:
    """The input for how many later tokens each one sees (tokens,) i64, of a model that looks at all
    of a picture at once."""
    if not (config.pictures and config.together):
        return None
    return graph.tensor((tokens,), "i64", "left")


def check_tokens(ids: Sequence[int], vocabulary: int, pictures: Pictures | None) -> list[Seen]:
    """The pictures that ids are of. Raises InputError for an id that is no token's, nor of a
    picture that is held."""
    if min(ids) < 0 or (pictures is None and max(ids) >= vocabulary):
        raise InputError(f"token ids go from 0 to {vocabulary - 1}")
    if pictures is None:
        return []
    seen = pictures.known(ids)
    pictures.rows(ids)
    return seen
