"""Quantised layers of com.microsoft, as ONNX Runtime's quantisers write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import f32, i64
from ....graph.tensor import Tensor
from ....ops.base import extent
from .attention import attention
from .base import MICROSOFT, op
from .conv import shifted
from .microsoft import embed_layer_normalization
from .pool import average_pool
from .quantised import along, plain, qlinear_conv, quantised, requantised
from .recurrent import lstm

if TYPE_CHECKING:
    from ..record import Recorder

# A 4-bit number by its code (Dettmers et al. 2023, arXiv 2305.14314; bitsandbytes).
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
_FP4 = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
FP4 = (*_FP4, *(-v for v in _FP4))


@op("QLinearConv", domain=MICROSOFT)
def qlinear_conv_of(
    at: Recorder, x: Tensor, *rest: Any, channels_last: int = 0, **attributes: Any
) -> Any:
    found = qlinear_conv(at, x.movedim(-1, 1) if channels_last else x, *rest, **attributes)
    return _moved(found) if channels_last else found


def _moved(found: Any) -> Any:
    return type(found)(found.tensor.movedim(1, -1), found.kind)


@op("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    at: Recorder, x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, channels_last: int = 0, **attributes: Any,
) -> Any:  # fmt: skip
    value = plain(x, scale, zero)
    found = average_pool(at, value.movedim(-1, 1) if channels_last else value, **attributes)
    return quantised(found.movedim(1, -1) if channels_last else found, y_scale, y_zero, at.kind(0))


@op("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(
    at: Recorder, x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, axes: Sequence[int] = (), keepdims: int = 1,
) -> Any:  # fmt: skip
    dims = list(axes) or list(range(x.ndim))
    found = ops.mean(plain(x, scale, zero), dims, bool(keepdims))
    return quantised(found, y_scale, y_zero, at.kind(0))


@op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    at: Recorder, condition: Tensor, x: Tensor, x_scale: Tensor, x_zero: Tensor, y: Tensor,
    y_scale: Tensor, y_zero: Tensor, z_scale: Tensor, z_zero: Tensor,
) -> Any:  # fmt: skip
    found = ops.where(condition, plain(x, x_scale, x_zero), plain(y, y_scale, y_zero))
    return quantised(found, z_scale, z_zero, at.kind(1))


@op("QGemm", domain=MICROSOFT)
def qgemm(
    at: Recorder, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, c: Tensor | None = None, y_scale: Tensor | None = None,
    y_zero: Tensor | None = None, *, transA: int = 0, transB: int = 0, alpha: float = 1.0,
) -> Any:  # fmt: skip
    """c: i32, of the scale alpha a_scale b_scale. Floats, where no y_scale is given."""
    left = shifted(a.T if transA else a, a_zero)
    right = shifted(b.T if transB else b, b_zero, 1)
    total = ops.matmul(left, right)
    total = total if c is None else ops.add(total, c)
    scale = ops.mul(ops.mul(a_scale.reshape(()), along(total, b_scale, 1)), alpha)
    if y_scale is None or y_zero is None:
        return ops.mul(total.cast(f32), scale)
    return requantised(total, ops.div(scale, y_scale.reshape(())), y_zero.reshape(()), at.kind(8))


@op("QAttention", domain=MICROSOFT)
def qattention(
    at: Recorder, x: Tensor, weight: Tensor, bias: Tensor, x_scale: Tensor, w_scale: Tensor,
    mask: Tensor | None = None, x_zero: Tensor | None = None, w_zero: Tensor | None = None,
    past: Tensor | None = None, **attributes: Any,
) -> Any:  # fmt: skip
    """The projections are of integers, attention is of floats."""
    left, right = shifted(x, x_zero), shifted(weight, w_zero, 1)
    scale = ops.mul(x_scale.reshape(()), along(weight, w_scale, -1))
    joined = ops.add(ops.mul(ops.matmul(left, right).cast(f32), scale), bias)
    return attention(at, joined, None, None, mask, past, **attributes)


@op("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_normalization(
    at: Recorder, words: Tensor, segments: Tensor | None, *rest: Any, epsilon: float = 1e-12
) -> Any:
    """Five tables, the mask, the tables' scales and their zero points."""
    tables, mask, scales, zeros = rest[:5], rest[5], rest[6:11], rest[11:16]
    held: Any = [None if t is None else plain(t, s, z) for t, s, z in zip(tables, scales, zeros)]
    table, places, kinds, scale, shift = held
    found: tuple[Any, ...] = embed_layer_normalization(
        at, words, segments, table, places, kinds, scale, shift, mask, epsilon=epsilon
    )
    return found[:2]


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantise_lstm(
    at: Recorder, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None,
    lengths: Tensor | None, initial_h: Tensor | None, initial_c: Tensor | None,
    peepholes: Tensor | None, w_scale: Tensor, w_zero: Tensor, r_scale: Tensor, r_zero: Tensor,
    **attributes: Any,
) -> Any:  # fmt: skip
    """With weights (directions, inputs, 4 hidden) in integers, by the floats that they stand for:
    what ONNX Runtime rounds of x and of the states on the way stays as it is."""

    def weights(values: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        each = [s.reshape((extent(s, 0), 1, -1)) if s.ndim else s for s in (scale, zero)]
        return plain(values, *each).mT

    return lstm(at, x, weights(w, w_scale, w_zero), weights(r, r_scale, r_zero), bias, lengths,
                initial_h, initial_c, peepholes, **attributes)  # fmt: skip


@op("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(
    at: Recorder, a: Tensor, b: Tensor, largest: Tensor, *, K: int, N: int, block_size: int,
    quant_type: int, training_mode: int = 0, transB: int = 1,
) -> Tensor:  # fmt: skip
    """a (.., K) times a matrix (N, K) of 4-bit codes, the high bits of a byte first, each times the
    largest number of its block of the whole matrix."""
    if not transB:
        raise Unsupported("MatMulBnb4 of a matrix that lies the other way round")
    table = at.constant(np.array(NF4 if quant_type else FP4, np.float32)).tensor
    codes = [ops.bitwise_right_shift(b, 4), ops.bitwise_and(b, 15)]
    index = ops.stack([code.reshape(-1) for code in codes], -1).reshape(-1).cast(i64)
    values = ops.index_select(table, 0, index.narrow(0, 0, N * K))
    each = ops.repeat_interleave(largest.cast(f32), block_size, 0).narrow(0, 0, N * K)
    held = at.settled(ops.mul(values, each).reshape((N, K)).cast(a.dtype))
    return ops.matmul(a, held.T)
