"""A model that grows by one operator at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from ....errors import Unsupported
from ....graph.dtype import DType, boolean, i16, i32, i64, u16, u64
from ....graph.index import Atom, Index
from .. import kinds

Size: TypeAlias = "int | Index"
OPSET = 18  # reductions with axes as operands, bits of integers
WHERE = {i16: i32, u16: i32, u64: i64}  # what onnxruntime has no Where for: what holds them


class Writer:
    """Operators and constants, each made once. outer: of the graph around a body, which may read
    what that has."""

    def __init__(self, outer: Writer | None = None) -> None:
        self.graph = GraphProto(name="body" if outer else "luminal")
        self.sizes: dict[str, str] = outer.sizes if outer else {}  # of run time: numbers
        self._made: dict[Any, str] = {**outer._made} if outer else {}
        self._numbers: Iterator[int] = outer._numbers if outer else count(1)

    def name(self, hint: str) -> str:
        return f"{hint}_{next(self._numbers)}"

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant; equal ones are one."""
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        key = array.dtype.str, array.dtype.name, array.shape, array.tobytes()
        if key not in self._made:
            self._made[key] = self.weight(array, self.name("constant"))
        return self._made[key]

    def weight(self, array: np.ndarray, name: str) -> str:
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: Any, dtype: DType) -> str:
        """A scalar."""
        return self.constant(value, dtype.numpy)

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        """The one result of an operator; equal ones are one."""
        key = name, inputs, repr(sorted(attributes.items()))
        if key not in self._made:
            output = self.name(name.lower())
            self.graph.node.append(helper.make_node(name, inputs, [output], **attributes))
            self._made[key] = output
        return self._made[key]

    def several(
        self, name: str, inputs: Sequence[str], results: int, **attributes: Any
    ) -> list[str]:
        """The results of an operator with a body."""
        outputs = [self.name(name.lower()) for _ in range(results)]
        self.graph.node.append(helper.make_node(name, inputs, outputs, **attributes))
        return outputs

    def prune(self) -> None:
        """Drop what no output needs: factors of sums that became one operator."""
        needed, nodes = {output.name for output in self.graph.output}, []
        for node in reversed(self.graph.node):
            if needed.intersection(node.output):
                needed.update(_read(node))
                nodes.append(node)
        weights = [t for t in self.graph.initializer if t.name in needed]
        for held, left in ((self.graph.node, nodes[::-1]), (self.graph.initializer, weights)):
            del held[:]
            held.extend(left)

    # ---- small parts

    def where(self, condition: str, x: str, y: str, dtype: DType) -> str:
        """A choice; of bools, for which runtimes have no Where, by logic, of some integers in
        others."""
        if (wide := WHERE.get(dtype)) is not None:
            both = (self.cast(each, wide) for each in (x, y))
            return self.cast(self.op("Where", condition, *both), dtype)
        if dtype is not boolean:
            return self.op("Where", condition, x, y)
        second = self.op("And", self.op("Not", condition), y)
        return self.op("Or", self.op("And", condition, x), second)

    def cast(self, x: str, dtype: DType) -> str:
        return self.op("Cast", x, to=kinds.OURS[dtype])

    def reshape(self, x: str, shape: Sequence[Size]) -> str:
        if sum(isinstance(n, Index) for n in shape) == 1:  # what is left over
            shape = [-1 if isinstance(n, Index) else n for n in shape]
        return self.op("Reshape", x, self.vector(shape), allowzero=1)

    def expand(self, x: str, shape: Sequence[Size]) -> str:
        return self.op("Expand", x, self.vector(shape))

    def transpose(self, x: str, order: Sequence[int]) -> str:
        return x if list(order) == sorted(order) else self.op("Transpose", x, perm=list(order))

    # ---- sizes of run time

    def tell(self, name: str, value: str, factor: int, rest: int) -> None:
        """The size of this name, times a factor and with some more, is the value."""
        value = self.op("Sub", value, self.constant(rest)) if rest else value
        self.sizes[name] = self.op("Div", value, self.constant(factor)) if factor > 1 else value

    def vector(self, sizes: Sequence[Size]) -> str:
        """Sizes in a row."""
        if not any(isinstance(n, Index) for n in sizes):
            return self.constant(np.array(sizes, np.int64))
        one = self.constant([1])
        parts = [self.op("Reshape", self.index(n), one) if isinstance(n, Index)
                 else self.constant([n]) for n in sizes]  # fmt: skip
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def index(self, index: Size, places: Mapping[str, str] | None = None) -> str:
        """The i64 value of an index, at the places of its other variables. Raises Unsupported for
        a size that nothing tells."""
        total = None
        for atoms, factor in Index.of(index).terms:
            values = [self._atom(atom, places or {}) for atom in atoms]
            if factor != 1 or not values:
                values.append(self.constant(factor))
            part, *more = values
            for value in more:
                part = self.op("Mul", part, value)
            total = part if total is None else self.op("Add", total, part)
        return self.constant(0) if total is None else total

    def _atom(self, atom: Atom, places: Mapping[str, str]) -> str:
        if isinstance(atom, str):
            found = places.get(atom) or self.sizes.get(atom)
            if found is None:
                raise Unsupported(f"export of the size {atom!r}, which no input's shape tells")
            return found
        x, y = self.index(atom.first, places), self.index(atom.second, places)
        if atom.kind == "floor":
            return self.op("Div", self.op("Sub", x, self.op("Mod", x, y)), y)
        return self.op(atom.kind.capitalize(), x, y)


def _read(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, those in its body too."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read(inner)
