"""What is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
Key = TypeVar("Key")
Made = TypeVar("Made")


class computed_once(Generic[T]):
    """As `functools.cached_property`, without the lock that it has before Python 3.12: a lock of
    the class, which a forked child finds held where another thread was computing."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name, self.__doc__ = compute, "", compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> computed_once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> computed_once[T] | T:
        if instance is None:
            return self
        found = instance.__dict__[self._name] = self._compute(instance)
        return found


def remembered(known: dict[Key, Made], key: Key, make: Callable[[], Made], most: int) -> Made:
    """What was made for a key, which is the youngest now; beyond so many the oldest goes."""
    found = known.pop(key) if key in known else make()
    known[key] = found
    if len(known) > most:
        del known[next(iter(known))]
    return found
