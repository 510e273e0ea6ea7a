"""Timing in turns: all sides in one process, so that each meets the same machine.

A figure counts only beside another that was taken in the same seconds. So every round times every
side, the order moves on from round to round, and ratios are taken within a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..search.turns import in_turns

Call = Callable[[], object]
Clock = Callable[[], float]

REST = 0.001  # seconds: a slice in which a process at rest uses next to no processor time
PATIENCE = 0.05  # seconds to wait for that
PATIENT_SECONDS = 15.0  # for all rounds
SLOW = 5.0  # rounds of time: a call that takes so long needs none before it to be warm


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(samples: np.ndarray) -> Spread:
        low, median, high = (float(x) for x in np.percentile(samples, [25, 50, 75]))
        return Spread(median, low, high)


@dataclass(frozen=True)
class Result:
    """Medians in seconds, and the median and quartiles of the per-round ratios peer / ours."""

    ours: float
    peer: float
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        times = f"{self.ours * 1e6:10.1f} {self.peer * 1e6:10.1f}"
        return f"{times} {self.ratio:7.2f} ({self.low:.2f} - {self.high:.2f})"


def wall() -> float:
    """Seconds since some point in time."""
    return time.perf_counter()


def one(function: Call, repeats: int, clock: Clock = wall) -> float:
    """Seconds a call."""
    start = clock()
    for _ in range(repeats):
        function()
    return (clock() - start) / repeats


def repeats_for(function: Call, seconds: float) -> int:
    """How many calls fill the time."""
    function()
    return max(1, min(1000, int(seconds / max(1e-7, one(function, 1)))))


def settle() -> None:
    """Wait until the threads of the side that ran last have stopped spinning for work."""
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(REST)
        if time.process_time() - used < REST / 3:
            return


def interleaved(
    sides: Mapping[str, Call], rounds: int = 15, seconds: float = 0.02,
    clock: Clock = wall,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Seconds a call of each side, one sample a round. A round is about `seconds` of each side;
    where single calls are so slow that all would take too long, there are fewer."""
    samplers = {name: _sampler(side, seconds, clock) for name, side in sides.items()}
    samples = in_turns(samplers, rounds, PATIENT_SECONDS)
    return {name: np.array(taken) for name, taken in samples.items()}


def _sampler(side: Call, seconds: float, clock: Clock) -> Callable[[], float]:
    """One sample of a side, with its threads awake and its data near."""
    count, slow = repeats_for(side, seconds), False

    def sample() -> float:
        nonlocal slow
        settle()
        if not slow:
            side()
        taken = one(side, count, clock)
        slow = taken > SLOW * seconds
        return taken

    return sample


def paired(ours: Call, peer: Call, rounds: int = 15, seconds: float = 0.02) -> Result:
    """Time two sides in turn."""
    samples = interleaved({"ours": ours, "peer": peer}, rounds, seconds)
    a, b = samples["ours"], samples["peer"]
    ratio = Spread.of(b / a)
    return Result(float(np.median(a)), float(np.median(b)), ratio.median, ratio.low, ratio.high)
