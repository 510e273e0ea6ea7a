"""Operators of com.microsoft that exporters and optimisers emit: activations, normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import ops
from ....graph.dtype import f32, i32, i64
from ....graph.tensor import Tensor
from ....ops.base import extent
from .base import MICROSOFT, op
from .normalisation import layer_normalization, rms
from .reduction import gemm
from .shape import pad

if TYPE_CHECKING:
    from ..record import Recorder


@op("Gelu", domain=MICROSOFT)
def gelu(at: Recorder, x: Tensor) -> Tensor:
    return ops.gelu(x)


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(at: Recorder, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return ops.gelu(x if bias is None else ops.add(x, bias), "tanh")


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(at: Recorder, x: Tensor, bias: Tensor) -> Tensor:
    return ops.gelu(ops.add(x, bias))


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(at: Recorder, x: Tensor, alpha: float = 1.702) -> Tensor:
    return ops.mul(x, ops.sigmoid(ops.mul(x, alpha)))


@op("BiasAdd", domain=MICROSOFT)
def bias_add(at: Recorder, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return ops.add(ops.add(x, bias), skip)


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(at: Recorder, x: Tensor, bias: Tensor) -> Tensor:
    first, gate = ops.chunk(ops.add(x, bias), 2, -1)
    return ops.mul(first, ops.gelu(gate))


@op("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    at: Recorder, a: Tensor, b: Tensor, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    def turned(x: Tensor, last: int, batch: int) -> Tensor:
        x = x.movedim(0, -2) if batch else x
        return x.mT if last and x.ndim > 1 else x

    product = ops.matmul(turned(a, transA, transBatchA), turned(b, transB, transBatchB))
    return product if alpha == 1 else ops.mul(product, alpha)


_ACTIVATIONS = {
    "Relu": ops.relu, "Sigmoid": ops.sigmoid, "Tanh": ops.tanh, "LeakyRelu": ops.leaky_relu,
}  # fmt: skip


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    at: Recorder, a: Tensor, b: Tensor, c: Tensor | None = None, *, activation: str = "",
    activation_alpha: float = 0.01, **attributes: Any,
) -> Tensor:  # fmt: skip
    found = gemm(at, a, b, c, **attributes)
    if activation == "LeakyRelu":
        return ops.leaky_relu(found, activation_alpha)
    return _ACTIVATIONS[activation](found) if activation else found


# ---- normalisation


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    at: Recorder, x: Tensor, skip: Tensor, scale: Tensor, shift: Tensor | None = None,
    bias: Tensor | None = None, *, epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    """(normalised sum, its mean, 1 / deviation, the sum)."""
    total = ops.add(x, skip)
    total = total if bias is None else ops.add(total, bias)
    return *layer_normalization(at, total, scale, shift, epsilon=epsilon), total


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms(
    at: Recorder, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None, *,
    epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    total = ops.add(x, skip)
    total = total if bias is None else ops.add(total, bias)
    return rms(total, scale, [total.ndim - 1], epsilon), None, None, total


@op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified(
    at: Recorder, x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:  # fmt: skip
    return rms(x, scale, list(range(axis % x.ndim, x.ndim)), epsilon)


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    at: Recorder, words: Tensor, segments: Tensor | None, word_table: Tensor,
    place_table: Tensor, segment_table: Tensor | None, scale: Tensor, shift: Tensor,
    mask: Tensor | None = None, places: Tensor | None = None, *, epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Any:  # fmt: skip
    """(normalised sum of the embeddings, how many words the mask leaves, the sum)."""
    total = ops.embedding(words, word_table)
    if places is None:
        total = ops.add(total, place_table.narrow(0, 0, extent(words, 1)))
    else:
        total = ops.add(total, ops.embedding(places, place_table))
    if segments is not None and segment_table is not None:
        total = ops.add(total, ops.embedding(segments, segment_table))
    count = ops.zeros(at.graph, (words.shape[0],), i32)
    if mask is not None:
        count = ops.sum(mask.cast(i64), 1).cast(i32)
    found, *_ = layer_normalization(at, total, scale, shift, epsilon=epsilon)
    return found, count, total


@op("GroupNorm", domain=MICROSOFT)
def group_norm(
    at: Recorder, x: Tensor, scale: Tensor, shift: Tensor, *, groups: int,
    activation: int = 0, channels_last: int = 1, epsilon: float = 1e-5,
) -> Tensor:  # fmt: skip
    """With SiLU after it where an activation is asked for; channels last by default."""
    image = x.movedim(-1, 1) if channels_last else x
    found = ops.group_norm(image.cast(f32), groups, scale.cast(f32), shift.cast(f32), epsilon)
    found = (ops.silu(found) if activation else found).cast(x.dtype)
    return found.movedim(1, -1) if channels_last else found


# ---- others


@op("Pad", domain=MICROSOFT)
def padded(at: Recorder, x: Tensor, *operands: Tensor, mode: str = "constant") -> Tensor:
    return pad(at, x, *operands, mode=mode)


@op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    at: Recorder, table: Tensor, index: Tensor, scales: Tensor, zero: Tensor | None = None, *,
    bits: int = 4, block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Tensor:  # fmt: skip
    """Rows of a table whose last dimension is quantised in blocks."""
    from ....errors import Unsupported
    from .. import kinds
    from .quantised import unpacked

    last = table.ndim - 1
    if gather_axis != 0 or quantize_axis % table.ndim != last or table.ndim != 2:
        raise Unsupported("GatherBlockQuantized but for rows whose last dimension is in blocks")
    packed = at.kind(0) not in kinds.CARRIED and bits < 8
    rows = ops.index_select(table, 0, index.reshape(-1))
    values = unpacked(rows, bits) if packed else rows
    scale = ops.index_select(scales, 0, index.reshape(-1))
    width = extent(values, 1)

    def blocks(x: Tensor) -> Tensor:
        return ops.repeat_interleave(x, block_size, 1).narrow(1, 0, width)

    wide = values.cast(f32)
    if zero is not None:
        point = ops.index_select(zero, 0, index.reshape(-1))
        point = unpacked(point, bits).narrow(1, 0, extent(scale, 1)) if packed else point
        wide = ops.sub(wide, blocks(point).cast(f32))
    elif packed or table.dtype.kind == "uint":
        wide = ops.sub(wide, float(1 << (bits - 1)))
    found = ops.mul(wide, blocks(scale).cast(f32)).cast(scales.dtype)
    return found.reshape((*index.shape, width))
