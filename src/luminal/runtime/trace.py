"""When each thread was in which kernel, in one run; how long what runs alone takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Span:
    """A thread in a call of a kernel: seconds from the start of the run, and how many. call: its
    number among the calls of the run."""

    kernel: str
    call: int
    thread: int
    start: float
    seconds: float


def spans(names: Sequence[str], times: np.ndarray) -> list[Span]:
    """times: (call, thread, 2) on a clock, zeros where a thread did not run it; of a call in a
    loop, those of its last step."""
    ran = times[times > 0]
    first = float(ran.min()) if ran.size else 0.0
    return [Span(names[call], call, thread, float(began) - first, float(ended - began))
            for call, row in enumerate(times) for thread, (began, ended) in enumerate(row)
            if began > 0]  # fmt: skip


@contextmanager
def unchanged(arrays: Sequence[np.ndarray]) -> Iterator[None]:
    """What looking at a run has written there is taken back."""
    before = [array.copy() for array in arrays]
    try:
        yield
    finally:
        for array, known in zip(arrays, before):
            array[...] = known


def least(run: Callable[[], None], repeat: int) -> float:
    """Seconds of the shortest of so many runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def end_to_end(calls: Iterable[tuple[str, float]]) -> list[Span]:
    """Calls that were timed alone, one behind the other."""
    found, now = list[Span](), 0.0
    for number, (name, seconds) in enumerate(calls):
        found.append(Span(name, number, 0, now, seconds))
        now += seconds
    return found
