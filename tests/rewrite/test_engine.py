"""The two engines give the same e-graphs; limits end gracefully; errors are the compiler's own."""

from __future__ import annotations

import pytest
from oracles.engine import Reference
from plan_nets import NETS, program

import luminal.rewrite.engine
from luminal.errors import CompileError
from luminal.rewrite.engine import Egglog
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
    case = program(name)
    fast, encoding, growth = saturate(case.region)
    patient = Limits(seconds=60)
    slow, other, second = saturate(
        case.region, limits=patient, engine=Reference(rule_program(DEFAULT))
    )
    assert growth.complete and second.complete
    assert counts(fast) == counts(slow)
    one, two = classes_of(fast, encoding, case.region), classes_of(slow, other, case.region)
    assert sorted(map(len, one.alternatives)) == sorted(map(len, two.alternatives))
    assert sorted(map(str, one.dtype)) == sorted(map(str, two.dtype))


def test_an_engine_that_was_used_before_makes_no_difference(monkeypatch):
    monkeypatch.setattr(luminal.rewrite.engine._idle, "graphs", {})
    case, other = program("gated_mlp"), program("pools")
    found = []
    for region in (case.region, other.region, case.region):
        made, encoding, _ = saturate(region)
        found.append(classes_of(made, encoding, region).alternatives)
        made.close()
    assert found[0] == found[2]
    assert [len(idle) for idle in luminal.rewrite.engine._idle.graphs.values()] == [1]


def test_saturation_is_deterministic():
    plans = {optimise(program("bert_layer").region).describe().split(";", 1)[1] for _ in range(3)}
    assert len(plans) == 1


def test_a_limit_ends_saturation_and_the_plan_is_still_right():
    case = program("lstm_cell")
    _, _, growth = saturate(case.region, limits=Limits(rounds=2))
    assert not growth.complete and growth.rounds == 2
    assert "stopped at a limit" in optimise(case.region, limits=Limits(nodes=100)).describe()


def test_a_refused_command_is_a_compile_error():
    engine = Egglog(rule_program(DEFAULT))
    with pytest.raises(CompileError):
        engine.run("no_such_rules")
