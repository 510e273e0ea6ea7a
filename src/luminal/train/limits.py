"""Numbers that make no sense are refused when they are given."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real

from ..errors import InputError


def check(name: str, value: object, low: float = 0.0, high: float = inf) -> None:
    """Raises InputError unless value is a number with low <= value < high.

    >>> check("lr", 0.1)
    >>> check("momentum", 1.5, 0.0, 1.0)
    Traceback (most recent call last):
    luminal.errors.InputError: momentum is 1.5: it must be at least 0.0 and less than 1.0
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) < high:
        wanted = f"at least {low}" if low > -inf else ""
        if high < inf or value == inf:
            wanted += f"{' and ' if wanted else ''}less than {high}"
        raise InputError(f"{name} is {value!r}: it must be {wanted or 'a number'}")


def whole(name: str, value: object, low: int) -> None:
    """Raises InputError unless value is a whole number of at least low.

    >>> whole("steps", 2.5, 0)
    Traceback (most recent call last):
    luminal.errors.InputError: steps is 2.5: it must be a whole number
    """
    check(name, value, low)
    if not isinstance(value, Integral):
        raise InputError(f"{name} is {value!r}: it must be a whole number")
