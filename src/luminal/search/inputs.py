"""Arrays on which candidates are tried, and whether their results are right.

Random numbers alone miss wrong schedules (a softmax does not see a shift), so every candidate also
meets a few hostile ones: infinities, NaN, negative zero, large and tiny magnitudes, indices
outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..backend.reference.kernels import evaluate
from ..graph.dtype import DType
from ..kernel.kernel import Buffer, Kernel
from ..kernel.work import extents_at
from ..scheduling.facts import is_product_sum

Arrays = dict[str, np.ndarray]

PERIOD = 1_048_583  # a prime: so many elements are drawn, then they come again
HOSTILE = 8  # elements of a buffer that are hostile: the others must stay comparable
GRID = 1 << 27  # points of one value that NumPy is asked to hold
ROUNDINGS = {1: 4, 2: 4, 4: 256, 8: 256}  # bytes of a float -> units in the last place allowed


def arrays(kernel: Kernel, sizes: Mapping[str, int], seed: int, hostile: bool) -> Arrays:
    """Contents of all buffers; also of outputs, which must not show through."""
    rng = np.random.default_rng(seed)
    return {b.name: _array(b, sizes, rng, hostile) for b in kernel.buffers}


def _array(
    buffer: Buffer, sizes: Mapping[str, int], rng: np.random.Generator, hostile: bool
) -> np.ndarray:
    shape = tuple(int(extent.evaluate(sizes)) for extent in buffer.shape)
    dtype = buffer.dtype
    count = min(PERIOD, math.prod(shape))
    if dtype.kind == "bool":
        drawn = rng.integers(0, 2, count).astype(np.bool_)
    elif dtype.is_integer:
        drawn = _integers(dtype, count, rng, hostile)
    else:
        drawn = rng.standard_normal(count, np.float32).astype(dtype.numpy)
    array = np.resize(drawn, shape)
    if hostile and array.size and dtype.is_float:
        flat = array.reshape(-1)
        where = rng.integers(0, flat.size, min(HOSTILE, flat.size // 4 + 1))
        flat[where] = rng.permutation(_specials(dtype))[: len(where)]
    return array


def _integers(dtype: DType, count: int, rng: np.random.Generator, hostile: bool) -> np.ndarray:
    """Small numbers that also serve as indices; hostile: outside too. All of i8 and u8."""
    low, high = int(dtype.lowest), int(dtype.highest)
    if dtype.bytes > 1:
        low, high = max(low, -4 if hostile else 0), 100
    return rng.integers(low, high, count, endpoint=True).astype(dtype.numpy)


def _specials(dtype: DType) -> np.ndarray:
    large = 1e4 if dtype.bytes == 2 and dtype.name == "f16" else 1e15
    specials = [np.inf, -np.inf, np.nan, -0.0, 0.0, large, -large, 1.0 / large]
    return np.array(specials).astype(dtype.numpy)


def checkable(kernel: Kernel, sizes: Mapping[str, int]) -> bool:
    """Whether the oracle can hold the kernel's values in memory."""
    extents = extents_at(kernel, sizes)
    for value in kernel.values:
        axes = value.axes if is_product_sum(value) else value.points
        if np.prod([float(extents[a]) for a in axes]) > GRID:
            return False
    return True


def expected(kernel: Kernel, given: Arrays, sizes: Mapping[str, int]) -> Arrays:
    """What the kernel's outputs must hold, by the oracle."""
    copies = {name: array.copy() for name, array in given.items()}
    with np.errstate(all="ignore"):
        evaluate(kernel, copies, sizes)
    return {name: copies[name] for name in kernel.outputs}


def unbounded(kernel: Kernel) -> Kernel:
    """The kernel with every point walked: a lowering may do so, and 0 * NaN then shows."""
    values = tuple(replace(v, domain={}) for v in kernel.values)
    return replace(kernel, values=values)


@dataclass(frozen=True)
class Judge:
    """Compares outputs with the expected ones. slack: how far off each element may be; judged: the
    elements that are compared at all."""

    wanted: Arrays
    slack: Arrays
    judged: Arrays

    @staticmethod
    def of(kernel: Kernel, wanted: Arrays) -> Judge:
        """Rounding allowed by the dtypes that the kernel computes in."""
        slack = {name: _slack(array, _rounding(kernel)) for name, array in wanted.items()}
        return Judge(wanted, slack, {n: np.ones(a.shape, np.bool_) for n, a in wanted.items()})

    def agreeing(self, others: Arrays) -> Judge:
        """A judge of the elements that another right way to compute makes the same."""
        judged = {}
        for name, wanted in self.wanted.items():
            error, alike = _errors(others[name], wanted)
            judged[name] = self.judged[name] & alike & (error <= self.slack[name])
        return replace(self, judged=judged)

    def beside(self, default: Arrays) -> Judge:
        """A judge for candidates once the default's own outputs are known: four times its error is
        allowed, and elements that it gets otherwise (inf - inf in another order) do not count."""
        slack, judged = {}, {}
        for name, wanted in self.wanted.items():
            error, alike = _errors(default[name], wanted)
            slack[name] = np.maximum(self.slack[name], 4 * error)
            judged[name] = self.judged[name] & alike
        return Judge(self.wanted, slack, judged)

    def fault(self, outputs: Arrays) -> str:
        """What is wrong with these outputs; empty if nothing is."""
        for name, wanted in self.wanted.items():
            near = _near(outputs[name], wanted, self.slack[name])
            wrong = np.asarray(self.judged[name] & ~near)
            if wrong.any():  # what is not finite is looked at only where it stands
                error, alike = _errors(outputs[name][wrong], wanted[wrong])
                wrong[wrong] = ~(alike & (error <= self.slack[name][wrong]))
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                got, want = outputs[name][at], wanted[at]
                return f"{name}{list(at)} is {got} instead of {want}, {wrong.sum()} elements wrong"
        return ""


def _near(got: np.ndarray, wanted: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """Elements that are surely right: no figure beside them is infinite or none."""
    if wanted.dtype.kind in "iub":
        return np.asarray(got == wanted)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(got - wanted) <= slack)


def _errors(got: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(absolute error where both are finite, whether both are finite or the same otherwise)."""
    if wanted.dtype.kind in "iub":
        error = (got != wanted).astype(np.float64)
        return error, np.ones(wanted.shape, np.bool_)
    x, y = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    same = finite | (np.isnan(x) & np.isnan(y)) | (x == y)
    with np.errstate(invalid="ignore"):
        return np.where(finite, np.abs(x - y), 0.0), same


def _slack(wanted: np.ndarray, rounding: float) -> np.ndarray:
    if wanted.dtype.kind in "iub":
        return np.zeros(wanted.shape)
    size = np.abs(wanted.astype(np.float64))
    finite = np.isfinite(size)
    some = size[finite][:: 1 + size.size // PERIOD]
    usual = float(np.quantile(some, 0.75)) if some.size else 0.0  # half may be cut to zero
    slack: np.ndarray = rounding * (np.where(finite, size, 0.0) + max(usual, 1e-30))
    return slack


def _rounding(kernel: Kernel) -> float:
    """Relative error that any order of evaluation may have."""
    found = [_unit(v.dtype) * ROUNDINGS[v.dtype.bytes] for v in kernel.values if v.dtype.is_float]
    return max(found, default=0.0)


def _unit(dtype: DType) -> float:
    import ml_dtypes

    info: Any = ml_dtypes.finfo(dtype.numpy)
    return float(info.eps)
