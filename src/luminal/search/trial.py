"""One kernel on the bench: candidates are built, compared with the oracle, and timed.

This runs in a child process (`child.py`): a candidate that crashes or hangs harms nobody else.
Where a device has memory of its own, `device_trial.py` is the stand; here is that of the host.
Memory-bound kernels are timed on rotating copies of their buffers, larger together than the last
cache; the others warm.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..backend.contract import Accelerator, Backend, Code
from ..backend.devices import Device
from ..backend.loops import loop_program, verify_loops
from ..backend.table import Entry
from ..errors import CompileError
from ..kernel.kernel import Buffer, Kernel
from ..kernel.layout import pack
from ..kernel.program import Program
from ..kernel.schedule import Schedule
from ..kernel.target import Target
from ..kernel.work import usual_sizes, work
from .device_trial import CANARY, DeviceStand
from .inputs import Arrays
from .oracle import Case, cases
from .roofline import streams
from .turns import in_turns, ratios

ROTATED = 128 << 20  # most bytes of rotating copies
SAMPLE_SECONDS = 5e-4  # least length of one measurement
SAMPLES = 9
LONG_SECONDS = 5e-3  # measurements of this length are steadier: fewer rounds will do


@dataclass(frozen=True)
class Result:
    """How a candidate fared. status: "ok", "refused" (by a later stage), "wrong". seconds: of one
    call. compile_seconds: lowering to machine code."""

    status: str
    detail: str = ""
    seconds: float = 0.0
    compile_seconds: float = 0.0


@dataclass
class Built:
    """A candidate as machine code."""

    program: Program
    code: Code


class Timed(Protocol):
    """A candidate, ready to be timed. count: calls of a measurement. steady: one tells as much as
    many."""

    count: int
    steady: bool

    def sample(self) -> float:
        """Seconds of one call."""
        ...


class Stand(Protocol):
    """Where the candidates of a kernel run."""

    def begin(self, kernel: Kernel, schedule: Schedule) -> Any:
        """A candidate that is being built. Raises CompileError."""
        ...

    def end(self, built: Any) -> None:
        """Wait until it is. Raises CompileError."""
        ...

    def tried(self, built: Any, case: Case) -> tuple[str, Arrays]:
        """(what is wrong with the results of one case, empty if nothing is; the results)."""
        ...

    def timed(
        self, built: Any, given: Arrays, sizes: Mapping[str, int], copies: int
    ) -> Timed:
        """Ready to be timed. copies: sets of buffers to rotate through."""
        ...


@dataclass
class Bench:
    """Everything about one kernel; the default schedule must be tried first."""

    kernel: Kernel
    target: Target
    backend: Device
    seed: int = 0
    cases: list[Case] = field(default_factory=list)
    begun: dict[int, Any] = field(default_factory=dict)  # being built
    built: dict[int, Any] = field(default_factory=dict)
    default: tuple[Timed, float] | None = None  # and the seconds of a call

    def __post_init__(self) -> None:
        self.sizes = usual_sizes(self.kernel)
        self.stand: Stand
        if isinstance(self.backend, Accelerator):
            self.stand = DeviceStand(self.kernel, self.target, self.backend)
        else:
            self.stand = HostStand(self.kernel, self.target, self.backend)
        self.cases = list(cases(self.kernel, self.seed))
        self.copies = copies_needed(self.kernel, self.sizes, self.target)

    # ---- one candidate

    def begin(self, batch: Iterable[tuple[int, Kernel, Schedule]]) -> None:
        """Candidates that `attempt` will come to. What is wrong with one is said there."""
        for number, kernel, schedule in batch:
            with suppress(CompileError):
                self.begun[number] = self.stand.begin(kernel, schedule)

    def attempt(
        self, number: int, kernel: Kernel, schedule: Schedule, limit: float = 0.0
    ) -> Result:
        """Build, check and time a candidate; number 0 is the default. `limit`: seconds of a call
        beyond which one measurement is enough."""
        start = time.perf_counter()
        try:
            begun = self.begun.pop(number, None)
            built = begun or self.stand.begin(kernel, schedule)
            self.stand.end(built)
        except CompileError as error:
            return Result("refused", str(error))
        spent = time.perf_counter() - start
        fault = self.check(built, complete=number == 0)
        if fault:
            return Result("wrong", fault, compile_seconds=spent)
        self.built[number] = built
        return Result("ok", "", self.measure(built, limit), spent)

    def check(self, built: Any, complete: bool = False) -> str:
        """What is wrong with the results; empty if nothing is. complete: this is the default: once
        it is right where large outputs were sampled, it is what the others are held against
        elsewhere."""
        for case in self.cases:
            fault, outputs = self.stand.tried(built, case)
            if fault:
                return fault
            if complete and case.sampled and case.kind == "calm":
                case.judge = case.judge.completed(outputs)
        return ""

    # ---- time

    def measure(self, built: Any, limit: float) -> float:
        """Seconds of one call: in turns with the default, in times of its first measurement. What
        is measured alone meets its own moment of the machine: the same kernel took 375 to 667 us,
        and in turns the ratio of two was within 4% (Zen 3)."""
        launch = self._timed(built)
        once = launch.sample()
        rounds = SAMPLES // 3 if once * launch.count > LONG_SECONDS else SAMPLES
        if launch.steady:
            self.default = self.default or (launch, once)
            return once
        if self.default is None:
            samples = [launch.sample() for _ in range(3 * rounds)]
            self.default = launch, float(np.quantile(samples, 0.25))
            return self.default[1]
        default, seconds = self.default
        if limit and once > limit:
            return once
        sides = {"default": default.sample, "this": launch.sample}
        return seconds * ratios(in_turns(sides, rounds), "default")["this"]

    def race(self, numbers: Sequence[int], rounds: int, seconds: float) -> dict[int, list[float]]:
        """Several candidates in turns, so that all meet the same moments of the machine: so many
        rounds, fewer where the time is over."""
        launches = {number: self._timed(self.built[number]) for number in numbers}
        for launch in launches.values():
            launch.sample()
        sides = {number: launch.sample for number, launch in launches.items()}
        if all(launch.steady for launch in launches.values()):
            rounds = 1
        return in_turns(sides, rounds, seconds)

    def _timed(self, built: Any) -> Timed:
        return self.stand.timed(built, self.cases[0].given, self.sizes, self.copies)


class HostStand:
    """Where the candidates of a kernel run in this process's memory; see `Stand`."""

    def __init__(self, kernel: Kernel, target: Target, backend: Backend) -> None:
        self.kernel, self.target, self.backend = kernel, target, backend
        self._sets: list[Arrays] = []

    def begin(self, kernel: Kernel, schedule: Schedule) -> Built:
        """Through the one lowering, as the compiler does it."""
        program = loop_program(kernel, schedule, self.target)
        verify_loops(program)
        code = self.backend.build([self.backend.render(program, self.target)], self.target)[0]
        return Built(program, code)

    def end(self, built: Built) -> None:
        """It is built."""

    def tried(self, built: Built, case: Case) -> tuple[str, Arrays]:
        return tried(built, self.backend, self.target.threads, case)

    def timed(
        self, built: Built, given: Arrays, sizes: Mapping[str, int], copies: int
    ) -> Launch:
        constant = {b.name for b in self.kernel.buffers if b.constant}
        while len(self._sets) < copies:  # of all buffers that no schedule lays out anew
            self._sets.append({name: _copy(self.backend, array) for name, array in given.items()
                               if name not in constant})  # fmt: skip
        constants = {name: given[name] for name in constant}
        sets = [{**changing, **constants} for changing in self._sets]
        launch = Launch(built, self.backend, self.target.threads, sizes, sets, keep=True)
        launch.calibrate()
        return launch


