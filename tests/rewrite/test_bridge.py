"""Plans as kernels: whatever is chosen and stored, the kernels compute what the terms mean."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from plan_nets import NETS, close, expected, inputs_for, program, run_plan

from luminal import Graph, ops
from luminal.rewrite.cost import CostEstimator
from luminal.rewrite.extract import ENode, classes_of, seed
from luminal.rewrite.lower_plan import lower_plan
from luminal.rewrite.normalise import normalise
from luminal.rewrite.optimise import optimise
from luminal.rewrite.plan import Cyclic, Planner
from luminal.rewrite.rates import CostModel
from luminal.rewrite.regions import regions
from luminal.rewrite.saturate import saturate
from luminal.rewrite.terms import Map


@functools.lru_cache(maxsize=4)
def classes_for(name: str):
    case = program(name)
    engine, encoding, _ = saturate(case.region)
    classes = classes_of(engine, encoding, case.region)
    return case, classes, Planner(classes, CostEstimator(classes, CostModel()))


@pytest.mark.parametrize("name", NETS)
def test_chosen_plans(name):
    case = program(name)
    arrays = inputs_for(case)
    assert close(run_plan(optimise(case.region), case, arrays), expected(case, arrays))


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("name", NETS)
def test_random_plans(name, number):
    case, classes, planner = classes_for(name)
    arrays = inputs_for(case)
    rng = random.Random(number)
    choice = seed(classes, rng.choice(("work", "written", "moved")), rng)
    density = rng.choice((0.0, 0.1, 0.3, 1.0))
    kinds = [classes.alternatives[c][option].op for c, option in enumerate(choice)]
    stored = frozenset(
        c for c, op in enumerate(kinds)
        if op not in ("input", "scatter", "one") and rng.random() < density
    )  # fmt: skip
    try:
        plan = planner.plan(choice, stored)
    except Cyclic:
        pytest.skip("these choices are cyclic")
    assert close(run_plan(plan, case, arrays), expected(case, arrays), 2e-3), plan.describe()


@pytest.mark.parametrize("name", NETS)
def test_the_fallback_choice_is_never_cyclic(name):
    case, classes, planner = classes_for(name)
    arrays = inputs_for(case)
    for stored in (frozenset(), frozenset(classes.roots)):
        plan = planner.plan(classes.acyclic(), stored)
        assert close(run_plan(plan, case, arrays), expected(case, arrays), 2e-3)


def test_a_value_that_is_read_from_itself_is_cyclic():
    """An e-graph that stopped at a limit may hold such classes under two names."""
    case = program("concat_views")
    engine, encoding, _ = saturate(case.region)
    classes = classes_of(engine, encoding, case.region)
    value = classes.roots[0]
    classes.alternatives[value] = [ENode("read", (value,), Map(()))]
    planner = Planner(classes, CostEstimator(classes, CostModel()))
    with pytest.raises(Cyclic):
        planner.plan([0] * len(classes.alternatives), frozenset())


EXACT_NETS = ("pools", "concat_views", "halves_again", "cache_update", "scans")


@pytest.mark.parametrize("name", [n for n in EXACT_NETS if n in NETS])
def test_hostile_values(name):
    case = program(name)
    arrays = inputs_for(case, "hostile")
    with np.errstate(all="ignore"):
        found = run_plan(optimise(case.region), case, arrays)
        assert close(found, expected(case, arrays), 1e-5)


def test_channels_stand_where_those_of_the_next_product_stand():
    """Convolution, mean, 1x1 convolution: only weights have the channels between the two."""
    cx = Graph()
    x, w = cx.tensor((1, 4, 8, 8)), cx.parameter((16, 4, 3, 3))
    y = ops.conv2d(x, w, padding=1)
    y = y - y.mean((2, 3), keepdim=True)
    out = ops.conv2d(y, cx.parameter((2, 16, 1, 1))).output()
    (piece,) = regions(normalise(cx.space, [out.node]))
    steps = lower_plan(optimise(piece))
    stored = {b.shape for step in steps for b in step.kernel.buffers if len(b.shape) == 3}
    assert (16, 8, 8) in stored and (8, 8, 16) not in stored


def test_channels_of_a_window_stand_where_those_that_it_reads_stand():
    """Channels last, though no output has the channels between the two convolutions."""
    cx = Graph()
    x = cx.tensor((30, 40, 96)).permute((2, 0, 1)).unsqueeze(0)
    y = ops.conv2d(x, cx.parameter((96, 1, 7, 7)), cx.parameter(96), padding=3, groups=96)
    out = ops.conv2d(y, cx.parameter((24, 96, 1, 1))).output()
    pieces = regions(normalise(cx.space, [out.node]))
    steps = [step for piece in pieces for step in lower_plan(optimise(piece))]
    stored = {b.shape for step in steps for b in step.kernel.buffers if len(b.shape) == 3}
    assert (30, 40, 96) in stored and (96, 30, 40) not in stored


def test_what_is_written_into_a_computed_value_copies_nothing() -> None:
    cx = Graph()
    x = cx.tensor((100, 8)) * 2.0
    for _ in range(3):
        x = x._scatter(cx.tensor((4, 8), "i64"), cx.tensor((4, 8)), 0)
    pieces = regions(normalise(cx.space, [x.node]))
    assert not any(step.copies for piece in pieces for step in lower_plan(optimise(piece)))


def test_outputs_of_one_value_that_may_have_no_elements() -> None:
    cx = Graph()
    cx.dim("s", 0, 8)
    wide, narrow = (ops.full(cx, shape, 5.0).output() for shape in (("s",), (3,)))
    rt = cx.compile(threads=1)
    for s in (0, 4):
        rt.run(s=s)
        assert rt[wide].tolist() == [5.0] * s and rt[narrow].tolist() == [5.0] * 3


@pytest.mark.parametrize("known", (True, False))
def test_rows_at_moving_positions_are_written_in_any_order(known: bool) -> None:
    """Each row has a place of its own, as those of a cache; data may name one twice."""
    cx = Graph()
    cx.dim("s", 1, 4)
    at = ops.arange(cx, "s") * 2 + 1 if known else cx.tensor(("s",), "i64", name="at")
    kept, rows = cx.tensor((9, 3), name="kept"), cx.tensor(("s", 3), name="rows")
    y = kept._scatter(at.unsqueeze(1).expand(("s", 3)), rows, 0).output()
    pieces = regions(normalise(cx.space, [y.node]))
    kernels = [step.kernel for piece in pieces for step in lower_plan(optimise(piece))]
    stores = [v.store for kernel in kernels for v in kernel.values if v.store and v.store.slots]
    assert [bool(store.ordered) for store in stores] == [not known]
    rt = cx.compile(threads=1, cache=False)
    rt[kept], rt[rows] = np.zeros((9, 3), np.float32), np.ones((3, 3), np.float32)
    if not known:
        rt[at] = np.array([1, 3, 5])
    rt.run(s=3)
    assert rt[y].sum(1).tolist() == [0, 3, 0, 3, 0, 3, 0, 0, 0]
