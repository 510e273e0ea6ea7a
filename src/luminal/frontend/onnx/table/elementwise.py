"""Arithmetic, comparisons, logic, activations, casts."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from .... import ops
from ....graph.dtype import boolean, f32, i64
from ....graph.tensor import Tensor
from ....ops.base import full_like
from .. import kinds
from ..narrow import rounded
from .base import Typed, op, same

if TYPE_CHECKING:
    from ..record import Recorder

for _names, _function in (
    ("Add", ops.add), ("Sub", ops.sub), ("Mul", ops.mul), ("Neg", ops.neg), ("Abs", ops.abs),
    ("Sign", ops.sign), ("Floor", ops.floor), ("Ceil", ops.ceil), ("Round", ops.round),
    ("Sqrt", ops.sqrt), ("Reciprocal", ops.reciprocal), ("Exp", ops.exp), ("Log", ops.log),
    ("Sin", ops.sin), ("Cos", ops.cos), ("Tan", ops.tan), ("Asin", ops.asin), ("Acos", ops.acos),
    ("Atan", ops.atan), ("Sinh", ops.sinh), ("Cosh", ops.cosh), ("Tanh", ops.tanh),
    ("Asinh", ops.asinh), ("Acosh", ops.acosh), ("Atanh", ops.atanh), ("Erf", ops.erf),
    ("Equal", ops.eq), ("Less", ops.lt), ("LessOrEqual", ops.le), ("Greater", ops.gt),
    ("GreaterOrEqual", ops.ge), ("And", ops.logical_and), ("Or", ops.logical_or),
    ("Xor", ops.logical_xor), ("Not", ops.logical_not), ("IsNaN", ops.isnan),
    ("BitwiseAnd", ops.bitwise_and), ("BitwiseOr", ops.bitwise_or),
    ("BitwiseXor", ops.bitwise_xor), ("BitwiseNot", ops.bitwise_not), ("Sigmoid", ops.sigmoid),
    ("Relu", ops.relu), ("Softsign", ops.softsign), ("HardSwish", ops.hardswish),
    ("Mish", ops.mish),
):  # fmt: skip
    same(_names, _function)


@op("Where", moves=False)
def where(at: Recorder, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ops.where(condition, x, y)


@op("Softplus")
def softplus(at: Recorder, x: Tensor) -> Tensor:
    return ops.softplus(x, 1.0, float("inf"))


@op("Div")
def div(at: Recorder, x: Tensor, y: Tensor) -> Tensor:
    """Integers towards zero."""
    return ops.div(x, y) if x.dtype.is_float else ops.div(x, y, rounding_mode="trunc")


@op("Mod")
def mod(at: Recorder, x: Tensor, y: Tensor, fmod: int = 0) -> Tensor:
    return ops.fmod(x, y) if fmod else ops.remainder(x, y)


@op("Pow")
def power(at: Recorder, x: Tensor, y: Tensor) -> Tensor:
    """In the dtype of the base; whole exponents of floats stay whole."""
    if x.dtype.is_float or not y.dtype.is_float:
        return ops.pow(x, y).cast(x.dtype)
    return ops.pow(x.cast(y.dtype), y).cast(x.dtype)


@op("BitShift")
def bit_shift(at: Recorder, x: Tensor, y: Tensor, direction: str) -> Tensor:
    """By the dtype's width or more, and by negative numbers, all bits leave."""
    x, y = ops.base.operands(x, y)
    bits = 8 * x.dtype.bytes
    most = y >= bits
    if y.dtype.is_signed:
        most = ops.logical_or(most, y < 0)
    safe = ops.where(most, 0, y)
    if direction == "LEFT":
        return ops.where(most, 0, ops.bitwise_left_shift(x, safe))
    gone = ops.where(x < 0, -1, 0).cast(x.dtype) if x.dtype.is_signed else full_like(x, 0)
    return ops.where(most, gone, ops.bitwise_right_shift(x, safe))


@op("Max")
def maximum(at: Recorder, *values: Tensor) -> Tensor:
    return reduce(ops.maximum, values)


@op("Min")
def minimum(at: Recorder, *values: Tensor) -> Tensor:
    return reduce(ops.minimum, values)


@op("Sum")
def total(at: Recorder, *values: Tensor) -> Tensor:
    return reduce(ops.add, values)


@op("Mean")
def mean(at: Recorder, *values: Tensor) -> Tensor:
    return ops.mul(reduce(ops.add, values), 1 / len(values))


