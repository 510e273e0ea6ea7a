"""Timing in turns, and what is known about the machine."""

import os
import subprocess
import sys
from itertools import groupby

import numpy as np
import pytest

from luminal.bench import machine
from luminal.bench.machine import Elsewhere, cpu_name, on_first_processor
from luminal.bench.paired import PATIENCE, Spread, interleaved, paired, settle


class Clock:
    """Goes on only where somebody sleeps; busy: the share of it that is processor time."""

    def __init__(self, busy=0.0):
        self.now, self.busy = 0.0, busy

    def sleep(self, seconds):
        self.now += seconds

    def sleeper(self, seconds):
        return lambda: self.sleep(seconds)

    def perf_counter(self):
        return self.now

    def process_time(self):
        return self.now * self.busy


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("luminal.bench.paired.time", made)
    monkeypatch.setattr("luminal.bench.machine.time", made)
    return made


def test_every_round_times_every_side_and_the_order_moves_on(clock):
    order = []
    sides = {name: (lambda name=name: order.append(name) or clock.sleep(0.001)) for name in "abc"}
    samples = interleaved(sides, rounds=3, seconds=0.001)
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 3, "b": 3, "c": 3}
    turns = [name for name, _ in groupby(order)]  # some calls each: to count, then in rounds
    assert turns == list("abc" + "abc" + "bca" + "cab")


def test_ratio_is_peer_over_ours(clock):
    result = paired(clock.sleeper(0.002), clock.sleeper(0.01), rounds=5, seconds=0.004)
    assert (result.low, result.ratio, result.high) == pytest.approx((5, 5, 5))
    assert (result.ours, result.peer) == pytest.approx((0.002, 0.01))


def test_spread_has_the_quartiles():
    assert Spread.of(np.arange(101.0)) == Spread(50.0, 25.0, 75.0)


def test_settle_waits_while_threads_spin(clock):
    used = iter([0.0, 0.001, 0.001, 0.0019, 0.0019, 0.00195])  # before and after each slice
    clock.process_time = lambda: next(used)
    settle()
    assert next(used, None) is None


def test_settle_does_not_wait_for_ever(clock):
    clock.busy = 1.0
    settle()
    assert PATIENCE <= clock.now < 1.1 * PATIENCE


def test_cpu_has_a_name():
    assert cpu_name().strip()


@pytest.mark.parametrize(("every", "share"), [(3.0, 0.5), (1.0, 0.0), (9.0, 1.0), (None, None)])
def test_own_work_is_not_elsewhere(clock, monkeypatch, every, share):
    """Two seconds of two processors, one of them spent here."""
    clock.busy = 0.5
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(machine, "_all_seconds", lambda: every and every * clock.now / 2)
    elsewhere = Elsewhere()
    clock.sleep(2.0)
    assert elsewhere.share() == share


def test_the_system_tells_of_all_processors():
    assert not machine.STAT.exists() or machine._all_seconds() > 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
def test_the_caller_stays_on_one_processor_and_comes_back():
    before = os.sched_getaffinity(0)
    with on_first_processor():
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


def test_nothing_is_pinned_where_no_other_thread_works():
    """In a process of its own: threads that other tests left behind may work in this one."""
    call = "pin_workers(lambda: sum(range(1000)), threads=2)"
    code = f"from luminal.bench.machine import pin_workers; assert {call} is False"
    subprocess.run([sys.executable, "-c", code], check=True)
