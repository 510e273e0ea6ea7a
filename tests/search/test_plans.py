"""Plans of regions by measured kernels: another way to cut wins where it is measured faster."""

import time

import numpy as np
import pytest
from search_cases import cases, prepared

from luminal import Graph, ops
from luminal.backend import cpu
from luminal.errors import WrongResult
from luminal.graph.dtype import f32, i64
from luminal.rewrite.normalise import normalise
from luminal.rewrite.optimise import extractor
from luminal.rewrite.regions import regions
from luminal.search.plans import Chosen, clearly_better, compared, measured_plans, recalled
from luminal.search.tune import Budget, Tuning
from luminal.search.turns import in_turns, ratios, winner
from luminal.search.whole import close, fastest, tolerance


def network():
    cx = Graph()
    x = cx.tensor((64, 64))
    w = cx.constant(np.random.default_rng(0).standard_normal((64, 256), np.float32))
    return cx, x, ops.softmax(x.matmul(w), -1).output()


def choices():
    cx, _, y = network()
    (region,) = regions(normalise(cx.space, [y.node]))
    return extractor(region)


def by_size(kernel):
    """Seconds that punish fusion: kernels with many values cost much."""
    return 1e-6 * len(kernel.values) ** 3


@pytest.fixture
def small_kernels_are_fast(monkeypatch):
    rates = {"fma": 1e6, "read": 1e6, "cache": 1e6}
    monkeypatch.setattr("luminal.search.measure.Measurer.rates", lambda self: rates)
    monkeypatch.setattr(Tuning, "_measured", lambda self, kernel: by_size(kernel))


def test_the_best_plans_cut_differently_and_the_first_is_the_models():
    found = choices().plans(4)
    assert len(found) > 1
    assert [plan.cost for plan in found] == sorted(plan.cost for plan in found)
    assert len({frozenset(piece.roots for piece in plan.pieces) for plan in found}) > 1
    assert found[0].choice == choices().plans()[0].choice


def test_measured_seconds_change_the_choice():
    own = Chosen.of(choices(), choices().plans()[0])
    found = measured_plans(own, by_size)
    best = clearly_better(found)
    assert found[0].plan is own.plan and len(found) > 1
    assert best.seconds < found[0].seconds and len(best.steps) > len(own.steps)
    assert f"the model's {len(own.steps)} kernels" in compared(found)


def test_where_nothing_can_be_measured_the_models_plan_stays():
    own = Chosen.of(choices(), choices().plans()[0])
    assert clearly_better(measured_plans(own, lambda kernel: None)).plan is own.plan


def test_no_time_leaves_the_models_plan_alone():
    own = Chosen.of(choices(), choices().plans()[0])
    assert len(measured_plans(own, by_size, until=time.monotonic() - 1)) == 1


def test_a_plan_is_made_again_from_its_text():
    made = choices()
    other = Chosen.of(made, made.plans(4)[-1])
    again = recalled(choices(), other.text)
    assert again.settled and again.plan.choice == other.plan.choice
    assert [step.kernel for step in again.steps] == [step.kernel for step in other.steps]
    assert measured_plans(again, by_size) == [again]  # what was searched is not searched again


@pytest.mark.parametrize("text", [["x", [], []], ["", 1, 2], [], ["only one"]])
def test_a_text_that_does_not_fit_is_not_used(text):
    assert recalled(choices(), text) is None
    fingerprint = choices().fingerprint()
    assert recalled(choices(), [fingerprint, [10**6] * 100, []]) is None


def test_compiling_with_measured_plans(tmp_path, monkeypatch, small_kernels_are_fast):
    def fastest(engines, *rest):
        last = len(engines) - 1
        return last, [1.0] * last + [0.5]

    monkeypatch.setattr("luminal.search.programs.fastest", fastest)

    def run(**options):
        cx, x, y = network()
        rt = cx.compile(threads=1, cache=False, database=tmp_path / "t.sqlite", **options)
        rt[x] = np.random.default_rng(1).standard_normal((64, 64), np.float32)
        rt.run()
        return rt[y], rt.explain(), len(rt.kernels)

    plain, _, fused = run()
    searched, text, count = run(search=1)
    np.testing.assert_allclose(searched, plain, rtol=1e-5, atol=1e-7)
    assert count > fused and "the measured plans 0.500" in text
    again, text, recalled_count = run()
    np.testing.assert_array_equal(again, searched)
    assert recalled_count == count and "plans measured" not in text


