"""Strategies: seeded, and better than chance where there is something to find."""

import pytest

from luminal.scheduling.decisions import Decision
from luminal.search.strategies import Climb, Evolve, InTurn, Tried, standard

DECISIONS = {
    name: Decision(name, options[0], options, options[0])
    for name, options in {
        "block": (64, 32, 128, 256), "unroll": (4, 1, 2, 8), "order": ("m n", "n m"),
        "fixed": ("only",),
    }.items()
}  # fmt: skip


def seconds(choices):
    """Best: block 128, unroll 2, order n m."""
    taken = {name: choices.get(name, d.default) for name, d in DECISIONS.items()}
    time = 1.0 + 0.3 * (taken["block"] != 128) + 0.2 * (taken["unroll"] != 2)
    return time + 0.1 * (taken["order"] != "n m")


def tried(choices):
    return Tried(choices, {n: Decision(n, d.default, d.options, choices.get(n, d.default))
                           for n, d in DECISIONS.items()}, seconds(choices))  # fmt: skip


def run(strategy, steps):
    found = [tried({})]
    for _ in range(steps):
        choices = strategy.propose(found)
        if choices is None:
            break
        found.append(tried(choices))
    return found


@pytest.mark.parametrize("make", [Climb, Evolve, standard])
def test_the_same_seed_proposes_the_same(make):
    first = [t.choices for t in run(make(3), 20)]
    assert first == [t.choices for t in run(make(3), 20)]


@pytest.mark.parametrize("make", [Climb, Evolve, standard])
def test_only_options_are_proposed(make):
    for entry in run(make(1), 40):
        for name, choice in entry.choices.items():
            assert choice in DECISIONS[name].options


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("make", [Climb, Evolve, standard])
def test_the_best_is_found(make, seed):
    best = min(run(make(seed), 60), key=lambda t: t.seconds)
    assert best.seconds == 1.0


def test_climbing_ends_where_no_neighbour_is_better():
    assert len(run(Climb(0), 1000)) < 30


def test_without_decisions_there_is_nothing_to_propose():
    alone = [Tried({}, {"fixed": DECISIONS["fixed"]}, 1.0)]
    for make in (Climb, Evolve, standard):
        assert make(0).propose(alone) is None


def test_strategies_in_turn():
    both = InTurn(Climb(0), Evolve(0))
    assert len(run(both, 100)) == 101
