"""What a register tile is wanted for, and the operations of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..graph.dtype import DType, bf16
from ..graph.scalars import SCALARS
from ..kernel.kernel import Apply, Load, Value, walk
from .facts import Access, Facts

CAST = 1.0  # operations that a cast costs: a narrow number is spread out, and moved or converted
ROUNDED = 8.0  # the same to bf16 on a CPU, to even, in integers

class Work(NamedTuple):
    """Operations on each point of some axes. cast: of a number of which dtype, if it is one.
    constant: of what is known before a run. factor: they make a factor of a product."""

    cost: float
    axes: frozenset[str]
    cast: DType | None = None
    constant: bool = False
    factor: bool = False


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
    factors = {e for v in group for arg in v.factors for e in walk(arg)}
    costs: dict[Work, float] = {}

    def charge(cost: float, like: Work) -> None:
        costs[like] = costs.get(like, 0.0) + cost

    for v in group:
        skipped = v.body if v.factors else None
        if v.reduction is not None:
            charge(1.0, Work(0.0, frozenset(v.points)))
        seen.update({e: None for e in walk(v.body) if isinstance(e, Apply) and e is not skipped})
    for e in seen:
        axes = facts.kernel.axes_of(e)
        given = [facts.buffers[x.buffer] for x in walk(e) if isinstance(x, Load)]
        fixed = bool(given) and all(b.constant for b in given)
        if e.op == "cast":
            rounded = e.dtype is bf16 and facts.target.group == 1
            charge(ROUNDED if rounded else CAST, Work(0.0, axes, e.args[0].dtype, fixed))
        else:
            charge(SCALARS[e.op].cost, Work(0.0, axes, None, fixed, e in factors))
    return [like._replace(cost=cost) for like, cost in costs.items()]
