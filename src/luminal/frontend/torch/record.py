"""Nodes of an FX graph, recorded in a graph of ours."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import fx

from ...errors import DeviceError, LuminalError, ShapeError, Unsupported
from ...graph.dtype import DType
from ...graph.graph import Graph
from ...graph.index import Index, names_of
from ...graph.node import Node
from ...graph.scope import scope
from ...graph.tensor import Tensor
from ...ops import any as any_of
from ...ops import logical_or, size_tensor, stack
from ...ops.complex import Complex
from . import higher
from .arrays import FROM_TORCH, PAIRS, Pairs, inverse, memory_order
from .sizes import hint, index_of, known_equal, number_of, symbols_of
from .table import CHECKS, COMPLEX, RULES, SOURCES
from .table.checks import settled
from .table.complex import reals

PLACEMENT = frozenset(
    ("layout", "device", "pin_memory", "memory_format", "requires_grad", "non_blocking", "implicit")
)
NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
DRAWN = "drawn by PyTorch: the same numbers as in eager mode"
REFUSALS = (
    LuminalError, AttributeError, TypeError, ValueError, KeyError, IndexError, AssertionError,
)  # fmt: skip


@dataclass(frozen=True)
class Input:
    """A tensor from outside. order: its dimensions as they lie in memory. static: a weight."""

    node: fx.Node
    tensor: Tensor
    order: tuple[int, ...]
    static: bool


@dataclass(frozen=True)
class Output:
    """A tensor for outside. number: among the program's outputs. order: as it lies in memory.
    strides: where eager's tensor has gaps or overlaps, and so must be laid out afterwards."""

    node: fx.Node
    number: int
    kind: DType | Pairs
    order: tuple[int, ...]
    dense: bool


