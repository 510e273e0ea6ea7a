"""What a user holds: a node of a graph, with movement as methods.

Arithmetic and all named operations (`+`, `x.sum()`, `x.softmax()`) are written in `luminal.ops`,
which adds them here with `register_method`: the graph knows no operation beyond the primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DimError, InputError, ShapeError, Unsupported
from . import views
from .dtype import DType
from .dtype import dtype as dtype_of
from .index import Index
from .indexing import basic_view, is_basic
from .infer import text
from .node import Node, Number, Scan, Scatter, View
from .parse import DimLike
from .resize import infer_size, new_shape
from .values import checked

if TYPE_CHECKING:
    from .graph import Graph

METHODS: dict[str, Callable[..., Any]] = {}


def register_method(name: str, function: Callable[..., Any]) -> None:
    """Make `function(tensor, ...)` the method `name` of every tensor.

    Operators call these names: add sub mul div floor_divide remainder pow neg abs matmul lt le gt
    ge eq ne bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift
    (for reflected ones the first argument is the Python number), and `index(tensor, key)` for keys
    that contain tensors or arrays. A movement method of the same name gives way.
    """
    METHODS[name] = function
    if not name.startswith("_"):
        setattr(Tensor, name, function)


def _call(name: str, *arguments: Any) -> Any:
    function = METHODS.get(name)
    if function is None:
        raise Unsupported(f"operation {name!r} is not there: import luminal.ops")
    return function(*arguments)


def _operator(name: str) -> Callable[[Tensor, Any], Tensor]:
    return lambda self, other: _call(name, self, _beside(self, other))


def _reflected(name: str) -> Callable[[Tensor, Any], Tensor]:
    return lambda self, other: _call(name, _beside(self, other), self)


def _beside(tensor: Tensor, value: Any) -> Any:
    """The other operand of an operator: an array is a constant, a scalar of NumPy a number."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return tensor.graph.constant(value)
    if isinstance(value, (list, tuple)):
        raise InputError(f"{tensor} beside {value!r}: write graph.constant(...) or an array")
    return value


