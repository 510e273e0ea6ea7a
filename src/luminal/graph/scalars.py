"""The vocabulary of elementwise operations, shared by graph, e-graph, kernels and native code.

One row an operation: its name, how many operands it has, the dtype of its result, and its meaning
in NumPy. A backend adds one row of its own.
Operands of an arithmetic operation all have the dtype of the operation; `select` takes a bool
first; `cast` converts to the dtype of the result. f16 and bf16 are computed in f32 and rounded
once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtype import DType


@dataclass(frozen=True)
class Scalar:
    """An elementwise operation. `result`: "same" as its operands, "bool", or "given" (cast)."""

    name: str
    arity: int
    result: str
    numpy: Callable[..., Any]
    cost: float  # vector instructions, roughly
    domain: str = "any"  # "float", "integer" (also bool), or "any" dtype of the operands


def _recip(x: Any) -> Any:
    return np.divide(np.ones_like(x), x)


def _floor_divide(x: Any, y: Any) -> Any:
    """Integers round towards minus infinity; a zero divisor gives 0 (no trap)."""
    return np.where(y == 0, np.zeros_like(x), np.floor_divide(x, np.where(y == 0, 1, y)))


def _mod(x: Any, y: Any) -> Any:
    """The sign of the divisor, as in Python; an integer zero divisor gives 0."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.kind in "iu":
        return np.where(y == 0, np.zeros_like(x), np.mod(x, np.where(y == 0, np.ones_like(y), y)))
    return np.mod(x, y)


_ROWS = (
    # the elementwise ones of the fifteen primitives
    Scalar("log2", 1, "same", np.log2, 12, "float"),
    Scalar("exp2", 1, "same", np.exp2, 10, "float"),
    Scalar("sin", 1, "same", np.sin, 20, "float"),
    Scalar("sqrt", 1, "same", np.sqrt, 6, "float"),
    Scalar("recip", 1, "same", _recip, 6, "float"),
    Scalar("add", 2, "same", np.add, 1),
    Scalar("mul", 2, "same", np.multiply, 1),
    Scalar("mod", 2, "same", _mod, 10),
    Scalar("less", 2, "bool", np.less, 1),
    Scalar("cast", 1, "given", lambda x: x, 0.5),
    # composites that every backend so far takes whole
    Scalar("div", 2, "same", np.divide, 6, "float"),
    Scalar("floor_div", 2, "same", _floor_divide, 20, "integer"),
    Scalar("cos", 1, "same", np.cos, 20, "float"),
    Scalar("floor", 1, "same", np.floor, 1, "float"),
    Scalar("ceil", 1, "same", np.ceil, 1, "float"),
    Scalar("trunc", 1, "same", np.trunc, 1, "float"),
    Scalar("round", 1, "same", np.rint, 1, "float"),
    Scalar("max", 2, "same", np.maximum, 1),
    Scalar("min", 2, "same", np.minimum, 1),
    Scalar("equal", 2, "bool", np.equal, 1),
    Scalar("select", 3, "same", np.where, 1),
    Scalar("and", 2, "same", np.bitwise_and, 1, "integer"),
    Scalar("or", 2, "same", np.bitwise_or, 1, "integer"),
    Scalar("xor", 2, "same", np.bitwise_xor, 1, "integer"),
    Scalar("shift_left", 2, "same", np.left_shift, 1, "integer"),
    Scalar("shift_right", 2, "same", np.right_shift, 1, "integer"),
)
SCALARS = {row.name: row for row in _ROWS}

REDUCTIONS = {
    "sum": np.add,  # primitive
    "max": np.maximum,  # primitive; NaN wins
    "min": np.minimum,
    "prod": np.multiply,
}
COMBINE = {"sum": "add", "max": "max", "min": "min", "prod": "mul"}


def identity(reduction: str, dtype: DType) -> int | float | bool:
    """The start value of a reduction: what an empty one gives."""
    if reduction == "sum":
        return 0
    if reduction == "prod":
        return 1
    return dtype.lowest if reduction == "max" else dtype.highest


def compute(name: str, dtype: DType, *operands: Any) -> Any:
    """NumPy meaning of one operation; `dtype` is the dtype of the result."""
    with np.errstate(all="ignore"):
        if name == "cast":
            return convert(operands[0], dtype)
        arrays = [np.asarray(o) for o in operands]
        if dtype.is_half:
            arrays = [a.astype(np.float32) if a.dtype == dtype.numpy else a for a in arrays]
        return np.asarray(SCALARS[name].numpy(*arrays)).astype(dtype.numpy, copy=False)


def convert(value: Any, dtype: DType) -> Any:
    """A cast as native code does it: NaN to 0 and saturation for floats to integers."""
    array = np.asarray(value)
    with np.errstate(all="ignore"):
        if dtype.kind == "bool":
            return array != 0
        if dtype.is_integer and array.dtype.kind not in "iub":
            wide = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
            low, high = float(dtype.lowest), float(dtype.highest)
            whole = np.trunc(np.clip(wide, low, high))
            result = np.where(whole >= high, dtype.highest, whole.astype(dtype.numpy))
            return result.astype(dtype.numpy)
        return array.astype(dtype.numpy)
