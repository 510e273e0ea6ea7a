"""Tensors from nothing: constants, ranges, windows, random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import ops
from ....errors import ShapeError
from ....graph.dtype import f32, i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from .. import kinds, known
from .base import Typed, op

if TYPE_CHECKING:
    from ..record import Recorder


@op("Constant")
def constant(at: Recorder, **attributes: Any) -> Typed:
    """One attribute has the value."""
    ((name, value),) = attributes.items()
    if name.startswith("value_float"):
        value = np.array(value, np.float32)
    elif name.startswith("value_int"):
        value = np.array(value, np.int64)
    elif name.startswith("value_string"):
        at.on_host()
    return at.constant(np.asarray(value))


@op("ConstantOfShape")
def constant_of_shape(at: Recorder, shape: Tensor, value: Any = None) -> Typed:
    sizes = at.sizes(shape)
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ShapeError(f"a tensor of the shape {sizes}")
    held = np.zeros(1, np.float32) if value is None else np.asarray(value)
    number = at.constant(held.reshape(()))
    return Typed(number.tensor.expand(tuple(sizes)) if sizes else number.tensor, number.kind)


@op("Range")
def range_of(at: Recorder, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    kind = start.dtype
    if not kind.is_float:
        first, last, step = at.size(start), at.size(limit), at.ints(delta)[0]
        return ops.arange(at.graph, first, last, step, kind)
    ends = [known.array(t, at.sample).reshape(()).item() for t in (start, limit, delta)]
    if isinstance(ends[1], Index) and float(ends[0]).is_integer() and float(ends[2]).is_integer():
        return ops.arange(at.graph, int(ends[0]), ends[1], int(ends[2]), i64).cast(kind)
    a, b, d = (float(at.array(t).reshape(())) for t in (start, limit, delta))
    count = max(0, math.ceil((b - a) / d))
    wide = at.graph.iota((count,), "i0").cast("f64" if kind.bytes == 8 else f32)
    return ops.add(ops.mul(wide, d), a).cast(kind)


def _window(name: str, terms: Sequence[float]) -> None:
    @op(name)
    def window(at: Recorder, size: Tensor, output_datatype: int = 1, periodic: int = 1) -> Tensor:
        """A sum of cosines; made from the nearer end where the window is symmetric."""
        count = at.ints(size)[0]
        turn = np.arange(count) * (2 * math.pi / (count if periodic else max(count - 1, 1)))
        values = sum(t * np.cos(k * turn) for k, t in enumerate(terms))
        kind = kinds.dtype_of(output_datatype)
        return at.graph.constant(np.asarray(values).astype(kind.numpy))


_window("HannWindow", (0.5, -0.5))
_window("HammingWindow", (25 / 46, -21 / 46))
_window("BlackmanWindow", (0.42, -0.5, 0.08))


@op("MelWeightMatrix")
def mel_weight_matrix(
    at: Recorder, bins: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor,
    output_datatype: int = 1,
) -> Tensor:  # fmt: skip
    """Triangles over frequencies, of equal width in mel = 2595 log10(1 + f / 700)."""
    count, dft, sample = (at.ints(t)[0] for t in (bins, length, rate))
    ends = [2595 * math.log10(1 + float(at.array(t).reshape(())) / 700) for t in (low, high)]
    mel = np.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2)) + ends[0]
    places = ((dft + 1) * (700 * (10 ** (mel / 2595) - 1)) // sample).astype(int)
    table = np.zeros((dft // 2 + 1, count))
    for i in range(count):
        lower, centre, upper = places[i : i + 3]
        if centre == lower:
            table[centre, i] = 1
        else:
            rise = np.arange(lower, centre + 1)
            table[rise, i] = (rise - lower) / (centre - lower)
        if upper > centre:
            fall = np.arange(centre, upper)
            table[fall, i] = (upper - fall) / (upper - centre)
    return at.graph.constant(table.astype(kinds.dtype_of(output_datatype).numpy))


# ---- random numbers: the seed of the model, else of the compiler


def _drawn(at: Recorder, shape: Any, seed: Any, kind: Any, normal: bool, a: float, b: float) -> Any:
    number = None if seed is None else int(np.float32(seed).view(np.int32))
    draw = ops.randn if normal else ops.rand
    unit = draw(at.graph, tuple(shape), seed=number)
    scale, start = (b, a) if normal else (b - a, a)
    return ops.add(ops.mul(unit, scale), start).cast(kind)


@op("RandomUniform")
def random_uniform(
    at: Recorder, shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    return _drawn(at, shape, seed, kinds.dtype_of(dtype), False, low, high)


@op("RandomNormal")
def random_normal(
    at: Recorder, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    return _drawn(at, shape, seed, kinds.dtype_of(dtype), True, mean, scale)


@op("RandomUniformLike")
def random_uniform_like(
    at: Recorder, x: Tensor, dtype: int | None = None, low: float = 0.0, high: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    kind = x.dtype if dtype is None else kinds.dtype_of(dtype)
    return _drawn(at, x.shape, seed, kind, False, low, high)


@op("RandomNormalLike")
def random_normal_like(
    at: Recorder, x: Tensor, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    kind = x.dtype if dtype is None else kinds.dtype_of(dtype)
    return _drawn(at, x.shape, seed, kind, True, mean, scale)


@op("Bernoulli")
def bernoulli(
    at: Recorder, x: Tensor, dtype: int | None = None, seed: float | None = None
) -> Tensor:
    kind = x.dtype if dtype is None else kinds.dtype_of(dtype)
    return ops.lt(_drawn(at, x.shape, seed, f32, False, 0.0, 1.0), x).cast(kind)


@op("Multinomial")
def multinomial(
    at: Recorder, x: Tensor, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    clocks = _drawn(at, (x.shape[0], sample_size, x.shape[1]), seed, f32, False, 0.0, 1.0)
    rings = ops.neg(ops.log(ops.clamp(clocks, 1e-30)))
    weights = ops.exp(ops.sub(x, ops.amax(x, -1, keepdim=True))).unsqueeze(1)
    return ops.argmax(ops.div(weights, rings), -1).cast(kinds.dtype_of(dtype))
