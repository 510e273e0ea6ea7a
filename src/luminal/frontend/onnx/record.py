"""Operators of ONNX, recorded in a graph of ours as far as that goes at once.

What cannot be recorded yet is left over: operators that run on the host, and operators whose
results take their shape from values that this program only computes.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import LuminalError, ShapeError, Unsupported, WeightsError
from ...graph.graph import Graph
from ...graph.index import Index
from ...graph.order import reachable
from ...graph.tensor import Tensor
from . import kinds, known, values
from .context import Context
from .known import ToHost, Unknown
from .older import modern
from .operators import Body, Operator, placed
from .sizes import united
from .sources import Shapes, Sources, Store, Value
from .table import HOST, RULES
from .table.base import Typed

TELLING = 64  # elements of an input for whose values a program is made
REFUSALS = (
    LuminalError, AttributeError, TypeError, ValueError, KeyError, IndexError, AssertionError,
    ArithmeticError, MemoryError,
)  # fmt: skip


class Fix(Exception):
    """Recorded again with these values as constants."""

    def __init__(self, names: set[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


class NeedSizes(Exception):
    """Recorded again for just these sizes."""


class Recorder:
    """One program. store: values at hand. shapes: of those that are its inputs. fixed: names whose
    values are constants. loose: which elements of them are sizes of the program instead. still: no
    size is symbolic."""

    def __init__(
        self, context: Context, store: Store, shapes: Shapes, fixed: Iterable[str],
        loose: values.Masks, constants: Mapping[str, Any], still: bool, sample: Mapping[str, int],
    ) -> None:  # fmt: skip
        self.graph = Graph()
        self.sources = Sources(self.graph, context, store, shapes, fixed, loose, constants, sample)
        self.context, self.store, self.still = context, store, still
        self.constants, self.sample = self.sources.constants, self.sources.sample
        self.values: dict[str, Value] = {}
        self.late: dict[str, bool] = {}  # name -> the host makes it after this program
        self.hosts: list[Operator] = []
        self.rest: list[Operator] = []
        self.operator: Operator | None = None
        self._bodies = 0
        self._work: deque[Operator] = deque()

    def record(self, operators: Iterable[Operator]) -> None:
        """Raises Fix, NeedSizes, and errors that name the operator."""
        self._work = deque(operators)
        while self._work:
            self._step(self._work.popleft())

    def _step(self, operator: Operator) -> None:
        late = [name for name in operator.reads if name in self.late]
        if late:
            by_host = (operator.domain, operator.name) in HOST and self._only_host(operator)
            self._leave(operator, by_host and all(self.late[name] for name in late))
            return
        self.operator = operator
        try:
            self._apply(operator)
        except Unknown as error:
            self._wait(operator, error)
        except ToHost:
            self._leave(operator, True)
        except REFUSALS as error:
            if isinstance(error, ShapeError) and self._unite(operator):
                self._work.appendleft(operator)
                return
            if self.graph.space.sizes and not self.still:
                raise NeedSizes(f"{operator}: {error}") from error
            raise _located(error, operator) from error

    def _unite(self, operator: Operator) -> bool:
        """Sizes that must be equal for the operator get one expression; were there any?"""
        held = {name: self.values.get(name) for name in operator.inputs if name}
        tensors = {name: v.tensor for name, v in held.items() if isinstance(v, Typed)}
        found = {} if self.still else united(operator, tensors, self.sample)
        for name, tensor in found.items():
            value = held[name]
            assert isinstance(value, Typed)
            self.values[name] = Typed(tensor, value.kind)
        return bool(found)

    def _only_host(self, operator: Operator) -> bool:
        return (operator.domain, operator.name) not in RULES

    def _leave(self, operator: Operator, by_host: bool) -> None:
        (self.hosts if by_host else self.rest).append(operator)
        self.late.update({name: by_host for name in operator.outputs if name})

    def _wait(self, operator: Operator, error: Unknown) -> None:
        """The values are constants in the next try, or come from an earlier program."""
        names = {self.sources.names[node] for node in known.outside(error.tensor)}
        if not names:
            if self.still:
                raise Unsupported(f"{operator}: {error}")
            raise NeedSizes(f"{operator}: {error}")
        if names <= operator.reads or all(self._telling(name) for name in names):
            raise Fix({name.partition("\0")[0] for name in names})
        self._leave(operator, False)

    def _telling(self, name: str) -> bool:
        value = self.store.get(name)
        return (
            isinstance(value, np.ndarray) and value.size <= TELLING and value.dtype.kind in "iub"
        ) or (isinstance(value, np.ndarray) and value.size <= 1)

    # ---- one operator

    def _apply(self, operator: Operator) -> None:
        key = operator.domain, operator.name
        entry = RULES.get(key)
        if entry is None:
            body = self.context.function(operator, self._types)
            if body is not None:
                self.place(body, operator.inputs, operator.outputs)
                return
            if key in HOST:
                raise ToHost
            raise Unsupported("there is no rule for this operator")
        given = [self._operand(name) for name in operator.inputs]
        operands, attributes = modern(operator, given)
        try:
            inspect.signature(entry.rule).bind(self, *operands, **attributes)
        except TypeError as error:
            raise Unsupported(f"its operands or attributes: {error}") from None
        result = entry.rule(self, *operands, **attributes)
        if result is not PLACED:
            self._keep(operator, result, entry.moves)

    def place(self, body: Body, arguments: Sequence[str], results: Sequence[str]) -> Any:
        """The body's operators are recorded next, in place of the operator."""
        prefix = f"{next(name for name in results if name)}/"
        operators, constants = placed(body, arguments, results, prefix)
        self.constants.update(constants)
        self._work.extendleft(reversed(operators))
        return PLACED

    def inline(self, body: Body, arguments: Sequence[Value]) -> list[Value]:
        """The results of a body for these values, recorded now. Raises Unknown, ToHost."""
        self._bodies += 1
        prefix = f"{self._bodies}/{next(n for n in self._here.outputs if n)}/"
        names = [f"{prefix}\0{k}" for k in range(len(arguments))]
        results = [f"{prefix}\0result{k}" for k in range(len(body.outputs))]
        self.values.update(zip(names, arguments))
        operators, constants = placed(body, names, results, prefix)
        self.constants.update(constants)
        around = self.operator, self._work
        self._work = deque(operators)
        try:
            while self._work:
                self.operator = self._work.popleft()
                self._apply(self.operator)
        finally:
            self.operator, self._work = around
        return [self.values[name] for name in results]

    @property
    def _here(self) -> Operator:
        assert self.operator is not None
        return self.operator

    def next(self, operators: Sequence[Operator]) -> Any:
        """These operators are recorded next, in place of the operator."""
        self._work.extendleft(reversed(operators))
        return PLACED

    def decided(self, index: Index) -> bool:
        """index >= 0, for all sizes or as in this run."""
        return known.decided(self.graph, index, self.sample)

    def settle(self) -> None:
        """What follows depends on the values of run-time sizes: record for just these."""
        if not self.still:
            raise NeedSizes("sizes of this run decide")

    def on_host(self) -> Any:
        """The operator is left to the host."""
        raise ToHost

    def _operand(self, name: str) -> Any:
        value = self.value(name) if name else None
        return value.tensor if isinstance(value, Typed) else value

    def _keep(self, operator: Operator, result: Any, moves: bool) -> None:
        results = result if isinstance(result, tuple) else (result,)
        for name, one in zip(operator.outputs, results):
            if not name:
                continue
            if isinstance(one, Tensor):
                one = self.typed(one)
                first = self.value(operator.inputs[0]) if moves and operator.inputs else None
                if isinstance(first, Typed) and first.tensor.dtype is one.tensor.dtype:
                    one = Typed(one.tensor, first.kind)
            self.values[name] = one

    @staticmethod
    def typed(tensor: Tensor) -> Typed:
        """With the element type that its dtype stands for."""
        return Typed(tensor, kinds.OURS[tensor.dtype])

    # ---- values

    def value(self, name: str) -> Value:
        """What a name stands for. Raises ToHost for text."""
        if name not in self.values:
            self.values[name] = self.sources.value(name)
        return self.values[name]

    def constant(self, array: np.ndarray, name: str | None = None) -> Typed:
        """An array of the model: a number, a constant, or a parameter that has its value."""
        return self.sources.constant(array, name)

    def settled(self, tensor: Tensor) -> Tensor:
        """What depends on nothing from outside as a constant or parameter of its own, if large."""
        nodes = reachable([tensor.node])
        if not any(n.op == "input" and n.attribute.kind == "parameter" for n in nodes):
            return tensor
        try:
            return self.constant(self.array(tensor)).tensor
        except Unknown:
            return tensor

    # ---- what rules ask for

    @property
    def version(self) -> int:
        """Of the operator set."""
        assert self.operator is not None
        return self.operator.version

    @property
    def count(self) -> int:
        """How many results are read."""
        assert self.operator is not None
        return sum(1 for name in self.operator.outputs if name)

    def wants(self, number: int) -> bool:
        """That result is read."""
        assert self.operator is not None
        outputs = self.operator.outputs
        return number < len(outputs) and bool(outputs[number])

    def kind(self, number: int) -> int:
        """The element type of an operand."""
        assert self.operator is not None
        value = self.value(self.operator.inputs[number])
        assert isinstance(value, Typed)
        return value.kind

    def given(self, number: int) -> str:
        """The name of an operand, or ""."""
        assert self.operator is not None
        return self.operator.inputs[number] if number < len(self.operator.inputs) else ""

    def array(self, tensor: Tensor) -> np.ndarray:
        """The values of a tensor: numbers only. Raises Unknown."""
        found = known.array(tensor, self.sample)
        if found.dtype == object:
            if any(isinstance(v, Index) for v in found.reshape(-1)):
                raise Unknown(tensor)
            return found.astype(tensor.dtype.numpy)
        return found

    def ints(self, tensor: Tensor) -> list[int]:
        """The values of a small tensor."""
        return [int(v) for v in self.array(tensor).reshape(-1)]

    def sizes(self, tensor: Tensor) -> list[Any]:
        """The same; each may depend on run-time sizes."""
        found = known.array(tensor, self.sample).reshape(-1)
        return [v if isinstance(v, Index) else int(v) for v in found]

    def size(self, tensor: Tensor) -> Any:
        """The one value of a tensor; it may depend on run-time sizes."""
        (found,) = self.sizes(tensor)
        return found

    def dims(self, given: Tensor | Sequence[int] | None) -> list[int] | None:
        """Dimensions, which are an operand or an attribute by version."""
        return (
            self.ints(given) if isinstance(given, Tensor) else None if given is None else [*given]
        )

    def _types(self, name: str) -> Any:
        """(element type, fixed shape or None, a sequence of such) of a value."""
        value = self.value(name)
        if isinstance(value, list):
            if not value:
                raise Unsupported("a function of a sequence that is empty")
            return value[0].kind, None, True
        if value is None:
            raise Unsupported("a function of an optional value that is empty")
        return value.kind, [s if isinstance(s, int) else None for s in value.tensor.shape], False


PLACED = object()


def _located(error: Exception, operator: Operator) -> Exception:
    """The error, saying at which operator of the model it arose."""
    message = str(error).partition("\n  at ")[0]
    if str(operator) in message:
        return error
    message = f"{operator}: {message or type(error).__name__}"
    if isinstance(error, (ShapeError, WeightsError, Unsupported)):
        return type(error)(message)
    if isinstance(error, LuminalError):
        return type(error)(message)
    return Unsupported(f"{message} ({type(error).__name__})")
