"""Batches for a training: from arrays, or from whatever can be iterated over again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from queue import Empty, Full, Queue
from types import TracebackType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from ..errors import InputError
from ..graph.values import array_of
from .limits import whole

AHEAD = 2  # batches that wait
PAUSE = 0.05  # seconds between looks at whether anybody still reads

Item = TypeVar("Item")
Source: TypeAlias = "Batches | Iterable[Any] | Callable[[], Iterable[Any]]"
Place: TypeAlias = tuple[int, int]  # epoch, number of the batch in it


@runtime_checkable
class Table(Protocol):
    """Rows of named columns, as a `datasets.Dataset` has them: table[[3, 1]] is a dict of columns
    (of arrays where it is `with_format("numpy")`)."""

    @property
    def column_names(self) -> list[str]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: list[int]) -> Mapping[str, Any]: ...


class Batches:
    """Rows of arrays in batches, in a new order each epoch, which depends on seed and epoch only.

    arrays: one, or several of equal length; a batch is a tuple of their rows. Or a table of named
    columns (a Hugging Face dataset); a batch is a dict. shuffle=False: in order. Rows that fill no
    batch are left out, unless drop_last=False. Raises InputError.

    >>> [rows.tolist() for (rows,) in train.Batches(np.arange(5), size=2, shuffle=False)]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self, *arrays: Any, size: int, shuffle: bool = True, seed: int = 0, drop_last: bool = True
    ) -> None:
        whole("Batches: size", size, 1)
        whole("Batches: seed", seed, 0)
        named = len(arrays) == 1 and isinstance(arrays[0], Table)
        self.table: Table | None = arrays[0] if named else None
        self.arrays = [] if named else [array_of(a) for a in arrays]
        lengths = {(*a.shape, 0)[0] for a in self.arrays}
        if self.table is not None:
            lengths = {len(self.table)}
        if len(lengths) != 1:
            raise InputError(f"arrays of one length are needed, not of {sorted(lengths)}")
        self.rows, self.size = lengths.pop(), size
        self.shuffle, self.seed = shuffle, seed
        self.count = self.rows // size if drop_last else -(-self.rows // size)
        if not self.count:
            raise InputError(f"{self.rows} rows are no batch of {size}")

    def __len__(self) -> int:
        return self.count

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch from one on."""
        order = np.arange(self.rows)
        if self.shuffle:
            order = np.random.default_rng([self.seed, number]).permutation(self.rows)
        for at in range(start, self.count):
            rows = order[at * self.size : (at + 1) * self.size]
            if self.table is None:
                yield tuple(a[rows] for a in self.arrays)
            else:
                yield arrays_of(self.table[rows.tolist()])

    def __iter__(self) -> Iterator[Any]:
        return self.epoch(0)


def described(data: Source) -> str | None:
    """What a batch's number means, where that is known: it is kept beside the number."""
    return f"batches of {data.size} of {data.rows} rows" if isinstance(data, Batches) else None


def stream(data: Source, place: Place, there: bool = False) -> Iterator[tuple[Place, Any]]:
    """(the place behind it, batch) from a place on, epoch after epoch, until an epoch is empty.

    there: data that is its own iterator, which serves once, stands at the place already."""
    epoch, start = place
    for number in count(epoch):
        found = start
        for batch in one_epoch(data, number, start, there):
            found += 1
            yield (number, found), batch if isinstance(data, Batches) else arrays_of(batch)
        if not found:
            return
        start = 0


def one_epoch(
    data: Source, number: int = 0, start: int = 0, there: bool = False
) -> Iterable[Any]:
    """The batches of one epoch as they are given, from one on; there: as in `stream`."""
    if isinstance(data, Batches):
        return data.epoch(number, start)
    batches = iter(data() if callable(data) else data)
    return islice(batches, 0 if there and batches is data else start, None)


def arrays_of(batch: Any) -> Any:
    """A batch as arrays of its own, as the next may be made in its memory: a tuple, or a dict by
    name."""
    if isinstance(batch, Mapping):
        return {name: np.array(array_of(value)) for name, value in batch.items()}
    values = batch if isinstance(batch, Sequence) else (batch,)
    return tuple(np.array(array_of(value)) for value in values)


class Prefetch(Generic[Item]):
    """An iterator whose next items a thread makes meanwhile. Used as a context, which ends it; a
    thread that the items keep waiting ends with the next one, and nobody waits for that."""

    def __init__(self, items: Iterator[Item], ahead: int = AHEAD) -> None:
        self._items, self._ended = items, threading.Event()
        self._queue: Queue[tuple[Item | None, BaseException | None]] = Queue(ahead)
        self._thread = threading.Thread(target=self._work, name="luminal-prefetch", daemon=True)

    def __enter__(self) -> Iterator[Item]:
        self._thread.start()
        return self._read()

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(2 * PAUSE)

    def _work(self) -> None:
        try:
            for item in self._items:
                if not self._put((item, None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:
            self._put((None, error))

    def _put(self, entry: tuple[Item | None, BaseException | None]) -> bool:
        while not self._ended.is_set():
            try:
                self._queue.put(entry, timeout=PAUSE)
                return True
            except Full:
                continue
        return False

    def _read(self) -> Iterator[Item]:
        while True:
            try:
                item, error = self._queue.get(timeout=1.0)
            except Empty:
                if self._thread.is_alive() or not self._queue.empty():
                    continue
                return
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
