"""Static shape and dtype of every node kind; what does not fit is refused when it is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DTypeError, ShapeError
from .dtype import DType, boolean, i64
from .loops import check_loop, parts_of, result_of
from .node import REDUCE_OPS, Loop, Node, Scan, Scatter, Shape, View
from .scalars import SCALARS, Scalar

Result = tuple[Shape, DType]


def text(shape: Shape) -> str:
    """A shape as users write it."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def describe(nodes: tuple[Node, ...]) -> str:
    """Shapes and dtypes of operands, for messages."""
    return ", ".join(f"{n.dtype}{text(n.shape)}" for n in nodes)


def infer(op: str, inputs: tuple[Node, ...], attribute: Any, dtype: DType | None) -> Result:
    """Shape and dtype of a node that has inputs. Raises ShapeError or DTypeError."""
    row = SCALARS.get(op)
    if row is not None and attribute is None:  # max and min of two; with dims: reductions
        return _scalar(row, inputs, dtype)
    rule = _RULES.get(op)
    if rule is None:
        raise ShapeError(f"there is no operation {op!r}")
    return rule(op, inputs, attribute)


def check_dim(op: str, dim: int, node: Node) -> None:
    """dim is a dimension of the node, counted from 0."""
    if not 0 <= dim < len(node.shape):
        raise ShapeError(f"{op}: no dimension {dim} in a tensor of shape {text(node.shape)}")


def _scalar(row: Scalar, inputs: tuple[Node, ...], dtype: DType | None) -> Result:
    if len(inputs) != row.arity:
        raise ShapeError(f"{row.name} takes {row.arity} operands, got {len(inputs)}")
    first = inputs[0]
    if any(n.shape != first.shape for n in inputs):
        raise ShapeError(f"{row.name}: operands must have one shape, got {describe(inputs)}")
    operands = inputs
    if row.name == "select":
        if first.dtype is not boolean:
            raise DTypeError(f"select: the condition must be bool, got {describe(inputs)}")
        operands = inputs[1:]
    common = operands[0].dtype
    if any(n.dtype is not common for n in operands):
        raise DTypeError(f"{row.name}: operands must have one dtype, got {describe(inputs)}")
    if row.domain == "float" and not common.is_float:
        raise DTypeError(f"{row.name} needs a float dtype, got {common}; cast it first")
    if row.domain == "integer" and common.is_float:
        raise DTypeError(f"{row.name} needs an integer or bool dtype, got {common}")
    return first.shape, _scalar_dtype(row, common, dtype)


def _scalar_dtype(row: Scalar, common: DType, given: DType | None) -> DType:
    if row.result == "bool":
        return boolean
    if row.result == "given":
        if given is None:
            raise DTypeError(f"{row.name}: say which dtype the result has")
        return given
    return common


def _reduction(op: str, inputs: tuple[Node, ...], dims: tuple[int, ...]) -> Result:
    (source,) = inputs
    for dim in dims:
        check_dim(op, dim, source)
    if tuple(sorted(set(dims))) != dims or not dims:
        raise ShapeError(f"{op}: dimensions must be distinct and in order, got {dims}")
    kept = (size for dim, size in enumerate(source.shape) if dim not in dims)
    return tuple(kept), source.dtype


def _scan(op: str, inputs: tuple[Node, ...], scan: Scan) -> Result:
    (source,) = inputs
    check_dim(f"scan {scan.op}", scan.dim, source)
    if scan.op not in REDUCE_OPS:
        raise ShapeError(f"scan: no operation {scan.op!r}; there are {', '.join(REDUCE_OPS)}")
    return source.shape, source.dtype


def _view(op: str, inputs: tuple[Node, ...], view: View) -> Result:
    (source,) = inputs
    if len(view.index) != len(source.shape):
        raise ShapeError(
            f"view: {len(view.index)} indices for a tensor of shape {text(source.shape)}"
        )
    if any(size.is_constant and size.constant < 0 for size in view.shape):
        raise ShapeError(f"a tensor of the negative shape {text(view.shape)}")
    if (view.fill is None) != (not view.conditions):
        raise ShapeError("view: a fill value goes with conditions, and conditions with a fill")
    return view.shape, source.dtype


def _check_indices(op: str, data: Node, index: Node, dim: int) -> None:
    check_dim(op, dim, data)
    if not index.dtype.is_integer:
        raise DTypeError(f"{op}: indices must be integers, got {index.dtype}")
    expected = data.shape[:dim] + index.shape[dim : dim + 1] + data.shape[dim + 1 :]
    if len(index.shape) != len(data.shape) or index.shape != expected:
        raise ShapeError(
            f"{op} along dimension {dim}: the other dimensions must be equal, "
            f"got {describe((data, index))}"
        )


def _gather(op: str, inputs: tuple[Node, ...], dim: int) -> Result:
    source, index = inputs
    _check_indices(op, source, index, dim)
    return index.shape, source.dtype


def _scatter(op: str, inputs: tuple[Node, ...], scatter: Scatter) -> Result:
    base, index, values = inputs
    _check_indices(op, base, index, scatter.dim)
    if index.shape != values.shape:
        raise ShapeError(f"scatter: one index for each value, got {describe((index, values))}")
    if base.dtype is not values.dtype:
        raise DTypeError(f"scatter: values must have the dtype of base: {describe(inputs)}")
    if scatter.mode not in ("set", *REDUCE_OPS):
        raise ShapeError(f"scatter: no mode {scatter.mode!r}; there are set, sum, max, min, prod")
    return base.shape, base.dtype


def _loop(op: str, inputs: tuple[Node, ...], loop: Loop) -> Result:
    check_loop(parts_of(loop, inputs))
    return (), i64


def _result(op: str, inputs: tuple[Node, ...], number: int) -> Result:
    return result_of(inputs[0], number)


_RULES: dict[str, Callable[[str, tuple[Node, ...], Any], Result]] = {
    **dict.fromkeys(REDUCE_OPS, _reduction),
    "scan": _scan,
    "view": _view,
    "gather": _gather,
    "scatter": _scatter,
    "loop": _loop,
    "result": _result,
}
