"""Every alternative of every class has the value of its class: the test of all rules at once."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from plan_nets import NETS, inputs_for, program
from plan_terms import Meaning

from luminal.rewrite.evaluate import Values
from luminal.rewrite.extract import Classes, classes_of
from luminal.rewrite.rules import DEFAULT
from luminal.rewrite.saturate import saturate

ALL_RULES = (*DEFAULT, "weak")
EXACT_RULES = ("read", "guard", "push", "exact")


@functools.lru_cache(maxsize=4)
def saturated(name: str, families: tuple[str, ...]):
    case = program(name)
    engine, encoding, growth = saturate(case.region, families)
    assert growth.complete
    return case, classes_of(engine, encoding, case.region)


def differences(classes: Classes, arrays, sizes, tolerance: float) -> list[str]:
    """Alternatives that differ from their class where the class is defined."""
    meaning = Meaning(classes)
    pairs = [
        (c, node, meaning.term(c, node))
        for c in meaning.of
        for node in classes.alternatives[c]
        if all(x in meaning.of for x in node.children)
    ]
    values = Values(meaning.terms, arrays, sizes)
    wrong = []
    for c, node, term in pairs:
        if classes.is_buffer[c] or node.op == "One":
            continue
        axes = meaning.terms.axes[term] | meaning.terms.axes[meaning.of[c]]
        axes = tuple(sorted(axes | {a for i in classes.needs[c] for a in i.names()}))
        axes = tuple(a for a in axes if a in meaning.terms.space.axes)
        defined = values._holds(sorted(classes.needs[c], key=str), axes)
        a, b = (values.at(t, axes)[defined].astype(np.float64) for t in (term, meaning.of[c]))
        if not np.allclose(a, b, tolerance, tolerance, equal_nan=True):
            wrong.append(f"class {c}: {node}")
    return wrong


@pytest.mark.parametrize("name", NETS)
def test_all_rules_on_ordinary_values(name):
    case, classes = saturated(name, ALL_RULES)
    assert not differences(classes, inputs_for(case), case.sizes, 2e-3)


@pytest.mark.parametrize("name", NETS)
def test_exact_rules_on_hostile_values(name):
    case, classes = saturated(name, EXACT_RULES)
    with np.errstate(all="ignore"):
        assert not differences(classes, inputs_for(case, "hostile"), case.sizes, 1e-5)
