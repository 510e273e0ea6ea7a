"""A model that is loaded when it is first asked for, and may be unloaded while nobody uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from .. import forks


class Model(Protocol):
    """What is loaded."""

    @property
    def peak_bytes(self) -> int:
        """That its programs take by now, with their weights."""


M = TypeVar("M", bound=Model)


class Lazy(Generic[M]):
    """name: for clients. load: makes it. places: files and folders that it is read from. lock: of
    whoever uses it from threads. held: requests that use it or wait for it."""

    def __init__(self, name: str, load: Callable[[], M], places: Sequence[Path] = ()) -> None:
        self.name, self.held = name, 0
        self._load, self._places = load, places
        self._model: M | None = None
        self.lock = threading.RLock()
        forks.guard(self, "lock", forks.OUTER)

    def get(self) -> M:
        """The model. Raises what loading does."""
        with self.lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def close(self) -> None:
        """What is loaded goes."""
        self._model = None

    @property
    def loaded(self) -> bool:
        return self._model is not None

    @property
    def idle(self) -> bool:
        return not self.held

    @property
    def bytes(self) -> int:
        """That it takes; before it is loaded those of its files."""
        if self._model is not None:
            return self._model.peak_bytes
        files = (file for place in self._places for file in (place, *place.rglob("*")))
        return sum(file.stat().st_size for file in files if file.is_file())
