"""Sequences and optional values, which are Python's lists and None while recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .... import ops
from ....errors import ShapeError
from ....graph.dtype import i64
from ....graph.tensor import Tensor
from ....ops.base import dim_of, extent
from .base import Typed, op

if TYPE_CHECKING:
    from ..record import Recorder


def _place(at: Recorder, given: Tensor | None, count: int, more: int = 0) -> int:
    place = count if given is None else at.ints(given)[0]
    if not -count <= place < count + more:
        raise ShapeError(f"no place {place} in a sequence of {count}")
    return place + count if place < 0 else place


def _values(at: Recorder, number: int) -> list[Any]:
    """A sequence with the element types of its tensors."""
    held = at.value(at.given(number))
    assert isinstance(held, list)
    return held


def _tensor(at: Recorder, number: int) -> Any:
    return at.value(at.given(number))


@op("SequenceEmpty")
def empty(at: Recorder, dtype: int = 1) -> Any:
    return []


@op("SequenceConstruct")
def construct(at: Recorder, *tensors: Any) -> Any:
    return [_tensor(at, k) for k in range(len(tensors))]


@op("SequenceInsert")
def insert(at: Recorder, values: Any, tensor: Any, position: Tensor | None = None) -> Any:
    held = _values(at, 0)
    place = _place(at, position, len(held), 1)
    return [*held[:place], _tensor(at, 1), *held[place:]]


@op("SequenceErase")
def erase(at: Recorder, values: Any, position: Tensor | None = None) -> Any:
    held = _values(at, 0)
    place = len(held) - 1 if position is None else _place(at, position, len(held))
    return [*held[:place], *held[place + 1 :]]


@op("SequenceAt")
def element(at: Recorder, values: Any, position: Tensor) -> Any:
    held = _values(at, 0)
    return held[_place(at, position, len(held))]


@op("SequenceLength")
def length(at: Recorder, values: Any) -> Tensor:
    return at.graph.literal(len(_values(at, 0)), i64)


@op("ConcatFromSequence")
def joined(at: Recorder, values: Any, axis: int, new_axis: int = 0) -> Any:
    held = _values(at, 0)
    tensors = [value.tensor for value in held]
    found = ops.stack(tensors, axis) if new_axis else ops.cat(tensors, axis)
    return Typed(found, held[0].kind)


@op("SplitToSequence")
def split(
    at: Recorder, x: Tensor, sizes: Tensor | None = None, axis: int = 0, keepdims: int = 1
) -> Any:
    dim, kind = dim_of(x, axis), at.kind(0)
    n = ops.base.static(extent(x, dim), "what is split into a sequence")
    each = np.ones(n, np.int64) if sizes is None else at.array(sizes)
    if each.ndim == 0:
        step = int(each)
        each = np.array([min(step, n - start) for start in range(0, n, step)])
    parts = ops.split(x, [int(size) for size in each], dim)
    if sizes is None and not keepdims:
        parts = [part.squeeze(dim) for part in parts]
    return [Typed(part, kind) for part in parts]


@op("Optional")
def optional(at: Recorder, value: Any = None, type: Any = None) -> Any:
    return None if value is None else _tensor(at, 0)


@op("OptionalHasElement")
def has_element(at: Recorder, value: Any = None) -> Tensor:
    return at.graph.literal(value is not None, "bool")


@op("OptionalGetElement")
def get_element(at: Recorder, value: Any) -> Any:
    if value is None:
        raise ShapeError("an optional value that is empty")
    return _tensor(at, 0)
