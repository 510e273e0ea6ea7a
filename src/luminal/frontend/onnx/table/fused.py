"""Operators of com.microsoft into which ONNX Runtime's optimisers fuse others, in floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import boolean, i64
from ....graph.tensor import Tensor
from ....ops.base import extent, full_like
from .base import MICROSOFT, op
from .conv import convolved
from .microsoft import fused_matmul, group_norm
from .pool import max_pool
from .reduction import trilu
from .resize import grid_sample

if TYPE_CHECKING:
    from ..record import Recorder

op("TransposeMatMul", domain=MICROSOFT)(fused_matmul)
op("Trilu", domain=MICROSOFT)(trilu)
op("GridSample", domain=MICROSOFT)(grid_sample)


def activated(x: Tensor, name: str, numbers: Sequence[float] | None) -> Tensor:
    """x by an activation with these parameters. Raises Unsupported."""
    a, b = (*(numbers or ()), 0.0, 0.0)[:2]
    table: dict[str, Any] = {
        "": lambda: x, "Relu": lambda: ops.relu(x), "Sigmoid": lambda: ops.sigmoid(x),
        "Tanh": lambda: ops.tanh(x), "LeakyRelu": lambda: ops.leaky_relu(x, a),
        "Clip": lambda: ops.clamp(x, a, b),
        "HardSigmoid": lambda: ops.clamp(ops.add(ops.mul(x, a), b), 0.0, 1.0),
    }  # fmt: skip
    if name not in table:
        raise Unsupported(f"activation {name!r}")
    found: Tensor = table[name]()
    return found


def _conv(name: str, last: bool) -> None:
    """last: x, the summand and the result have their channels last."""

    @op(name, domain=MICROSOFT)
    def conv(
        at: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None = None,
        summand: Tensor | None = None, *, activation: str = "",
        activation_params: Sequence[float] | None = None, auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None, group: int = 1,
        kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Tensor:  # fmt: skip
        image = x.movedim(-1, 1) if last else x
        found = convolved(at, image, weight, bias, auto_pad, dilations, group, pads, strides)
        found = found.movedim(1, -1) if last else found
        found = found if summand is None else ops.add(found, summand)
        return activated(found, activation, activation_params)


_conv("FusedConv", False)
_conv("NhwcFusedConv", True)


@op("NhwcConv", domain=MICROSOFT)
def nhwc_conv(
    at: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The weight (outputs, height, width, inputs / group) has its channels last, too."""
    found = convolved(at, x.movedim(-1, 1), weight.movedim(-1, 1), bias, auto_pad, dilations,
                      group, pads, strides)  # fmt: skip
    return found.movedim(1, -1)


@op("NhwcMaxPool", domain=MICROSOFT, moves=True)
def nhwc_max_pool(at: Recorder, x: Tensor, **attributes: Any) -> Tensor:
    found: Tensor = max_pool(at, x.movedim(-1, 1), **attributes)
    return found.movedim(1, -1)


@op("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(at: Recorder, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    product = ops.matmul(x, w)
    return ops.gelu(product if bias is None else ops.add(product, bias), "tanh")


@op("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(
    at: Recorder, x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int
) -> Tensor:
    """Over all dimensions from the axis on."""
    dims, total = list(range(axis % x.ndim, x.ndim)), ops.add(x, bias)
    return ops.softmax(total.flatten(dims[0]), -1).reshape(total.shape)


@op("BiasDropout", domain=MICROSOFT)
def bias_dropout(
    at: Recorder, x: Tensor, bias: Tensor, residual: Tensor | None = None,
    ratio: Tensor | None = None, training: Tensor | None = None, *, seed: int = 0,
) -> Any:  # fmt: skip
    """(sum, which elements stay: all)."""
    if training is not None and at.array(training).any():
        raise Unsupported("BiasDropout that trains")
    total = ops.add(x, bias)
    total = total if residual is None else ops.add(total, residual)
    return total, full_like(total, True, boolean)


@op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    at: Recorder, x: Tensor, scale: Tensor, shift: Tensor, skip: Tensor,
    bias: Tensor | None = None, *, channels_last: int = 1, **attributes: Any,
) -> Any:  # fmt: skip
    """(norm of the sum, the sum). skip: as x, or (batch, channels)."""

    def channels(v: Tensor) -> Tensor:
        spread = [1] * (x.ndim - 2)
        where = [*spread, -1] if channels_last else [-1, *spread]
        return v.reshape((*([extent(v, 0)] if v.ndim == 2 else []), *where))

    total = ops.add(x, channels(skip) if skip.ndim == 2 else skip)
    total = total if bias is None else ops.add(total, channels(bias))
    found = group_norm(at, total, scale, shift, channels_last=channels_last, **attributes)
    return found, total


@op("RelativePositionBias", domain=MICROSOFT)
def relative_position_bias(
    at: Recorder, table: Tensor, queries: Tensor, keys: Tensor, *, max_distance: int,
    is_bidirectional: int = 0,
) -> Tensor:  # fmt: skip
    """T5's (Raffel et al. 2020, arXiv 1910.10683): (1, heads, queries, keys) out of a table
    (buckets, heads)."""
    buckets = int(extent(table, 0))
    row, column = (ops.arange(at.graph, at.size(n)) for n in (queries, keys))
    apart = ops.sub(column.unsqueeze(0), row.unsqueeze(1))
    first: Any = 0
    if is_bidirectional:
        buckets //= 2
        first, apart = ops.where(apart > 0, buckets, 0), ops.abs(apart)
    else:
        apart = ops.neg(ops.clamp(apart, None, 0))
    exact = buckets // 2
    scale = (buckets - exact) / math.log(max_distance / exact)
    ratio = ops.div(ops.clamp(apart, 1).cast(table.dtype), float(exact))
    far = ops.add(ops.mul(ops.log(ratio), scale).cast(i64), exact)
    far = ops.clamp(far, None, buckets - 1)
    bucket = ops.add(ops.where(apart < exact, apart, far), first)
    return ops.embedding(bucket, table).movedim(-1, 0).unsqueeze(0)
