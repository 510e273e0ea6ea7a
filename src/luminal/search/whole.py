"""Finished programs against each other: whole runs, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from ..graph.dtype import DType
from .turns import in_turns, ratios, winner

ROUNDS = 15
SECONDS = 4.0
SAMPLE_SECONDS = 2e-3  # least length of one measurement


class Engine(Protocol):
    """A compiled program (see `runtime.executable.Engine`)."""

    def set(self, port: int, array: np.ndarray) -> None: ...

    def bind(self, sizes: Mapping[str, int]) -> None: ...

    def run(self) -> None: ...


def fastest(
    engines: Sequence[Engine],
    inputs: Mapping[int, tuple[DType, tuple[int, ...]]],
    sizes: Mapping[str, int],
    threads: int,
) -> tuple[int, list[float]]:
    """(number of the fastest, the first where no other is clearly faster; times of each in those
    of the first). inputs: port -> (dtype, shape)."""
    arrays = {port: _filled(*made) for port, made in inputs.items()}
    for engine in engines:
        for port, array in arrays.items():
            engine.set(port, array)
        engine.bind(sizes)
        engine.run()
    sides = {number: _sampler(engine.run, threads) for number, engine in enumerate(engines)}
    samples = in_turns(sides, ROUNDS, SECONDS)
    found = ratios(samples, 0)
    return winner(samples, 0), [found[number] for number in range(len(engines))]


def _filled(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers that also serve as indices."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(4096) if dtype.is_float else rng.integers(0, 2, 4096)
    return np.resize(values.astype(dtype.numpy), shape)


def _sampler(run: Callable[[], None], threads: int) -> Callable[[], float]:
    """Seconds of a run. One thread: of its processor time, blind to what else runs."""
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
