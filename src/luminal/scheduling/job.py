"""What a register tile is wanted for, and the operations of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..graph.scalars import SCALARS
from ..kernel.kernel import Apply, Value, walk
from .facts import Access, Facts

CAST = 1.0  # operations that a cast costs: a narrow number is spread out, and moved or converted

Work: TypeAlias = tuple[float, frozenset[str], bool]  # cost, axes, whether it is a cast


@dataclass(frozen=True)
class Job:
    """What a tile is wanted for: values over the same axes, how far each axis goes, and whether
    operands may be copied."""

    facts: Facts
    group: list[Value]
    accesses: list[Access]
    work: list[Work]
    span: Mapping[str, int]
    may_copy: bool


def operations(facts: Facts, group: list[Value]) -> list[Work]:
    """The operations of a group, equal ones once and those over the same axes together; the
    product under a sum is part of its fma."""
    seen: dict[Apply, None] = {}
    costs: dict[tuple[frozenset[str], bool], float] = {}

    def charge(cost: float, axes: frozenset[str], cast: bool) -> None:
        costs[axes, cast] = costs.get((axes, cast), 0.0) + cost

    for v in group:
        skipped = v.body if v.factors else None
        if v.reduction is not None:
            charge(1.0, frozenset(v.points), False)
        seen.update({e: None for e in walk(v.body) if isinstance(e, Apply) and e is not skipped})
    for e in seen:
        cast = e.op == "cast"
        charge(CAST if cast else SCALARS[e.op].cost, facts.axes_of(e), cast)
    return [(cost, axes, cast) for (axes, cast), cost in costs.items()]
