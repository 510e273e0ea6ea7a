"""Constants folded: what is known while compiling is computed then, as NumPy means it.

An operation of literals becomes a literal, everywhere that they are expanded. What depends on
constant arrays alone becomes a constant where that takes no more memory than they do: a product of
scales, a bias in another dtype, sums of weights. Weights in bytes stay bytes, and a table of angles
is still made of its frequencies. Parameters may be set anew: they are never folded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from .graph import Graph
from .index import names_of
from .node import REDUCE_OPS, Node, Number, View, position
from .order import reachable
from .passes import Program, rewrite, uniform
from .scalars import REDUCTIONS, SCALARS, compute
from .views import place

MOST = 1 << 24  # elements of an array that is worked out


def fold_constants(program: Program) -> Program:
    """op(literals) --> literal; op(constants) --> constant; integers + 0 and x * 1 --> x.

    >>> scale = cx.constant(np.float32([0.5, 0.25]))
    >>> y = (cx.tensor(2, name="x") * (scale + 1.0)).output()
    >>> folded = fold_constants(program_of(cx))
    >>> [node.op for node in folded.nodes()], folded.nodes()[1].attribute.value
    (['input', 'input', 'mul'], array([1.5 , 1.25], dtype=float32))
    """
    graph, known = program.graph, Known(program)

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node in known.folded:
            return _constant(graph, node, known.array(node))
        if node.op not in SCALARS or node.attribute is not None:
            return None
        numbers = [number_of(n) for n in inputs]
        if any(number is None for number in numbers):
            neutral = {"mul": 1, "add": 0 if node.dtype.is_integer else None}.get(node.op)
            rest = [n for n, number in zip(inputs, numbers) if number is None or number != neutral]
            return rest[0] if neutral is not None and len(rest) == 1 else None
        arrays = [n.dtype.numpy.type(number) for n, number in zip(inputs, numbers)]
        value = compute(node.op, node.dtype, *arrays).item()
        return uniform(graph, value, node.shape, node.dtype)

    return rewrite(program, rule)


def number_of(node: Node) -> Number | None:
    """The number that a node has everywhere, if it is known."""
    if node.op == "view" and not node.attribute.conditions:
        node = node.inputs[0]
    number: Number | None = node.attribute if node.op == "literal" else None
    return number


def _constant(graph: Graph, node: Node, array: np.ndarray) -> Node:
    """A constant seen as the node."""
    if array.tobytes() == array.flat[0].tobytes() * array.size:
        return uniform(graph, array.flat[0].item(), node.shape, node.dtype)
    own = [d for d, extent in enumerate(array.shape) if extent > 1]
    small = constant_of(graph, array.reshape([array.shape[d] for d in own]))
    return graph.moved(small, View(node.shape, tuple(map(place, own))))


def constant_of(graph: Graph, array: np.ndarray) -> Node:
    """A constant without a name; the same one for the same values.

    >>> constant_of(cx, np.arange(3)) is constant_of(cx, np.arange(3))
    True
    """
    key = array.dtype, array.shape, hashlib.sha256(array.tobytes()).digest()
    if key not in graph.folded:
        graph.folded[key] = graph.constant(array).node
    return graph.folded[key]


# ---- what is known


@dataclass(frozen=True)
class _Made:
    """shape: 1 along dimensions in which the values do not vary. of: the constants."""

    shape: tuple[int, ...]
    of: frozenset[Node]


class Known:
    """The nodes of a program that depend on constants and literals only.

    folded: those that shall be constants: no larger than what they are made of, and read by a node
    that is not known.
    """

    def __init__(self, program: Program) -> None:
        self._made: dict[Node, _Made] = {}
        self._arrays: dict[Node, np.ndarray] = {}
        order = program.nodes()
        for node in order:
            made = _made(node, [self._made.get(source) for source in node.inputs])
            if made is not None and prod(made.shape) <= MOST:
                self._made[node] = made
        small = {node for node in self._made if self._is_small(node)}
        read = set(program.roots)
        for node in reversed(order):
            if node not in self._made or (node in read and node not in small):
                read.update(node.inputs)
        self.folded = small & read

    def _is_small(self, node: Node) -> bool:
        made = self._made[node]
        held = sum(prod(map(int, source.shape)) * source.dtype.bytes for source in made.of)
        return node.op not in ("input", "view") and prod(made.shape) * node.dtype.bytes <= held

    def array(self, node: Node) -> np.ndarray:
        """The values of a node that is known, of its rank: 1 long where they do not vary."""
        for n in reachable([node]):
            if n not in self._arrays:
                self._arrays[n] = _value(n, [self._arrays[source] for source in n.inputs])
        return self._arrays[node]


def _made(node: Node, inputs: Sequence[_Made | None]) -> _Made | None:
    """None where the node is not known. Sums of floats depend on their order, and nothing is
    gained of what has no elements: they stay."""
    fixed = all(n.is_constant and n != 0 for n in node.shape)
    if not fixed or any(made is None for made in inputs):
        return None
    known = [made for made in inputs if made is not None]
    of = frozenset[Node]().union(*(made.of for made in known))
    if node.op == "literal" or (node.op == "input" and node.attribute.kind == "constant"):
        return _Made(tuple(map(int, node.shape)), frozenset([node][: node.op == "input"]))
    if node.op == "view":
        return _seen(node, known[0])
    if node.op in REDUCE_OPS and node.attribute is not None:
        if node.op in ("sum", "prod") and node.dtype.is_float:
            return None
        kept = (n for d, n in enumerate(known[0].shape) if d not in node.attribute)
        return _Made(tuple(kept), of)
    if node.op in SCALARS and node.attribute is None:
        return _Made(tuple(map(max, zip(*(made.shape for made in known)))), of)
    return None


def _seen(node: Node, made: _Made) -> _Made | None:
    view: View = node.attribute
    index = [i for i, extent in zip(view.index, made.shape) if extent > 1]
    names = names_of((*index, *view.conditions))
    along = [position(d) for d in range(len(node.shape))]
    shape = (int(n) if name in names else 1 for n, name in zip(node.shape, along))
    return _Made(tuple(shape), made.of) if names <= set(along) else None


def _value(node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
    if node.op == "literal":
        return np.asarray(node.attribute, node.dtype.numpy)
    if node.op == "input":
        value: np.ndarray = node.attribute.value
        return value
    if node.op == "view":
        return _moved(node, inputs[0])
    if node.attribute is None:
        return np.asarray(compute(node.op, node.dtype, *inputs))
    reduced = (d in node.attribute for d in range(inputs[0].ndim))
    extents = map(int, node.inputs[0].shape)
    whole = [n if r else m for n, m, r in zip(extents, inputs[0].shape, reduced)]
    terms = np.broadcast_to(inputs[0], whole)
    return np.asarray(REDUCTIONS[node.op].reduce(terms, node.attribute, node.dtype.numpy))


def _moved(node: Node, source: np.ndarray) -> np.ndarray:
    view, rank = node.attribute, len(node.shape)
    points = np.meshgrid(*(np.arange(int(n)) for n in node.shape), indexing="ij", sparse=True)
    at = dict(zip(map(position, range(rank)), points))
    holds = np.ones((1,) * rank, np.bool_)
    for condition in view.conditions:
        holds = holds & (np.asarray(condition.evaluate(at)) >= 0)
    index = (i.evaluate(at) if n > 1 else 0 for i, n in zip(view.index, source.shape))
    found = source[tuple(np.where(holds, i, 0) for i in index)]
    fill = found if view.fill is None else np.asarray(view.fill, source.dtype)
    return np.where(holds, found, fill)
