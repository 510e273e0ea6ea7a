"""Which module records: the dotted name that nodes keep, by which viewers fold graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

SCOPE: ContextVar[str] = ContextVar("scope", default="")


@contextmanager
def scope(name: str) -> Iterator[None]:
    """What is recorded inside belongs to the module of this dotted name: viewers fold by it."""
    before = SCOPE.set(name)
    try:
        yield
    finally:
        SCOPE.reset(before)
