"""Tensors from nothing: constants, ranges, random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import DType, boolean, f32, f64, i64
from ....graph.index import Index
from ....graph.node import Number
from ....graph.tensor import Tensor
from ....ops.base import Size, full_like, holding, operands, static, tensor_of
from .base import Rule, rule, source

if TYPE_CHECKING:
    from ..record import Recorder

Sizes = Sequence[Size]


@source("full.default")
def full(at: Recorder, shape: Sizes, value: Number, dtype: DType | None = None) -> Tensor:
    kind = dtype or (boolean if isinstance(value, bool) else i64 if isinstance(value, int) else f32)
    made = tensor_of(at.graph, holding(value, kind), kind)
    return made.expand(tuple(shape)) if shape else made


@source("scalar_tensor.default")
def scalar_tensor(at: Recorder, value: Any, dtype: DType = f32) -> Tensor:
    if isinstance(value, Index):
        return ops.size_tensor(at.graph, value, dtype)
    return tensor_of(at.graph, value, dtype)


def _filled(value: int) -> Rule:
    """Of a shape; an order of dimensions or strides does not matter here."""
    return lambda at, shape, *layout, dtype=f32: full(at, shape, value, dtype)


source(
    "empty.memory_format", "zeros.default", "_efficientzerotensor.default",
    "empty_permuted.default", "empty_strided.default",
)(_filled(0))  # fmt: skip
source("ones.default")(_filled(1))


@rule("full_like.default")
def filled(x: Tensor, value: Number, dtype: DType | None = None) -> Tensor:
    return new_full(x, x.shape, value, dtype)


@rule("fill.Scalar", "fill.Tensor")
def fill(x: Tensor, value: Any) -> Tensor:
    return new_full(x, x.shape, value)


def _filled_like(value: int) -> Rule:
    return lambda x, dtype=None: full_like(x, value, dtype)


rule("zeros_like.default", "empty_like.default")(_filled_like(0))
rule("ones_like.default")(_filled_like(1))


@rule("new_full.default")
def new_full(x: Tensor, shape: Sizes, value: Number, dtype: DType | None = None) -> Tensor:
    kind = dtype or x.dtype
    return tensor_of(x.graph, holding(value, kind), kind).expand(tuple(shape))


def _filled_new(value: int) -> Rule:
    return lambda x, shape, *layout, dtype=None: new_full(x, shape, value, dtype)


rule("new_zeros.default", "new_empty.default", "new_empty_strided.default")(_filled_new(0))
rule("new_ones.default")(_filled_new(1))


@source("arange.start_step")
def arange(at: Recorder, start: Any, end: Any, step: Any = 1, dtype: DType | None = None) -> Tensor:
    """Floats: the number of elements in double precision, the elements in the wide dtype."""
    if any(isinstance(number, float) for number in (start, end, step)):
        if not all(isinstance(number, (int, float)) for number in (start, end, step)):
            raise Unsupported("a range of floats between run-time sizes")
        count = math.ceil((end - start) / step)
        wide = f64 if dtype is None or dtype.is_float else i64
        position = at.graph.iota((count,), "i0").cast(wide)
        kind = dtype or f32
        return ops.add(ops.mul(position, step), start).cast(kind)
    return ops.arange(at.graph, start, end, step, i64).cast(dtype or i64)


@source("arange.default")
def arange_to(at: Recorder, end: Any, dtype: DType | None = None) -> Tensor:
    return arange(at, 0, end, 1, dtype)


@source("arange.start")
def arange_from(at: Recorder, start: Any, end: Any, dtype: DType | None = None) -> Tensor:
    return arange(at, start, end, 1, dtype)


@source("prims.iota.default")
def iota(at: Recorder, length: Size, start: Size, step: int, dtype: DType = i64) -> Tensor:
    return at.graph.iota((length,), Index.of("i0") * step + Index.of(start)).cast(dtype)


@source("eye.default")
def eye(at: Recorder, n: Size, dtype: DType = f32) -> Tensor:
    return ops.eye(at.graph, n, n, dtype)


@source("eye.m")
def eye_rectangular(at: Recorder, n: Size, m: Size, dtype: DType = f32) -> Tensor:
    return ops.eye(at.graph, n, m, dtype)


def _triangle(at: Recorder, numbers: Any, dtype: DType | None) -> Tensor:
    return at.graph.constant(np.stack(numbers).astype(np.int64)).cast(dtype or i64)


@source("tril_indices.default")
def tril_indices(
    at: Recorder, rows: int, columns: int, offset: int = 0, dtype: DType | None = None
) -> Tensor:
    return _triangle(at, np.tril_indices(rows, offset, columns), dtype)


@source("triu_indices.default")
def triu_indices(
    at: Recorder, rows: int, columns: int, offset: int = 0, dtype: DType | None = None
) -> Tensor:
    return _triangle(at, np.triu_indices(rows, offset, columns), dtype)


# ---- random numbers: one seed a run, one stream an operation


@source("rand.default")
def rand(at: Recorder, shape: Sizes, dtype: DType = f32) -> Tensor:
    return ops.rand(at.graph, tuple(shape), seed=at.random_seed(), dtype=dtype)


@source("randn.default")
def randn(at: Recorder, shape: Sizes, dtype: DType = f32) -> Tensor:
    return ops.randn(at.graph, tuple(shape), seed=at.random_seed(), dtype=dtype)


@source("rand_like.default")
def rand_like(at: Recorder, x: Tensor, dtype: DType | None = None) -> Tensor:
    return rand(at, x.shape, dtype or x.dtype)


@source("randn_like.default")
def randn_like(at: Recorder, x: Tensor, dtype: DType | None = None) -> Tensor:
    return randn(at, x.shape, dtype or x.dtype)


@source("randint.default")
def randint(at: Recorder, high: int, shape: Sizes, dtype: DType = i64) -> Tensor:
    return randint_low(at, 0, high, shape, dtype)


@source("randint.low")
def randint_low(at: Recorder, low: int, high: int, shape: Sizes, dtype: DType = i64) -> Tensor:
    return ops.randint(at.graph, low, high, tuple(shape), seed=at.random_seed()).cast(dtype)


@source("randint_like.low_dtype")
def randint_like(
    at: Recorder, x: Tensor, low: int, high: int, dtype: DType | None = None
) -> Tensor:
    return randint_low(at, low, high, x.shape, dtype or x.dtype)


@source("randint_like.default")
def randint_like_to(at: Recorder, x: Tensor, high: int, dtype: DType | None = None) -> Tensor:
    return randint_low(at, 0, high, x.shape, dtype or x.dtype)


@source("randperm.default")
def randperm(at: Recorder, n: int, dtype: DType = i64) -> Tensor:
    return ops.randperm(at.graph, n, seed=at.random_seed()).cast(dtype)


@source("bernoulli.p")
def bernoulli(at: Recorder, x: Tensor, p: float = 0.5) -> Tensor:
    return ops.lt(rand(at, x.shape), p).cast(x.dtype)


@source("bernoulli.default")
def bernoulli_each(at: Recorder, x: Tensor) -> Tensor:
    return ops.bernoulli(x, seed=at.random_seed())


@source("uniform.default")
def uniform(at: Recorder, x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    return ops.uniform(at.graph, x.shape, low, high, seed=at.random_seed(), dtype=x.dtype)


@source("normal_functional.default")
def normal(at: Recorder, x: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    unit = randn(at, x.shape, f64 if x.dtype is f64 else f32)
    return ops.add(ops.mul(unit, std), mean).cast(x.dtype)


@source("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_each(at: Recorder, mean: Any = 0.0, std: Any = 1.0) -> Tensor:
    both = operands(mean, std)
    unit = randn(at, both[0].shape, f64 if both[0].dtype is f64 else f32)
    return ops.add(ops.mul(unit, both[1].cast(unit.dtype)), both[0].cast(unit.dtype))


@source("normal.float_float")
def normal_shape(at: Recorder, mean: float, std: float, shape: Sizes, dtype: DType = f32) -> Tensor:
    unit = randn(at, shape, f64 if dtype is f64 else f32)
    return ops.add(ops.mul(unit, std), mean).cast(dtype)


@source("rrelu_with_noise_functional.default")
def rrelu(
    at: Recorder, x: Tensor, noise: Tensor, low: float = 0.125, high: float = 1 / 3,
    training: bool = False,
) -> Any:  # fmt: skip
    """(x, with a slope drawn for each negative element; the slopes)."""
    slope = uniform(at, x, low, high) if training else full_like(x, (low + high) / 2)
    below = ops.le(x, 0)
    return ops.where(below, ops.mul(x, slope), x), ops.where(below, slope, full_like(x, 1))


@source("exponential.default")
def exponential(at: Recorder, x: Tensor, rate: float = 1.0) -> Tensor:
    return ops.exponential(at.graph, x.shape, rate, seed=at.random_seed()).cast(x.dtype)


@source("geometric.default")
def geometric(at: Recorder, x: Tensor, p: float) -> Tensor:
    """The number of trials up to the first success, each of probability p."""
    unit = rand(at, x.shape, f64 if x.dtype is f64 else f32)
    failures = ops.floor(ops.div(ops.log1p(ops.neg(unit)), math.log1p(-p)))
    return ops.add(failures, 1.0).cast(x.dtype)


@source("multinomial.default")
def multinomial(at: Recorder, x: Tensor, count: Size, replacement: bool = False) -> Tensor:
    """Places drawn with the weights x (..., places): the first of exponential clocks to ring."""
    number, wide = static(count, "the number of draws"), x.cast(f64 if x.dtype is f64 else f32)
    rows, places = x.shape[:-1], x.shape[-1]
    shape = (*rows, number, places) if replacement else x.shape
    clocks = ops.exponential(at.graph, shape, 1.0, seed=at.random_seed()).cast(wide.dtype)
    clocks = ops.clamp(clocks, 1e-30)  # 0 is drawn, too
    if replacement:
        return ops.argmax(ops.div(wide.unsqueeze(-2), clocks), -1)
    return ops.topk(ops.div(wide, clocks), number).indices


@source("native_dropout.default")
def native_dropout(at: Recorder, x: Tensor, p: float, train: bool | None) -> Any:
    """(x where kept, over 1 - p; what was kept)."""
    if train is False or p == 0:
        return x, full_like(x, True, boolean)
    kept = ops.lt(rand(at, x.shape), 1.0 - p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return ops.mul(ops.mul(x, kept.cast(x.dtype)), scale), kept
