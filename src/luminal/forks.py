"""Locks that os.fork does not cut in two.

A child has a copy of everything, but of all threads only the one that forked: a lock that another
thread held is held for ever, and what that thread was changing stays half changed. So a fork waits
until these locks are free. If that takes too long, the child cannot take the lock, and says so.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

from .errors import LuminalError

PATIENCE = 10.0  # seconds that a fork waits for all locks together
OUTER, RUN, INNER = range(3)  # in the order in which a thread takes them

_places: dict[int, tuple[int, weakref.ref[Any], str]] = {}
_forking = threading.RLock()
_held: list[list[Any]] = []  # owner, name, lock, whether it is ours


def guard(owner: Any, name: str, rank: int) -> None:
    """The owner's attribute of this name is a reentrant lock."""
    key = id(owner)
    _places[key] = rank, weakref.ref(owner, lambda _: _places.pop(key, None)), name


class _Gate:
    """In place of a lock that a fork waits for: a thread that runs one program after the other
    would take it again and again before the waiting one is awake."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self) -> None:
        if not self._lock._is_owned():
            with _forking:
                pass
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Torn:
    """In place of a lock that another thread still held when this process was forked."""

    def acquire(self) -> None:
        raise LuminalError(
            "another thread was at work here when this process was forked, and its work is half "
            "done: make a new one in this process, or fork while nothing runs"
        )

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        pass


def _before() -> None:
    _forking.acquire()
    end = time.monotonic() + PATIENCE
    for _, found, name in sorted(_places.copy().values(), key=lambda place: place[0]):
        owner = found()
        lock = getattr(owner, name, None)
        if lock is not None and not isinstance(lock, _Torn):
            _held.append([owner, name, lock, False])
            setattr(owner, name, _Gate(lock))
            _held[-1][3] = lock.acquire(timeout=max(0.0, end - time.monotonic()))


def _in_parent() -> None:
    for owner, name, lock, free in reversed(_held):
        setattr(owner, name, lock)
        if free:
            lock.release()
    _held.clear()
    _forking.release()


def _in_child() -> None:
    torn = [(owner, name) for owner, name, _, free in _held if not free]
    _in_parent()
    for owner, name in torn:
        setattr(owner, name, _Torn())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
