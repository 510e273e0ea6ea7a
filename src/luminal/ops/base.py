"""What every op needs: operands of one shape and dtype, literals, dimensions, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, TypeAlias, TypeVar

from ..errors import DTypeError, InputError, ShapeError
from ..graph.dtype import DType, boolean, dtype, f32, i64, promote
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.infer import text
from ..graph.node import Composite, Number
from ..graph.tensor import Tensor

Value: TypeAlias = Tensor | int | float | bool
Size: TypeAlias = int | str | Index
Dims: TypeAlias = int | Sequence[int] | None
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


# ---- literals


def literal(graph: Graph, value: Number, kind: DType) -> Tensor:
    """A scalar tensor; integers wrap around as a cast does."""
    if kind.is_integer:
        bits = 8 * kind.bytes
        value = int(value) & ((1 << bits) - 1)
        if kind.is_signed and value >> (bits - 1):
            value -= 1 << bits
        return graph.literal(value, kind)
    return graph.literal(bool(value) if kind is boolean else float(value), kind)


def holding(value: Any, kind: DType) -> Any:
    """The value; as in PyTorch, an integer dtype refuses numbers beyond it (below 0 unsigned ones
    wrap around). Raises InputError."""
    if kind.is_integer and not isinstance(value, Tensor):
        low = kind.lowest if kind.is_signed else -kind.highest
        if not low <= value <= kind.highest:
            raise InputError(f"{value} is no {kind}: it has {kind.lowest} to {kind.highest}")
    return value


def full_like(like: Tensor, value: Number, kind: Any = None) -> Tensor:
    """A tensor of one value, with the shape (and the dtype, if none is given) of another."""
    wanted = like.dtype if kind is None else dtype(kind)
    return literal(like.graph, value, wanted).expand(like.shape)


# ---- promotion and broadcasting, as PyTorch has them


def number_dtype(value: Number) -> DType:
    """The dtype that a Python number stands for."""
    if isinstance(value, bool):
        return boolean
    return i64 if isinstance(value, int) else f32


def result_type(*values: Value) -> DType:
    """As `torch.result_type`: tensors, then scalar tensors, then numbers, unless of higher kind."""
    groups: list[DType | None] = [None, None, None]
    for value in values:
        if isinstance(value, Tensor):
            rank, kind = (0 if value.ndim else 1), value.dtype
        else:
            rank, kind = 2, number_dtype(value)
        known = groups[rank]
        groups[rank] = kind if known is None else promote(known, kind)
    result = _prefer(_prefer(groups[0], groups[1]), groups[2])
    assert result is not None
    return result


def _prefer(higher: DType | None, lower: DType | None) -> DType | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.is_float:
        return higher
    return promote(higher, lower) if higher is boolean or lower.is_float else higher


def same_size(a: Size, b: Size) -> bool:
    """The two sizes are equal for all values of the run-time sizes."""
    return Index.of(a) is Index.of(b)


def of_shape(x: Tensor, shape: Sequence[Size], what: str) -> Tensor:
    """x, whose sizes are these, or must be in each run. Raises ShapeError."""
    sizes = tuple(map(x.graph.size, shape))
    message = f"{what} must have the shape {text(sizes)}, not {text(x.node.shape)}"
    if x.ndim != len(sizes):
        raise ShapeError(message)
    for d, (own, size) in enumerate(zip(x.node.shape, sizes)):
        if own is not size:
            x.graph.require(own - size, message)
            x.graph.require(size - own, message)
            x = x.narrow(d, 0, size)
    return x


def broadcast_shapes(*shapes: Sequence[Size]) -> tuple[Index, ...]:
    """The common shape: dimensions are aligned at the end, size 1 stretches."""
    result = [Index.of(1)] * max(map(len, shapes), default=0)
    for shape in shapes:
        offset = len(result) - len(shape)
        for d, size in enumerate(map(Index.of, shape), offset):
            if size == 1 or size is result[d]:
                continue
            if result[d] != 1:
                texts = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
                raise ShapeError(f"shapes {texts} do not broadcast: dimension {d} differs")
            result[d] = size
    return tuple(result)


def broadcast(*tensors: Tensor) -> list[Tensor]:
    """The tensors, expanded to their common shape."""
    first = tensors[0].node.shape
    if all(t.node.shape == first for t in tensors):
        return list(tensors)
    shape = broadcast_shapes(*(t.node.shape for t in tensors))
    return [t if t.node.shape == shape else t.expand(shape) for t in tensors]


def tensor_of(graph: Graph, value: Value, kind: DType) -> Tensor:
    """The value as a tensor of a dtype."""
    if isinstance(value, Tensor):
        return value if value.dtype is kind else value.cast(kind)
    return literal(graph, value, kind)


def magnitude(x: Tensor) -> Tensor:
    """|x| of a signed tensor where the sign of 0 does not matter (comparisons, exponents): `abs`
    costs one operation more for it."""
    return x.graph.apply("max", [x, -x])


def graph_of(*values: Any) -> Graph:
    """The graph of the first tensor."""
    for value in values:
        if isinstance(value, Tensor):
            return value.graph
    raise DTypeError("this operation needs at least one tensor")


def operands(*values: Value, kind: DType | None = None) -> list[Tensor]:
    """The values as tensors of one shape and one dtype."""
    graph, common = graph_of(*values), kind or result_type(*values)
    return broadcast(*(tensor_of(graph, v, common) for v in values))


def binary(op: str, a: Value, b: Value, kind: DType | None = None) -> Tensor:
    """A primitive of two values, in the dtype given or their common one."""
    x, y = operands(a, b, kind=kind)
    return x.graph.apply(op, [x, y])


def floating(function: AnyFunction) -> AnyFunction:
    """Compute in f32 or f64: integers become f32; f16 and bf16 are widened, and the result, which
    has the dtype of the first argument, is rounded once."""

    def widen(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype.is_float and value.dtype.bytes < 4:
            return value.cast(f32)
        return value

    @wraps(function)
    def wrapped(first: Tensor, *arguments: Any, **options: Any) -> Any:
        kept = first.dtype if first.dtype.is_float else f32
        first = widen(first) if first.dtype.is_float else first.cast(f32)
        result = function(
            first, *map(widen, arguments), **{k: widen(v) for k, v in options.items()}
        )
        return result.cast(kept) if kept.bytes < 4 else result

    return wrapped  # type: ignore[return-value]


def promoting(function: AnyFunction) -> AnyFunction:
    """As `floating`, but the result has the common dtype of the first two arguments."""
    inner, given = floating(function), signature(function)
    second = list(given.parameters)[1]

    @wraps(function)
    def wrapped(first: Tensor, *arguments: Any, **options: Any) -> Any:
        other = given.bind(first, *arguments, **options).arguments[second]
        return inner(first.cast(result_type(first, other)), *arguments, **options)

    return wrapped  # type: ignore[return-value]


def composite(function: AnyFunction) -> AnyFunction:
    """Note in the graph that the result is this function of its tensors, under its name: its
    derivative is simpler than those of its parts."""
    name = function.__name__.removeprefix("_")

    @wraps(function)
    def wrapped(*arguments: Any) -> Any:
        result = function(*arguments)
        tensors = tuple(a.node for a in arguments if isinstance(a, Tensor))
        options = tuple(a for a in arguments if not isinstance(a, Tensor))
        if result.node not in tensors:
            made = Composite(name, tensors, options)
            result.graph.composites.setdefault(result.node, made)
        return result

    return wrapped  # type: ignore[return-value]


def named(x: Tensor, known: Composite) -> Tensor:
    """x under a name that nothing else has, as the result of this."""
    name = x
    while True:  # one cast more is `stop_gradient` of it
        name = x.graph.apply("cast", [x.graph.apply("cast", [name], x.dtype)], x.dtype)
        if x.graph.composites.setdefault(name.node, known) == known:
            return name


# ---- dimensions


def dim_of(tensor: Tensor, dim: int, extra: int = 0) -> int:
    """The dimension counted from the front; `extra` for a dimension about to be added."""
    count = tensor.ndim + extra
    if not -max(count, 1) <= dim < max(count, 1):
        raise ShapeError(f"dimension {dim} of a tensor with {count} dimensions")
    return dim + count if dim < 0 else dim


def dims_of(tensor: Tensor, dims: Dims) -> tuple[int, ...]:
    """The dimensions counted from the front; all of them for None, or where none is listed."""
    listed = () if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    if not listed:
        return tuple(range(tensor.ndim))
    if tensor.ndim == 0:
        return ()
    result = tuple(dim_of(tensor, d) for d in listed)
    if len(set(result)) < len(result):
        raise ShapeError(f"dimensions {listed} name one dimension twice")
    return result


def extent(tensor: Tensor, dim: int) -> Index:
    """The size of a dimension (counted from the front)."""
    return tensor.node.shape[dim]


def count(tensor: Tensor, dims: Sequence[int]) -> Index:
    """How many elements the dimensions span."""
    total = Index.of(1)
    for d in dims:
        total = total * extent(tensor, d)
    return total


def static(size: Size, what: str) -> int:
    """The size as a number; an error where it depends on the run."""
    found = Index.of(size)
    if not found.is_constant:
        raise ShapeError(f"{what} must be a fixed size, not {found}")
    return found.constant


def per_dim(
    value: int | Sequence[int], n: int, what: str, least: int | None = 1
) -> tuple[int, ...]:
    """One number, of at least `least`, for each of n spatial dimensions."""
    numbers = tuple(value) if isinstance(value, Iterable) else (value,) * n
    numbers = numbers * n if len(numbers) == 1 else numbers
    whole = all(hasattr(number, "__index__") for number in numbers)
    if len(numbers) != n or not whole:
        raise ShapeError(f"{what} {value!r} for {n} spatial dimensions")
    if least is not None and any(number < least for number in numbers):
        raise ShapeError(f"{what} {value!r}: at least {least} is expected")
    return numbers


def positions(like: Tensor, dim: int, kind: Any = "i64") -> Tensor:
    """The position along a dimension, at every element of a tensor."""
    return like.graph.iota(like.shape, Index.of(f"i{dim}"), kind)


def size_value(graph: Graph, size: Index, kind: DType) -> Tensor:
    """A size (known at run time) as a scalar tensor."""
    if size.is_constant:
        return literal(graph, size.constant, kind)
    number = graph.iota((), size, "i64")
    return number if kind is i64 else number.cast(kind)


def reciprocal_of_size(graph: Graph, size: Index, kind: DType) -> Tensor:
    """1 / size as a scalar tensor; infinite for 0."""
    if size.is_constant:
        return literal(graph, 1 / size.constant if size.constant else float("inf"), kind)
    return graph.apply("recip", [size_value(graph, size, kind)])
