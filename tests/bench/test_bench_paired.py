"""Timing in turns, and what is known about the machine."""

import os
import time
from itertools import groupby

import numpy as np
import pytest

from luminal.bench.machine import Elsewhere, cpu_name, on_first_processor, pin_workers
from luminal.bench.paired import PATIENCE, Spread, interleaved, paired, settle


def sleeper(seconds):
    return lambda: time.sleep(seconds)


def test_every_round_times_every_side_and_the_order_moves_on():
    order = []
    sides = {name: (lambda name=name: order.append(name) or time.sleep(0.001)) for name in "abc"}
    samples = interleaved(sides, rounds=3, seconds=0.001)
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 3, "b": 3, "c": 3}
    turns = [name for name, _ in groupby(order)]  # some calls each: to count, then in rounds
    assert turns == list("abc" + "abc" + "bca" + "cab")


def test_ratio_is_peer_over_ours():
    result = paired(sleeper(0.002), sleeper(0.01), rounds=5, seconds=0.004)
    assert 1 < result.ratio < 25  # a sleep is at least as long as asked, on a busy machine longer
    assert result.low <= result.ratio <= result.high
    assert result.ours < result.peer


def test_spread_has_the_quartiles():
    assert Spread.of(np.arange(101.0)) == Spread(50.0, 25.0, 75.0)


def test_settle_waits_while_threads_spin(monkeypatch):
    used = iter([0.0, 0.001, 0.001, 0.0019, 0.0019, 0.00195])  # before and after each slice
    monkeypatch.setattr(time, "process_time", lambda: next(used))
    settle()
    assert next(used, None) is None


def test_settle_does_not_wait_for_ever(monkeypatch):
    used = iter(range(10_000))
    monkeypatch.setattr(time, "process_time", lambda: next(used))
    start = time.perf_counter()
    settle()
    assert PATIENCE <= time.perf_counter() - start < 20 * PATIENCE


def test_cpu_has_a_name():
    assert cpu_name().strip()


def test_own_work_is_not_elsewhere():
    elsewhere, own = Elsewhere(), time.process_time()
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        pass
    share = elsewhere.share()
    assert share is None or 0 <= share <= 1 - (time.process_time() - own) / 0.2 / os.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
def test_the_caller_stays_on_one_processor_and_comes_back():
    before = os.sched_getaffinity(0)
    with on_first_processor():
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


def test_nothing_is_pinned_where_no_other_thread_works():
    assert not pin_workers(lambda: sum(range(1000)), threads=2)
