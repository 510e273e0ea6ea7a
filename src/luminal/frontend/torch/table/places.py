"""Indices that the graph itself knows: what is read at them is a view, nothing is data."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from ....backend.reference import evaluate
from ....graph.display import reachable
from ....graph.dtype import boolean
from ....graph.index import Index
from ....graph.node import Node, View, position
from ....graph.tensor import Tensor

MOST = 1 << 20  # elements of what is worked out while recording


def read(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor | None:
    """x[indices] (None: a whole dimension) where each index is a sum of floor(a i / b) over the
    positions i, such as upsampling, strides and flips; else None. The dimensions with an index must
    be neighbours, so that those of the result stand in their place."""
    at = [d for d, index in enumerate(indices) if index is not None]
    if not at or at[-1] - at[0] >= len(at):
        return None
    arrays = [known(index) for index in indices if index is not None]
    if any(array is None for array in arrays) or not all(x.node.shape[d].is_constant for d in at):
        return None
    sizes = [x.node.shape[d].constant for d in at]
    wrapped = [a + n * (a < 0) for a, n in zip(arrays, sizes) if a is not None]
    places = np.broadcast_arrays(*wrapped)
    if any(p.size == 0 or p.min() < 0 or p.max() >= n for p, n in zip(places, sizes)):
        return None
    formulas = [_formula(p, n, at[0]) for p, n in zip(places, sizes)]
    found = [formula for formula in formulas if formula is not None]
    shape, after = places[0].shape, at[-1] + 1
    if len(found) < len(at):
        return None
    before = [Index.of(position(d)) for d in range(at[0])]
    more = len(shape) - len(at)  # dimensions that the result has more than x
    rest = [Index.of(position(d + more)) for d in range(after, x.ndim)]
    return x.read([*x.shape[: at[0]], *shape, *x.shape[after:]], [*before, *found, *rest])


def known(index: Tensor) -> np.ndarray | None:
    """The values of an index that depends on no input and no run-time size."""
    nodes = reachable([index.node])
    if index.dtype is boolean or not all(fixed(node) and _small(node) for node in nodes):
        return None
    return np.asarray(evaluate(index.graph, [index.node])[index.node], np.int64)


def fixed(node: Node) -> bool:
    """It depends on nothing but its operands: it is no input, nothing that a loop makes, and knows
    no run-time size."""
    if node.op in ("input", "variable", "loop") or not all(size.is_constant for size in node.shape):
        return False
    formula = node.attribute
    parts = [formula] if isinstance(formula, Index) else []
    parts = [*formula.index, *formula.conditions] if isinstance(formula, View) else parts
    positions = {position(d) for d in range(len(node.shape))}
    return all(part.names() <= positions for part in parts)


def _small(node: Node) -> bool:
    return prod(size.constant for size in node.shape) <= MOST


def _formula(places: np.ndarray, size: int, first: int) -> Index | None:
    """The places in a dimension of this size as a formula of the positions `first`, .. ."""
    start = int(places.flat[0])
    found, total = Index.of(start), np.full((), start)
    for d, count in enumerate(places.shape):
        line = np.moveaxis(places, d, 0).reshape(count, -1)[:, 0] - start
        up, down = _step(line, size)
        found = found + Index.of(position(first + d)) * up // down
        total = np.add.outer(total, np.arange(count) * up // down)
    return found if np.array_equal(total, places) else None


def _step(line: np.ndarray, size: int) -> tuple[int, int]:
    """(a, b) such that element i of a line that starts with 0 may be floor(a i / b)."""
    count = len(line)
    if count > 1 and line[1] * (count - 1) != line[-1]:
        return size // gcd(size, count), count // gcd(size, count)
    return (int(line[1]) if count > 1 else 0), 1
