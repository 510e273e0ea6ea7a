"""Operands of matrix instructions: what a factor of a product is before it is widened."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph.dtype import DType
from .kernel import Apply, Constant, Expression, Read, Value
from .target import MatrixInstruction


def operands(
    instruction: MatrixInstruction, x: Expression, y: Expression, values: Mapping[str, Value]
) -> tuple[Expression, Expression] | None:
    """What the instruction multiplies so that it computes the product of x and y, or None.
    values: those that the factors may read."""
    first = narrow(x, instruction.first, instruction.accumulator)
    second = narrow(y, instruction.second, instruction.accumulator)
    if first is None or second is None or largest(first, values) > instruction.most:
        return None
    return first, second


def narrow(factor: Expression, dtype: DType, wide: DType) -> Expression | None:
    """The factor, of dtype `wide`, in another dtype that holds it exactly."""
    if factor.dtype is not wide:
        return None
    if not isinstance(factor, Apply) or factor.op != "cast":
        return None
    inner = factor.args[0]
    if inner.dtype is dtype:
        return inner
    return Apply("cast", (inner,), dtype) if _holds(dtype, inner.dtype) else None


def largest(expression: Expression, values: Mapping[str, Value]) -> float:
    """A number that an expression does not exceed."""
    if isinstance(expression, Read):
        value = values[expression.value]
        return largest(value.body, values) if not value.reduction else value.dtype.highest
    if isinstance(expression, Constant):
        return float(expression.value)
    if isinstance(expression, Apply) and expression.op == "and":
        positive = [x for x in (largest(a, values) for a in expression.args) if x >= 0]
        return min(positive, default=float(expression.dtype.highest))
    return float(expression.dtype.highest)


def _holds(dtype: DType, other: DType) -> bool:
    """Every number of one integer dtype is one of the other."""
    if not (dtype.is_integer and other.is_integer):
        return False
    return dtype.lowest <= other.lowest and other.highest <= dtype.highest
