"""The space of a kernel: the default is a point of it, and its other points are right too."""

import pytest
from search_cases import KERNELS, TARGET, prepared

from luminal.backend import cpu
from luminal.errors import Illegal
from luminal.scheduling.decisions import Decisions
from luminal.scheduling.default import default_schedule
from luminal.search.points import dump_point, load_point, point_text
from luminal.search.space import Space
from luminal.search.trial import Bench


def neighbours(space):
    """Every point that differs from the default in one decision, most promising options first."""
    for decision in space.default.decisions.values():
        for option in decision.others[:2]:
            yield {decision.name: option}


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_a_point(name):
    space = Space(prepared(name), TARGET)
    kernel, schedule = default_schedule(prepared(name), TARGET)
    assert space.default.schedule == schedule and space.default.kernel == kernel
    assert space.default.choices == {} and space.default.name == "default"


@pytest.mark.parametrize("name", KERNELS)
def test_every_default_is_among_its_options(name):
    for decision in Space(prepared(name), TARGET).default.decisions.values():
        assert decision.default in decision.options and decision.taken == decision.default
        assert len(set(decision.options)) == len(decision.options)


@pytest.mark.parametrize("name", KERNELS)
def test_neighbours_of_the_default_are_legal_and_right(name):
    space = Space(prepared(name), TARGET)
    bench = Bench(space.kernel, TARGET, cpu)
    assert bench.attempt(0, space.default.kernel, space.default.schedule).status == "ok"
    legal = count = right = 0
    for number, choices in enumerate(neighbours(space)):
        count += 1
        try:
            candidate = space.at(choices)
        except Illegal:
            continue
        legal += 1
        built = bench.stand.begin(candidate.kernel, candidate.schedule)
        right += not bench.check(built)
        assert number < 100
    assert legal >= 0.8 * count
    assert right == legal


def test_a_choice_that_is_no_option_is_illegal():
    space = Space(prepared("gemm"), TARGET)
    name, decision = next(iter(space.default.decisions.items()))
    with pytest.raises(Illegal, match="is not among"):
        space.at({name: "nonsense"})
    assert decision.taken in decision.options


def test_choices_that_nobody_asks_for_are_left_out():
    candidate = Space(prepared("softmax"), TARGET).at({"no such decision": 3})
    assert candidate.choices == {}


def test_points_as_text():
    point = {"order": "m n", "block m": 32}
    assert load_point(dump_point(point)) == point
    assert point_text(point) == "block m = 32, order = m n"
    for text in ("[1]", '{"a": [1]}', '{"a": true}', "{", '"text"'):
        with pytest.raises(ValueError):
            load_point(text)


def test_decisions_remember_what_was_asked():
    decisions = Decisions({"b": 4, "unused": 1})
    assert decisions.of("a", 1, (1, 2)) == 1
    assert decisions.number("b", 2, (2, 4, 4)) == 4
    assert decisions.point == {"b": 4}
    assert decisions.made["b"].options == (2, 4) and decisions.made["b"].others == (2,)
