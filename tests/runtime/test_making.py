"""Helpers make kernels beside the process that compiles, and what they make is the same."""

import re
import sys
import threading

import numpy as np
import pytest

from luminal import Graph, earlier, making
from luminal.backend import devices
from luminal.backend.ahead import Ahead
from luminal.children import Child, Helpers, Lost
from luminal.errors import InputError
from luminal.planning import Planning

X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


def compiled():
    """Nine regions that differ, each behind a sort; no kernel of an earlier program serves."""
    earlier.forget()
    cx = Graph()
    value = cx.tensor((6, 5), name="x")
    for n in range(8):
        value = (value * (n + 2)).sort(dim=n % 2)[0] + n
    y = value.output("y")
    rt = cx.compile(cache=False, database=False)
    rt["x"] = X
    rt.run()
    plans = [re.sub(r"\d+ ms", "", plan) for plan in rt.report.plans]
    return rt[y], [made.name for made in rt.report.kernels], plans, rt.check()


@pytest.fixture
def alone():
    """Without helpers, as the settings of tests say."""
    return compiled()


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch, alone):
    """One helper, wherever this runs: the jobs that it has done. This process leaves it the second
    of each list."""
    monkeypatch.setenv(making.PROCESSES, "2")
    monkeypatch.setattr(making.cores, "count", lambda: 2)
    monkeypatch.setattr(making, "NODES", 4)  # a model of this size is not small
    begun, done = threading.Event(), []
    take, shared, results = Helpers._take, Helpers.shared, Helpers.results

    def taken(self):
        job = take(self)
        begun.set()
        return job

    def left(self, jobs):
        begun.clear()
        for number, job in enumerate(shared(self, jobs)):  # none, where the helper was first
            yield job
            if number == 0 and self._children:
                assert begun.wait(300)

    def noted(self):
        for job, made in results(self):
            done.append(job)
            yield job, made

    monkeypatch.setattr(Helpers, "_take", taken)
    monkeypatch.setattr(Helpers, "shared", left)
    monkeypatch.setattr(Helpers, "results", noted)
    return done


def test_a_helper_plans_and_makes_the_same_kernels(alone, helped):
    result, names, plans, wrong = compiled()
    assert {type(job) for job in helped} == {Planning, making.Job}
    assert np.array_equal(result, alone[0]) and names == alone[1] and wrong == alone[3] == []
    assert plans == alone[2]  # in the order of the regions, whoever made which


@pytest.mark.parametrize("kind", [Planning, making.Job])
def test_what_a_lost_helper_leaves_is_made_here(monkeypatch, alone, helped, kind):
    ask = Child.ask

    def lost(self, seconds, *message):
        if isinstance(message[0], kind):
            raise Lost("gone")
        return ask(self, seconds, *message)

    monkeypatch.setattr(Child, "ask", lost)
    result, names, *_ = compiled()
    assert all(type(job) is not kind for job in helped)
    assert np.array_equal(result, alone[0]) and names == alone[1]


def test_a_job_that_fails_in_a_helper_is_left_to_the_caller():
    with Helpers(1, "luminal.making", "no such device", None, 0, None) as others:
        assert sorted(others.shared([1, 2, 3])) == [1, 2, 3]
        assert list(others.results()) == []


def test_a_number_of_processes_that_is_none(monkeypatch):
    monkeypatch.setenv(making.PROCESSES, "many")
    with pytest.raises(InputError, match=r"many.*number of processes"):
        compiled()


def test_the_interval_of_threads_is_the_user_s_again():
    before = sys.getswitchinterval()
    seen = list[float]()
    with Ahead(devices.host(), devices.host().target(1)):
        with Ahead(devices.host(), devices.host().target(1)):
            seen.append(sys.getswitchinterval())
        seen.append(sys.getswitchinterval())
    assert max(seen) < before == sys.getswitchinterval()
