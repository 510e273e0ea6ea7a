"""Basic indexing, `x[1:, None, ..., -1, ::-1]`, as one view.

Numbers follow Python: negative ones count from the end, slices are cut to the tensor. A symbolic
bound (`x[p:p + s]`) is taken as it stands and must lie inside the tensor: what cannot be proven is
required when the program runs, so a slice never has a surprising size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ShapeError
from .index import Index
from .infer import text
from .node import Shape, View, position
from .space import Space
from .views import ONE, ZERO

Require = Callable[[Index, str], None]
SizeOf = Callable[[Any], Index]


@dataclass
class _Builder:
    """Dimensions of the result so far, and the index into each dimension of the source."""

    shape: list[Index] = field(default_factory=list)
    index: list[Index] = field(default_factory=list)

    def new_dim(self, size: Index) -> Index:
        self.shape.append(size)
        return Index.of(position(len(self.shape) - 1))


def is_basic(key: Any) -> bool:
    """No item is an array, a list or a tensor."""
    return all(_is_basic_item(item) for item in (key if isinstance(key, tuple) else (key,)))


def _is_basic_item(item: Any) -> bool:
    if item is None or item is Ellipsis or isinstance(item, (slice, str, Index, np.integer)):
        return True
    return isinstance(item, int) and not isinstance(item, bool)


def basic_view(shape: Shape, key: Any, size_of: SizeOf, space: Space, require: Require) -> View:
    """The view that a basic key takes of a tensor of this shape."""
    builder = _Builder()
    for item in _full_key(shape, key):
        if item is None:
            builder.new_dim(ONE)
            continue
        size = shape[len(builder.index)]
        if isinstance(item, slice):
            start, length, step = _slice(size, item, size_of, space, require)
            builder.index.append(start + builder.new_dim(length) * step)
        else:
            builder.index.append(_inside(size, size_of(item), require))
    return View(tuple(builder.shape), tuple(builder.index))


def _full_key(shape: Shape, key: Any) -> list[Any]:
    """The key with `...` written out and a full slice for every dimension not named."""
    items = list(key) if isinstance(key, tuple) else [key]
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > len(shape) or sum(item is Ellipsis for item in items) > 1:
        raise ShapeError(f"too many indices for a tensor of shape {text(shape)}: {key}")
    if Ellipsis not in items:
        items.append(Ellipsis)
    at = items.index(Ellipsis)
    return items[:at] + [slice(None)] * (len(shape) - used) + items[at + 1 :]


def _inside(size: Index, index: Index, require: Require) -> Index:
    """A single index, counted from the end if it is a negative number."""
    if index.is_constant and index.constant < 0:
        index = size + index
    require(index, f"index {index} of a dimension of size {size} must not be negative")
    require(size - 1 - index, f"index {index} must lie inside a dimension of size {size}")
    return index


def _slice(
    size: Index, item: slice, size_of: SizeOf, space: Space, require: Require
) -> tuple[Index, Index, int]:
    """First index, number of elements, step."""
    step = 1 if item.step is None else item.step
    if not isinstance(step, (int, np.integer)) or step == 0:
        raise ShapeError(f"the step of a slice is an integer other than 0, not {step!r}")
    step = int(step)
    low, high = (ZERO, size) if step > 0 else (Index.of(-1), size - 1)
    limits = (low, high)
    start = _bound(item.start, low if step > 0 else high, limits, size, size_of, space, require)
    stop = _bound(item.stop, high if step > 0 else low, limits, size, size_of, space, require)
    distance = stop - start if step > 0 else start - stop
    return start, _clamp(distance.ceil_div(abs(step)), ZERO, None, space), step


def _bound(
    given: Any, default: Index, limits: tuple[Index, Index], size: Index, size_of: SizeOf,
    space: Space, require: Require,
) -> Index:  # fmt: skip
    """One end of a slice: a number is cut to the limits, a symbolic one must lie inside them."""
    if given is None:
        return default
    index = size_of(given)
    if index.is_constant:
        if index.constant < 0:
            index = size + index
        return _clamp(index, limits[0], limits[1], space)
    require(index, f"slice bound {index} must not be negative")
    require(limits[1] - index, f"slice bound {index} must lie inside a dimension of size {size}")
    return index


def _clamp(index: Index, low: Index, high: Index | None, space: Space) -> Index:
    """min(max(index, low), high), without what is proven."""
    if not space.nonnegative(index - low):
        index = low if space.nonnegative(low - index) else index.maximum(low)
    if high is not None and not space.nonnegative(high - index):
        index = high if space.nonnegative(index - high) else index.minimum(high)
    return index
