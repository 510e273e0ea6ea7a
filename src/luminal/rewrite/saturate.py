"""From a region to its e-graph: insert, apply the families in turn, stop.

Stops at a fixed point, or gracefully at a limit: whatever is there by then is used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from .encode import Encoding
from .engine import Engine
from .rules import DEFAULT, program
from .terms import Region

MOVEMENT = ("read", "push")


@dataclass(frozen=True)
class Limits:
    """Where saturation stops: e-nodes, rounds, processor seconds (a busy machine cuts none)."""

    nodes: int = 20_000
    rounds: int = 100
    seconds: float = 5.0


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Growth:
    """What saturation did, for `explain()`."""

    before: int
    after: int
    rounds: int
    seconds: float
    complete: bool


def saturate(
    region: Region,
    families: tuple[str, ...] = DEFAULT,
    limits: Limits = DEFAULT_LIMITS,
    engine: Engine | None = None,
) -> tuple[Engine, Encoding, Growth]:
    """The e-graph of a region."""
    start = time.thread_time()
    encoding = Encoding(region)
    engine = engine or Engine(program(families))
    engine.insert([*map(encoding.encoded, region.terms.nodes)], encoding)
    engine.run()
    before = engine.size()
    moving = [f for f in families if f in MOVEMENT]
    other = [f for f in families if f not in MOVEMENT]
    rounds, complete = 0, False
    while not complete and rounds < limits.rounds:
        moved = True
        while moved and rounds < limits.rounds:  # views first
            rounds += 1
            moved = engine.run(*moving)
            if engine.size() > limits.nodes or time.thread_time() - start > limits.seconds:
                rounds = limits.rounds
        complete = not moved and not engine.run(*other)
    rounds = min(rounds, limits.rounds)
    seconds = time.thread_time() - start
    growth = Growth(before, engine.size(), rounds, seconds, complete)
    return engine, encoding, growth
