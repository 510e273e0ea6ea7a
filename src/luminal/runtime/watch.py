"""Profilers of others that want to see a run kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from ..backend.table import Begin, End, Entry, Step

Watch: TypeAlias = Callable[[str], AbstractContextManager[object]]
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """In this block every kernel of a run runs alone, within `watch(its name)`; a loop as a whole.
    Results are those of any run, barriers are more."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def watcher() -> Watch | None:
    """Who watches here."""
    return _watch.get()


def pieces(steps: Sequence[Step], names: Sequence[str]) -> Iterator[tuple[str, list[Step]]]:
    """The steps of a run one by one, a loop in one piece. names: of the calls among them."""
    depth, piece, named = 0, list[Step](), iter(names)
    inside: list[str] = []
    for step in steps:
        piece.append(step)
        depth += isinstance(step, Begin) - isinstance(step, End)
        if isinstance(step, Entry):
            inside.append(next(named))
        if depth == 0:
            alone = len(piece) == 1
            yield (inside[0] if alone else f"loop of {', '.join(inside)}"), piece
            piece, inside = [], []
