"""The engine makes the e-graphs that egglog makes; limits end gracefully; errors are our own."""

from __future__ import annotations

import pytest
from oracles.engine import Egglog
from plan_nets import NETS, program

from luminal.errors import CompileError
from luminal.rewrite.engine import Engine
from luminal.rewrite.extract import classes_of
from luminal.rewrite.language import OPERATIONS
from luminal.rewrite.optimise import optimise
from luminal.rewrite.rules import DEFAULT
from luminal.rewrite.rules import program as rule_program
from luminal.rewrite.saturate import Limits, saturate


def counts(engine) -> dict[str, int]:
    return {name: len(rows) for name, rows in engine.tables(list(OPERATIONS)).items()}


@pytest.mark.parametrize("name", NETS)
def test_engines_agree(name):
    case, patient = program(name), Limits(seconds=60)
    ours, encoding, growth = saturate(case.region)
    theirs, other, second = saturate(
        case.region, limits=patient, engine=Egglog(rule_program(DEFAULT))
    )
    assert growth.complete and second.complete
    assert counts(ours) == counts(theirs)
    one, two = classes_of(ours, encoding, case.region), classes_of(theirs, other, case.region)
    assert sorted(map(len, one.alternatives)) == sorted(map(len, two.alternatives))
    assert sorted(map(str, one.dtype)) == sorted(map(str, two.dtype))


def test_saturation_is_deterministic():
    plans = {optimise(program("bert_layer").region).describe().split(";", 1)[1] for _ in range(3)}
    assert len(plans) == 1


def test_a_limit_ends_saturation_and_the_plan_is_still_right():
    case = program("lstm_cell")
    _, _, growth = saturate(case.region, limits=Limits(rounds=2))
    assert not growth.complete and growth.rounds == 2
    assert "stopped at a limit" in optimise(case.region, limits=Limits(nodes=100)).describe()


def test_what_the_rules_cannot_mean_is_a_compile_error():
    engine = Engine(rule_program(DEFAULT))
    with pytest.raises(CompileError, match="no_such_rules"):
        engine.run("no_such_rules")