class Recorder:
    """A graph of ours that grows by one FX node at a time.

    What it reads and has not recorded becomes an input; `statics` among them become parameters.
    draws: random numbers are drawn natively; else operations that draw are left to PyTorch, whose
    numbers are those that eager draws under the same seed. checked: values for which PyTorch
    raises an error are looked for.
    """

    def __init__(
        self, statics: Collection[fx.Node] = (), draws: bool = True, checked: bool = False,
        memory: str = "cpu",
    ) -> None:  # fmt: skip
        """memory: where tensors may lie beside the host's."""
        self.graph, self.memory = Graph(), memory
        self.statics = statics
        self.draws = draws
        self.checked = checked
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.seed: Tensor | None = None
        self.settled: list[fx.Node] = []  # operations whose checked values are weights
        self.wrong: int | None = None  # the output that is true where PyTorch raises an error
        self._checks: dict[Node, Tensor] = {}  # true where it does
        self.node: fx.Node | None = None  # that is recorded now
        self._values: dict[fx.Node, Any] = {}
        self._depth = 0  # of bodies that are recorded now

    def inlined(self, module: fx.GraphModule, given: Sequence[Any]) -> list[Any]:
        """The results of a graph for these values of its inputs: the body of a loop."""
        nodes, outer = list(module.graph.nodes), self.node
        self._values.update(zip((n for n in nodes if n.op == "placeholder"), given))
        self._depth += 1
        try:
            for node in nodes:
                if node.op == "call_function" and not isinstance(node.meta.get("val"), NUMBERS):
                    self.record(node)
            (results,) = nodes[-1].args
            found = self._argument(results)
            return found if isinstance(found, list) else [found]
        finally:
            self.node, self._depth = outer, self._depth - 1

    def record(self, node: fx.Node) -> None:
        """Raises an error of REFUSALS where the node cannot run natively."""
        self.node = node
        stack = node.meta.get("nn_module_stack") or {"": ("",)}
        with scope(str(next(reversed(stack.values()))[0])):
            self._values[node] = self._checked(node, self._apply(node))

    def _apply(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            return self._item(node)
        if tells_sizes(node):
            raise Unsupported("only its result tells its size")
        if higher.is_higher(node):
            return higher.apply(self, node)
        name = name_of(node.target)
        known = [COMPLEX] if touches_complex(node) else [RULES, SOURCES]
        rule = next((table[name] for table in known if name in table), None)
        if rule is None:
            raise Unsupported("no rule for it")
        for tensor in tensors_in(node.meta.get("val")):
            check_kind(tensor, self.memory)
        whole = (self,) if name in SOURCES else ()
        args, kwargs = self._arguments(node)
        try:
            result = rule(*whole, *args, **kwargs)
        except ShapeError:
            if not self._unite_sizes(node):
                raise
            args, kwargs = self._arguments(node)
            result = rule(*whole, *args, **kwargs)
        if self.checked and name in CHECKS:
            self._check(node, CHECKS[name](*map(reals, args), **kwargs))
        return result

    def _check(self, node: fx.Node, found: Iterable[Tensor]) -> None:
        """Note where PyTorch raises an error, other than for weights: those change seldom."""
        for wrong in found:
            if not settled(wrong):
                if self._depth:
                    raise Unsupported("a loop in which PyTorch may raise an error for values")
                self._checks[wrong.node] = wrong
            elif node not in self.settled:
                self.settled.append(node)

    def _arguments(self, node: fx.Node) -> tuple[list[Any], dict[str, Any]]:
        args = [self._argument(arg) for arg in node.args]
        args = [self._operand(node, place, arg) for place, arg in enumerate(args)]
        return args, {k: self._argument(v) for k, v in node.kwargs.items() if k not in PLACEMENT}

    def _unite_sizes(self, node: fx.Node) -> bool:
        """Sizes of result and operands that PyTorch's guards make equal get one expression; were
        there any? (An image that was halved and doubled fits itself where its size is even.)"""
        results = tensors_in(node.meta.get("val"))
        seen = [(size, index_of(self.graph, size)) for value in results for size in value.shape]
        changed = False
        for source in node.all_input_nodes:
            tensor, value = self.value(source), source.meta.get("val")
            if not isinstance(tensor, Tensor) or not isinstance(value, torch.Tensor):
                continue
            for d, (size, index) in enumerate(zip(value.shape, tensor.node.shape)):
                same = next((i for s, i in seen if i is index or known_equal(s, size)), index)
                seen.append((size, index))
                if same is not index:
                    self.graph.require(same - index, f"{same} and {index} are one size")
                    tensor, changed = tensor.narrow(d, 0, same), True
            self._values[source] = tensor
        return changed

    def _item(self, node: fx.Node) -> Any:
        source, number = node.args
        whole = self._values.get(source) if isinstance(source, fx.Node) else None
        if not isinstance(whole, (tuple, list)):
            raise Unsupported("a part of what PyTorch computes")
        return whole[number]  # type: ignore[index]

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return self.value(arg)
        if isinstance(arg, (list, tuple)):
            return [self._argument(part) for part in arg]
        if isinstance(arg, torch.dtype):
            return kind_of(arg)
        return arg

    def _operand(self, node: fx.Node, place: int, arg: Any) -> Any:
        """A run-time size as a tensor, where the operation computes with it (a range keeps it)."""
        schema = getattr(node.target, "_schema", None)
        if not isinstance(arg, Index) or schema is None or schema.name == "aten::arange":
            return arg
        kind = str(schema.arguments[place].type)
        return size_tensor(self.graph, arg) if kind == "Tensor" or "number" in kind else arg

    def value(self, node: fx.Node) -> Any:
        """What a node stands for: what was recorded, a size, or an input."""
        if node in self._values:
            return self._values[node]
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return _plain(index_of(self.graph, value))
        if isinstance(value, torch.SymFloat):
            return number_of(self.graph, value)
        if isinstance(value, (bool, int, float)):
            return value
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"an input of type {type(value).__name__}")
        return self._input(node, value)

    def _input(self, node: fx.Node, value: torch.Tensor) -> Tensor | Complex:
        if self._depth and node.graph is getattr(self.node, "graph", None):
            raise Unsupported("a constant in the body of a loop")
        kind = check_kind(value, self.memory)
        sizes = [index_of(self.graph, size) for size in value.shape]
        order, _ = layout(value)
        static = node in self.statics
        make = self.graph.parameter if static else self.graph.tensor
        laid: list[Any] = [sizes[d] for d in order]
        if isinstance(kind, Pairs):
            tensor = make([*laid, 2], kind.part, name=node.name)
            whole = Complex(tensor.select(-1, 0), tensor.select(-1, 1))
            result: Any = whole.each(lambda part: part.permute(inverse(order))) if order else whole
        else:
            tensor = make(laid, kind, name=node.name)
            result = tensor.permute(inverse(order)) if order else tensor
        self.inputs.append(Input(node, tensor, order, static))
        self._values[node] = result
        return result

    def _checked(self, node: fx.Node, result: Any) -> Any:
        """The result with the dtypes of PyTorch's; shapes must agree, of the parts that count."""
        wanted = node.meta.get("val")
        if isinstance(wanted, (tuple, list)) and isinstance(result, (tuple, list)):
            pairs = enumerate(zip(result, wanted))
            return tuple(self._agree(r, w) if self.needs(n) else None for n, (r, w) in pairs)
        return self._agree(result, wanted)

    def _agree(self, result: Any, wanted: Any) -> Any:
        if result is None and wanted is not None:
            raise Unsupported("a result that only PyTorch makes is read")
        if not isinstance(result, (Tensor, Complex)) or not isinstance(wanted, torch.Tensor):
            return result
        kind = kind_of(wanted.dtype)
        if isinstance(kind, Pairs) and isinstance(result, Complex):
            return result.each(self._fitting, wanted, kind.part)
        if isinstance(kind, Pairs) or isinstance(result, Complex):
            raise Unsupported(f"{type(result).__name__} where PyTorch has {wanted.dtype}")
        return self._fitting(result, wanted, kind)

    def _fitting(self, result: Tensor, wanted: torch.Tensor, kind: DType) -> Tensor:
        """Cast to the dtype; the shape must be PyTorch's."""
        shape = [index_of(self.graph, size) for size in wanted.shape]
        mine = result.node.shape
        if len(mine) != len(shape) or not all(map(self._same_size, mine, shape)):
            raise ShapeError(f"recorded as {result}, where PyTorch has {tuple(shape)}")
        return result.cast(kind)

    def _same_size(self, a: Index, b: Index) -> bool:
        """As far as the sizes of the trace say."""
        known = self.graph.space.hints
        traced = names_of([a, b]) <= known.keys()
        return a is b or not traced or bool(a.evaluate(known) == b.evaluate(known))

    def needs(self, number: int) -> bool:
        """Somebody reads that part of the result of the node that is recorded."""
        users = self.node.users if self.node is not None else ()
        return any(u.target is not operator.getitem or u.args[1] == number for u in users)

    def shows(self, number: int) -> bool:
        """That part of the result of the node that is recorded is a result of the whole graph."""
        parts = [u for u in self.node.users if u.target is operator.getitem] if self.node else ()
        return any(u.op == "output" for part in parts if part.args[1] == number for u in part.users)

    def memory_order(self) -> tuple[int, ...]:
        """The dimensions, slowest first, of what the node that is recorded reads first. Raises
        Unsupported where its memory has gaps, or reaches beyond it."""
        source = self.node.args[0] if self.node is not None else None
        value = source.meta.get("val") if isinstance(source, fx.Node) else None
        if isinstance(value, torch.Tensor) and hint(value.storage_offset()) == 0:
            order, dense = layout(value)
            elements = math.prod(hint(size) for size in value.shape)
            if dense and hint(value.untyped_storage().nbytes()) == elements * value.itemsize:
                return order
        raise Unsupported("strides over memory that is not laid out plainly")

    def random_seed(self) -> Tensor:
        """A number that is drawn anew for each run."""
        if not self.draws or self._depth:
            raise Unsupported(DRAWN)
        if self.seed is None:
            self.seed = self.graph.tensor((), "i64", name="random seed")
        return self.seed

    def result(self, node: fx.Node) -> Any:
        """What was recorded for a node; an input, if nothing was."""
        return self.value(node)

    def output(self, node: fx.Node) -> None:
        """Mark a recorded tensor as a result, laid out as eager would."""
        tensor, value = self._values[node], node.meta["val"]
        order, dense = layout(value)
        kind = kind_of(value.dtype)
        if isinstance(tensor, Complex):
            laid = stack([part.permute(order) if order else part for part in tensor], -1)
        else:
            laid = tensor.permute(order) if order else tensor
        known = self.graph.outputs
        number = next((n for n, t in enumerate(known) if t is laid), len(known))
        laid.output()
        self.outputs.append(Output(node, number, kind, order, dense))

    def output_checks(self) -> None:
        """One more output, the last: whether PyTorch raises an error for the values."""
        if not self._checks:
            return
        total = reduce(logical_or, [any_of(wrong) for wrong in self._checks.values()])
        total.output()
        outputs = self.graph.outputs
        self.wrong = next(n for n, output in enumerate(outputs) if output is total)


