"""Views as operators: a reshape, or for each dimension what is gathered along it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

import numpy as np

from ....errors import Unsupported
from ....graph.graph import Graph
from ....graph.index import Index
from ....graph.node import Node, View, position
from .writer import Size, Writer

POSITION = re.compile(r"i\d+")
MOST = 1 << 24  # places that are written into a file


def sizes_of(node: Node) -> tuple[Size, ...]:
    """The shape of a node: numbers where they are fixed."""
    return tuple(size.constant if size.is_constant else size for size in node.shape)


def letters(view: View, source: tuple[Size, ...]) -> list[int] | None:
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
    found, dims = compact(out, graph, x, node)
    shape = sizes_of(node)
    if len(dims) == len(shape):
        return found
    found = out.reshape(found, [n if d in dims else 1 for d, n in enumerate(shape)])
    repeats = any(n != 1 for d, n in enumerate(shape) if d not in dims)
    return out.expand(found, shape) if repeats else found


def compact(out: Writer, graph: Graph, x: str, node: Node) -> tuple[str, list[int]]:
    """The same without the dimensions along which it only repeats; and those that are left."""
    whole, source = node.attribute, sizes_of(node.inputs[0])
    dims = sorted({d for index in (*whole.index, *whole.conditions) for d in _dims(index)})
    names = {position(d): Index.of(position(n)) for n, d in enumerate(dims)}
    view = View(
        tuple(whole.shape[d] for d in dims), tuple(i.substitute(names) for i in whole.index),
        tuple(i.substitute(names) for i in whole.conditions), whole.fill,
    )  # fmt: skip
    return _viewed(out, graph, x, view, source, node), dims


def _viewed(
    out: Writer, graph: Graph, x: str, view: View, source: tuple[Size, ...], node: Node
) -> str:
    shape = tuple(n.constant if n.is_constant else n for n in view.shape)
    if 0 in shape:
        return out.expand(out.number(0, node.dtype), shape)
    empty = [graph.space.sizes[name][0] == 0 for n in node.inputs[0].shape for name in n.names()]
    if view.conditions and any(empty):  # what is hidden is read all the same
        ends = out.constant([0] * len(source) + [1] * len(source))
        x = out.op("Pad", x, ends, out.number(0, node.dtype))
        source = tuple(n + 1 for n in source)
    if not view.conditions and _same_order(graph, view, source, shape):
        return x if source == shape else out.reshape(x, shape)
    found, dims = _gathered(out, x, view, source, shape)
    order = sorted(range(len(dims)), key=lambda k: dims[k])
    found = out.transpose(found, order)
    if not view.conditions:
        return found
    if len(dims) < len(shape):
        found = out.reshape(found, [n if d in dims else 1 for d, n in enumerate(shape)])
        found = out.expand(found, shape)
    return out.where(_mask(out, view, shape), found, out.number(view.fill, node.dtype), node.dtype)


def _same_order(
    graph: Graph, view: View, source: tuple[Size, ...], shape: tuple[Size, ...]
) -> bool:
    """The elements stay in row-major order."""
    if prod(source) != prod(shape):
        return False
    space = graph.positions(view.shape)
    read = _flat(list(view.index), source)
    here = _flat([Index.of(position(d)) if n != 1 else Index.of(0) for d, n in enumerate(shape)],
                 shape)  # fmt: skip
    return space.simplify(read) is here


def _flat(index: list[Index], sizes: tuple[Size, ...]) -> Index:
    total = Index.of(0)
    for i, n in zip(index, sizes):
        total = total * n + i
    return total


def _fixed(sizes: Sequence[Size]) -> list[int] | None:
    """None if some are known at run time only."""
    numbers = [n for n in sizes if isinstance(n, int)]
    return numbers if len(numbers) == len(sizes) else None


def _gathered(
    out: Writer, x: str, view: View, source: tuple[Size, ...], shape: tuple[Size, ...]
) -> tuple[str, list[int]]:
    """What is read, and the dimension of the result that each of its dimensions is."""
    used = [_dims(index) for index in view.index]
    every = [d for dims in used for d in dims]
    if len(every) != len(set(every)):  # dimensions that are read together
        flat = _flat(list(view.index), source)
        dims = sorted(set(every))
        places = _inside(out, flat, dims, shape, prod(source), view)
        return out.op("Gather", out.reshape(x, [-1]), places, axis=0), dims
    axis, found = 0, list[int]()
    for index, dims, size in zip(view.index, used, source):
        if len(dims) != 1 or index is not Index.of(position(dims[0])) or shape[dims[0]] != size:
            x = out.op("Gather", x, _inside(out, index, dims, shape, size, view), axis=axis)
        axis += len(dims)
        found += dims
    return x, found


def _dims(index: Index) -> list[int]:
    """The dimensions whose positions an index depends on."""
    return sorted(int(name[1:]) for name in index.names() if POSITION.fullmatch(name))


def _inside(
    out: Writer, index: Index, dims: list[int], shape: tuple[Size, ...], size: Size, view: View
) -> str:
    """An index over some dimensions; inside of the source also where a condition fails."""
    places = _over(out, index, dims, shape)
    if isinstance(places, np.ndarray):
        if isinstance(size, int):
            places = np.clip(places, 0, max(size - 1, 0))
        return out.constant(places)
    if not view.conditions:
        return places
    return out.op("Min", out.op("Max", places, out.constant(0)), out.index(size - 1))


def _over(
    out: Writer, index: Index, dims: list[int], shape: tuple[Size, ...]
) -> np.ndarray | str:
    """The values of an index over some dimensions: known, or computed at run time."""
    extents = [shape[d] for d in dims]
    known = _fixed(extents)
    if known is None or index.names() - {position(d) for d in dims}:
        steps = {position(d): _range(out, shape[d], n, len(dims)) for n, d in enumerate(dims)}
        return out.index(index, steps)
    if prod(known) > MOST:
        raise Unsupported(f"export of a view of {prod(known)} places without a pattern")
    grid = np.meshgrid(*map(np.arange, known), indexing="ij", sparse=True)
    values = index.evaluate({position(d): g for d, g in zip(dims, grid)})
    return np.broadcast_to(np.asarray(values, np.int64), known)


def _range(out: Writer, size: Size, axis: int, rank: int) -> str:
    """The positions along one of so many dimensions."""
    ends = out.constant(0), out.index(size), out.constant(1)
    return out.reshape(out.op("Range", *ends), [-1 if d == axis else 1 for d in range(rank)])


def _mask(out: Writer, view: View, shape: tuple[Size, ...]) -> str:
    """Where all conditions hold."""
    mask = None
    for condition in view.conditions:
        dims = _dims(condition)
        values = _over(out, condition, dims, shape)
        spread = [n if d in dims else 1 for d, n in enumerate(shape)]
        if isinstance(values, np.ndarray):
            part = out.constant((values >= 0).reshape(spread), np.bool_)
        else:
            part = out.reshape(out.op("Less", out.constant(-1), values), spread)
        mask = part if mask is None else out.op("And", mask, part)
    assert mask is not None
    return mask


def ranged(out: Writer, node: Node) -> str:
    """The values of an iota."""
    shape = sizes_of(node)
    dims = _dims(node.attribute)
    values = _over(out, node.attribute, dims, shape)
    spread = [n if d in dims else 1 for d, n in enumerate(shape)]
    if isinstance(values, np.ndarray):
        held = out.constant(values.astype(node.dtype.numpy).reshape(spread), node.dtype.numpy)
    else:
        held = out.reshape(out.cast(values, node.dtype), spread)
    return held if spread == list(shape) else out.expand(held, shape)
