"""The crew: every entry on every thread, in order, from any caller, across forks, to the exit."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from luminal import cores
from luminal.backend import cpu
from luminal.backend.cpu.workers import Workers, table
from luminal.backend.table import Entry
from luminal.errors import DeviceError

TEXT = """
define void @nothing(ptr %args, i64 %tid, i64 %nt) {
  ret void
}
define void @count(ptr %args, i64 %tid, i64 %nt) {
  %counter = load ptr, ptr %args
  %before = atomicrmw add ptr %counter, i64 1 monotonic
  ret void
}
define void @append(ptr %args, i64 %tid, i64 %nt) {
  ; log[tid * 64 + log[tid * 64]++ + 1] = current count of all threads' arrivals
  %counter = load ptr, ptr %args
  %log.at = getelementptr i8, ptr %args, i64 8
  %log = load ptr, ptr %log.at
  %seen = load atomic i64, ptr %counter monotonic, align 8
  %row = mul i64 %tid, 512
  %mine = getelementptr i8, ptr %log, i64 %row
  %n = load i64, ptr %mine
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %mine
  %slot = getelementptr i64, ptr %mine, i64 %n1
  store i64 %seen, ptr %slot
  ret void
}
define void @meet(ptr %args, i64 %tid, i64 %nt) {
entry:  ; until two have come, or for a minute; then the count
  %counter = load ptr, ptr %args
  %before = atomicrmw add ptr %counter, i64 1 monotonic
  br label %look
look:
  %turn = phi i64 [0, %entry], [%next, %look]
  %next = add i64 %turn, 1
  %seen = atomicrmw add ptr %counter, i64 0 monotonic
  %wait = icmp slt i64 %seen, 2
  %patient = icmp slt i64 %turn, 10000000000
  %more = and i1 %wait, %patient
  br i1 %more, label %look, label %out
out:
  %log.at = getelementptr i8, ptr %args, i64 8
  %log = load ptr, ptr %log.at
  %mine = getelementptr i64, ptr %log, i64 %before
  store i64 %seen, ptr %mine
  ret void
}
"""


@pytest.fixture(scope="module")
def code():
    return cpu.build([TEXT], cpu.host(1))[0]


@pytest.fixture(params=[(n, s) for n in (1, 2, 4) for s in ("futex", "condition")], ids=str)
def crew(request):
    threads, sleep = request.param
    workers = Workers(threads, sleep)
    yield workers
    workers.close()


class Plan:
    """Entries on a counter and a log per thread."""

    def __init__(self, code, names: str, barrier: bool = True) -> None:
        self.counter, self.log = np.zeros(8, np.int64), np.zeros((8, 64), np.int64)
        self.slots = np.array([self.counter.ctypes.data, self.log.ctypes.data], np.uint64)
        functions = {"c": "count", "a": "append", "n": "nothing", "m": "meet"}
        entries = [
            Entry(code.address(functions[name]), self.slots.ctypes.data, barrier) for name in names
        ]
        self.table = table(entries)


def test_every_entry_runs_on_every_thread(code, crew: Workers) -> None:
    plan = Plan(code, "c" * 50)
    for _ in range(5):
        crew.run(plan.table)
    assert plan.counter[0] == 5 * 50 * crew.threads


def test_barriers_separate_entries(code, crew: Workers) -> None:
    """After a barrier each thread sees all that was counted before it."""
    plan = Plan(code, "cacaca")
    crew.run(plan.table)
    for thread in range(crew.threads):
        seen = plan.log[thread, 1:4]
        assert plan.log[thread, 0] == 3
        assert (seen >= crew.threads * np.arange(1, 4)).all()


def test_an_empty_plan(code, crew: Workers) -> None:
    crew.run(table([]))
    plan = Plan(code, "c")
    crew.run(plan.table)
    assert plan.counter[0] == crew.threads


def test_after_sleep_and_after_close(code, crew: Workers) -> None:
    plan = Plan(code, "cc", barrier=False)
    crew.run(plan.table)
    time.sleep(0.02)
    crew.run(plan.table)
    crew.close()
    crew.run(plan.table)
    assert plan.counter[0] == 6 * crew.threads


def test_callers_take_turns(code, crew: Workers) -> None:
    plan = Plan(code, "c" * 10)

    def call() -> None:
        for _ in range(20):
            crew.run(plan.table)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert plan.counter[0] == 3 * 20 * 10 * crew.threads


def test_programs_of_one_thread_run_side_by_side(code) -> None:
    plan = Plan(code, "m")
    other = threading.Thread(target=lambda: cpu.crew(1).run(plan.table))
    other.start()
    cpu.crew(1).run(plan.table)
    other.join()
    assert (plan.log[0, :2] == 2).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_gets_workers_of_its_own(code, crew: Workers) -> None:
    plan = Plan(code, "c" * 10)
    crew.run(plan.table)
    child = os.fork()
    if child == 0:
        crew.run(plan.table)
        os._exit(0 if plan.counter[0] == 20 * crew.threads else 1)
    assert os.waitpid(child, 0)[1] == 0
    crew.run(plan.table)
    assert plan.counter[0] == 20 * crew.threads


def test_the_caller_keeps_its_affinity(code) -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("no affinity here")
    before = os.sched_getaffinity(0)
    plan = Plan(code, "c" * 10)
    for _ in range(20):
        cpu.crew(2).run(plan.table)
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("sleep", ("futex", "condition"))
def test_the_interpreter_exits(sleep: str) -> None:
    """Workers that spin or sleep in native code do not hold it up."""
    script = (
        "from luminal.backend.cpu.workers import Workers, table\n"
        f"crew = Workers(3, {sleep!r})\n"
        "crew.run(table([]))\n"
        "print('ran', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0 and done.stdout == b"ran\n", done.stderr


def test_one_crew_for_each_number_of_threads() -> None:
    assert cpu.crew(2) is cpu.crew(2) and cpu.crew(2) is not cpu.crew(1)
    with pytest.raises(DeviceError, match="at least one"):
        Workers(0)


def test_a_run_costs_microseconds(code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mostly 0.6 and 1 us; one of very many, so that other work on the machine does not count. What
    cores other processes have is not looked at."""
    monkeypatch.setattr(cores, "_claims", cores.Claims(tmp_path / "cores"))
    plan = Plan(code, "n")
    for crew, limit in ((cpu.crew(1), 5e-6), (Workers(2), 20e-6)):
        best, deadline = math.inf, time.perf_counter() + 120
        while best > limit and time.perf_counter() < deadline:
            start = time.perf_counter()
            crew.run(plan.table)
            best = min(best, time.perf_counter() - start)
        assert best < limit