@op("IsInf")
def is_inf(at: Recorder, x: Tensor, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return ops.isinf(x)
    if not detect_negative and not detect_positive:
        return full_like(x, False, boolean)
    return ops.isposinf(x) if detect_positive else ops.isneginf(x)


@op("Clip")
def clip(
    at: Recorder, x: Tensor, low: Tensor | None = None, high: Tensor | None = None, *,
    min: float | None = None, max: float | None = None,
) -> Tensor:  # fmt: skip
    for bound, function in ((min if low is None else low, ops.maximum),
                            (max if high is None else high, ops.minimum)):  # fmt: skip
        x = x if bound is None else function(x, bound)
    return x


# ---- activations


@op("LeakyRelu")
def leaky_relu(at: Recorder, x: Tensor, alpha: float = 0.01) -> Tensor:
    return ops.leaky_relu(x, alpha)


@op("ThresholdedRelu")
def thresholded_relu(at: Recorder, x: Tensor, alpha: float = 1.0) -> Tensor:
    return ops.where(x > alpha, x, 0.0)


@op("PRelu")
def prelu(at: Recorder, x: Tensor, slope: Tensor) -> Tensor:
    """Before version 7 one slope for each channel."""
    if at.version < 7 and slope.ndim == 1:
        slope = slope.reshape((-1, *(1,) * (x.ndim - 2)))
    return ops.where(x < 0, ops.mul(x, slope), x)


@op("Elu")
def elu(at: Recorder, x: Tensor, alpha: float = 1.0) -> Tensor:
    return ops.elu(x, alpha)


@op("Celu")
def celu(at: Recorder, x: Tensor, alpha: float = 1.0) -> Tensor:
    return ops.celu(x, alpha)


@op("Selu")
def selu(
    at: Recorder, x: Tensor, alpha: float = 1.6732631921768188,
    gamma: float = 1.0507010221481323,
) -> Tensor:  # fmt: skip
    return ops.mul(ops.elu(x, alpha), gamma)


@op("HardSigmoid")
def hard_sigmoid(at: Recorder, x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return ops.clamp(ops.add(ops.mul(x, alpha), beta), 0.0, 1.0)


@op("Gelu")
def gelu(at: Recorder, x: Tensor, approximate: str = "none") -> Tensor:
    return ops.gelu(x, approximate)


@op("Swish")
def swish(at: Recorder, x: Tensor, alpha: float = 1.0) -> Tensor:
    return ops.silu(x) if alpha == 1.0 else ops.mul(x, ops.sigmoid(ops.mul(x, alpha)))


@op("Shrink")
def shrink(at: Recorder, x: Tensor, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    wide = x.cast(f32) if not x.dtype.is_float else x
    inner = ops.where(wide > lambd, ops.sub(wide, bias), 0.0)
    return ops.where(wide < -lambd, ops.add(wide, bias), inner).cast(x.dtype)


# ---- element types


@op("Cast")
def cast(at: Recorder, x: Tensor, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return to_kind(x, to, bool(saturate), round_mode)


@op("CastLike")
def cast_like(
    at: Recorder, x: Tensor, like: Tensor, saturate: int = 1, round_mode: str = "up"
) -> Any:
    return to_kind(x, at.kind(1), bool(saturate), round_mode)


def to_kind(x: Tensor, kind: int, saturate: bool = True, round_mode: str = "up") -> Any:
    """x as an element type, which may be carried by a wider one."""
    if kind in kinds.CARRIED:
        return Typed(rounded(x, kind, saturate, round_mode), kind)
    wanted = kinds.dtype_of(kind)
    if x.dtype.is_float and wanted.is_integer and wanted.bytes < 4:
        return x.cast(i64).cast(wanted)  # out of range values wrap, as C's and ONNX's do
    return x.cast(wanted)


@op("BitCast")
def bit_cast(at: Recorder, x: Tensor, to: int) -> Tensor:
    """Integers keep their bits in a cast; others are read anew by the host."""
    wanted = kinds.NATIVE.get(to)
    if wanted is None or at.kind(0) in kinds.CARRIED:
        return at.on_host()
    if not (wanted.is_integer and x.dtype.is_integer and wanted.bytes == x.dtype.bytes):
        return at.on_host()
    return x.cast(wanted)


@op("Identity", moves=True)
def identity(at: Recorder, x: Any) -> Any:
    return x


@op("Dropout")
def dropout(
    at: Recorder, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None, *,
    seed: int | None = None, is_test: int = 1,
) -> Any:  # fmt: skip
    if training is not None and any(at.ints(training)):
        share = float(at.array(ratio).reshape(-1)[0]) if ratio is not None else 0.5
        if share:
            kept = ops.rand(x.graph, x.shape, seed=seed) >= share
            return ops.mul(ops.mul(x, kept.cast(x.dtype)), 1 / (1 - share)), kept
    mask = full_like(x, True, boolean)
    return x, mask if at.version >= 10 else mask.cast(x.dtype)
