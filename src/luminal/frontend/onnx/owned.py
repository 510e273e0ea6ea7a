"""Results as arrays of the caller's own: what is written into one changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np


def owned(results: list[Any], given: list[Any]) -> list[Any]:
    """The results, copied where they share memory with what was given or with each other."""
    roots, others = set(map(_root, results)), set(map(_root, given))
    if len(roots) == len(results) and None not in roots | others and roots.isdisjoint(others):
        return results  # as most are: a call may take microseconds
    taken: dict[Any, list[np.ndarray]] = {}
    for value in given:
        for array in value if isinstance(value, list) else [value]:
            if array is not None:
                taken.setdefault(_root(array), []).append(array)
    return [_apart(value, taken) for value in results]


def _apart(value: Any, taken: dict[Any, list[np.ndarray]]) -> Any:
    if isinstance(value, list):
        return [_apart(part, taken) for part in value]
    if value is None:
        return None
    beside = taken.setdefault(_root(value), [])
    if any(np.may_share_memory(value, other) for other in beside):
        return value.copy()
    beside.append(value)
    return value


def _root(array: Any) -> int | None:
    """What holds the memory: arrays with other holders share none. None for what is no array."""
    if not isinstance(array, np.ndarray):
        return None
    while array.base is not None:
        array = array.base
        if not isinstance(array, np.ndarray):
            break
    return id(array)