def _dims(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """f(1, 2) and f((1, 2)) mean the same."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        return tuple(given[0])
    return given


class Tensor:
    """A value of a graph: `shape` (ints where constant, else Index), `dtype`; no data of its own.

    There is one Tensor for each node, so tensors can be keys of a dict; `==` is elementwise.
    """

    __slots__ = ("graph", "node")
    __array_ufunc__ = None  # NumPy leaves `array + tensor` to the tensor

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node

    @property
    def shape(self) -> tuple[int | Index, ...]:
        return tuple(s.constant if s.is_constant else s for s in self.node.shape)

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    def __repr__(self) -> str:
        return f"Tensor(%{self.node.number}: {self.dtype}{text(self.node.shape)})"

    # ---- values and results

    def set(self, value: Any) -> Tensor:
        """The value of this source until another is given. Raises InputError or DTypeError."""
        if self.node.op != "input" or self.node.attribute.kind == "constant":
            raise InputError(f"only inputs and parameters can be set, not {self}")
        self.graph.values[self.node] = checked(self.node, value, self.graph.space)
        return self

    def output(self, name: str | None = None) -> Tensor:
        """Mark as a result of the program."""
        outputs, names = self.graph.outputs, self.graph.output_names
        if not any(self is known for known in outputs):
            outputs.append(self)
        names[self.node] = name or names.get(self.node) or f"output{len(outputs) - 1}"
        return self

    # ---- nodes, one method for each kind

    def cast(self, dtype: Any) -> Tensor:
        """The values in another dtype; floats to integers cut, saturate, NaN to 0."""
        wanted = dtype_of(dtype)
        return self if wanted is self.dtype else self.graph.apply("cast", [self], wanted)

    def scan(self, op: str, dim: int) -> Tensor:
        """Running "sum", "prod", "max" or "min" along a dimension."""
        return self.graph.apply("scan", [self], attribute=Scan(op, self._dim(dim)))

    def gather_node(self, index: Tensor, dim: int) -> Tensor:
        """out[.., i, ..] = self[.., index[.., i, ..], ..]; indices are clamped."""
        return self.graph.apply("gather", [self, index], attribute=self._dim(dim))

    def scatter_node(self, index: Tensor, values: Tensor, dim: int, mode: str = "set") -> Tensor:
        """self with values combined in at index; indices outside are ignored."""
        attribute = Scatter(self._dim(dim), mode)
        return self.graph.apply("scatter", [self, index, values], attribute=attribute)

    def _unary(self, op: str) -> Tensor:
        return self.graph.apply(op, [self])

    def _binary(self, op: str, other: Tensor) -> Tensor:
        return self.graph.apply(op, [self, other])

    def _reduce(self, op: str, dims: Sequence[int]) -> Tensor:
        wanted = tuple(sorted({self._dim(dim) for dim in dims}))
        return self.graph.apply(op, [self], attribute=wanted) if wanted else self

    def _view(self, view: View) -> Tensor:
        return self.graph.wrap(self.graph.view(self.node, view))

    def read(
        self, shape: Sequence[DimLike], index: Sequence[Index], conditions: Sequence[Index] = (),
        fill: Number | None = None,
    ) -> Tensor:  # fmt: skip
        """Any movement: out[i0, i1, ...] = self[index] where every condition is >= 0, else fill.

        The index must lie inside the tensor wherever the conditions hold.
        """
        return self._view(View(self.graph.shape(shape), tuple(index), tuple(conditions), fill))

    # ---- movement: each method is one view

    def permute(self, *dims: Any) -> Tensor:
        """Dimension d of the result is dimension dims[d]."""
        order = [self._dim(dim) for dim in _dims(dims)]
        return self._view(views.permute(self.node.shape, order))

    def transpose(self, first: int, second: int) -> Tensor:
        order = list(range(self.ndim))
        first, second = self._dim(first), self._dim(second)
        order[first], order[second] = second, first
        return self.permute(order)

    def movedim(self, source: int, target: int) -> Tensor:
        source, target = self._dim(source), self._dim(target)
        order = [dim for dim in range(self.ndim) if dim != source]
        return self.permute(order[:target] + [source] + order[target:])

    @property
    def T(self) -> Tensor:
        """All dimensions in reverse order."""
        return self.permute(tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        """The last two dimensions swapped."""
        return self.transpose(-1, -2)

    def expand(self, *sizes: Any) -> Tensor:
        """Repeat dimensions of size 1; -1 keeps a size; new dimensions come first."""
        wanted = tuple(self.graph.size(size) for size in _dims(sizes))
        return self._view(views.expand(self.node.shape, wanted))

    broadcast_to = expand

    def expand_as(self, other: Tensor) -> Tensor:
        return self.expand(other.shape)

    def reshape(self, *sizes: Any) -> Tensor:
        """The same elements in row-major order under another shape; one size may be -1."""
        wanted = tuple(map(self.graph.size, _dims(sizes)))
        return self._view(views.reshape(self.node.shape, new_shape(self, wanted)))

    view = reshape

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """Merge the dimensions start .. end into one."""
        if not self.ndim:
            return self.reshape(1)
        first, last = self._dim(start), self._dim(end)
        merged = views.product(self.node.shape[first : last + 1])
        return self.reshape(self.shape[:first] + (merged,) + self.shape[last + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[DimLike]) -> Tensor:
        """Split a dimension into several; one size may be -1."""
        dim = self._dim(dim)
        part = infer_size(self, (self.node.shape[dim],), tuple(map(self.graph.size, sizes)))
        return self.reshape(self.shape[:dim] + part + self.shape[dim + 1 :])

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Tensor:
        """Drop dimensions of size 1: all, or those given that have it."""
        given = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
        dims = [d for d in map(self._dim, given) if self.node.shape[d] == 1]
        return self._view(views.squeeze(self.node.shape, dims)) if dims else self

    def unsqueeze(self, dim: int) -> Tensor:
        """A new dimension of size 1."""
        return self._view(views.unsqueeze(self.node.shape, self._dim(dim, self.ndim + 1)))

    def __getitem__(self, key: Any) -> Tensor:
        if not is_basic(key):
            return _call("index", self, key)
        graph = self.graph
        view = basic_view(self.node.shape, key, graph.size, graph.space, graph.require)
        return self._view(view)

    def select(self, dim: int, index: DimLike) -> Tensor:
        """One element along a dimension, which is dropped."""
        return self[(slice(None),) * self._dim(dim) + (index,)]

    def narrow(self, dim: int, start: DimLike, length: DimLike) -> Tensor:
        """The elements start .. start + length - 1 along a dimension; all must be there."""
        dim, first, count = self._dim(dim), self.graph.size(start), self.graph.size(length)
        for bound in (first, count, self.node.shape[dim] - first - count):
            self.graph.require(bound, f"narrow: {first} .. {first + count} must lie inside {self}")
        return self._view(views.along(self.node.shape, dim, count, views.place(dim) + first))

    def pad(self, widths: Sequence[Any], value: Number = 0) -> Tensor:
        """`value` around the tensor: a (before, after) pair for each dimension, or PyTorch's flat
        list (last dimension first). Negative widths cut off."""
        pairs = [tuple(w) if isinstance(w, (tuple, list)) else w for w in widths]
        if not all(isinstance(pair, tuple) for pair in pairs):
            flat = list(zip(pairs[::2], pairs[1::2]))[::-1]
            pairs = [(0, 0)] * (self.ndim - len(flat)) + flat
        if len(pairs) != self.ndim:
            raise ShapeError(f"pad: {len(pairs)} pairs of widths for {self}")
        size = self.graph.size
        sizes = [(size(before), size(after)) for before, after in pairs]
        view = views.pad(self.node.shape, sizes, self._number(value))
        return self._view(self._checked(view))

    def flip(self, *dims: Any) -> Tensor:
        """Backwards along these dimensions."""
        return self._view(views.flip(self.node.shape, [self._dim(dim) for dim in _dims(dims)]))

    def roll(self, shift: DimLike, dim: int) -> Tensor:
        """Element i goes to (i + shift) mod n along a dimension."""
        return self._view(views.roll(self.node.shape, self.graph.size(shift), self._dim(dim)))

    def repeat(self, *counts: Any) -> Tensor:
        """The tensor side by side, counts[d] times along dimension d (as torch.Tensor.repeat)."""
        wanted = tuple(self.graph.size(count) for count in _dims(counts))
        return self._view(views.repeat(self.node.shape, wanted))

    def tile(self, *counts: Any) -> Tensor:
        """As repeat; missing counts at the front are 1."""
        wanted = _dims(counts)
        return self.repeat((1,) * (self.ndim - len(wanted)) + wanted)

    def repeat_interleave(self, count: DimLike, dim: int) -> Tensor:
        """Each element `count` times in a row along a dimension."""
        size, dim = self.graph.size(count), self._dim(dim)
        return self._view(views.repeat_interleave(self.node.shape, size, dim))

    def dilate(self, step: DimLike, dim: int, value: Number = 0) -> Tensor:
        """step - 1 elements of `value` between neighbours along a dimension."""
        dim, size = self._dim(dim), self.graph.size(step)
        return self._view(views.dilate(self.node.shape, dim, size, self._number(value)))

    def unfold(self, dim: int, size: DimLike, step: DimLike = 1) -> Tensor:
        """Windows along a dimension, as a new last dimension (as torch.Tensor.unfold)."""
        return self.windows([dim], [size], [step])

    def windows(
        self, dims: Sequence[int], sizes: Sequence[DimLike], steps: Sequence[DimLike],
        dilations: Sequence[DimLike] | None = None,
    ) -> Tensor:  # fmt: skip
        """Sliding windows along `dims`; what is inside them becomes new last dimensions."""
        where = [self._dim(dim) for dim in dims]
        taps, strides = list(map(self.graph.size, sizes)), list(map(self.graph.size, steps))
        spread = list(map(self.graph.size, dilations or [1] * len(where)))
        for dim, size, dilation in zip(where, taps, spread):
            room = self.node.shape[dim] - dilation * (size - 1) - 1
            self.graph.require(room, f"a window of {size} (dilation {dilation}) must fit {self}")
        return self._view(views.windows(self.node.shape, where, taps, strides, spread))

    def diagonal(self, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
        """The elements (i, i + offset) of two dimensions, as a new last dimension."""
        dims = self._dim(first), self._dim(second)
        return self._view(self._simple(views.diagonal(self.node.shape, offset, *dims)))

    # ---- help for the above

    def _dim(self, dim: int, count: int | None = None) -> int:
        """A dimension counted from the front."""
        rank = self.ndim if count is None else count
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise ShapeError(f"no dimension {dim} in {self}")
        return dim % rank

    def _number(self, value: Number) -> Number:
        """A fill value as the dtype holds it."""
        literal: Number = self.graph.literal(value, self.dtype).node.attribute
        return literal

    def _checked(self, view: View) -> View:
        for size in view.shape:
            self.graph.require(size, f"size {size} of {text(view.shape)} must not be negative")
        return view

    def _simple(self, view: View) -> View:
        """With minima in the shape resolved where the bounds of sizes decide them."""
        shape = tuple(self.graph.space.simplify(size) for size in view.shape)
        return View(shape, view.index, view.conditions, view.fill)

    # ---- Python's protocol

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no value while the graph is recorded; use where()")

    def __len__(self) -> int:
        if not self.ndim or not self.node.shape[0].is_constant:
            raise DimError(f"{self} has no constant length")
        return self.node.shape[0].constant

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    if TYPE_CHECKING:  # methods that luminal.ops registers

        def __getattr__(self, name: str) -> Any: ...

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

    def __neg__(self) -> Tensor:
        return _call("neg", self)

    def __abs__(self) -> Tensor:
        return _call("abs", self)

    def __invert__(self) -> Tensor:
        return _call("bitwise_not", self)
