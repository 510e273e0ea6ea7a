"""Values for which a program is made, and those of them that it takes as sizes instead.

A whole number that shapes results (a total length, the target of a reshape) is a constant at first.
Once a run has another one, it is a size of the next program, which serves all that are larger than
1: like a size of an input, 1 is a case of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ... import ops
from ...graph.index import Index
from ...graph.tensor import Tensor
from ...ops.base import size_value
from .context import BOUNDS

Masks = Mapping[str, np.ndarray]  # by the name of a value, which elements are sizes


def plain_name(name: str) -> str:
    """A name of the model as part of a size's: others have others."""
    return "".join(c if c.isalnum() and c.isascii() else _escaped(c) for c in name)


def _escaped(c: str) -> str:
    return "__" if c == "_" else f"_{ord(c):x}_"


def equal(a: Any, b: Any, loose: np.ndarray | None = None) -> bool:
    """The same values, but for elements that are sizes."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    if a is None or b is None or isinstance(b, list):
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if loose is None:
        return bool(a.tobytes() == b.tobytes())
    return bool(np.where(loose, _countable(b), a == b).all())


def _countable(a: np.ndarray) -> np.ndarray:
    return np.asarray((a > 1) & (a <= BOUNDS[1]))


def loosened(earlier: Iterable[tuple[Mapping[str, Any], Masks]], store: Mapping[str, Any]) -> Masks:
    """What has differed from the values of earlier programs, or was a size of one."""
    found: dict[str, np.ndarray] = {}
    for fixed, loose in earlier:
        for name, old in fixed.items():
            new = store.get(name)
            if not (isinstance(old, np.ndarray) and isinstance(new, np.ndarray)):
                continue
            if old.dtype != new.dtype or old.shape != new.shape or old.dtype.kind not in "iu":
                continue
            varied = (old != new) | loose.get(name, False)
            free = _countable(old) & _countable(new) & varied
            found[name] = free | found.get(name, False)
    return {name: mask for name, mask in found.items() if mask.any()}


def sizes(loose: Masks, store: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that values are, by name."""
    return {_size(name, k): int(store[name].reshape(-1)[k])
            for name, mask in loose.items() for k in _places(mask)}  # fmt: skip


def _places(mask: np.ndarray) -> list[int]:
    return [k for k, free in enumerate(mask.reshape(-1)) if free]


def _size(name: str, number: int) -> str:
    return f"value_{plain_name(name)}_{number}"


def names(loose: Masks, name: str) -> list[str]:
    """The sizes that one value is."""
    return [_size(name, k) for k in _places(loose[name])] if name in loose else []


def mixed(constant: Tensor, name: str, mask: np.ndarray) -> Tensor:
    """A value whose elements are sizes, which are declared, or constants."""
    flat = constant.reshape(-1)
    parts = [
        size_value(flat.graph, Index.of(_size(name, k)), flat.dtype) if free else flat.select(0, k)
        for k, free in enumerate(mask.reshape(-1))
    ]
    return ops.stack(parts).reshape(constant.shape)
