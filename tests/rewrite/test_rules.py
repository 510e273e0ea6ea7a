"""Every alternative of every class has the value of its class: the test of all rules at once."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from oracles.laws import WrongLaw, check
from plan_nets import (
    NETS,
    close,
    expected,
    extent,
    inputs_for,
    leaves,
    program,
    region_of,
    run_plan,
)  # fmt: skip
from plan_terms import differences
from rule_cases import CASES, masked_rows, rule_case

from luminal.errors import CompileError
from luminal.graph.graph import Graph
from luminal.rewrite.engine import Engine
from luminal.rewrite.extract import classes_of
from luminal.rewrite.law import rules_of
from luminal.rewrite.optimise import optimise
from luminal.rewrite.rules import DEFAULT, FAMILIES, laws, rules
from luminal.rewrite.rules import program as rule_program
from luminal.rewrite.saturate import saturate

EXACT_RULES = ("read", "push", "exact")


@functools.lru_cache(maxsize=4)
def saturated(name: str, families: tuple[str, ...]):
    case = program(name) if name in NETS else rule_case(name)
    engine, encoding, growth = saturate(case.region, families)
    assert growth.complete
    classes = classes_of(engine, encoding, case.region, everything=True)
    return case, classes


@pytest.mark.parametrize("name", [*NETS, *CASES])
def test_all_rules_on_ordinary_values(name):
    case, classes = saturated(name, DEFAULT)
    assert not differences(classes, inputs_for(case), case.sizes, 2e-3)


@pytest.mark.parametrize("name", [*NETS, *CASES])
def test_exact_rules_on_hostile_values(name):
    case, classes = saturated(name, EXACT_RULES)
    with np.errstate(all="ignore"):
        assert not differences(classes, inputs_for(case, "hostile"), case.sizes, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_plans_of_hand_made_regions(name):
    case = rule_case(name)
    arrays = inputs_for(case, "positive")
    assert close(run_plan(optimise(case.region), case, arrays), expected(case, arrays))


def test_online_sums_on_masked_rows():
    case = rule_case("weights_of_a_maximum")
    arrays = masked_rows(case)
    plan = optimise(case.region)
    assert any(n.op == "osum" for piece in plan.pieces for _, n in piece.body)
    with np.errstate(all="ignore"):
        found, wanted = run_plan(plan, case, arrays), expected(case, arrays)
    for f, w in zip(found, wanted):
        rows = np.isfinite(w) | np.isneginf(w)  # a row of -inf alone is NaN as written, 0 online
        np.testing.assert_allclose(f[rows], w[rows], 1e-5)
    assert not np.isnan(found[1]).any() and np.isneginf(found[3][1])


def test_every_rule_fires_somewhere():
    families = tuple(FAMILIES)
    made = {f: [law for law in laws(f) for _ in rules(law, f)] for f in families}
    idle = {(f, law) for f in families for law in made[f]}
    for name in [*CASES, *(n for n in NETS if n != "bert_layer")]:
        case = program(name) if name in NETS else rule_case(name)
        engine = Engine(rule_program(families))
        saturate(case.region, families, engine=engine)
        idle -= {(f, made[f][number]) for f, number in engine.fired if f in made}
        if not idle:
            break
    assert not idle


def test_what_is_made_of_constants_alone_is_left_as_written():
    """Else their products in every order fill the e-graph."""
    assert saturate(rule_case("layers_with_many_constants").region)[2].after < 1000


def test_additions_of_constants_are_few_whatever_their_order():
    """They become one, and the trees that lead there are not all in the e-graph."""
    graph = Graph()
    total = sum([graph.parameter((4096,)) for _ in range(10)], graph.tensor((4096,)))
    case = region_of(graph, [total.node])
    assert saturate(case.region)[2].after < 1000
    plan = optimise(case.region)
    work = [p for p in plan.pieces if not plan.classes.constant[p.roots[0]]]
    assert [sum(n.op == "add" for _, n in p.body) for p in work] == [1]


def test_e_stands_for_the_class_itself_only():
    for law in (law for family in FAMILIES for law in laws(family)):
        assert not re.search(r"[ (]e[ )]", re.split(" --> | asks ", law)[0]), law


def test_scaling_that_a_program_computes_stays_where_it_is():
    """Sums of scaled numbers do not overflow, and what is infinite times zero stays NaN."""
    graph = Graph()
    x, w, s = graph.tensor((4, 3)), graph.tensor((3, 5)), graph.tensor((4, 1))
    outputs = [(x * 0.25).sum(0), (x * float("inf")).sum(0), (x * s) @ w]
    case = region_of(graph, [t.node for t in outputs])
    huge = np.full((4, 3), 1e38, np.float32)
    huge[0, 0] = 0.0
    small = np.full((4, 1), 1e-38, np.float32)
    arrays = {0: huge, 1: np.ones((3, 5), np.float32), 2: small}
    arrays = {n: arrays[n].reshape([extent(case.region.terms, a, {}) for a in leaf.axes])
              for n, leaf in leaves(case.region.terms).items()}  # fmt: skip
    with np.errstate(all="ignore"):
        assert close(run_plan(optimise(case.region), case, arrays), expected(case, arrays))


@pytest.mark.parametrize("wrong", [
    "(Mul x) --> x", "(Mul x y) --> z", "(Mul x y) --> (Mull x y)", "(Mul x y) --> x  if (dub x)",
    "(Sum (Add x y) k) --> x", "(Mul x 1.0) --> x", "(Sum x x) --> x", "(Mul x (Const d x)) --> x",
    "(Mul x y) --> x  if (fixed z)", "(Mul x y) --> x  if (inv k x)", "(Sum k x) --> x  if (inv k)",
    "(Sum k x) --> x  if (< k x)", "(Sum k x) --> x  if (= k x)", "(Mul x y) --> (Add x (+ x y))",
    "(Sum k x) asks (need shrink k k)", "(Sum k x) asks (under x k)",
])  # fmt: skip
def test_a_law_that_is_written_wrong_is_refused(wrong):
    with pytest.raises((CompileError, WrongLaw)):
        for rule in rules_of(wrong, "algebra"):
            check(rule)


def test_all_laws_say_what_a_law_may_say():
    for rule in rule_program():
        if rule.family in FAMILIES:
            check(rule)