def test_a_region_that_is_chosen_once_is_known(tmp_path):
    made, database = choices(), tmp_path / "t.sqlite"
    first = Tuning(cpu, cpu.target(1), 0, database)
    assert first.recall("a region", made) is None
    first.keep_plan("a region", Chosen.of(made, made.plans()[0]))
    assert Tuning(cpu, cpu.target(1), 0, database).recall("a region", made).settled
    assert first.recall("another", made) is None


class Clock:
    """Goes on only where somebody works."""

    now = 0.0

    def perf_counter(self):
        return self.now

    thread_time = perf_counter


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("luminal.search.whole.time", made)
    return made


class Program:
    """An engine that takes its time. fault: what its output is spoiled by."""

    def __init__(self, clock, seconds, fault=None):
        self.clock, self.seconds, self.given, self.fault = clock, seconds, {}, fault

    def set(self, port, array):
        self.given[port] = array

    def bind(self, sizes):
        self.sizes = sizes

    def run(self):
        self.clock.now += self.seconds

    def output(self, number):
        found = 2.0 * self.given[0]
        if self.fault:
            self.fault(found)
        return found


def test_whole_programs_race(clock):
    slow, quick = Program(clock, 4e-3), Program(clock, 2e-3)
    inputs = {0: (f32, (3, 5)), 2: (i64, (7,))}
    number, times = fastest([slow, quick], inputs, {"s": 3}, 2, 1, [])
    assert number == 1 and times == pytest.approx([1.0, 0.5])
    assert quick.given[0].shape == (3, 5) and quick.given[2].dtype == np.int64
    assert quick.sizes == {"s": 3}
    assert fastest([quick, slow], inputs, {}, 2, 1, [])[0] == 0


def swapped(y):
    y[[0, 1]] = y[[1, 0]]


def off_by_one(y):
    y[-1, -1] = 0.0


def nan(y):
    y[1, 1] = np.nan


@pytest.mark.parametrize("fault", [swapped, off_by_one, nan])
def test_a_program_with_other_results_takes_no_part(fault, clock):
    inputs, gemm = {0: (f32, (8, 64))}, [prepared("gemm")]
    slow, wrong = Program(clock, 1e-3), Program(clock, 0.0, fault)
    number, times = fastest([slow, wrong], inputs, {}, 2, 1, gemm)
    assert number == 0 and times[1] == np.inf
    with pytest.raises(WrongResult, match="with default schedules"):
        fastest([wrong, slow, slow], inputs, {}, 2, 1, gemm)


def test_the_tolerance_comes_from_dtypes_and_lengths_of_sums():
    short, long = (tolerance([cases.gemm(4, 4, k)], {}) for k in (16, 1 << 16))
    assert 1e-7 < short < long < 1e-2
    assert tolerance([prepared("gemm int8")], {}) < 0.26
    right = np.linspace(-1, 1, 1000)
    assert close(right + 1e-6, right, long) and not close(right + 0.1, right, long)
    assert close(np.arange(9), np.arange(9), 0.0) and not close(np.arange(9), np.ones(9, int), 0.1)


def test_sides_take_turns_and_a_lucky_round_wins_nothing():
    order = []
    sides = {name: (lambda name=name: order.append(name) or 1.0) for name in "ab"}
    assert in_turns(sides, 3) == {"a": [1.0] * 3, "b": [1.0] * 3}
    assert "".join(order) == "abbaab"
    samples = {0: [1.0, 1.0, 1.0, 1.0], 1: [0.1, 1.0, 1.0, 1.0], 2: [0.5, 0.5, 0.5, 1.1]}
    assert ratios(samples, 0)[1] == 1.0 and winner(samples, 0) == 2
    assert winner({0: samples[0], 1: samples[1]}, 0) == 0


def test_a_budget_of_time_has_parts():
    budget = Budget(seconds=10.0)
    assert budget.part(0.5) == budget.start + 5 and budget.end == budget.start + 10
    assert Budget(7).end is None
