"""What Python and NumPy call on tensors: operators, indexing, NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InputError
from ..graph.index import Index
from ..graph.tensor import METHODS, Tensor

OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
ONE_SIDED = {  # a number on the left takes another operator, or none
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "lt": "lt", "le": "le",
    "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne",
}  # fmt: skip
UNARY = {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}
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


def register_protocol() -> None:
    """Bind all of these to the methods that mean them; reflected operators get the number first."""
    for name, called in {**OPERATORS, **ONE_SIDED}.items():
        setattr(Tensor, f"__{name}__", _operator(METHODS[called]))
    for name, called in OPERATORS.items():
        setattr(Tensor, f"__r{name}__", _reflected(METHODS[called]))
    for name, called in {**UNARY, "getitem": "index"}.items():
        setattr(Tensor, f"__{name}__", METHODS[called])
    for function in (_array_ufunc, _array_function):
        setattr(Tensor, f"_{function.__name__}__", function)


def _operator(function: Callable[..., Tensor]) -> Callable[[Tensor, Any], Tensor]:
    return lambda x, other: function(x, _beside(x, other))


def _reflected(function: Callable[..., Tensor]) -> Callable[[Tensor, Any], Tensor]:
    return lambda x, other: function(_beside(x, other), x)


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


def _array_ufunc(x: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """`np.exp(x)` and `array + x`: the operation of that name."""
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    if method != "__call__" or options or name not in METHODS:
        raise TypeError(f"numpy.{ufunc.__name__} is not defined for {x}; see luminal.ops")
    return METHODS[name](*(_beside(x, value) for value in inputs))


def _array_function(x: Tensor, function: Any, types: Any, given: Any, named: Any) -> Any:
    """`np.sum(x, axis=0)`: the operation that means the same."""
    name = FUNCTIONS.get(function.__name__, "")
    if name not in METHODS or not given or not isinstance(given[0], Tensor):
        raise TypeError(f"numpy.{function.__name__} needs values, and a Tensor has none while "
                        "its graph is recorded: take PyTorch's operation in luminal.ops, or "
                        "compile the graph and run it")  # fmt: skip
    return METHODS[name](*given, **named)
