"""What a program is given and what a model holds, as sources of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import WeightsError
from ...graph.graph import Graph
from ...graph.index import Index
from ...graph.node import Node
from ...once import computed_once
from . import kinds, values
from .context import Context
from .known import ToHost
from .table.base import Typed

SMALL = 256  # floats of what is a constant of the program, else a parameter
MANY = 64  # places for which a program is planned at least
Value = Typed | list[Any] | None
Store = Mapping[str, Any]  # arrays, lists of arrays, or None, by name
Shapes = Mapping[str, tuple[Any, ...]]


class Sources:
    """Of one program; arguments are those of `record.Recorder`.

    constants: arrays of the model by name, as its reader has them; more may come. inputs: what the
    program reads of the store. names: of its inputs.
    """

    def __init__(
        self, graph: Graph, context: Context, store: Store, shapes: Shapes, fixed: Iterable[str],
        loose: values.Masks, constants: Mapping[str, Any], sample: Mapping[str, int],
    ) -> None:  # fmt: skip
        self.graph, self.context, self.store, self.shapes = graph, context, store, shapes
        self.fixed, self.loose, self.sample = set(fixed), dict(loose), dict(sample)
        self.constants = dict(constants)
        self.inputs: dict[str, Typed | list[Typed]] = {}
        self.names: dict[Node, str] = {}

    def value(self, name: str) -> Value:
        """What a name stands for before any operator. Raises ToHost for text, WeightsError."""
        if name in self.store:
            return self._given(name, self.store[name])
        if name in self.constants:
            return self.constant(self.context.reader.array(self.constants[name]), name)
        raise WeightsError(f"the model reads {name!r}, which nothing makes")

    def constant(self, array: np.ndarray, name: str | None = None) -> Typed:
        """An array of the model: a number, a constant, or a parameter that has its value."""
        kind = kinds.kind_of(array)
        if kind == kinds.STRING:
            raise ToHost
        held = kinds.inward(array)
        if held.size and (held.size == 1 or (held.dtype.kind in "iu" and np.ptp(held) == 0)):
            number = self.graph.literal(held.flat[0].item(), kinds.dtype_of(kind))
            return Typed(number.expand(held.shape) if held.ndim else number, kind)
        if held.size <= SMALL or held.dtype.kind in "iu":  # no integers are trained
            return Typed(self.graph.constant(held, name), kind)
        held = np.require(held, requirements=["C", "A"])
        return Typed(self.graph.parameter(held.shape, held.dtype, name).set(held), kind)

    def _given(self, name: str, value: Any) -> Value:
        if value is None:
            return None
        if isinstance(value, list):
            parts = [self._part(f"{name}\0{i}", name, part) for i, part in enumerate(value)]
            self.inputs[name] = parts
            return list(parts)
        kind = kinds.kind_of(value)
        if kind == kinds.STRING:
            raise ToHost
        if name in self.fixed:
            constant = self.graph.constant(kinds.inward(value))
            for size in values.names(self.loose, name):
                self._size(size)
            free = self.loose.get(name)
            return Typed(constant if free is None else values.mixed(constant, name, free), kind)
        tensor = self.graph.tensor(self._declared(self.shapes[name]), kinds.dtype_of(kind), name)
        self.names[tensor.node] = name
        self.inputs[name] = Typed(tensor, kind)
        return self.inputs[name]

    def _part(self, name: str, whole: str, value: np.ndarray) -> Typed:
        kind = kinds.kind_of(value)
        if kind == kinds.STRING:
            raise ToHost
        if whole in self.fixed:
            return Typed(self.graph.constant(kinds.inward(value)), kind)
        tensor = self.graph.tensor(value.shape, kinds.dtype_of(kind), name)
        self.names[tensor.node] = name
        return Typed(tensor, kind)

    def _declared(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        for size in shape:
            for name in Index.of(size).names() - self.graph.space.sizes.keys():
                self._size(name)
        return tuple(shape)

    def _size(self, name: str) -> None:
        low, high = self.context.bounds
        seen = self.sample.get(name, -1)
        usual = _expected(seen) if name in self._inner else (seen,)
        self.graph.dim(name, low, high, hint=[n for n in usual if low <= n <= high] or None)

    @computed_once
    def _inner(self) -> set[str]:
        """Sizes of inputs that stand first in none of them: none of a batch."""
        apart = [[Index.of(size).names() for size in shape] for shape in self.shapes.values()]
        first = [names for shape in apart for names in shape[:1]]
        return set().union(*(names for shape in apart for names in shape)).difference(*first)


def _expected(seen: int) -> tuple[int, ...]:
    """Usual values of a size that was seen in one run: a plan for many places does for few, not so
    the other way round; a single place, as a decoder's token, has a plan of its own."""
    if seen < 1:
        return ()
    return (seen, MANY) if seen == 1 else (max(seen, MANY),)
