"""Methods of tensors: the public functions whose first parameter is a tensor, and a few more."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from ..graph.dtype import bf16, boolean, dtype, f16, f32, f64, i8, i16, i32, i64, u8
from ..graph.index import Index
from ..graph.tensor import Tensor, register_method
from . import movement
from .base import Value, count
from .elementwise import where

DTYPE_METHODS = {
    "float": f32, "double": f64, "half": f16, "bfloat16": bf16, "long": i64, "int": i32,
    "short": i16, "char": i8, "byte": u8, "bool": boolean,
}  # fmt: skip


def register(modules: Iterable[ModuleType]) -> None:
    """Bind the functions of these modules; the first of a name counts."""
    for name in ("T", "mT"):
        setattr(Tensor, name, property(getattr(movement, name)))
    for module in modules:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and _takes_tensor(function) and not hasattr(Tensor, name):
                register_method(name, function)
    for name, kind in DTYPE_METHODS.items():
        register_method(name, _caster(kind))
    extra: tuple[Callable[..., Any], ...] = (to, type_as, size, numel, dim, t, contiguous, detach)
    for method in extra:
        register_method(method.__name__, method)
    register_method("where", _where_method)


def _takes_tensor(function: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.annotation in ("Tensor", "Value")


def _caster(kind: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x.cast(kind)


def _where_method(x: Tensor, condition: Tensor, other: Value) -> Tensor:
    """`x.where(condition, other)`: x where the condition holds, else other."""
    return where(condition, x, other)


def to(x: Tensor, kind: Any) -> Tensor:
    """x in another dtype."""
    return x.cast(dtype(kind))


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


def dim(x: Tensor) -> int:
    """How many dimensions."""
    return x.ndim


def t(x: Tensor) -> Tensor:
    """The transpose of a matrix; a vector stays."""
    return x.transpose(0, 1) if x.ndim == 2 else x


def contiguous(x: Tensor) -> Tensor:
    """x: where values lie in memory is the compiler's business."""
    return x


def detach(x: Tensor) -> Tensor:
    """x: gradients are a pass over the graph, not a property of tensors."""
    return x
