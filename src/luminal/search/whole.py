"""Finished programs against each other: the same results, then whole runs in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from ..errors import WrongResult
from ..graph.dtype import DType
from ..kernel.kernel import Apply, Kernel, Value
from ..kernel.work import extents_at, usual_sizes
from .inputs import PERIOD
from .turns import in_turns, ratios, winner

ROUNDS = 15
SECONDS = 4.0
SAMPLE_SECONDS = 2e-3  # least length of one measurement
ERRORS = 32  # times the usual one, which few of many elements exceed sixfold
MOST = 0.25  # of an element, whatever the dtypes
UNIT = {
    (8, True): 2.0**-53,
    (4, True): 2.0**-24,
    (2, True): 2.0**-8,
    (1, True): 2.0**-4,
    (1, False): 2.0**-8,
}  # rounding to a dtype: (bytes, whether it is a float)


Timer: TypeAlias = Callable[[Callable[[], None]], float]


class Engine(Protocol):
    """A compiled program (see `runtime.executable.Engine`)."""

    def set(self, port: int, array: np.ndarray) -> None: ...

    def bind(self, sizes: Mapping[str, int]) -> None: ...

    def run(self) -> None: ...

    def output(self, number: int) -> np.ndarray: ...


def fastest(
    engines: Sequence[Engine],
    inputs: Mapping[int, tuple[DType, tuple[int, ...]]],
    sizes: Mapping[str, int],
    threads: int,
    outputs: int,
    kernels: Sequence[Kernel],
    timer: Timer | None = None,
) -> tuple[int, list[float]]:
    """(number of the fastest, the first where no other is clearly faster; times of each in those
    of the first, infinite where its outputs differ from the first's). inputs: port -> (dtype,
    shape). outputs: how many. kernels: those of the first. timer: the seconds of what a function
    queues on a device, by the device's clock. Raises WrongResult where several agree against the
    first."""
    results = [_run(engine, inputs, sizes, outputs, positive=False) for engine in engines]
    if not all(_finite(array) for array in results[0]):
        results = [_run(engine, inputs, sizes, outputs, positive=True) for engine in engines]
    right = _agreeing(results, tolerance(kernels, sizes))
    sides = {number: _sampler(engines[number].run, threads, timer) for number in right}
    samples = in_turns(sides, ROUNDS, SECONDS)
    found = ratios(samples, 0)
    return winner(samples, 0), [found.get(number, math.inf) for number in range(len(engines))]


def tolerance(kernels: Sequence[Kernel], sizes: Mapping[str, int]) -> float:
    """Relative error that another program may have: as of a random walk, of the roundings to the
    coarsest dtype of each kernel and of all terms of sums."""
    walked, rounded = 0.0, 0.0
    for kernel in kernels:
        extents = extents_at(kernel, usual_sizes(kernel) | dict(sizes))
        units = [UNIT[v.dtype.bytes, v.dtype.is_float] for v in kernel.values if _rounds(v)]
        rounded += max(units, default=0.0) ** 2
        for value in kernel.values:
            if value.over and value.dtype.is_float:
                terms = math.prod(extents[axis] for axis in value.over)
                walked += terms * UNIT[max(4, value.dtype.bytes), True] ** 2
    return min(MOST, ERRORS * math.sqrt(walked + rounded))


def _rounds(value: Value) -> bool:
    """To fewer digits: to a float, or from one to a small integer."""
    cast = isinstance(value.body, Apply) and value.body.op == "cast" and value.body.args[0]
    return value.dtype.is_float or bool(cast and cast.dtype.is_float and value.dtype.bytes == 1)


def _agreeing(results: Sequence[Sequence[np.ndarray]], relative: float) -> list[int]:
    """The programs whose outputs are those of the first."""

    def agree(one: int, other: int) -> bool:
        return all(close(a, b, relative) for a, b in zip(results[one], results[other]))

    same = [number for number in range(len(results)) if agree(0, number)]
    others = [number for number in range(len(results)) if number not in same]
    if len(others) > len(same) and all(agree(others[0], number) for number in others):
        raise WrongResult(
            "the program with default schedules computes other results than all that were "
            "searched, which agree: a fault of the compiler"
        )
    return same


def close(got: np.ndarray, wanted: np.ndarray, relative: float) -> bool:
    """Equal, but for an error relative to an element and to all elements together. What rounding
    has made another integer is counted."""
    if wanted.dtype.kind in "iub":
        return bool(np.mean(got != wanted) <= relative) if wanted.size else True
    x, y = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return False
    usual = math.sqrt(np.mean(np.square(y[finite]))) if finite.any() else 0.0
    return bool((np.abs(x - y)[finite] <= relative * (np.abs(y[finite]) + usual)).all())


def _run(
    engine: Engine,
    inputs: Mapping[int, tuple[DType, tuple[int, ...]]],
    sizes: Mapping[str, int],
    outputs: int,
    positive: bool,
) -> list[np.ndarray]:
    for port, (dtype, shape) in inputs.items():
        engine.set(port, _filled(port, dtype, shape, positive))
    engine.bind(sizes)
    engine.run()
    return [engine.output(number).copy() for number in range(outputs)]


def _filled(port: int, dtype: DType, shape: tuple[int, ...], positive: bool) -> np.ndarray:
    """Small numbers that also serve as indices. positive: as variances must be."""
    rng = np.random.default_rng(port)
    count = min(PERIOD, math.prod(shape))
    values = rng.standard_normal(count) if dtype.is_float else rng.integers(0, 2, count)
    return np.resize((np.abs(values) if positive else values).astype(dtype.numpy), shape)


def _finite(array: np.ndarray) -> bool:
    return array.dtype.kind in "iub" or bool(np.isfinite(array.astype(np.float64)).all())


def _sampler(
    run: Callable[[], None], threads: int, timer: Timer | None = None
) -> Callable[[], float]:
    """Seconds of a run. One thread: of its processor time, blind to what else runs."""
    if timer is not None:
        run()  # later runs may be one launch
        return partial(timer, run)
    clock = time.thread_time if threads == 1 else time.perf_counter
    start = time.perf_counter()
    run()
    repeats = max(1, int(SAMPLE_SECONDS / max(1e-7, time.perf_counter() - start)))

    def sample() -> float:
        start = clock()
        for _ in range(repeats):
            run()
        return (clock() - start) / repeats

    return sample
