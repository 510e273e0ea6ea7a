"""From a region to its e-graph: insert, apply the rule families in turn, serve their requests, stop.

Stops at a fixed point, or gracefully at a limit: whatever is there by then is used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from .encode import Encoding
from .engine import Engine, new_engine
from .rules import DEFAULT, program
from .terms import Region


@dataclass(frozen=True)
class Limits:
    """Where saturation stops: e-nodes, rounds, seconds."""

    nodes: int = 20_000
    rounds: int = 40
    seconds: float = 5.0


@dataclass(frozen=True)
class Growth:
    """What saturation did, for `explain()`."""

    before: int
    after: int
    rounds: int
    seconds: float
    complete: bool
    fired: frozenset[str] = frozenset()


def saturate(
    region: Region,
    families: tuple[str, ...] = DEFAULT,
    limits: Limits = Limits(),
    engine: Engine | None = None,
) -> tuple[Engine, Encoding, Growth]:
    """The e-graph of a region."""
    start = time.perf_counter()
    engine = engine or new_engine(program(families))
    encoding = Encoding(region)
    inserted = encoding.insertion(region.terms.nodes)
    engine.tell(encoding.take_facts())
    engine.insert(inserted)
    engine.assert_constant(
        i for i, t in enumerate(region.terms.nodes) if t.op == "input" and t.attribute.constant
    )
    engine.saturate("analysis")
    before = engine.size()
    rounds, complete, fired = 0, False, set()
    while rounds < limits.rounds and not complete:
        rounds += 1
        complete = True
        for family in families:
            if engine.step(family):
                complete = False
                fired.add(family)
                engine.saturate("analysis")
        facts = encoding.answer(engine.requests())
        if facts:
            engine.tell(facts)
            engine.saturate("analysis")
            complete = False
        if engine.size() > limits.nodes or time.perf_counter() - start > limits.seconds:
            break
    seconds = time.perf_counter() - start
    growth = Growth(before, engine.size(), rounds, seconds, complete, frozenset(fired))
    return engine, encoding, growth
