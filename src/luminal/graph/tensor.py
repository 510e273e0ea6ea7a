"""What a user holds: a node of a graph, with its operations as methods.

Arithmetic and all named operations (`+`, `x.sum()`, `x.softmax()`) are written in `luminal.ops`,
which adds them here with `register_method`: the graph knows no operation beyond the primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DimError, InputError, ShapeError, Unsupported
from ._methods import Methods
from .dtype import DType
from .dtype import dtype as dtype_of
from .index import Index
from .infer import text
from .node import Node, Number, Scan, Scatter, View
from .parse import DimLike
from .values import checked

if TYPE_CHECKING:
    from .graph import Graph

METHODS: dict[str, Callable[..., Any]] = {}


def register_method(name: str, function: Callable[..., Any]) -> None:
    """Make `function(tensor, ...)` the method `name` of every tensor.

    Operators call these names: add sub mul div floor_divide remainder pow neg abs matmul lt le gt
    ge eq ne bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift
    (for reflected ones the first argument is the Python number), and `index(tensor, key)`.
    """
    METHODS[name] = function
    if not name.startswith("_"):
        setattr(Tensor, name, function)


def _call(name: str, *arguments: Any, **named: Any) -> Any:
    function = METHODS.get(name)
    if function is None:
        raise Unsupported(f"operation {name!r} is not there: import luminal.ops")
    return function(*arguments, **named)


def _operator(name: str) -> Callable[[Tensor, Any], Tensor]:
    return lambda self, other: _call(name, self, _beside(self, other))


def _reflected(name: str) -> Callable[[Tensor, Any], Tensor]:
    return lambda self, other: _call(name, _beside(self, other), self)


def _beside(tensor: Tensor, value: Any) -> Any:
    """The other operand of an operator: an array, of NumPy or what it converts, is a constant, a
    scalar of NumPy a number."""
    if isinstance(value, (Tensor, int, float, Index)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (str, list, tuple)):
        raise InputError(f"{tensor} beside {value!r}: write graph.constant(...) or an array")
    return tensor.graph.constant(value)


UFUNCS = {  # what NumPy calls otherwise
    "divide": "div", "true_divide": "div", "power": "pow", "float_power": "float_power",
    "invert": "bitwise_not", "left_shift": "bitwise_left_shift", "rint": "round",
    "right_shift": "bitwise_right_shift", "mod": "remainder", "equal": "eq",
    "radians": "deg2rad", "degrees": "rad2deg", "conjugate": "conj",
}  # fmt: skip
FUNCTIONS = {  # NumPy's that mean the same here
    "sum": "sum", "prod": "prod", "mean": "mean", "max": "amax", "min": "amin", "amax": "amax",
    "amin": "amin", "argmax": "argmax", "argmin": "argmin", "cumsum": "cumsum",
    "cumprod": "cumprod", "reshape": "reshape", "squeeze": "squeeze", "expand_dims": "unsqueeze",
    "moveaxis": "movedim", "swapaxes": "transpose",
}  # fmt: skip
INTERNAL = ("read", "moved", "scan", "dim_of", "node", "windows")


class Tensor(Methods):
    """A value of a graph: `shape` (ints where constant, else Index), `dtype`; no data of its own.

    There is one Tensor for each node, so tensors can be keys of a dict; `==` is elementwise.

    >>> x = cx.tensor(("s", 8), name="x")
    >>> (x.softmax(-1) + 1.0)[:, :4]
    Tensor(%20: f32(s, 4))
    """

    __slots__ = ("graph", "node")

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node

    @property
    def shape(self) -> tuple[int | Index, ...]:
        return tuple(s.constant if s.is_constant else s for s in self.node.shape)

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def __repr__(self) -> str:
        return f"Tensor(%{self.node.number}: {self.dtype}{text(self.node.shape)})"

    # ---- values and results

    def set(self, value: Any) -> Tensor:
        """The value of this source until another is given. Raises InputError, LossyInput."""
        if self.node.op != "input" or self.node.attribute.kind == "constant":
            raise InputError(f"only inputs and parameters can be set, not {self}")
        self.graph.values[self.node] = checked(self.node, value)
        return self

    def output(self, name: str | None = None) -> Tensor:
        """Mark as a result of the program."""
        outputs, names = self.graph.outputs, self.graph.output_names
        if not any(self is known for known in outputs):
            outputs.append(self)
        names[self.node] = name or names.get(self.node) or f"output{len(outputs) - 1}"
        return self

    # ---- nodes, one method for each kind

    def read(
        self, shape: Sequence[DimLike], index: Sequence[Index], conditions: Sequence[Index] = (),
        fill: Number | None = None,
    ) -> Tensor:  # fmt: skip
        """Any movement: out[i0, i1, ...] = self[index] where every condition is >= 0, else fill.

        The index must lie inside the tensor wherever the conditions hold.
        """
        held = None if fill is None else self.graph.literal(fill, self.dtype).node.attribute
        return self.moved(View(self.graph.shape(shape), tuple(index), tuple(conditions), held))

    def moved(self, view: View) -> Tensor:
        """This view of the tensor."""
        return self.graph.wrap(self.graph.moved(self.node, view))

    def cast(self, dtype: Any) -> Tensor:
        """The values in another dtype; floats to integers cut, saturate, NaN to 0."""
        wanted = dtype_of(dtype)
        return self if wanted is self.dtype else self.graph.apply("cast", [self], wanted)

    def scan(self, op: str, dim: int) -> Tensor:
        """Running "sum", "prod", "max" or "min" along a dimension."""
        return self.graph.apply("scan", [self], attribute=Scan(op, self.dim_of(dim)))

    def _gather(self, index: Tensor, dim: int) -> Tensor:
        """out[.., i, ..] = self[.., index[.., i, ..], ..]; indices are clamped."""
        return self.graph.apply("gather", [self, index], attribute=self.dim_of(dim))

    def _scatter(self, index: Tensor, values: Tensor, dim: int, mode: str = "set") -> Tensor:
        """self with values combined in at index; indices outside are ignored."""
        attribute = Scatter(self.dim_of(dim), mode)
        return self.graph.apply("scatter", [self, index, values], attribute=attribute)

    def _unary(self, op: str) -> Tensor:
        return self.graph.apply(op, [self])

    def _binary(self, op: str, other: Tensor) -> Tensor:
        return self.graph.apply(op, [self, other])

    def _reduce(self, op: str, dims: Sequence[int]) -> Tensor:
        wanted = tuple(sorted({self.dim_of(dim) for dim in dims}))
        return self.graph.apply(op, [self], attribute=wanted) if wanted else self

    def dim_of(self, dim: int, extra: int = 0) -> int:
        """A dimension counted from the front; extra: dimensions that are about to be added."""
        rank = self.ndim + extra
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise ShapeError(f"no dimension {dim} in {self}")
        return dim % rank

    # ---- Python's protocol

    __hash__ = object.__hash__

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self  # a name for a node, not a value

    def __getitem__(self, key: Any) -> Tensor:
        return _call("index", self, key)

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no value while the graph is recorded; use where()")

    def __len__(self) -> int:
        if not self.ndim or not self.node.shape[0].is_constant:
            raise DimError(f"{self} has no constant length")
        return self.node.shape[0].constant

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    __add__ = _operator("add")
    __sub__ = _operator("sub")
    __mul__ = _operator("mul")
    __truediv__ = _operator("div")
    __floordiv__ = _operator("floor_divide")
    __mod__ = _operator("remainder")
    __pow__ = _operator("pow")
    __matmul__ = _operator("matmul")
    __and__ = _operator("bitwise_and")
    __or__ = _operator("bitwise_or")
    __xor__ = _operator("bitwise_xor")
    __lshift__ = _operator("bitwise_left_shift")
    __rshift__ = _operator("bitwise_right_shift")
    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")
    __eq__ = _operator("eq")  # type: ignore[assignment]
    __ne__ = _operator("ne")  # type: ignore[assignment]
    __radd__ = _reflected("add")
    __rsub__ = _reflected("sub")
    __rmul__ = _reflected("mul")
    __rtruediv__ = _reflected("div")
    __rfloordiv__ = _reflected("floor_divide")
    __rmod__ = _reflected("remainder")
    __rpow__ = _reflected("pow")
    __rmatmul__ = _reflected("matmul")
    __rand__ = _reflected("bitwise_and")
    __ror__ = _reflected("bitwise_or")
    __rxor__ = _reflected("bitwise_xor")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self} has no value while the graph is recorded")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`np.exp(x)` and `array + x`: the operation of that name."""
        name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or options or name not in METHODS:
            raise TypeError(f"numpy.{ufunc.__name__} is not defined for {self}; see luminal.ops")
        return _call(name, *(_beside(self, value) for value in inputs))

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> Any:
        """`np.sum(x, axis=0)`: the operation that means the same."""
        name = FUNCTIONS.get(function.__name__, "")
        if name not in METHODS or not given or not isinstance(given[0], Tensor):
            raise TypeError(f"numpy.{function.__name__} needs values, and a Tensor has none while "
                            "its graph is recorded: take PyTorch's operation in luminal.ops, or "
                            "compile the graph and run it")  # fmt: skip
        return _call(name, *given, **named)

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in INTERNAL]

    def __neg__(self) -> Tensor:
        return _call("neg", self)

    def __abs__(self) -> Tensor:
        return _call("abs", self)

    def __invert__(self) -> Tensor:
        return _call("bitwise_not", self)
