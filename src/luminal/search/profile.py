"""Where the time of a run goes: each kernel beside what the machine allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import Unsupported
from ..kernel.target import Target
from ..kernel.work import work
from .roofline import roofline

COLUMNS = ("kernel                             calls       us  of run  GFLOP/s     GB/s  roofline"
           "  balance")  # fmt: skip


class Program(Protocol):
    """A compiled program that has run (see `runtime.executable.Executable`)."""

    @property
    def kernels(self) -> Sequence[Any]: ...

    @property
    def run_sizes(self) -> Mapping[str, int]: ...

    def time_kernels(self, repeat: int = 20) -> list[tuple[str, float]]: ...

    def trace(self) -> Sequence[Any]: ...

    def inspected(self) -> Any: ...


@dataclass(frozen=True)
class Profiled:
    """A kernel in a run. seconds: of all its calls together; share: of the run; flops and bytes: of
    a call; roofline: the share of what the machine allows at most; threads: seconds that each of
    them spent in it, in one run (none where no clock is read)."""

    kernel: str
    calls: int
    seconds: float
    share: float
    flops: int
    bytes: int
    roofline: float
    threads: tuple[float, ...] = ()

    @property
    def balance(self) -> float:
        """The mean of the threads' times over the longest: 1 where the work is shared evenly."""
        most = max(self.threads, default=0.0)
        return sum(self.threads) / len(self.threads) / most if most else 1.0

    def __str__(self) -> str:
        each = self.seconds / self.calls
        return (
            f"{self.kernel:32} {self.calls:7} {1e6 * each:8.1f} {self.share:7.1%}"
            f" {self.flops / each / 1e9:8.1f} {self.bytes / each / 1e9:8.1f} {self.roofline:9.0%}"
            f" {self.balance:8.0%}"
        )


def profiled(program: Program, repeat: int = 20) -> list[Profiled]:
    """The kernels of a run beside the rates of its device, measured now; none on the reference
    device."""
    seen = program.inspected()
    if seen is None:
        return []
    return beside(program, seen.backend.target(seen.threads), seen.rates(), repeat)


def beside(
    program: Program, target: Target, rates: Mapping[str, float], repeat: int = 20
) -> list[Profiled]:
    """The kernels of a run, the costliest first, at the sizes of the last run. Kernels are timed
    alone and warm."""
    times: dict[str, list[float]] = {}
    shares = _by_thread(program)
    for name, seconds in program.time_kernels(repeat):
        times.setdefault(name, []).append(seconds)
    whole, rows = sum(map(sum, times.values())), []
    for made in program.kernels:
        taken = times.get(made.name)
        if taken and sum(taken) > 0:  # nothing to do at these sizes takes no time
            least = roofline(made.kernel, target, rates, warm=True, sizes=program.run_sizes)
            done, spent, calls = work(made.kernel, program.run_sizes), sum(taken), len(taken)
            rows.append(Profiled(made.name, calls, spent, spent / whole, done.flops, done.bytes,
                                 least * calls / spent, shares.get(made.name, ())))  # fmt: skip
    return sorted(rows, key=lambda row: -row.seconds)


def _by_thread(program: Program) -> dict[str, tuple[float, ...]]:
    """Of each kernel the seconds that each thread spent in it, in one run."""
    try:
        spans = program.trace()
    except Unsupported:
        return {}
    threads = range(1 + max((span.thread for span in spans), default=0))
    found: dict[str, list[float]] = {}
    for span in spans:
        found.setdefault(span.kernel, [0.0 for _ in threads])[span.thread] += span.seconds
    return {name: tuple(seconds) for name, seconds in found.items()}


def profile(program: Program, target: Target, rates: Mapping[str, float]) -> str:
    """A line for each kernel: calls, microseconds of a call, share of the run, rates and share of
    the roofline."""
    rows = beside(program, target, rates)
    whole = sum(row.seconds for row in rows)
    return "\n".join([COLUMNS, *map(str, rows), f"all kernels: {1e6 * whole:.1f} us"])
