"""The threads that execute plans: one persistent crew for each number of threads.

A crew's workers are pinned, spin for a while after each run and then sleep; the caller is thread 0.
One native call runs a whole plan. Where threads cannot sleep on a futex (not Linux) the workers
wait on a condition variable of Python instead: the same results, some 50 us later.

Why pinned: on 2 quiet cores it makes no difference, but beside other busy processes the system puts
caller and worker on one core (200 empty kernels: 4700 us instead of 29). Beside other processes of
this package they are not, where all cores are taken (`cores`). Why a thread sleeps at a barrier
after a while: on a busy machine that is 3 to 7 times as fast as spinning on.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from ... import cores
from ...errors import DeviceError, Unsupported
from ..table import Entry, Step
from . import crew_text, jit, memory
from .table import Functions, Table
from .target import host, host_machine

SPIN_SECONDS = 5e-4  # a worker without a plan waits so long before it sleeps
LOOSE_SECONDS = 1e-4  # one that is not pinned, and may be on the caller's core
PATIENCE_SECONDS = 2e-5  # at a barrier: then the core is left to whatever holds up the others

CallType = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
StepType = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
FinishType = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Workers:
    """A crew. `run` may be called from any Python thread; calls take turns.

    sleep: "futex", "condition", or None for the best that the system has.
    """

    def __init__(self, threads: int, sleep: str | None = None) -> None:
        if threads < 1:
            raise DeviceError(f"a crew needs at least one thread, not {threads}")
        best = "futex" if crew_text.can_sleep(host_machine()) else "condition"
        self._threads, self._sleep = threads, sleep or best
        self._reset()
        _CREWS.append(self)

    @property
    def threads(self) -> int:
        return self._threads

    def run(self, table: Table) -> None:
        """Execute every entry on all threads; returns when all is done."""
        with self._lock:
            if not self._started:
                self._start()
            lead, control, address, count = self._lead, self._address, table.address, table.count
            table.ran = True  # no interrupt comes between this and a native call
            lead(control, address, count)

    def trace(self, entries: Sequence[Step]) -> np.ndarray:
        """Execute them, and tell when: see `Crew`."""
        return _traced(self, entries)

    def close(self) -> None:
        """Stop the workers; the next run starts new ones."""
        with self._lock:
            if self._started:
                self._stop()
            self._reset_threads()

    # ---- inside

    def _reset(self) -> None:
        """Also what a forked child needs: its copy of a crew has no threads, and its lock may be
        held by a thread that does not exist there."""
        self._lock = threading.Lock()
        self._condition = threading.Condition()
        self._reset_threads()

    def _reset_threads(self) -> None:
        self._started = False
        self._members: list[threading.Thread] = []
        self._generation = 0
        self._stopping = False

    def _start(self) -> None:
        native = _native()
        self._control = memory.zeros((crew_text.CONTROL_BYTES,), np.uint8)
        self._address = self._control.ctypes.data
        self._set("THREADS", self._threads)
        self._set("PATIENCE", int(PATIENCE_SECONDS / native.pause_seconds))
        uses_futex = self._sleep == "futex"
        self._lead = native.lead if uses_futex else self._lead_by_condition
        cpus = self._places()
        spin = SPIN_SECONDS if cpus else LOOSE_SECONDS
        self._set("SPINS", int(spin / native.pause_seconds))
        for thread in range(1, self._threads):
            target = self._work if uses_futex else self._work_by_condition
            member = threading.Thread(
                target=target,
                args=(self._control, thread, cpus[thread] if cpus else None),
                name=f"luminal-{self._threads}-{thread}",
                daemon=True,
            )
            member.start()
            self._members.append(member)
        self._started = True

    def _set(self, name: str, value: int) -> None:
        self._control[crew_text.CONTROL[name] :][:8].view(np.int64)[0] = value

    def _stop(self) -> None:
        if self._sleep == "futex":
            native = _native()
            native.post(self._address, 0, -1)
            native.wake(self._address)
        else:
            with self._condition:
                self._stopping = True
                self._generation += 1
                self._condition.notify_all()
        for member in self._members:
            member.join(2)

    def _places(self) -> list[int]:
        """A CPU for each thread, where there are enough. The caller is not held on its own: it is
        only moved there when a run begins while it stands in the way of a worker."""
        cpus = cores.take(self._threads) if self._sleep == "futex" else []
        if not cpus or max(cpus) >= crew_text.CPUS:
            return []
        self._control[crew_text.CONTROL["HOME"] + cpus[0] // 8] = 1 << (cpus[0] % 8)
        for cpu in cpus[1 : self._threads]:
            self._control[crew_text.CONTROL["TAKEN"] + cpu] = 1
        return cpus

    def _work(self, control: np.ndarray, thread: int, cpu: int | None) -> None:
        if cpu is not None:
            with contextlib.suppress(OSError):  # it may be forbidden: only speed depends on it
                os.sched_setaffinity(0, {cpu})
        _native().work(control.ctypes.data, thread)

    def _lead_by_condition(self, control: int, table: int, count: int) -> None:
        native = _native()
        with self._condition:
            native.post(control, table, count)
            self._generation += 1
            self._condition.notify_all()
        native.finish(control)

    def _work_by_condition(self, control: np.ndarray, thread: int, cpu: int | None) -> None:
        native, last = _native(), 0
        while True:
            with self._condition:
                while self._generation == last:
                    self._condition.wait()
                last = self._generation
                if self._stopping:
                    return
            native.step(control.ctypes.data, thread)


class Alone:
    """The crew that is the calling thread: several of them run side by side."""

    threads = 1

    def __init__(self) -> None:
        self._alone = _native().alone

    def run(self, table: Table) -> None:
        """Execute every entry."""
        alone, address, count = self._alone, table.address, table.count
        table.ran = True  # as above
        alone(address, count)

    def trace(self, entries: Sequence[Step]) -> np.ndarray:
        """Execute them, and tell when: see `Crew`."""
        return _traced(self, entries)


def _traced(crew: Workers | Alone, entries: Sequence[Step]) -> np.ndarray:
    """Entry by entry a function that reads the clock stands before the one that is meant."""
    timed, meant = _native().timed, [entry for entry in entries if isinstance(entry, Entry)]
    if timed is None:
        raise Unsupported("runs are traced on Linux only: profile() times kernels alone")
    records = np.zeros((len(meant), 4 + 2 * crew.threads), np.int64)
    for record, entry in zip(records, meant):
        record[:4] = entry.function, entry.arguments, 0, entry.apart
    addresses = iter(records.ctypes.data + records.strides[0] * np.arange(len(meant)))
    crew.run(table([
        Entry(timed, int(next(addresses)), entry.barrier) if isinstance(entry, Entry) else entry
        for entry in entries
    ]))  # fmt: skip
    times: np.ndarray = records[:, 4:].reshape(len(meant), crew.threads, 2) / 1e9
    return times


def code() -> jit.Object:
    """The code of all crews. Who calls this first on a machine makes it, for all later ones."""
    return jit.remembered(crew_text.crew_text(host_machine()), host())


class Native:
    """The functions of `crew_text`."""

    def __init__(self) -> None:
        machine = host_machine()
        self._object = code()
        self.pause_seconds = self._time_pause()
        self.alone: Callable[[int, int], None] = StepType(self._object.address("alone"))
        self.post: Callable[[int, int, int], None] = CallType(self._object.address("post"))
        self.step: Callable[[int, int], None] = StepType(self._object.address("step"))
        self.finish: Callable[[int], None] = FinishType(self._object.address("finish"))
        self.loops = Functions(*map(self._object.address, ("begin", "turn", "chain")))
        self.timed: int | None = None
        if crew_text.can_sleep(machine):
            self.timed = self._object.address("timed")
            self.lead: Callable[[int, int, int], None] = CallType(self._object.address("lead"))
            self.work: Callable[[int, int], None] = StepType(self._object.address("work"))
            self.wake: Callable[[int], None] = FinishType(self._object.address("wake"))

    def _time_pause(self) -> float:
        """A pause takes 5 to 140 cycles, as the processor has it."""
        pauses = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._object.address("pauses"))
        samples = []
        for _ in range(5):
            start = time.perf_counter()
            pauses(1000)
            samples.append((time.perf_counter() - start) / 1000)
        return max(1e-9, min(samples))


@functools.cache
def _native() -> Native:
    return Native()


@functools.cache
def crew(threads: int) -> Workers | Alone:
    """The crew of this many threads; all executables share it."""
    return Alone() if threads == 1 else Workers(threads)


def table(entries: Sequence[Step]) -> Table:
    """A plan as the native code reads it."""
    return Table(entries, _native().loops)


_CREWS: list[Workers] = []


def _close_all() -> None:
    for workers in _CREWS:
        workers.close()


def _forget_all() -> None:
    for workers in _CREWS:
        workers._reset()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
