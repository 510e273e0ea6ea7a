"""A model that grows by one operator at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, helper, numpy_helper

from ....graph.dtype import DType, boolean
from .. import kinds

OPSET = 18  # reductions with axes as operands, bits of integers


class Writer:
    """Operators and constants, each made once."""

    def __init__(self) -> None:
        self.graph = GraphProto()
        self._made: dict[Any, str] = {}
        self._count = 0

    def name(self, hint: str) -> str:
        self._count += 1
        return f"{hint}_{self._count}"

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

    # ---- small parts

    def where(self, condition: str, x: str, y: str, dtype: DType) -> str:
        """A choice; of bools, for which runtimes have no Where, by logic."""
        if dtype is not boolean:
            return self.op("Where", condition, x, y)
        second = self.op("And", self.op("Not", condition), y)
        return self.op("Or", self.op("And", condition, x), second)

    def cast(self, x: str, dtype: DType) -> str:
        return self.op("Cast", x, to=kinds.OURS[dtype])

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self.op("Reshape", x, self.constant(np.array(shape, np.int64)), allowzero=1)

    def expand(self, x: str, shape: Sequence[int]) -> str:
        return self.op("Expand", x, self.constant(np.array(shape, np.int64)))

    def transpose(self, x: str, order: Sequence[int]) -> str:
        return x if list(order) == sorted(order) else self.op("Transpose", x, perm=list(order))
