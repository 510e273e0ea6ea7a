"""The meaning of a graph in NumPy: no axes, no kernels, a node after a node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError
from ...graph.index import Index
from ...graph.infer import text
from ...graph.loops import Scopes, parts
from ...graph.node import REDUCE_OPS, Node, Scatter, View, position
from ...graph.order import reachable
from ...graph.scalars import REDUCTIONS, SCALARS, compute
from ...graph.values import checked, implied_sizes, sizes_of
from ..sizes import check_requirements, check_shape, settle_sizes
from .arrays import Sizes, accumulate, grid, hold, reduce, write
from .rounding import Rounding, finite

if TYPE_CHECKING:
    from ...graph.graph import Graph
    from ...graph.tensor import Tensor


def run(
    graph: Graph, feeds: Mapping[Node, Any] | Mapping[Tensor, Any] | None = None,
    sizes: Sizes | None = None,
) -> dict[Node, np.ndarray]:  # fmt: skip
    """Values of all outputs and of the new values of all states.

    `feeds`: arrays by node or tensor; what is missing has the value given by `Tensor.set`. `sizes`:
    run-time sizes, where no input tells them.
    """
    nodes = [t.node for t in graph.outputs] + [new.node for _, new in graph.states]
    return evaluate(graph, nodes, feeds, sizes)


def evaluate(
    graph: Graph, nodes: Iterable[Node], feeds: Mapping[Any, Any] | None = None,
    sizes: Sizes | None = None, rounding: Rounding | None = None,
) -> dict[Node, np.ndarray]:  # fmt: skip
    """Values of these nodes. rounding: as far off as rounding may leave them."""
    wanted = list(nodes)
    order, scopes = reachable(wanted), Scopes(wanted)
    values = _sources(graph, order, feeds or {})
    bound = _sizes(graph, order, values, sizes or {}, _unread(graph, values, feeds or {}))
    _Run(scopes, bound, rounding).nodes(scopes.ordered(wanted), values, set(wanted))
    return {node: np.ascontiguousarray(values[node]).reshape(values[node].shape) for node in wanted}


@dataclass(frozen=True)
class _Run:
    """Computes nodes, loops step by step."""

    scopes: Scopes
    sizes: Sizes
    rounding: Rounding | None

    def nodes(self, order: list[Node], values: dict[Node, Any], wanted: set[Node]) -> None:
        """Adds the values of these nodes; drops those that are not wanted once they are used."""
        operands = {node: self.scopes.operands(node) for node in order}
        last = {source: node.number for node in order for source in operands[node]}
        mine = set(order)
        for node in order:
            if node in values:
                continue
            if node.op == "loop":
                values[node] = self._loop(node, values)
            elif node.op == "result":
                values[node] = values[node.inputs[0]][node.attribute]
            else:
                given = [values[source] for source in node.inputs]
                values[node] = meaning(node, given, self.sizes, self.rounding)
            for source in set(operands[node]) & mine - wanted:
                if last[source] == node.number:
                    del values[source]

    def _loop(self, node: Node, values: Mapping[Node, Any]) -> list[np.ndarray]:
        """The last carried values, then the rows of all steps."""
        made, loop = parts(node), node.attribute
        body = self.scopes.bodies[node]
        carried = [values[first] for first in made.initial]
        count = None if loop.length is None else int(loop.length.evaluate(self.sizes))
        rows = [np.empty(_shape((count or 0, *r.shape), self.sizes), r.dtype.numpy)
                for r in made.rows]  # fmt: skip
        step = 0
        while (count is None or step < count) and (not loop.conditional or carried[0]):
            place = count - 1 - step if loop.reverse and count is not None else step
            slices = [values[stack][place] for stack in made.stacks]
            inner = {**values, **dict(zip(made.variables, (*carried, *slices)))}
            self.nodes(body, inner, set(made.made))
            carried = [inner[new] for new in made.new]
            for whole, row in zip(rows, made.rows):
                whole[place] = inner[row]
            step += 1
        return [*carried, *rows]


def _shape(shape: tuple[Any, ...], sizes: Sizes) -> tuple[int, ...]:
    return tuple(int(Index.of(size).evaluate(sizes)) for size in shape)


def _sources(graph: Graph, order: list[Node], feeds: Mapping[Any, Any]) -> dict[Node, np.ndarray]:
    given = {getattr(key, "node", key): value for key, value in feeds.items()}
    values = {}
    for node in order:
        if node.op != "input":
            continue
        value = given.get(node, graph.values.get(node, node.attribute.value))
        if value is None:
            raise InputError(f"no value for {node.attribute.name} {node.dtype}{text(node.shape)}")
        values[node] = checked(node, value)
    return values


def _unread(
    graph: Graph, read: Mapping[Node, Any], feeds: Mapping[Any, Any]
) -> list[tuple[str, dict[str, int]]]:
    """The sizes that sources tell which nothing reads; requirements may mention them."""
    given = {getattr(key, "node", key): value for key, value in feeds.items()}
    values = ((t.node, given.get(t.node, graph.values.get(t.node))) for t in graph.sources)
    return [
        (node.attribute.name, implied_sizes(node.attribute.name, node.shape, np.shape(value)))
        for node, value in values
        if node not in read and value is not None and sizes_of([node])
    ]


def _sizes(
    graph: Graph, order: list[Node], arrays: Mapping[Node, np.ndarray], given: Sizes,
    unread: list[tuple[str, dict[str, int]]],
) -> dict[str, int]:  # fmt: skip
    """The run-time sizes: those given, those that the arrays tell, and others of unread sources."""
    named = [(node.attribute.name, node, array) for node, array in arrays.items()]
    told = [(name, implied_sizes(name, node.shape, a.shape)) for name, node, a in named]
    known = given.keys() | {size for _, found in told for size in found}
    told += [(name, {n: v for n, v in found.items() if n not in known}) for name, found in unread]
    used = sizes_of(order).union(given, *(found for _, found in told))
    bounds = {name: ends for name, ends in graph.space.sizes.items() if name in used}
    sizes = settle_sizes(bounds, given, told)
    checked_now = (r for r in graph.requirements if r.index.names() <= sizes.keys())
    check_requirements(checked_now, sizes)
    for name, node, array in named:
        check_shape(name, node.shape, array.shape, sizes)
    return sizes


def meaning(
    node: Node, operands: list[np.ndarray], sizes: Sizes, rounding: Rounding | None = None
) -> np.ndarray:
    """The value of one node from those of its inputs."""
    shape = tuple(int(size.evaluate(sizes)) for size in node.shape)
    if node.op == "literal":
        return np.asarray(node.attribute, node.dtype.numpy)
    if node.op == "iota":
        return np.broadcast_to(_iota(node, _positions(shape, sizes)), shape)
    if node.op == "view":
        return _view(node.attribute, operands[0], shape, sizes)
    if node.op == "scan":
        return accumulate(node.attribute.op, operands[0], node.attribute.dim, node.dtype)
    if node.op == "gather":
        return _gather(operands[0], operands[1], node.attribute)
    if node.op == "scatter":
        return _scatter(node, *operands)
    reduces = node.op in REDUCE_OPS and node.attribute is not None
    inexact = node.op in ("sum", "prod") if reduces else node.op in SCALARS
    if rounding is not None and node.dtype.is_float and inexact:
        return _rounded(node, operands, rounding)
    if reduces:
        return reduce(node.op, operands[0], node.attribute, node.dtype)
    assert node.op in SCALARS, node.op
    return np.asarray(compute(node.op, node.dtype, *operands))


def _iota(node: Node, positions: Mapping[str, Any]) -> np.ndarray:
    """An index modulo 2^64."""
    values = {name: np.asarray(n, np.int64) for name, n in positions.items()}
    with np.errstate(over="ignore"):
        return np.asarray(node.attribute.evaluate(values)).astype(node.dtype.numpy)


def _rounded(node: Node, operands: list[np.ndarray], rounding: Rounding) -> np.ndarray:
    if node.op in SCALARS:
        return rounding.applied(node.op, node.dtype, operands)
    dims, terms = node.attribute, operands[0].astype(np.float64)
    total = REDUCTIONS[node.op].reduce(terms, axis=dims)
    squares = np.square(finite(terms)).sum(axis=dims)
    count = math.prod(terms.shape[dim] for dim in dims)
    return np.asarray(rounding.reduced(node.dtype, total, squares, count)).astype(node.dtype.numpy)


def _positions(shape: tuple[int, ...], sizes: Sizes) -> dict[str, Any]:
    """Values of i0, i1, ... that broadcast to the shape, and of the sizes."""
    return grid({position(dim): n for dim, n in enumerate(shape)}, sizes)


# ---- movement


def _view(view: View, source: np.ndarray, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    simple = _transposed(view, source, shape)
    if simple is not None:
        return simple
    if 0 in shape:
        return np.empty(shape, source.dtype)
    values = _positions(shape, sizes)
    if not view.conditions:
        return np.broadcast_to(_at(source, _indices(view, values)), shape)
    holds = hold(view.conditions, values, ())
    result = np.full(shape, np.asarray(view.fill, source.dtype))
    if holds.any():
        inside = tuple(np.where(holds, i, 0) for i in _indices(view, values))
        result[...] = np.where(holds, _at(source, inside), result)
    return result


def _at(source: np.ndarray, indices: tuple[np.ndarray, ...]) -> np.ndarray:
    """source[indices], where a negative index is a fault of the view, not a count from the end."""
    if any(index.min() < 0 for index in indices):
        raise IndexError("a view reads before the start of its source")
    return source[indices]


def _indices(view: View, values: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(index.evaluate(values)) for index in view.index)


def _transposed(view: View, source: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Views that only permute and broadcast, without a copy: the same meaning, quicker."""
    order = [dim for index in view.index for dim in _position_of(index, len(shape))]
    if view.conditions or len(order) != len(view.index) or len(set(order)) != len(order):
        return None
    new_axes = sorted(range(source.ndim), key=lambda axis: order[axis])
    kept = {order[axis] for axis in range(source.ndim)}
    spread = tuple(slice(None) if dim in kept else None for dim in range(len(shape)))
    moved = source.transpose(new_axes)
    if any(moved.shape[n] != shape[dim] for n, dim in enumerate(sorted(kept))):
        return None
    return np.broadcast_to(moved[spread], shape)


def _position_of(index: Any, rank: int) -> list[int]:
    return [dim for dim in range(rank) if index.text == position(dim)]


# ---- gather and scatter


def _gather(source: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    size = source.shape[dim]
    if size == 0:
        return np.zeros(index.shape, source.dtype)
    clamped = np.clip(index, 0, size - 1).astype(np.int64)
    return np.take_along_axis(source, clamped, axis=dim)


def _scatter(node: Node, base: np.ndarray, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    scatter: Scatter = node.attribute
    result = np.array(base)
    inside = (index >= 0) & (index < base.shape[scatter.dim])
    where = list(np.nonzero(inside))  # in row-major order
    where[scatter.dim] = index[inside].astype(np.int64)
    write(scatter.mode, result, tuple(where), values[inside], node.dtype)
    return result
