"""What a tensor's values are, as far as they are known while recording.

Values that depend on nothing from outside are computed in NumPy; small ones that depend on run-time
sizes, such as a shape to which something is reshaped, are indices over those sizes, by the meaning
of each node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ...backend.reference import evaluate
from ...graph.graph import Graph
from ...graph.index import Index
from ...graph.node import REDUCE_OPS, Node, View, position
from ...graph.order import reachable
from ...graph.scalars import compute
from ...graph.tensor import Tensor
from ...graph.values import sizes_of

MOST = 1 << 22  # elements of what is worked out while recording
MOST_SIZES = 1 << 12  # the same, of indices


class Unknown(Exception):
    """The values of a tensor are needed to record an operation, and are not known yet."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__("its values shape the program")
        self.tensor = tensor


class ToHost(Exception):
    """The operator runs on the host."""


class _NoIndex(Exception):
    """No index says what the value is."""


def outside(tensor: Tensor) -> list[Node]:
    """The inputs of a run that a tensor depends on."""
    return [n for n in reachable([tensor.node]) if _given(n)]


def _given(node: Node) -> bool:
    return node.op == "input" and node.attribute.kind == "input"


Sample = Mapping[str, int]


def array(tensor: Tensor, sample: Sample) -> np.ndarray:
    """The values: numbers, or in an array of objects numbers and indices. What cannot be told of
    all sizes (is this one 1?) is as in the sample, and required of each run. Raises Unknown."""
    nodes = reachable([tensor.node])
    if any(n.op in ("variable", "loop") or _given(n) for n in nodes):
        raise Unknown(tensor)
    if not sizes_of(nodes) & tensor.graph.space.sizes.keys():
        if all(prod(s.constant for s in n.shape) <= MOST for n in nodes):
            return np.asarray(evaluate(tensor.graph, [tensor.node])[tensor.node])
        raise Unknown(tensor)
    try:
        return _Walk(tensor.graph, sample).of(tensor.node)
    except _NoIndex:
        raise Unknown(tensor) from None


def _plain(value: Any) -> Any:
    return value.constant if isinstance(value, Index) and value.is_constant else value


def decided(graph: Graph, index: Index, sample: Sample) -> bool:
    """index >= 0: for all sizes, or as in the sample, which each run must then follow."""
    low, high = graph.space.bounds(index)
    if low >= 0 or high < 0:
        return low >= 0
    if not index.names() <= sample.keys():
        raise _NoIndex
    holds = index.evaluate(sample) >= 0
    graph.require(index if holds else -1 - index, f"the program is made for {index} "
                  f"{'>= 0' if holds else '< 0'}")  # fmt: skip
    return bool(holds)


