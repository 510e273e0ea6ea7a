"""Candidates in a child process: what they break is theirs alone."""

import os
import pickle
import signal
from contextlib import closing

import numpy as np
import pytest
from search_cases import KERNELS, TARGET, prepared

from luminal.children import Child, Lost
from luminal.errors import CompileError
from luminal.graph.dtype import f32
from luminal.graph.index import Index
from luminal.search.measure import Measurer
from luminal.search.space import Space

CPU = "luminal.backend.cpu"
FAULTY = """
import os, time
from luminal.backend.cpu import *
from luminal.backend.cpu import build as _build
count = 0

def build(texts, target):
    global count
    count += 1
    if count == 2:
        {fault}
    return _build(texts, target)
"""


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_travel(name):
    kernel = prepared(name)
    candidate = Space(kernel, TARGET).default
    sent = [kernel, candidate.kernel, candidate.schedule, TARGET]
    found = pickle.loads(pickle.dumps(sent))
    assert found == sent
    assert found[0].buffers[0].dtype is kernel.buffers[0].dtype


def test_indices_are_interned_again():
    s, a = Index.of("s"), Index.of("a")
    indices = [
        s * 3 + a // 4 * s - 2,
        (s + 1).minimum(a).maximum(3),
        s.ceil_div(7) * a,
        Index.of(0),
    ]
    found = pickle.loads(pickle.dumps([*indices, f32]))
    assert all(x is y for x, y in zip(found, [*indices, f32]))


def test_measuring_in_a_child():
    space = Space(prepared("gemm"), TARGET)
    with closing(Measurer(CPU, TARGET)) as measurer:
        result = measurer.open(space.kernel, space.default)
        assert result.status == "ok" and result.seconds > 0
        assert measurer.attempt(1, space.default, result.seconds).status == "ok"
        times = measurer.race({1: space.default}, 5, 1.0)
        assert set(times) == {0, 1} and np.median(times[0]) > 0


@pytest.mark.parametrize("fault", ["os.abort()", "time.sleep(60)"])
def test_a_crash_or_a_hang_costs_only_the_candidate(fault, tmp_path, monkeypatch):
    (tmp_path / "faulty_backend.py").write_text(FAULTY.format(fault=fault))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("luminal.search.measure.TRIAL_SECONDS", 1.5)
    space = Space(prepared("softmax"), TARGET)
    with closing(Measurer("faulty_backend", TARGET)) as measurer:
        assert measurer.open(space.kernel, space.default).status == "ok"
        result = measurer.attempt(1, space.default, 1e-5)
        assert result.status == "crashed" and result.detail


def test_what_goes_wrong_in_the_child_is_told():
    child = Child("luminal.search.child")
    try:
        with pytest.raises(CompileError, match="nothing_of_the_kind"):
            child.ask(200, "rates", "nothing_of_the_kind", 1)
        os.kill(child._process.pid, signal.SIGSTOP)
        with pytest.raises(Lost, match="no answer"):
            child.ask(0.01, "rates", CPU, 1)
        with pytest.raises(CompileError, match="unheard"):
            child.ask(200, "unheard")
    finally:
        child.stop()
