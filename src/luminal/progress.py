"""How far long work is: one line on the error stream, gone when the work is done.

By default it is shown where that stream is a terminal, once the work has lasted a moment.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

DELAY = 0.5  # seconds before the first line
PAUSE = 0.1  # seconds from one line to the next, at least
WIDTH = 24  # of the bar, in characters
LINE = 100

Item = TypeVar("Item")
_wanted: ContextVar[bool | None] = ContextVar("progress", default=None)


@contextmanager
def showing(wanted: bool | None) -> Iterator[None]:
    """Lines are shown always (True), never (False), or on a terminal (None) in this block."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted() -> bool | None:
    """Whether lines are shown here, as `showing` takes it."""
    return _wanted.get()


class Line:
    """The line of one piece of work. Used as a context."""

    def __init__(self, total: int) -> None:
        """total: how many steps the work has."""
        terminal = sys.stderr is not None and sys.stderr.isatty()
        asked = wanted()
        self.total, self.shown = max(1, total), terminal if asked is None else asked
        self._next, self._drawn = time.monotonic() + DELAY, False

    def tell(self, done: int, text: str) -> None:
        """So many steps are done; the text says what is going on."""
        if not self.shown or time.monotonic() < self._next:
            return
        full = WIDTH * done // self.total
        bar = "#" * full + "-" * (WIDTH - full)
        self._write(f"\r{f'[{bar}] {text}'[:LINE]:<{LINE}}")
        self._next, self._drawn = time.monotonic() + PAUSE, True

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *error: object) -> None:
        if self._drawn:
            self._write("\r" + " " * LINE + "\r")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def tracked(title: str, items: Sequence[Item]) -> Iterator[Item]:
    """The items one after the other, with a line of how many were done."""
    with Line(len(items)) as line:
        for number, item in enumerate(items):
            line.tell(number, f"{title} {number + 1}/{len(items)}")
            yield item
