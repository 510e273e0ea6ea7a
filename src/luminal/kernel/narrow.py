"""Operands of matrix instructions: what a factor of a product is before it is widened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..graph.dtype import DType, bf16, f16
from .kernel import Apply, Constant, Expression, Guard, Kernel, Read, Value
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
    whole = dtype.is_integer and other.is_integer
    return whole and dtype.lowest <= other.lowest and other.highest <= dtype.highest


def half_weights(kernel: Kernel, instructions: Collection[MatrixInstruction]) -> Kernel:
    """The kernel with weights of a running softmax rounded before they are multiplied, and what
    they weigh: to f16 where that is of f16, as weights of at most 1 lose less there; else bf16."""
    known = {v.name: v for v in kernel.values}
    kinds = {i.first for i in instructions if i.first is i.second and i.collapse > i.cycles}
    return replace(kernel, values=tuple(_half(v, known, kinds) for v in kernel.values))


def rounded_behind(kernel: Kernel) -> bool:
    """What running softmaxes weigh is of bf16, and so is all that is stored of it: their weights
    may be rounded too, as PyTorch's attention does with operands of bf16."""
    sums = [v for v in kernel.values if v.rescale and v.factors]
    given = all(any(narrow(x, bf16, v.dtype) for x in v.factors) for v in sums)
    late = kernel.behind([v.name for v in sums])
    stored = (v for v in kernel.values if v.store and v.name in late)
    return bool(sums) and given and all(v.dtype is bf16 for v in stored)


def _half(v: Value, known: Mapping[str, Value], kinds: Collection[DType]) -> Value:
    online = v.reduction is not None and v.reduction.rescale is not None
    sides = [_weight(factor, known) for factor in v.factors]
    if not online or sum(sides) != 1:
        return v
    weighed = v.factors[sides.index(False)]
    half = f16 if f16 in kinds and narrow(weighed, f16, v.dtype) else bf16
    if half not in kinds:
        return v
    args = tuple(x if narrow(x, half, v.dtype) else _rounded(x, half) for x in v.factors)
    return replace(v, body=Apply("mul", args, v.dtype))


def whole_weights(kernel: Kernel) -> Kernel:
    """The kernel with factors that were rounded to two bytes as they are before: rounding serves
    instructions that take such."""
    return replace(kernel, values=tuple(map(_whole, kernel.values)))


def _whole(v: Value) -> Value:
    if not v.factors:
        return v
    args = tuple(_before(x, v.dtype) for x in v.factors)
    return replace(v, body=Apply("mul", args, v.dtype)) if args != tuple(v.factors) else v


def _before(factor: Expression, wide: DType) -> Expression:
    """A number before it was rounded and widened."""
    rounded = next((x for x in (narrow(factor, half, wide) for half in (bf16, f16)) if x), None)
    if not isinstance(rounded, Apply) or rounded.op != "cast" or rounded.args[0].dtype is not wide:
        return factor
    return rounded.args[0]


def _weight(factor: Expression, known: Mapping[str, Value]) -> bool:
    """A power of a score from which the maximum so far was taken: at most 1."""
    if not isinstance(factor, Read) or not known[factor.value].reads(so_far=True):
        return False
    body = known[factor.value].body
    while isinstance(body, Guard):
        body = body.body
    return isinstance(body, Apply) and body.op == "exp2"


def _rounded(x: Expression, half: DType) -> Expression:
    return Apply("cast", (Apply("cast", (x,), half),), x.dtype)
