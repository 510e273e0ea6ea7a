"""What a user holds: a node of a graph, with its operations as methods.

Arithmetic and all named operations (`+`, `x.sum()`, `x.softmax()`) are written in `luminal.ops`,
which adds them here: the graph knows no operation beyond the primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DimError, InputError, ShapeError
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
    """Make `function(tensor, ...)` the method `name` of every tensor."""
    METHODS[name] = function
    setattr(Tensor, name, function)


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

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no value while the graph is recorded; use where()")

    def __len__(self) -> int:
        if not self.ndim or not self.node.shape[0].is_constant:
            raise DimError(f"{self} has no constant length")
        return self.node.shape[0].constant

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self} has no value while the graph is recorded")

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in INTERNAL]
