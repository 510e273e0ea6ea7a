"""Views as operators: a reshape, or for each dimension what is gathered along it."""

from __future__ import annotations

from math import prod

import numpy as np

from ....errors import Unsupported
from ....graph.graph import Graph
from ....graph.index import Index
from ....graph.node import Node, View, position
from .writer import Writer

MOST = 1 << 24  # places that are written into a file


def sizes_of(node: Node) -> tuple[int, ...]:
    """The fixed shape of a node. Raises Unsupported."""
    if not all(size.is_constant for size in node.shape):
        raise Unsupported(f"export of sizes that are known at run time only: {node}")
    return tuple(size.constant for size in node.shape)


def letters(view: View, source: tuple[int, ...]) -> list[int] | None:
    """For a view that only chooses, turns and repeats dimensions: the dimension of the result that
    each dimension of the source is, -1 for one of size 1."""
    if view.conditions:
        return None
    found = []
    for index, size in zip(view.index, source):
        names = [d for d in range(len(view.shape)) if index is Index.of(position(d))]
        if size == 1 and index == 0:
            found.append(-1)
        elif names and view.shape[names[0]] == size and names[0] not in found:
            found.append(names[0])
        else:
            return None
    return found


def written(out: Writer, graph: Graph, x: str, node: Node) -> str:
    """The view of x that a node takes."""
    view, source, shape = node.attribute, sizes_of(node.inputs[0]), sizes_of(node)
    if 0 in shape:
        empty = out.constant(np.zeros(shape, node.dtype.numpy), node.dtype.numpy)
        return empty
    if not view.conditions and _same_order(graph, node, source, shape):
        return out.reshape(x, shape)
    found, dims = _gathered(out, x, view, source, shape)
    order = sorted(range(len(dims)), key=lambda k: dims[k])
    found = out.transpose(found, order)
    present = sorted(dims)
    found = out.reshape(found, [n if d in present else 1 for d, n in enumerate(shape)])
    if any(n != 1 and d not in present for d, n in enumerate(shape)):
        found = out.expand(found, shape)
    if not view.conditions:
        return found
    mask = _mask(out, view, shape)
    return out.where(mask, found, out.number(view.fill, node.dtype), node.dtype)


def _same_order(graph: Graph, node: Node, source: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """The elements stay in row-major order."""
    if prod(source) != prod(shape):
        return False
    space = graph.positions(node.shape)
    read = _flat(list(node.attribute.index), source)
    here = _flat([Index.of(position(d)) if n != 1 else Index.of(0) for d, n in enumerate(shape)],
                 shape)  # fmt: skip
    return space.simplify(read) is here


def _flat(index: list[Index], sizes: tuple[int, ...]) -> Index:
    total = Index.of(0)
    for i, n in zip(index, sizes):
        total = total * n + i
    return total


def _gathered(
    out: Writer, x: str, view: View, source: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[str, list[int]]:
    """What is read, and the dimension of the result that each of its dimensions is."""
    used = [sorted(int(name[1:]) for name in index.names()) for index in view.index]
    every = [d for dims in used for d in dims]
    if len(every) != len(set(every)):  # dimensions that are read together
        flat = _flat(list(view.index), source)
        dims = sorted(set(every))
        places = _values(flat, dims, shape, prod(source))
        return out.op("Gather", out.reshape(x, [-1]), out.constant(places), axis=0), dims
    axis, found = 0, list[int]()
    for index, dims, size in zip(view.index, used, source):
        places = _values(index, dims, shape, size)
        if len(dims) != 1 or not np.array_equal(places, np.arange(size)):
            x = out.op("Gather", x, out.constant(places), axis=axis)
        axis += len(dims)
        found += dims
    return x, found


def _values(index: Index, dims: list[int], shape: tuple[int, ...], size: int) -> np.ndarray:
    """An index over some dimensions; inside of the source also where a condition fails."""
    values = _over(index, dims, shape)
    return np.clip(values, 0, max(size - 1, 0))


def _over(index: Index, dims: list[int], shape: tuple[int, ...]) -> np.ndarray:
    extents = [shape[d] for d in dims]
    if prod(extents) > MOST:
        raise Unsupported(f"export of a view of {prod(extents)} places without a pattern")
    grid = np.meshgrid(*map(np.arange, extents), indexing="ij", sparse=True)
    values = index.evaluate({position(d): g for d, g in zip(dims, grid)})
    return np.broadcast_to(np.asarray(values, np.int64), extents)


def _mask(out: Writer, view: View, shape: tuple[int, ...]) -> str:
    """Where all conditions hold."""
    mask = None
    for condition in view.conditions:
        dims = sorted(int(name[1:]) for name in condition.names())
        holds = _over(condition, dims, shape) >= 0
        small = holds.reshape([n if d in dims else 1 for d, n in enumerate(shape)])
        part = out.constant(small, np.bool_)
        mask = part if mask is None else out.op("And", mask, part)
    assert mask is not None
    return mask


def ranged(out: Writer, node: Node) -> str:
    """The values of an iota."""
    shape = sizes_of(node)
    dims = sorted(int(name[1:]) for name in node.attribute.names())
    values = _over(node.attribute, dims, shape).astype(node.dtype.numpy)
    small = values.reshape([n if d in dims else 1 for d, n in enumerate(shape)])
    held = out.constant(small, node.dtype.numpy)
    return held if small.shape == shape else out.expand(held, shape)
