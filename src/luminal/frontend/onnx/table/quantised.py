"""Quantised tensors and products of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....graph.dtype import f32, i32, u8
from ....graph.tensor import Tensor
from ....ops.base import dim_of, extent
from .. import kinds
from ..narrow import rounded
from .base import MICROSOFT, Typed, op
from .conv import convolved, shifted

if TYPE_CHECKING:
    from ..record import Recorder

RANGES = {"INT4": (-8, 7), "UINT4": (0, 15), "INT2": (-2, 1), "UINT2": (0, 3)}
UINT8 = 2


def limits(kind: int) -> tuple[int, int]:
    """The smallest and largest number of an integer element type."""
    found = RANGES.get(kinds.name_of(kind))
    wanted = kinds.dtype_of(kind)
    return found or (int(wanted.lowest), int(wanted.highest))


def along(x: Tensor, values: Tensor, axis: int, block: int = 0) -> Tensor:
    """Scales or zero points shaped against x: one, one for each place of an axis, or one for each
    block of places."""
    if block and values.ndim == x.ndim:
        dim = dim_of(x, axis)
        return ops.repeat_interleave(values, block, dim).narrow(dim, 0, extent(x, dim))
    if values.ndim == 0 or (values.ndim == 1 and extent(values, 0) == 1):
        return values.reshape(())
    return values.reshape((-1, *(1,) * (x.ndim - 1 - dim_of(x, axis))))


def quantised(
    x: Tensor, scale: Tensor, zero: Tensor | None, kind: int, saturate: bool = True
) -> Any:
    """round(x / scale) + zero, cut to the element type."""
    value = ops.div(x, scale.cast(x.dtype))
    if value.dtype.bytes < 4:
        value = value.cast(f32)
    if not kinds.dtype_of(kind).is_integer:
        if zero is not None:
            value = ops.add(value, zero.cast(value.dtype))
        return Typed(rounded(value, kind, saturate), kind)
    low, high = limits(kind)
    value = ops.round(value)
    if zero is not None:
        value = ops.add(value, zero.cast(value.dtype))
    return Typed(ops.clamp(value, float(low), float(high)).cast(kinds.dtype_of(kind)), kind)


def _quantise(
    at: Recorder, x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Any:  # fmt: skip
    kind = at.kind(2) if zero is not None else output_dtype or UINT8
    wide = x.cast(f32) if not x.dtype.is_float else x
    if precision:
        wide = wide.cast(kinds.dtype_of(precision))
    factor = along(x, scale, axis, block_size)
    point = None if zero is None else along(x, zero, axis, block_size)
    return quantised(wide, factor, point, kind, bool(saturate))


def _dequantise(
    at: Recorder, x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    wanted = kinds.dtype_of(output_dtype) if output_dtype else scale.dtype
    value = x if x.dtype.is_float else x.cast(i32)
    if zero is not None:
        value = ops.sub(value, along(x, zero, axis, block_size).cast(value.dtype))
    factor = along(x, scale, axis, block_size).cast(f32)
    return ops.mul(value.cast(f32), factor).cast(wanted)


for _domain in ("", MICROSOFT):
    op("QuantizeLinear", domain=_domain)(_quantise)
    op("DequantizeLinear", domain=_domain)(_dequantise)


@op("DynamicQuantizeLinear")
def dynamic_quantise(at: Recorder, x: Tensor) -> Any:
    """(x in u8, scale, zero point) of the range of x with 0."""
    high, low = ops.clamp(ops.amax(x), 0.0), ops.clamp(ops.amin(x), None, 0.0)
    scale = ops.div(ops.sub(high, low), 255.0)
    safe = ops.where(ops.eq(scale, 0.0), 1.0, scale)
    zero = ops.clamp(ops.round(ops.div(ops.neg(low), safe)), 0.0, 255.0).cast(u8)
    return quantised(x, safe, zero, UINT8), scale, zero


@op("MatMulInteger")
def matmul_integer(
    at: Recorder, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return ops.matmul(shifted(a, a_zero, a.ndim - 2), shifted(b, b_zero, b.ndim - 1))


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    at: Recorder, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor,
    a_zero: Tensor | None = None, b_zero: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    product = matmul_integer(at, a, b, a_zero, b_zero).cast(f32)
    found = ops.mul(product, ops.mul(along(a, a_scale, -2), along(b, b_scale, -1)))
    return found if bias is None else ops.add(found, bias)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantise_matmul(
    at: Recorder, a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    values, scale, zero = dynamic_quantise(at, a)
    return matmul_integer_to_float(at, values.tensor, b, scale, b_scale, zero, b_zero, bias)


def requantised(total: Tensor, scale: Any, zero: Tensor, kind: int) -> Any:
    """i32 sums times a scale, in an element type."""
    low, high = limits(kind)
    value = ops.round(ops.mul(total.cast(f32), scale))
    value = ops.add(value, zero.cast(f32))
    return Typed(ops.clamp(value, float(low), float(high)).cast(kinds.dtype_of(kind)), kind)


def _qlinear_matmul(
    at: Recorder, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
) -> Any:  # fmt: skip
    product = ops.matmul(shifted(a, a_zero, a.ndim - 2), shifted(b, b_zero, b.ndim - 1))
    scales = ops.mul(along(a, a_scale, -2).cast(f32), along(b, b_scale, -1).cast(f32))
    return requantised(product, ops.div(scales, y_scale.cast(f32)), y_zero, at.kind(7))


op("QLinearMatMul")(_qlinear_matmul)


@op("QLinearConv")
def qlinear_conv(
    at: Recorder, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor,
    w_zero: Tensor, y_scale: Tensor, y_zero: Tensor, bias: Tensor | None = None, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    total = convolved(
        at, shifted(x, x_zero), shifted(w, w_zero, 0), bias, auto_pad, dilations, group, pads,
        strides,
    )  # fmt: skip
    scale = ops.div(ops.mul(x_scale.reshape(()), along(total, w_scale, 1)), y_scale.reshape(()))
    return requantised(total, scale, y_zero.reshape(()), at.kind(7))


# ---- the same of one-input functions and sums, by way of floats


def plain(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """The numbers that a quantised tensor stands for."""
    value = x.cast(i32)
    value = value if zero is None else ops.sub(value, zero.cast(i32))
    return ops.mul(value.cast(f32), scale)


def _pairwise(name: str, function: Any) -> None:
    @op(name, domain=MICROSOFT)
    def pairwise(
        at: Recorder, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor,
        b_scale: Tensor, b_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None,
    ) -> Any:  # fmt: skip
        found = function(plain(a, a_scale, a_zero), plain(b, b_scale, b_zero))
        return quantised(found, y_scale, y_zero, at.kind(0))


_pairwise("QLinearAdd", ops.add)
_pairwise("QLinearMul", ops.mul)


def _single(name: str, function: Any) -> None:
    @op(name, domain=MICROSOFT)
    def single(
        at: Recorder, x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor,
        y_zero: Tensor | None = None, **attributes: Any,
    ) -> Any:  # fmt: skip
        found = function(plain(x, scale, zero), **attributes)
        return quantised(found, y_scale, y_zero, at.kind(0))


_single("QLinearSigmoid", ops.sigmoid)
_single("QLinearLeakyRelu", lambda x, alpha=0.01: ops.leaky_relu(x, alpha))


@op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    at: Recorder, x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, axis: int = -1, opset: int = 13,
) -> Any:  # fmt: skip
    found = ops.softmax(plain(x, scale, zero), dim_of(x, axis))
    return quantised(found, y_scale, y_zero, at.kind(0))


@op("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    at: Recorder, x: Tensor, scale: Tensor, zero: Tensor, y_scale: Tensor, y_zero: Tensor,
    channels_last: int = 0,
) -> Any:  # fmt: skip
    dims = range(1, x.ndim - 1) if channels_last else range(2, x.ndim)
    found = ops.mean(plain(x, scale, zero), list(dims), True)
    return quantised(found, y_scale, y_zero, at.kind(0))


@op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(at: Recorder, y_scale: Tensor, y_zero: Tensor, *parts: Tensor, axis: int) -> Any:
    triples = zip(parts[::3], parts[1::3], parts[2::3])
    found = ops.cat([plain(x, scale, zero) for x, scale, zero in triples], axis)
    return quantised(found, y_scale, y_zero, at.kind(1))


# ---- weights of a few bits


@op("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    at: Recorder, a: Tensor, b: Tensor, scales: Tensor, zero: Tensor | None = None,
    group: Tensor | None = None, bias: Tensor | None = None, *, K: int, N: int, bits: int = 4,
    block_size: int = 32, accuracy_level: int = 0,
) -> Tensor:  # fmt: skip
    """a (.., K) times the transpose of b (N, blocks, bytes), low bits of a byte first. group: the
    block of each column, where they are not in order."""
    blocks = -(-K // block_size)
    weights = unpacked(b.reshape((N, -1)), bits)

    def each(numbers: Tensor) -> Tensor:  # (N, blocks), for the columns
        if group is None:
            return numbers.reshape((N, blocks, 1)).cast(a.dtype)
        return ops.index_select(numbers.reshape((N, blocks)), 1, columns).cast(a.dtype)

    if group is None:
        values = weights.narrow(1, 0, blocks * block_size).reshape((N, blocks, block_size))
    else:
        values, columns = weights.narrow(1, 0, K), group.narrow(0, 0, K)
    if zero is None:
        middle: Any = float(1 << (bits - 1))
    elif zero.dtype.is_float:
        middle = each(zero)
    else:
        middle = each(unpacked(zero.reshape((N, -1)), bits).narrow(1, 0, blocks))
    held = ops.mul(ops.sub(values.cast(a.dtype), middle), each(scales))
    table = held.reshape((N, -1)).narrow(1, 0, K)
    found = ops.matmul(a, table.T)
    return found if bias is None else ops.add(found, bias)


def unpacked(x: Tensor, bits: int) -> Tensor:
    """(.., bytes) of u8 as (.., numbers), the low bits first."""
    if bits == 8:
        return x
    each = 8 // bits
    shifts = ops.mul(ops.arange(x.graph, each), bits).cast(i32)
    digits = ops.bitwise_right_shift(x.cast(i32).unsqueeze(-1), shifts)
    return ops.bitwise_and(digits, (1 << bits) - 1).flatten(-2)