def _plain(index: Index) -> int | Index:
    return index.constant if index.is_constant else index


def name_of(target: Any) -> str:
    """As in the tables: "add.Tensor" for torch.ops.aten.add.Tensor; others keep their namespace."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removeprefix("aten.")
    return getattr(target, "__name__", str(target))


def tells_sizes(node: fx.Node) -> bool:
    """The result has a size that nothing it is computed from has: one that depends on values."""
    if not node.meta.get("unbacked_bindings"):
        return False
    known = (symbols_of(source.meta.get("val")) for source in node.all_input_nodes)
    return not symbols_of(node.meta.get("val")) <= set[str]().union(*known)


def touches_complex(node: fx.Node) -> bool:
    """The operation reads or makes complex numbers."""
    values = [source.meta.get("val") for source in (node, *node.all_input_nodes)]
    return any(tensor.is_complex() for value in values for tensor in tensors_in(value))


def kind_of(theirs: torch.dtype) -> DType | Pairs:
    """Our dtype. Raises Unsupported."""
    kind = FROM_TORCH.get(theirs) or PAIRS.get(theirs)
    if kind is None:
        raise Unsupported(f"dtype {theirs}")
    return kind


def check_kind(value: torch.Tensor, memory: str = "cpu") -> DType | Pairs:
    """The dtype of a tensor that we can hold: strided, on the CPU or where the program runs. Raises
    Unsupported."""
    if value.layout is not torch.strided:
        raise Unsupported(f"layout {value.layout}")
    if value.device.type not in ("cpu", memory):
        raise DeviceError(f"a tensor on {value.device}")
    return kind_of(value.dtype)


def tensors_in(value: Any) -> Sequence[torch.Tensor]:
    """The tensors of a result."""
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return [part for part in parts if isinstance(part, torch.Tensor)]


def layout(value: torch.Tensor) -> tuple[tuple[int, ...], bool]:
    """(dimensions from slowest to fastest in memory, elements lie side by side)."""
    sizes = [hint(size) for size in value.shape]
    plain = tuple(range(len(sizes)))
    if 0 in sizes:
        return plain, True
    order = memory_order([hint(stride) for stride in value.stride()], sizes)
    return (plain, False) if order is None else (order, True)
