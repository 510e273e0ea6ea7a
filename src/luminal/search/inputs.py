"""Arrays on which candidates are tried.

Random numbers alone miss wrong schedules (a softmax does not see a shift), so every candidate also
meets hostile ones: points (infinities, NaN, negative zero, large, tiny and denormal magnitudes,
indices outside) and lines (rows that are all masked, all equal, or all denormal).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from ..backend.reference.kernels import evaluate
from ..graph.dtype import DType
from ..kernel.kernel import Constant, Guard, Kernel, Store, Value
from .left import left_in_memory, said_elsewhere

Arrays = dict[str, np.ndarray]
Positions = Mapping[int, np.ndarray]  # extent -> those that are looked at, of dimensions so long

KINDS = ("calm", "points", "lines")
PERIOD = 1_048_583  # a prime: so many elements are drawn, then they come again
USUAL_INTEGERS = 100  # at most: they serve as indices


def arrays(
    kernel: Kernel, sizes: Mapping[str, int], seed: int, kind: str, at: Positions | None = None
) -> Arrays:
    """Contents of all buffers; also of outputs, which must not show through. Hostile elements lie
    where the oracle looks, zeros where sums end since other kernels have left some."""
    rng = np.random.default_rng(seed)
    shapes = {b.name: tuple(int(n.evaluate(sizes)) for n in b.shape) for b in kernel.buffers}
    found = {b.name: contents(b.dtype, shapes[b.name], rng, kind, at or {}) for b in kernel.buffers}
    for value, condition in said_elsewhere(kernel):
        left = left_in_memory(kernel, value, condition) if value.reduction else None
        if left is not None:
            load, number = left
            body = Guard((condition,), load, Constant(number, load.dtype))
            axes, store = tuple(i.text for i in load.index), Store(load.buffer, load.index)
            alone = Value("left", axes, body, load.dtype, store=store)
            evaluate(replace(kernel, values=(alone,)), found, sizes)
    return found


def contents(
    dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, kind: str, at: Positions
) -> np.ndarray:
    """An array of one of the kinds."""
    array = np.resize(_drawn(dtype, min(PERIOD, math.prod(shape)), rng), shape)
    if kind == "calm" or not array.size or dtype.kind == "bool":
        return array
    lines = array if len(shape) > 1 else array.reshape(-1, 1)  # of a vector only elements
    if kind == "points" or not dtype.is_float:
        specials = _specials(dtype)
        count = min(len(specials), array.size // 4 + 1)
        lines[_places(lines.shape, count, rng, at)] = rng.permutation(specials)[:count]
        return array
    fillings = _fillings(dtype)
    count = min(len(fillings), math.prod(lines.shape[:-1]) // 4)
    lines[_places(lines.shape[:-1], count, rng, at)] = fillings[:count, None]
    return array


def _places(
    shape: tuple[int, ...], count: int, rng: np.random.Generator, at: Positions
) -> tuple[np.ndarray, ...]:
    return tuple(rng.choice(at.get(extent, np.arange(extent)), count) for extent in shape)


def _drawn(dtype: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    """Small numbers; integers also serve as indices. All of i8 and u8."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_float:
        return np.asarray(rng.standard_normal(count, np.float32).astype(dtype.numpy))
    low, high = int(dtype.lowest), int(dtype.highest)
    ends = (low, high) if dtype.bytes == 1 else (0, USUAL_INTEGERS)
    return rng.integers(*ends, count, endpoint=True).astype(dtype.numpy)


def _specials(dtype: DType) -> np.ndarray:
    if dtype.is_integer:
        outside = [dtype.lowest, dtype.highest, 0, 1, USUAL_INTEGERS + 1]
        return np.array(outside + [-1, -4] * dtype.is_signed, dtype.numpy)
    info: Any = ml_dtypes.finfo(dtype.numpy)
    large = min(1e15, float(info.max) / 4)
    least = float(info.smallest_subnormal)
    specials = [np.inf, -np.inf, np.nan, -0.0, 0.0, large, -large, 1 / large, -3 * least]
    return np.array([*specials, 1e5 * least, float(info.min)]).astype(dtype.numpy)


def _fillings(dtype: DType) -> np.ndarray:
    """What fills a row: masked in both ways, all equal, all denormal."""
    info: Any = ml_dtypes.finfo(dtype.numpy)
    masked = max(-1e30, float(info.min) / 64)
    found = [-np.inf, masked, 0.5, 9 * float(info.smallest_subnormal)]
    return np.array(found).astype(dtype.numpy)