class _Walk:
    """The meaning of nodes over arrays of numbers and indices."""

    def __init__(self, graph: Graph, sample: Sample) -> None:
        self.graph, self.space, self.sample = graph, graph.space, sample
        self.done: dict[Node, np.ndarray] = {}

    def of(self, root: Node) -> np.ndarray:
        for node in reachable([root]):
            self.done[node] = self._node(node)
        return self.done[root]

    def _node(self, node: Node) -> np.ndarray:
        if not all(size.is_constant for size in node.shape):
            return np.empty((), object)  # only its shape is read, or nothing
        shape = tuple(size.constant for size in node.shape)
        if prod(shape) > MOST_SIZES:
            raise _NoIndex
        operands = [self.done[source] for source in node.inputs]
        result = np.empty(shape, object)
        for place in np.ndindex(shape):
            result[place] = _plain(self._element(node, place, operands))
        return result

    def _element(self, node: Node, place: tuple[int, ...], operands: list[np.ndarray]) -> Any:
        if node.op == "literal":
            return node.attribute
        if node.op == "input":
            value = node.attribute.value
            value = self.graph.values[node] if value is None else value
            return value[place].item()
        at = {position(d): Index.of(p) for d, p in enumerate(place)}
        if node.op == "iota":
            return self.space.substitute(node.attribute, at)
        if node.op == "view":
            return self._view(node.attribute, at, operands[0])
        if node.op == "gather":
            index, n = operands[1][place], operands[0].shape[node.attribute]
            if not isinstance(index, int):
                raise _NoIndex
            here = list(place)
            here[node.attribute] = min(max(index, 0), n - 1)
            return operands[0][tuple(here)]
        if node.op in REDUCE_OPS and node.attribute is not None:
            return self._reduced(node, place, operands[0])
        if node.op in ("scan", "scatter"):
            raise _NoIndex
        return self._scalar(node, [operand[place] for operand in operands])

    def _view(self, view: View, at: Mapping[str, Index], source: np.ndarray) -> Any:
        for condition in view.conditions:
            low, high = self.space.bounds(self.space.substitute(condition, at))
            if high < 0:
                return view.fill
            if low < 0:
                raise _NoIndex
        index = [self.space.substitute(i, at) for i in view.index]
        if not all(i.is_constant for i in index) or source.ndim != len(index):
            raise _NoIndex
        return source[tuple(i.constant for i in index)]

    def _reduced(self, node: Node, place: tuple[int, ...], source: np.ndarray) -> Any:
        kept = [d for d in range(source.ndim) if d not in node.attribute]
        key: list[Any] = [slice(None)] * source.ndim
        for d, p in zip(kept, place):
            key[d] = p
        values = list(source[tuple(key)].reshape(-1))
        combine = {"sum": _add, "prod": _mul, "max": self._max, "min": self._min}[node.op]
        if not values:
            raise _NoIndex
        return reduce(combine, values)

    def _scalar(self, node: Node, values: list[Any]) -> Any:
        if not any(isinstance(value, Index) for value in values):
            kinds = [source.dtype.numpy for source in node.inputs]
            arrays = [np.asarray(v).astype(k) for v, k in zip(values, kinds)]
            return compute(node.op, node.dtype, *arrays).item()
        if node.op == "select":
            return values[1] if self._true(values[0]) else values[2]
        rule = _SCALARS.get(node.op)
        if rule is None:
            raise _NoIndex
        if any(isinstance(v, float) and not v.is_integer() for v in values):
            raise _NoIndex
        numbers = [v if isinstance(v, Index) else Index.of(int(v)) for v in values]
        return rule(self, node, *numbers)

    def _true(self, value: Any) -> bool:
        if isinstance(value, Index):
            raise _NoIndex
        return bool(value)

    def _max(self, a: Any, b: Any) -> Any:
        difference = Index.of(a) - Index.of(b)
        if self.space.nonnegative(difference):
            return a
        return b if self.space.nonnegative(-difference) else Index.of(a).maximum(b)

    def _min(self, a: Any, b: Any) -> Any:
        difference = Index.of(a) - Index.of(b)
        if self.space.nonnegative(difference):
            return b
        return a if self.space.nonnegative(-difference) else Index.of(a).minimum(b)

    def less(self, a: Index, b: Index) -> bool:
        return not decided(self.graph, a - b, self.sample)

    def equal(self, a: Index, b: Index) -> bool:
        return decided(self.graph, a - b, self.sample) and decided(self.graph, b - a, self.sample)

    def divisor(self, n: Index) -> Index:
        if self.space.bounds(n)[0] < 1:
            raise _NoIndex
        return n

    def cast(self, node: Node, a: Index) -> Any:
        if node.dtype.kind == "bool":
            return not self.equal(a, Index.of(0))
        return a


def _add(a: Any, b: Any) -> Any:
    return a + b


def _mul(a: Any, b: Any) -> Any:
    return a * b


_SCALARS: dict[str, Callable[..., Any]] = {
    "add": lambda walk, node, a, b: a + b,
    "mul": lambda walk, node, a, b: a * b,
    "max": lambda walk, node, a, b: walk._max(a, b),
    "min": lambda walk, node, a, b: walk._min(a, b),
    "floor_div": lambda walk, node, a, b: walk.space.floor(a, walk.divisor(b)),
    "mod": lambda walk, node, a, b: walk.space.mod(a, walk.divisor(b)),
    "less": lambda walk, node, a, b: walk.less(a, b),
    "equal": lambda walk, node, a, b: walk.equal(a, b),
    "cast": lambda walk, node, a: walk.cast(node, a),
    "floor": lambda walk, node, a: a,
    "ceil": lambda walk, node, a: a,
    "trunc": lambda walk, node, a: a,
    "round": lambda walk, node, a: a,
}
