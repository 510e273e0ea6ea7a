"""Every alternative of every class has the value of its class: the test of all rules at once."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from plan_nets import NETS, close, expected, inputs_for, program, run_plan
from plan_terms import differences
from rule_cases import CASES, masked_rows, rule_case

from luminal.rewrite.engine import Engine
from luminal.rewrite.extract import classes_of
from luminal.rewrite.optimise import optimise
from luminal.rewrite.rules import DEFAULT, FAMILIES, laws, rules
from luminal.rewrite.rules import program as rule_program
from luminal.rewrite.saturate import saturate

EXACT_RULES = ("read", "guard", "push", "exact")


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
    assert any(n.op == "OSum" for piece in plan.pieces for _, n in piece.body)
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


def test_e_stands_for_the_class_itself_only():
    for law in (law for family in FAMILIES for law in laws(family)):
        assert not re.search(r"[ (]e[ )]", re.split(" --> | asks ", law)[0]), law
