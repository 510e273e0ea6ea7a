"""What all evaluators share: grids of points, conditions, reductions, writes.

Half precision is accumulated in f32 and rounded once, unless a caller widens further.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.dtype import DType, f32
from ...graph.index import Index
from ...graph.scalars import REDUCTIONS, identity

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]


def grid(extents: Mapping[str, int], sizes: Sizes) -> dict[str, Any]:
    """The values of the run-time sizes, and of each name 0 .. extent - 1 along its own dimension:
    arrays that broadcast over all names, in their order."""
    points = np.meshgrid(*map(np.arange, extents.values()), indexing="ij", sparse=True)
    return {**sizes, **dict(zip(extents, points))}


def hold(conditions: Iterable[Index], at: Mapping[str, Any], shape: Sequence[int]) -> Array:
    """Where all `condition >= 0` hold; of this shape or one it broadcasts to."""
    holds = np.ones(shape, np.bool_)
    for condition in conditions:
        holds = holds & (np.asarray(condition.evaluate(at)) >= 0)
    return holds


def wide(dtype: DType) -> Any:
    """What values of a dtype are accumulated in, as a NumPy dtype."""
    return f32.numpy if dtype.name in ("f16", "bf16") else dtype.numpy


def reduce(op: str, array: Array, dims: tuple[int, ...], dtype: DType) -> Array:
    """The reduction of some dimensions, in the wide dtype, rounded once; an empty one gives the
    identity."""
    kind = wide(dtype)
    start = np.asarray(identity(op, dtype)).astype(kind)
    with np.errstate(all="ignore"):
        total = REDUCTIONS[op].reduce(array.astype(kind), axis=dims, dtype=kind, initial=start)
        return np.asarray(total).astype(dtype.numpy)


def accumulate(op: str, array: Array, dim: int, dtype: DType) -> Array:
    """The running reduction along a dimension."""
    kind = wide(dtype)
    with np.errstate(all="ignore"):
        running = REDUCTIONS[op].accumulate(array.astype(kind), axis=dim, dtype=kind)
        return np.asarray(running).astype(dtype.numpy)


def write(mode: str, target: Array, where: tuple[Array, ...], values: Array, dtype: DType) -> None:
    """Set elements of an array, the last write wins, or combine with them; in place."""
    if mode == "set":
        target[where] = values
        return
    total = target.astype(wide(dtype))
    with np.errstate(all="ignore"):
        REDUCTIONS[mode].at(total, where, values.astype(total.dtype))
        target[...] = total.astype(dtype.numpy)
