"""Checking and timing: wrong results of every sort are found before anything is timed."""

from dataclasses import replace

import numpy as np
import pytest
from search_cases import KERNELS, TARGET, prepared

from luminal.backend import cpu
from luminal.kernel.kernel import Apply, Constant
from luminal.search.roofline import roofline, streams
from luminal.search.space import Space
from luminal.search.trial import Bench, Launch, copies_needed


def wrapped(kernel, name, op, number):
    """The kernel with one value changed."""

    def change(v):
        body = Apply(op, (v.body, Constant(number, v.dtype)), v.dtype)
        return replace(v, body=body) if v.name == name else v

    return replace(kernel, values=tuple(map(change, kernel.values)))


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_passes_and_is_timed(name):
    space = Space(prepared(name), TARGET)
    result = Bench(space.kernel, TARGET, cpu).attempt(
        0, space.default.kernel, space.default.schedule
    )
    assert result.status == "ok", result.detail
    assert result.seconds > 0 and result.compile_seconds > 0


def test_a_wrong_candidate_is_found():
    space = Space(prepared("softmax"), TARGET)
    bench = Bench(space.kernel, TARGET, cpu)
    default = space.default
    assert bench.attempt(0, default.kernel, default.schedule).status == "ok"
    stored = next(v.name for v in default.kernel.values if v.store)
    wrong = wrapped(default.kernel, stored, "mul", 1.01)
    result = bench.attempt(1, wrong, default.schedule)
    assert result.status == "wrong" and "instead of" in result.detail
    assert 1 not in bench.built


def test_writes_behind_the_end_are_found():
    space = Space(prepared("softmax"), TARGET)
    bench = Bench(space.kernel, TARGET, cpu)
    built = bench.stand.begin(space.default.kernel, space.default.schedule)
    launch = Launch(built, cpu, 1, {}, [bench.cases[0].given])
    launch.run()
    assert launch.overrun() == ""
    name, array = next(iter(launch.places[0].items()))
    longer = np.lib.stride_tricks.as_strided(array.reshape(-1), (array.size + 1,), (4,))
    longer[-1] = 3.0
    assert launch.overrun() == name


def test_a_candidate_is_timed_beside_the_default(monkeypatch):
    """A machine that grows slower makes no candidate slower than the default."""
    clock = [1e-6]

    def sample(self):
        clock[0] *= 1.05
        return clock[0]

    monkeypatch.setattr("luminal.search.trial.Launch.sample", sample)
    kernel = prepared("gemm")
    bench, default = Bench(kernel, TARGET, cpu), Space(kernel, TARGET).default
    seconds = [bench.attempt(n, default.kernel, default.schedule).seconds for n in range(3)]
    assert clock[0] > 4 * seconds[0]
    assert seconds[2] == pytest.approx(seconds[0], rel=0.06)


def test_a_race_times_all_in_turns():
    space = Space(prepared("gemm"), TARGET)
    bench = Bench(space.kernel, TARGET, cpu)
    for number in (0, 1):
        bench.attempt(number, space.default.kernel, space.default.schedule)
    times = bench.race([0, 1], 6, 1.0)
    assert set(times) == {0, 1} and len(times[0]) == len(times[1]) == 6
    assert min(map(min, times.values())) > 0


def test_large_kernels_with_little_work_rotate():
    import default_cases as cases

    gemv = cases.gemv(2048, 2048)
    assert streams(gemv, TARGET) and copies_needed(gemv, {}, TARGET) > 1
    gemm = cases.gemm(512, 512, 512)
    assert not streams(gemm, TARGET) and copies_needed(gemm, {}, TARGET) == 1
    rates = {"fma": 100.0, "read": 10.0}
    assert roofline(gemv, TARGET, rates) == pytest.approx(2048 * 2048 * 4 / 10e9, rel=0.1)
    assert roofline(gemm, TARGET, rates) == pytest.approx(2 * 512**3 / 100e9, rel=0.1)
