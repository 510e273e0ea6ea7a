"""The machine under measurement: its name, its ceilings, and threads that stay where they are."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .. import __version__
from ..backend import devices
from .paired import Call

PACKAGES = ("numpy", "llvmlite", "torch", "onnxruntime", "openvino", "jax")
OPERANDS = {"f32": (), "bf16": ("bf16",), "int8": ("i8", "u8", "i16")}  # of instructions that help
STAT, STATUS = Path("/proc/stat"), Path("/proc/self/status")
TASKS = Path("/proc/self/task")
WARM_SECONDS = 0.05
LEAST_READ = 1 << 16  # bytes: less takes no time that could be measured
QUIET = 0.05  # share of the processors' time that others may use
BUSY = 0.25  # share of the busiest thread's time from which a thread counts as a worker
IDLE = 0.01  # of the time: one that looks now and then whether there is work


@dataclass(frozen=True)
class Machine:
    """cpu: its name. threads: of every side. ceilings: Gop/s of each instruction and GB/s of
    reading, as the backend's `limits` measure them. versions: of the packages that took part."""

    cpu: str
    threads: int
    precision: str
    ceilings: dict[str, float]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def bandwidth(self) -> float:
        """Bytes a second of a plain read."""
        return 1e9 * self.ceilings["read"]


def measured(threads: int, precision: str = "f32", seconds: float = 0.1) -> Machine:
    """This machine, with its ceilings measured now."""
    found = devices.host().limits().measure(threads, seconds)
    return Machine(cpu_name(), threads, precision, found, versions())


def ceilings_of(
    flops: float, size: int, precision: str, threads: int, rivals: Collection[str] = ()
) -> dict[str, tuple[Call, float]]:
    """What bounds a case, to be timed beside it: (run, what part of a run is the case's) of each
    multiplying instruction for the precision and of reading as many bytes; and, where they are
    rivals, of a plain read, and of a copy that reads and writes as many together."""
    sides: dict[str, tuple[Call, float]] = {}
    host, limits = devices.host(), devices.host().limits()
    known, kinds = host.target(threads).instructions, OPERANDS[precision]
    fitting = [i.name for i in known if i.first.name in kinds]
    for name in ["fma", *fitting] if flops else []:
        run, operations = limits.multiplier(name, threads)
        sides[name] = run, flops / operations
    length = max(size, LEAST_READ)
    sides["read"] = limits.reader(length, threads), size / length
    if "plain read" in rivals:
        sides["plain read"] = limits.reader(length, threads, streams=1), size / length
    if "copy" in rivals:
        sides["copy"] = limits.copier(length // 2, threads), size / length
    return sides


def cpu_name() -> str:
    """The processor's name, as the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown processor"


def versions() -> dict[str, str]:
    """Versions of the packages that are installed."""
    found = {"python": platform.python_version(), "luminal": __version__}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def process_peak() -> int | None:
    """The most memory that this process has had until now, code and all; None on Windows."""
    with contextlib.suppress(OSError):  # what it had before it became this program does not count
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    if importlib.util.find_spec("resource") is None:
        return None
    resource = importlib.import_module("resource")
    most = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return most if sys.platform == "darwin" else most << 10


# ---- the rest of the machine


class Elsewhere:
    """How busy the processors are with other things than this process, since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time(), _all_seconds()

    def share(self) -> float | None:
        """Of all processors' time, 0 to 1; stolen time counts. None where nothing tells."""
        wall, own, every = self._start
        now = _all_seconds()
        if every is None or now is None:
            return None
        others = (now - every) - (time.process_time() - own)
        passed = (time.perf_counter() - wall) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, others / passed)) if passed > 0 else 0.0


def settle(seconds: float = 2.0) -> None:
    """Wait until nothing else is busy, so long at most: compilers leave children behind."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        others = Elsewhere()
        time.sleep(0.25)
        if (others.share() or 0.0) < QUIET:
            return


def _all_seconds() -> float | None:
    """Processor seconds used by everything since the start of the system (Linux: proc(5))."""
    try:
        fields = [int(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _, _, irq, softirq, stolen = fields
    ticks: int = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq + stolen) / ticks


# ---- threads on processors (Linux; elsewhere the system decides)


def pin_workers(run: Call, threads: int) -> bool:
    """Hold the threads that work during `run` on a processor each, the caller on the first. True
    if it was done: only where as many threads work as should."""
    before = _busy_nanoseconds()
    end = time.perf_counter() + WARM_SECONDS
    run()
    while time.perf_counter() < end:
        run()
    spent = {t: n - before.get(t, 0) for t, n in _busy_nanoseconds().items() if t != os.getpid()}
    least = max(BUSY * max(spent.values(), default=0), IDLE * 1e9 * WARM_SECONDS)
    workers = sorted(t for t, n in spent.items() if n > least)
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not threads - 1 <= len(workers) <= threads <= len(cpus) or not workers:
        return False
    for thread, cpu in zip(workers, cpus[threads - len(workers) :]):
        with contextlib.suppress(OSError):  # it has ended, or it may not be moved
            os.sched_setaffinity(thread, {cpu})
    return True


def _busy_nanoseconds() -> dict[int, int]:
    """Thread -> nanoseconds on a processor; {} where the system does not tell."""
    found = {}
    if hasattr(os, "sched_setaffinity"):
        for task in TASKS.glob("*"):
            with contextlib.suppress(OSError, ValueError):
                found[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return found


@contextlib.contextmanager
def on_first_processor() -> Iterator[None]:
    """Inside, the calling thread stays on the first processor that it may use."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
