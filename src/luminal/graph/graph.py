"""The graph that a user records: sources, sizes, nodes made once, outputs, states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DimError, DTypeError, InputError, Location, ShapeError, user_location
from . import views
from .display import display
from .dtype import DType, i64, wrapped
from .dtype import dtype as dtype_of
from .index import Index
from .infer import infer, text
from .node import Composite, Loop, Node, Number, Shape, Source, Variable, View, number_key, position
from .parse import DimLike, check_name, divisors, index_of, usual_sizes, whole
from .scope import SCOPE
from .space import Space
from .tensor import Tensor
from .values import constant

if TYPE_CHECKING:
    from ..compiler import Executable

DEFAULT_BOUNDS = (1, 2**31 - 1)


@dataclass(frozen=True)
class Requirement:
    """index >= 0 must hold for the sizes of a run; `message` says what it means."""

    index: Index
    message: str
    location: Location


class Graph:
    """A static graph of primitives. Nodes are immutable and made once: equal means identical.

    space: the bounds of all sizes. nodes: in order of recording, inputs first. outputs: tensors
    marked by `Tensor.output`. states: (state, new value) pairs. values: what `Tensor.set` stored.
    composites: functions that nodes are results of. locations: the user's source line of each node;
    scopes: the dotted name of the module that recorded it. requirements: on the sizes of a run.

    >>> cx = luminal.Graph()
    >>> x = cx.tensor((2,), name="x")
    >>> y = (x * 2.0).output()
    >>> cx.compile()(np.float32([1, 2]))
    array([2., 4.], dtype=float32)
    """

    def __init__(self) -> None:
        from .. import ops  # noqa: F401  (what tensors can do)

        self.space = Space()
        self.nodes: list[Node] = []
        self.sources: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.output_names: dict[Node, str] = {}
        self.states: list[tuple[Tensor, Tensor]] = []
        self.values: dict[Node, np.ndarray] = {}
        self.composites: dict[Node, Composite] = {}
        self.usual: dict[str, tuple[int, ...]] = {}  # size -> its usual values, ascending
        self.locations: dict[Node, Location] = {}
        self.scopes: dict[Node, str] = {}
        self.requirements: list[Requirement] = []
        self.folded: dict[Any, Node] = {}  # constants that passes have made, by their values
        self._made: dict[Any, Node] = {}
        self._tensors: dict[Node, Tensor] = {}
        self._numbers: Counter[str] = Counter()  # of sources, by kind
        self._spaces: dict[Shape, Space] = {}
        self._normal: dict[Any, View | None] = {}  # views by what they were made of

    def __repr__(self) -> str:
        counts = (self.inputs, "inputs"), (self.parameters, "parameters"), (self.nodes, "nodes")
        parts = [f"{len(listed)} {what}" for listed, what in counts]
        return f"Graph({', '.join(parts)}, {len(self.outputs)} outputs)"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InputError("a graph is not copied: record it again, or compile it as it is")

    # ---- sources

    def tensor(
        self, shape: Sequence[DimLike] | DimLike, dtype: Any = "f32", name: str | None = None
    ) -> Tensor:
        """An input: given at each run. A dimension is an int, a size's name, or an expression."""
        return self._given("input", shape, dtype, name)

    def parameter(
        self, shape: Sequence[DimLike] | DimLike, dtype: Any = "f32", name: str | None = None
    ) -> Tensor:
        """An input that changes seldom: packed once each time it is set."""
        return self._given("parameter", shape, dtype, name)

    def constant(self, array: Any, name: str | None = None) -> Tensor:
        """Values known at compile time. Python floats become f32, Python ints i64."""
        value, dtype = constant(array)
        shape = tuple(Index.of(size) for size in value.shape)
        return self._source("constant", shape, dtype, name, value)

    def _given(
        self, kind: str, shape: Sequence[DimLike] | DimLike, dtype: Any, name: str | None
    ) -> Tensor:
        if isinstance(dtype, (int, Index)):
            raise ShapeError(f"a shape is one argument: (({shape}, {dtype}, ...))")
        return self._source(kind, self.shape(shape), dtype_of(dtype), name)

    def _source(
        self, kind: str, shape: Shape, dtype: DType, name: str | None,
        value: np.ndarray | None = None,
    ) -> Tensor:  # fmt: skip
        number, self._numbers[kind] = self._numbers[kind], self._numbers[kind] + 1
        node = self._new("input", (), Source(name or f"{kind}{number}", kind, value), shape, dtype)
        self.sources.append(self.wrap(node))
        return self.sources[-1]

    def rename(self, tensor: Tensor, name: str) -> None:
        """Give a source another name (modules name their parameters when they are assembled)."""
        if tensor.node.op != "input":
            raise InputError(f"only inputs, parameters and constants have names, not {tensor}")
        tensor.node.attribute = replace(tensor.node.attribute, name=name)

    @property
    def inputs(self) -> list[Tensor]:
        """What is given at each run, in order of recording."""
        return [t for t in self.sources if _kind(t) == "input"]

    @property
    def parameters(self) -> list[Tensor]:
        """What is set seldom, in order of recording."""
        return [t for t in self.sources if _kind(t) == "parameter"]

    @property
    def constants(self) -> list[Tensor]:
        """What is known at compile time."""
        return [t for t in self.sources if _kind(t) == "constant"]

    # ---- sizes

    def dim(
        self, name: str, low: int | None = None, high: int | None = None,
        hint: int | Sequence[int] | None = None,
    ) -> Index:  # fmt: skip
        """Declare a run-time size in low .. high. Bounds may be narrowed later, not widened; those
        not given are what they are (1 and 2^31 - 1 where the size is new).

        hint: the usual value, for the compiler's estimates; the program is right for all. Several:
        kernels are compiled for each; one serves the sizes up to its own, the last all beyond.
        Raises DimError for what is no name, no integer, or outside the bounds.
        """
        check_name(name)
        old = self.space.sizes.get(name)
        least, most = old or DEFAULT_BOUNDS
        low = int(least) if low is None else whole(f"dim {name}: a bound", low)
        high = int(most) if high is None else whole(f"dim {name}: a bound", high)
        if not 0 <= low <= high:
            raise DimError(f"dim {name}: bounds {low} .. {high} are not 0 <= low <= high")
        if old is not None and (low < old[0] or high > old[1]):
            raise DimError(
                f"dim {name}: {low} .. {high} is wider than {old[0]} .. {old[1]}, which is in use; "
                "declare a size before its first use"
            )
        usual = () if hint is None else usual_sizes(name, hint)
        if any(not low <= value <= high for value in usual):
            raise DimError(f"dim {name}: the hint {hint} is not in {low} .. {high}")
        if usual:
            self.space.hints[name], self.usual[name] = usual[0], usual
        if old != (low, high):
            self._declare(name, low, high)
        return Index.of(name)

    def _declare(self, name: str, low: int, high: int) -> None:
        self.space.add_size(name, low, high)
        self._spaces.clear()
        self._normal.clear()

    def size(self, value: DimLike) -> Index:
        """A user's size as an Index in normal form; names not yet declared get the default bounds,
        divisors are positive or required to be at run time."""
        index = index_of(value)
        for name in sorted(index.names()):
            if name not in self.space.sizes:
                self._declare(name, *DEFAULT_BOUNDS)
        self._require_divisors(index)
        return self.space.simplify(index)

    def _require_divisors(self, index: Index) -> None:
        for divisor in divisors(index):
            self.require(divisor - 1, f"the divisor {divisor} of {index} must be positive")

    def shape(self, shape: Sequence[DimLike] | DimLike) -> Shape:
        """A user's shape; sizes are proven, or required at run time, to be at least 0."""
        if isinstance(shape, (int, str, Index)):
            shape = (shape,)
        sizes = tuple(self.size(value) for value in shape)
        for size in sizes:
            self.require(size, f"size {size} of shape {text(sizes)} must not be negative")
        return sizes

    def require(self, index: Index, message: str) -> None:
        """index >= 0: proven, or checked at each run. Raises ShapeError where it never holds."""
        low, high = self.space.bounds(index)
        if high < 0:
            raise ShapeError(message)
        if low < 0 and all(index is not known.index for known in self.requirements):
            self.requirements.append(Requirement(index, message, user_location()))
            self.space.assume(index)

    def positions(self, shape: Shape) -> Space:
        """What is known about sizes and the positions i0, i1, ... inside a shape."""
        space = self._spaces.get(shape)
        if space is None:
            axes = {position(dim): size for dim, size in enumerate(shape)}
            space = self._spaces[shape] = Space(self.space.sizes, axes)
        return space

    # ---- nodes

    def wrap(self, node: Node) -> Tensor:
        """The one Tensor of a node."""
        tensor = self._tensors.get(node)
        if tensor is None:
            tensor = self._tensors[node] = Tensor(self, node)
        return tensor

    def add(
        self, op: str, inputs: tuple[Node, ...] = (), attribute: Any = None,
        dtype: DType | None = None,
    ) -> Node:  # fmt: skip
        """The node of an operation with inputs; made once. `dtype` is for casts only."""
        dtype = dtype if op == "cast" else None
        key = (op, inputs, _key(attribute), dtype)
        node = self._made.get(key)
        if node is None:
            shape, result = infer(op, inputs, attribute, dtype)
            node = self._made[key] = self._new(op, inputs, attribute, shape, result)
        return node

    def apply(
        self, op: str, tensors: Sequence[Tensor], dtype: Any = None, attribute: Any = None
    ) -> Tensor:
        """As `add`, on tensors: `graph.apply("select", [condition, a, b])`."""
        if any(tensor.graph is not self for tensor in tensors):
            raise InputError(f"{op}: operands belong to different graphs")
        wanted = None if dtype is None else dtype_of(dtype)
        return self.wrap(self.add(op, tuple(t.node for t in tensors), attribute, wanted))

    def literal(self, value: Number, dtype: Any = None) -> Tensor:
        """One number, shape (); rounded to its dtype (by default that of the Python value)."""
        kind = dtype_of(type(value) if dtype is None else dtype)
        number = exact(value, kind)
        return self.wrap(self._once(number_key(number), "literal", number, (), kind))

    def iota(
        self, shape: Sequence[DimLike] | DimLike, index: DimLike | str, dtype: Any = i64
    ) -> Tensor:
        """The value of an index over the positions i0, i1, ... (and sizes) at each point."""
        sizes, kind = self.shape(shape), dtype_of(dtype)
        value = index_of(index, positions=True)
        known = {position(dim) for dim in range(len(sizes))} | self.space.sizes.keys()
        if unknown := value.names() - known:
            raise DimError(f"iota: {sorted(unknown)}: neither size nor position of {text(sizes)}")
        space = self.positions(sizes)
        for divisor in divisors(value):
            if space.bounds(divisor - 1)[0] < 0 and divisor.names() - self.space.sizes.keys():
                raise DimError(f"iota: the divisor {divisor} of {value} may not be positive")
        self._require_divisors(value)
        if not kind.is_integer:
            raise DTypeError(f"iota has an integer dtype, not {kind}; cast it")
        ones = {position(d): views.ZERO for d, size in enumerate(sizes) if size == 1}
        return self.wrap(self._iota(sizes, space.simplify(space.substitute(value, ones)), kind))

    def _iota(self, shape: Shape, index: Index, dtype: DType) -> Node:
        index = Index.build({monomial: wrapped(c) for monomial, c in index.terms})
        return self._once((shape, index), "iota", index, shape, dtype)

    def _once(self, key: Any, op: str, attribute: Any, shape: Shape, dtype: DType) -> Node:
        """A node without inputs, made once."""
        whole = (op, key, dtype)
        if whole not in self._made:
            self._made[whole] = self._new(op, (), attribute, shape, dtype)
        return self._made[whole]

    def variable(self, shape: Shape, dtype: DType) -> Node:
        """What the body of a loop calls a value that it is given at each step."""
        return self._new("variable", (), Variable(len(self.nodes), shape, dtype), shape, dtype)

    def loop(self, inputs: tuple[Node, ...], loop: Loop) -> list[Tensor]:
        """The results of a loop; see `node.Loop` for its inputs."""
        node = self.add("loop", inputs, loop)
        return [
            self.wrap(self.add("result", (node,), number))
            for number in range(loop.carried + loop.rows)
        ]

    def moved(self, source: Node, view: View) -> Node:
        """A movement of a node, in normal form and composed with the views below it."""
        view = views.sized(self.space, view)
        space = self.positions(view.shape)
        plain = self._remembered(view.key, views.normal, space, view)
        if plain is None:  # its conditions never hold
            assert view.fill is not None
            fill = self.literal(view.fill, source.dtype).node
            return self.add("view", (fill,), View(view.shape, ()))
        if source.op == "view":
            both = plain.key, source.attribute.key
            whole = self._remembered(both, views.compose, space, plain, source.attribute)
            if whole is not None:
                return self.moved(source.inputs[0], whole)
        if views.is_identity(plain, source.shape):
            return source
        if source.op == "iota" and not plain.conditions:
            mapping = {position(dim): index for dim, index in enumerate(plain.index)}
            return self._iota(view.shape, space.substitute(source.attribute, mapping), source.dtype)
        return self.add("view", (source,), plain)

    def _remembered(self, key: Any, make: Callable[..., View | None], *given: Any) -> View | None:
        """What `make` gives; made once: layers that repeat move their tensors in the same ways."""
        if key not in self._normal:
            self._normal[key] = make(*given)
        return self._normal[key]

    def _new(
        self, op: str, inputs: tuple[Node, ...], attribute: Any, shape: Shape, dtype: DType
    ) -> Node:
        node = Node(op, inputs, attribute, shape, dtype, len(self.nodes))
        self.nodes.append(node)
        self.locations[node], self.scopes[node] = user_location(), SCOPE.get()
        return node

    # ---- results

    def donate(self, state: Tensor, new: Tensor) -> None:
        """After each run the input `state` holds the value of `new` (a KV cache, in place)."""
        if state.graph is not self or state.node.op != "input" or _kind(state) == "constant":
            raise InputError(f"a state is an input or a parameter of this graph, not {state}")
        if new.node.shape != state.node.shape:
            raise ShapeError(f"donate: a state of {state} cannot become {new}")
        if new.dtype is not state.dtype:
            raise DTypeError(f"donate: a state of {state} cannot become {new}; cast it")
        if any(state is known for known, _ in self.states):
            raise InputError(f"{state} is donated already")
        self.states.append((state, new))

    def display(self) -> str:
        """The graph as text, one line a node that an output or a state needs."""
        return display(self)

    def _repr_html_(self) -> str:
        """For notebooks: the summary, and the nodes folded below it."""
        text = escape(self.display())
        return f"<details><summary>{escape(repr(self))}</summary><pre>{text}</pre></details>"

    def view(self, path: str | Path) -> Path:
        """Write the graph as one HTML page. See `luminal.view.page`."""
        from ..view import write_page

        return write_page(path, self)

    def compile(
        self, device: str = "auto", search: Any = 0, precision: str = "f32",
        threads: int | None = None, seed: int = 0, passes: Any = None, database: Any = None,
        cache: Any = None, check: bool = False, flush_denormals: bool = False,
    ) -> Executable:  # fmt: skip
        """The program, compiled: the one call from here upwards. See `luminal.compiler`."""
        from ..compiler import compile_graph

        return compile_graph(
            self, device, search, precision, threads, seed, passes=passes, database=database,
            cache=cache, check=check, flush_denormals=flush_denormals,
        )  # fmt: skip


def exact(value: Number, dtype: DType) -> Number:
    """A number as the dtype holds it. Raises DTypeError where an integer does not fit."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return float(np.asarray(float(value)).astype(dtype.numpy))
    if not dtype.lowest <= value <= dtype.highest or int(value) != value:
        raise DTypeError(f"{value!r} is no {dtype}")
    return int(value)


def _kind(tensor: Tensor) -> str:
    return str(tensor.node.attribute.kind)


def _key(attribute: Any) -> Any:
    """What tells attributes apart."""
    return attribute.key if isinstance(attribute, View) else attribute
