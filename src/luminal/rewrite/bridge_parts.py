"""Small expressions that values of a kernel are made of."""

from __future__ import annotations

import numpy as np

from ..graph.dtype import DType
from ..kernel.kernel import Apply, Constant, Expression


def zero(dtype: DType) -> Constant:
    return Constant(0.0 if dtype.is_float else False if dtype.kind == "bool" else 0, dtype)


def lowest(dtype: DType) -> float:
    """The smallest finite number: 2^(x - lowest) is defined also where all x are minus infinity."""
    if dtype.name == "bf16":
        return -3.3895313892515355e38
    return float(np.finfo(dtype.numpy).min)


def exponential(x: Expression, top: Expression, scale: float, dtype: DType) -> Expression:
    difference = Apply("add", (x, Apply("mul", (top, Constant(-1.0, dtype)), dtype)), dtype)
    if scale != 1.0:
        difference = Apply("mul", (difference, Constant(scale, dtype)), dtype)
    return Apply("exp2", (difference,), dtype)


def heads(axes: list[frozenset[str]]) -> tuple[int, int] | None:
    """Two factors, neither of which has all axes of the other, that together span the most."""
    best, found = 0, None
    for j in range(len(axes)):
        for i in range(j):
            if axes[i] - axes[j] and axes[j] - axes[i] and len(axes[i] | axes[j]) > best:
                best, found = len(axes[i] | axes[j]), (i, j)
    return found


def multiply(factors: list[Expression], dtype: DType) -> Expression:
    total = factors[0]
    for factor in factors[1:]:
        total = Apply("mul", (total, factor), dtype)
    return total
