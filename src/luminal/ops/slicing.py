"""Basic indexing, `x[1:, None, ..., -1, ::-1]`, as one view.

Numbers follow Python: negative ones count from the end, slices are cut to the tensor. A symbolic
bound (`x[p:p + s]`) is taken as it stands and must lie inside the tensor: what cannot be proven is
required when the program runs, so a slice never has a surprising size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.infer import text
from ..graph.node import Shape, View
from ..graph.views import ONE, ZERO, place


def is_basic(key: Any) -> bool:
    """No item is an array, a list or a tensor."""
    return all(_is_basic_item(item) for item in (key if isinstance(key, tuple) else (key,)))


def _is_basic_item(item: Any) -> bool:
    if item is None or item is Ellipsis or isinstance(item, (slice, str, Index, np.integer)):
        return True
    return isinstance(item, int) and not isinstance(item, bool)


def basic_view(graph: Graph, source: Shape, key: Any) -> View:
    """The view that a basic key takes of a tensor of this shape."""
    shape: list[Index] = []
    index: list[Index] = []
    for item in _full_key(source, key):
        if item is None:
            shape.append(ONE)
            continue
        size = source[len(index)]
        if isinstance(item, slice):
            start, length, step = _slice(graph, size, item)
            index.append(start + place(len(shape)) * step)
            shape.append(length)
        else:
            index.append(_inside(graph, size, graph.size(item)))
    return View(tuple(shape), tuple(index))


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


def _inside(graph: Graph, size: Index, index: Index) -> Index:
    """A single index, counted from the end if it is a negative number."""
    if index.is_constant and index.constant < 0:
        index = size + index
    graph.require(index, f"index {index} of a dimension of size {size} must not be negative")
    graph.require(size - 1 - index, f"index {index} must lie inside a dimension of size {size}")
    return index


def _slice(graph: Graph, size: Index, item: slice) -> tuple[Index, Index, int]:
    """First index, number of elements, step."""
    step = 1 if item.step is None else item.step
    if not isinstance(step, (int, np.integer)) or step == 0:
        raise ShapeError(f"the step of a slice is an integer other than 0, not {step!r}")
    step = int(step)
    low, high = (ZERO, size) if step > 0 else (Index.of(-1), size - 1)
    start = low if step > 0 else high
    stop = high if step > 0 else low
    if item.start is not None:
        start = _bound(graph, graph.size(item.start), low, high, size)
    if item.stop is not None:
        stop = _bound(graph, graph.size(item.stop), low, high, size)
    count = (stop - start if step > 0 else start - stop).ceil_div(abs(step))
    both = item.start is not None and item.stop is not None  # else each lies on its side
    return start, clamped(graph, count, ZERO, None) if both else count, step


def _bound(graph: Graph, index: Index, low: Index, high: Index, size: Index) -> Index:
    """One end of a slice: a number is cut to the limits, a symbolic one must lie inside them."""
    if index.is_constant:
        return clamped(graph, size + index if index.constant < 0 else index, low, high)
    graph.require(index, f"slice bound {index} must not be negative")
    graph.require(high - index, f"slice bound {index} must lie inside a dimension of size {size}")
    return index


def clamped(graph: Graph, index: Index, low: Index, high: Index | None) -> Index:
    """min(max(index, low), high), without what is proven."""
    proven = graph.space.nonnegative
    if not proven(index - low):
        index = low if proven(low - index) else index.maximum(low)
    if high is not None and not proven(high - index):
        index = high if proven(index - high) else index.minimum(high)
    return index
