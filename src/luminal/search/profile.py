"""Where the time of a run goes: each kernel beside what the machine allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..kernel.target import Target
from ..kernel.work import work
from .roofline import roofline

COLUMNS = "kernel                             calls       us  of run  GFLOP/s     GB/s  roofline"


class Program(Protocol):
    """A compiled program that has run (see `runtime.executable.Executable`)."""

    @property
    def kernels(self) -> Sequence[Any]: ...

    @property
    def run_sizes(self) -> Mapping[str, int]: ...

    def time_kernels(self, repeat: int = 20) -> list[tuple[str, float]]: ...


def profile(program: Program, target: Target, rates: Mapping[str, float]) -> str:
    """A line for each kernel, the costliest first: calls, microseconds of a call, share of the run,
    rates and share of the roofline, all at the sizes of the last run. Kernels are timed alone and
    warm."""
    times: dict[str, list[float]] = {}
    for name, seconds in program.time_kernels():
        times.setdefault(name, []).append(seconds)
    whole = sum(map(sum, times.values()))
    lines = []
    for made in sorted(program.kernels, key=lambda made: -sum(times.get(made.name, ()))):
        taken = times.get(made.name)
        if taken:
            least = roofline(made.kernel, target, rates, warm=True, sizes=program.run_sizes)
            lines.append(_line(made, taken, whole, least, program.run_sizes))
    return "\n".join([COLUMNS, *lines, f"all kernels: {1e6 * whole:.1f} us"])


def _line(
    made: Any, taken: list[float], whole: float, least: float, sizes: Mapping[str, int]
) -> str:
    each, done = sum(taken) / len(taken), work(made.kernel, sizes)
    return (
        f"{made.name:32} {len(taken):7} {1e6 * each:8.1f} {sum(taken) / whole:7.1%}"
        f" {done.flops / each / 1e9:8.1f} {done.bytes / each / 1e9:8.1f} {least / each:9.0%}"
    )
