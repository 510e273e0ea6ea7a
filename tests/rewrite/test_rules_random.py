"""Random regions: every alternative of every class has the value of its class, in both engines, and
the kernels of the plan compute what the terms mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.engine import Egglog
from plan_nets import Program, close, expected, inputs_for, region_of, run_plan
from plan_terms import differences
from programs import Draw, programs
from rule_cases import Maker, as_program

from luminal.graph.dtype import f32, i64
from luminal.graph.index import Index
from luminal.rewrite.engine import Engine
from luminal.rewrite.extract import classes_of
from luminal.rewrite.optimise import optimise
from luminal.rewrite.rules import DEFAULT
from luminal.rewrite.rules import program as rule_program
from luminal.rewrite.saturate import Limits, saturate
from luminal.rewrite.terms import SLOT

ENGINES = [Engine, Egglog]
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
AXES = ("a0", "a1", "a2", "a3")


def checked(engine: Engine | Egglog, case: Program, arrays: dict[int, np.ndarray]) -> None:
    made, encoding, _ = saturate(case.region, engine=engine, limits=Limits(nodes=1500))
    classes = classes_of(made, encoding, case.region, everything=True)
    assert not differences(classes, arrays, case.sizes, 1e-4)


@pytest.mark.parametrize("engine", ENGINES)
@FEW
@given(drawn=programs())
def test_classes_of_random_graphs(engine, drawn):
    graph, outputs, _ = drawn
    case = region_of(graph, outputs)
    checked(engine(rule_program(DEFAULT)), case, inputs_for(case))


@st.composite
def grids(draw: Draw) -> Program:
    """Values that guards and moved reads put together, as concatenated coordinate grids are."""
    make = Maker()
    pool = [make.input("a0", "a1"), make("sqrt", make.input("a2"))]
    pool += [make("cast", make.index(Index.of(a))) for a in ("a0", "a1")]
    for _ in range(draw(st.integers(2, 9))):
        pool.append(_step(draw, make, pool))
    return as_program(make, pool[-1:])


def _step(draw: Draw, make: Maker, pool: list[int]) -> int:
    x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
    kind = draw(st.sampled_from(("guard", "guard", "guard", "corner", "corner", "read",
                                 "read", "add", "mul", "sum",
                                 "max", "index", "gather", "sqrt", "scan")))  # fmt: skip
    axes = sorted(make.terms.axes[x])
    if kind == "guard":
        return make.guard(_condition(draw), x, y)
    if kind in ("add", "mul"):
        return make(kind, x, y)
    if kind == "sqrt":
        return make(kind, x)
    if kind == "index" or not axes:
        return make("cast", make.index(_index(draw)))
    if kind in ("sum", "max"):
        return make.over(kind, x, *draw(st.sets(st.sampled_from(axes), min_size=1)))
    if kind == "scan":
        return make.terms.add("scan", (x,), ("sum", draw(st.sampled_from(axes))), f32)
    if kind == "corner":
        return make.at(x, **{draw(st.sampled_from(axes)): Index.of(draw(st.integers(0, 1)))})
    moved = {a: _index(draw) for a in axes if draw(st.booleans())}
    if kind == "gather":
        slot = make.input(draw(st.sampled_from(AXES)), dtype=i64)
        return make.at(x, slot=slot, **{**moved, axes[0]: Index.of(SLOT)})
    return make.at(x, **moved)


def _index(draw: Draw) -> Index:
    """Mostly inside of every axis."""
    axis, other = (Index.of(draw(st.sampled_from(AXES))) for _ in range(2))
    forms = (axis, axis // 2, axis % 2, Index.of(0), Index.of(1), axis - 1, axis + other - 2)
    return draw(st.sampled_from(forms))


def _condition(draw: Draw) -> Index:
    axis, other = (Index.of(draw(st.sampled_from(AXES))) for _ in range(2))
    forms = (-axis, axis - 1, 2 - axis, axis - other, axis - 3, Index.of(0), Index.of(-1))
    return draw(st.sampled_from(forms))


@pytest.mark.parametrize("engine", ENGINES)
@FEW
@given(case=grids())
def test_classes_of_random_grids(engine, case):
    checked(engine(rule_program(DEFAULT)), case, inputs_for(case, "positive"))


@FEW
@given(case=grids())
def test_plans_of_random_grids(case):
    arrays = inputs_for(case, "positive")
    plan = optimise(case.region, limits=Limits(nodes=1500))
    with np.errstate(all="ignore"):
        found, wanted = run_plan(plan, case, arrays)[0], expected(case, arrays)[0]
    found = np.where(np.isnan(wanted), wanted, found)  # NaN: what lies outside a buffer
    assert close([found], [wanted], 1e-4), plan.describe()
