"""Paired timing: two callables in turn, in one process, so that both meet the same machine."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SETTLE = 0.003  # seconds: worker threads of the side that just ran go to sleep


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


def one(function: Callable[[], object], repeats: int) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def repeats_for(function: Callable[[], object], seconds: float) -> int:
    """How many calls fill the time."""
    function()
    return max(1, min(1000, int(seconds / max(1e-7, one(function, 1)))))


def paired(
    ours: Callable[[], object],
    peer: Callable[[], object],
    rounds: int = 15,
    seconds: float = 0.02,
) -> Result:
    """Time both sides in turn. A round is about `seconds` of each side."""
    counts = (repeats_for(ours, seconds), repeats_for(peer, seconds))
    samples = []
    for _ in range(rounds):
        row = []
        for function, count in zip((ours, peer), counts):
            time.sleep(SETTLE)
            function()
            row.append(one(function, count))
        samples.append(row)
    a, b = np.array(samples).T
    low, ratio, high = np.percentile(b / a, [25, 50, 75])
    return Result(float(np.median(a)), float(np.median(b)), float(ratio), float(low), float(high))


def cpu_name() -> str:
    """The processor's name, as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"