def tried(built: Built, backend: Backend, threads: int, case: Case) -> tuple[str, Arrays]:
    """(what is wrong with the results of one case, empty if nothing is; the results)."""
    launch = Launch(built, backend, threads, case.sizes, [case.given])
    launch.run()
    outputs = launch.arrays(case.judge.looked)
    if launch.overrun():
        return f"a write behind the end of {launch.overrun()}", outputs
    fault = case.judge.fault(outputs)
    return (f"{fault} ({case.kind} inputs)" if fault else ""), outputs


class Launch:
    """A built kernel on sets of arrays; see `Timed`. keep: arrays that need no packing are used as
    they are."""

    steady = False

    def __init__(
        self, built: Built, backend: Backend, threads: int, sizes: Mapping[str, int],
        sets: Iterable[Arrays], keep: bool = False,
    ) -> None:  # fmt: skip
        self.built, self.backend, self.threads = built, backend, threads
        self.crew = backend.crew(threads)
        program = built.program
        self.counters = _zeros(backend, backend.counter_bytes(program, threads))
        stride = backend.workspace_bytes(program)
        self.workspace = _zeros(backend, stride * threads)
        self.places: list[Arrays] = []
        self.blocks: list[ctypes.Array[ctypes.c_int64]] = []
        numbers = [sizes[name] for name in program.sizes]
        self._packed: dict[str, np.ndarray] = {}
        for arrays_ in sets:
            place = {b.name: self._place(b, arrays_[b.name], keep) for b in program.buffers}
            slots = [place[b.name].ctypes.data for b in program.buffers]
            slots += [self.counters.ctypes.data, self.workspace.ctypes.data, stride, *numbers]
            self.places.append(place)
            self.blocks.append((ctypes.c_int64 * len(slots))(*slots))
        self._table(len(self.blocks))

    def _place(self, buffer: Buffer, array: np.ndarray, keep: bool) -> np.ndarray:
        layout = self.built.program.layouts.get(buffer.name)
        if layout:  # constants are the same in all sets
            if buffer.name not in self._packed:
                self._packed[buffer.name] = pack(array, layout)
            return _copy(self.backend, self._packed[buffer.name])
        return array if keep and not buffer.constant else _copy(self.backend, array)

    def _table(self, count: int) -> None:
        function = self.built.code.address(self.built.program.name)
        blocks = [self.blocks[i % len(self.blocks)] for i in range(count)]
        entries = [Entry(function, ctypes.addressof(block)) for block in blocks]
        self.count, self.table = count, self.backend.table(entries)

    def run(self) -> None:
        self.crew.run(self.table)

    def calibrate(self) -> None:
        """Enough calls in one measurement."""
        once = self.sample()
        if once * self.count < SAMPLE_SECONDS:
            wanted = SAMPLE_SECONDS / max(once, 1e-7)
            self._table(-(-int(wanted) // len(self.blocks)) * len(self.blocks))

    def sample(self) -> float:
        """Seconds of one call. One thread: of its processor time, blind to what else runs."""
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        start = clock()
        self.run()
        return (clock() - start) / self.count

    def arrays(self, names: Iterable[str]) -> Arrays:
        return {name: self.places[0][name] for name in names}

    def overrun(self) -> str:
        """The buffer behind whose end something was written; empty if there is none."""
        for name, array in self.places[0].items():
            if (_canary(array) != CANARY).any():
                return name
        return ""


def copies_needed(kernel: Kernel, sizes: Mapping[str, int], target: Target) -> int:
    """Sets of buffers to rotate through; 1: the kernel is timed warm."""
    if not streams(kernel, target, sizes):
        return 1
    wanted = -(-min(ROTATED, 2 * target.l3) // work(kernel, sizes).bytes)
    held = sum(_bytes(buffer, sizes) for buffer in kernel.buffers)  # a table is hardly touched
    return max(1, min(wanted, ROTATED // held))


def _bytes(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    return math.prod(int(n.evaluate(sizes)) for n in buffer.shape) * buffer.dtype.bytes


def _copy(backend: Backend, array: np.ndarray) -> np.ndarray:
    """A copy in memory of the backend, with a canary behind it."""
    raw = backend.empty((array.nbytes + CANARY,), np.dtype(np.uint8))
    raw[array.nbytes :] = CANARY
    copy = raw[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _canary(array: np.ndarray) -> np.ndarray:
    end = (ctypes.c_uint8 * CANARY).from_address(array.ctypes.data + array.nbytes)
    return np.ctypeslib.as_array(end)


def _zeros(backend: Backend, bytes_: int) -> np.ndarray:
    raw = backend.empty((max(64, bytes_),), np.dtype(np.uint8))
    raw[:] = 0
    return raw
