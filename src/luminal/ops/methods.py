"""Methods of tensors: the public operations that take a tensor first, and a few more."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import numpy as np

from ..errors import Unsupported
from ..graph.dtype import DType, bf16, boolean, dtype, f16, f32, f64, i8, i16, i32, i64, u8
from ..graph.index import Index
from ..graph.tensor import Tensor, register_method
from . import movement
from .base import Value, count
from .logic import where
from .spelling import parameters, understands

DTYPE_METHODS = {
    "float": f32, "double": f64, "half": f16, "bfloat16": bf16, "long": i64, "int": i32,
    "short": i16, "char": i8, "byte": u8, "bool": boolean,
}  # fmt: skip

SHOWN = 1_000_000  # elements of all nodes that a picture in a notebook may compute

# other names of operations, PyTorch's and NumPy's
ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "clip": "clamp", "divide": "div",
    "fix": "trunc", "ger": "outer", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "moveaxis": "movedim", "multiply": "mul", "negative": "neg",
    "not_equal": "ne", "row_stack": "vstack", "sgn": "sign", "subtract": "sub",
    "swapaxes": "transpose", "swapdims": "transpose", "true_divide": "div",
    "unsafe_chunk": "chunk", "unsafe_split": "split", "unsafe_split_with_sizes": "split",
}  # fmt: skip


def register(operations: Mapping[str, Any], movements: Mapping[str, Any]) -> None:
    """Bind these functions, movements first, where their first parameter is a tensor."""
    for name, function in {"T": movement.T, "H": movement.T, "mT": movement.mT,
                           "mH": movement.mT}.items():  # fmt: skip
        setattr(Tensor, name, property(function))
    own = {n: f for n, f in movements.items() if getattr(f, "__module__", "") == movement.__name__}
    for name, function in [*own.items(), *operations.items()]:
        public = inspect.isfunction(function) and not name.startswith("_")
        if public and _takes_tensor(function) and not hasattr(Tensor, name):
            register_method(name, understands(function))
    for name, kind in DTYPE_METHODS.items():
        register_method(name, _caster(kind))
    for method in EXTRA:
        register_method(method.__name__, method)
    register_method("polygamma", lambda x, n: operations["polygamma"](n, x))
    for name in ("itemsize", "nbytes"):
        setattr(Tensor, name, property(globals()[f"_{name}"]))
    for name, method in {"nelement": numel, "ndimension": dim, "astype": to, "split_with_sizes":
                         operations["split"], "where": _where_method}.items():  # fmt: skip
        register_method(name, method)
    for name in ("conj", "conj_physical", "resolve_conj", "resolve_neg", "cpu"):
        register_method(name, _same)
    setattr(Tensor, "_repr_html_", _html)  # noqa: B010
    for name in ("item", "tolist", "is_nonzero"):
        register_method(name, _valueless(name))


def _takes_tensor(function: Callable[..., Any]) -> bool:
    names = parameters(function)
    return bool(names) and function.__annotations__.get(names[0]) in ("Tensor", "Value")


def _caster(kind: DType) -> Callable[[Tensor], Tensor]:
    return lambda x: x.cast(kind)


def _valueless(name: str) -> Callable[[Tensor], Any]:
    def refused(x: Tensor) -> Any:
        raise Unsupported(f"{name}: {x} has no value while the graph is recorded; run a program")

    return refused


def _where_method(x: Tensor, condition: Tensor, other: Value) -> Tensor:
    """`x.where(condition, other)`: x where the condition holds, else other."""
    return where(condition, x, other)


def to(x: Tensor, kind: Any) -> Tensor:
    """x in another dtype (of ours, NumPy's or PyTorch's), or in that of another tensor."""
    return x.cast(kind.dtype if isinstance(kind, Tensor) else dtype(kind))


def numpy(x: Tensor) -> np.ndarray:
    """The value, computed node by node in NumPy: for looking, not for speed. What was `set` counts.

    Raises InputError where it depends on an input that has no value.

    >>> (cx.constant([1.0, 2.0]) * 3.0).numpy()
    array([3., 6.], dtype=float32)
    """
    from ..backend.reference import evaluate

    return evaluate(x.graph, [x.node])[x.node]


def _html(x: Tensor) -> str:
    """For notebooks: a picture of the values, where they are known and soon computed."""
    from ..graph.order import reachable
    from ..view.plots import array_html

    nodes = reachable([x.node])
    sizes = [size for node in nodes for size in node.shape]
    known = all(node in x.graph.values or node.attribute.value is not None
                for node in nodes if node.op == "input")  # fmt: skip
    if not known or not all(size.is_constant for size in sizes):
        return f"<code>{escape(repr(x))}</code>"
    if sum(math.prod(map(int, node.shape)) for node in nodes) > SHOWN:
        return f"<code>{escape(repr(x))}</code>"
    return array_html(repr(x), numpy(x))


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """x in the dtype of another tensor."""
    return x.cast(other.dtype)


def size(x: Tensor, dim: int | None = None) -> Any:
    """The shape, or the size of one dimension."""
    return x.shape if dim is None else x.shape[dim]


def numel(x: Tensor) -> int | Index:
    """How many elements."""
    number = count(x, range(x.ndim))
    return number.constant if number.is_constant else number


def _itemsize(x: Tensor) -> int:
    return x.dtype.bytes


def _nbytes(x: Tensor) -> Any:
    return numel(x) * x.dtype.bytes


def dim(x: Tensor) -> int:
    """How many dimensions."""
    return x.ndim


def t(x: Tensor) -> Tensor:
    """The transpose of a matrix; a vector stays."""
    return x.transpose(0, 1) if x.ndim == 2 else x


def adjoint(x: Tensor) -> Tensor:
    """The last two dimensions swapped."""
    return x.transpose(-1, -2)


def _same(x: Tensor) -> Tensor:
    """x: where its values lie, and whether they are conjugate, is nothing of the graph's."""
    return x


def contiguous(x: Tensor) -> Tensor:
    """x: where values lie in memory is the compiler's business."""
    return x


def detach(x: Tensor) -> Tensor:
    """x: gradients are a pass over the graph, not a property of tensors."""
    return x


EXTRA: tuple[Callable[..., Any], ...] = (
    to, type_as, numpy, size, numel, dim, t, adjoint, contiguous, detach,
)  # fmt: skip
