"""What matters in a kernel: its dominant reductions, the axes that all share, one lane axis."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, prod

from ..kernel.kernel import Kernel, Value
from ..kernel.target import Target
from .decisions import Decisions
from .facts import Access, Facts
from .loads import COPIED
from .solver import Solver
from .tile import Tile

HEAVY = 0.1  # part of all the work that makes a value count
NEGLIGIBLE = 1e-4  # part of all the work that may be repeated freely
UNITS = 4  # units of work a thread, so that claiming evens out
WORTH = 3.0  # times the least cost: lane axes that a search may try
EACH = "each value its own"


@dataclass
class Outline:
    """A kernel as the frames see it.

    main: the reduction with most work; group: reductions that share its loops; streams: axes of
    online reductions; common: axes that every heavy and every stored value keeps; lane: one lane
    axis for all heavy reductions, if that costs next to nothing; tile: of the group; cost: cycles
    of the heavy reductions and of what is stored, with these lanes.
    """

    facts: Facts
    stored: list[Value]
    heavy: list[Value]
    total: float
    main: Value | None
    group: list[Value]
    streams: list[str]
    common: list[str]
    lane: str | None = None
    tile: Tile | None = None
    cost: float = 0.0

    @property
    def kernel(self) -> Kernel:
        return self.facts.kernel

    @property
    def target(self) -> Target:
        return self.facts.target

    @property
    def size(self) -> dict[str, int]:
        return self.facts.size

    @property
    def values(self) -> tuple[Value, ...]:
        return self.facts.values

    @property
    def ruling(self) -> tuple[Value, Tile]:
        """The reduction with most work and its tile, of a kernel that has such."""
        assert self.main is not None and self.tile is not None
        return self.main, self.tile

    def matters(self, value: Value) -> bool:
        """Too much work to be repeated freely."""
        return self.facts.work(value) > NEGLIGIBLE * self.total and not value.store


def outline(
    kernel: Kernel, target: Target, decisions: Decisions | None = None, matrices: bool = True,
    rows: bool = False,
) -> Outline:  # fmt: skip
    """Look at a kernel, and decide its lane axis and its tile, perhaps of matrices. rows: lanes are
    rows of the running sums."""
    found = _look(Facts(kernel, target, (), decisions))
    found.facts.lanes = _crowd(found)
    _choose_lane(found, rows)
    if found.main is not None:
        solver, alone = Solver(found.facts), matrices and _alone(found)
        found.tile = solver.solve(found.group, found.lane, name="tile", matrices=alone)
    return found


def _crowd(found: Outline) -> int:
    """Lanes of a vector: more threads for each unit where there are few units of long rows."""
    lanes, target, main = found.facts.lanes, found.target, found.main
    if main is None or any(set(main.axes) - x.axes for x in found.facts.accesses(main)):
        return lanes  # what is read again has tiles, which have further threads of their own
    rows = [n for a, n in found.size.items() if a not in found.common]
    units = prod(found.size[a] for a in found.common)
    most = 0 if found.streams else min(target.crowd, max(rows, default=0))
    while 2 * lanes <= most and 2 * lanes * units <= target.threads * target.group:
        lanes *= 2
    return lanes


def _alone(found: Outline) -> bool:
    """The sums of the group are all that is reduced, so nothing else wants its lanes; on a CPU, all
    that is reduced of them."""
    after = found.kernel.behind([v.name for v in found.group])
    others = (v for v in found.values if v.reduction and v not in found.group)
    wanted = any(found.target.group > 1 or v.name in after for v in others)
    return not found.streams and not wanted


def again(found: Outline, kernel: Kernel, operands: Iterable[str]) -> Outline:
    """Look at a kernel with operand values, or with its values in another order: what is decided
    stays."""
    facts = found.facts
    main = found.main.name if found.main else None
    fresh = _look(Facts(kernel, facts.target, operands, facts.decisions), main)
    fresh.facts.lanes = facts.lanes
    fresh.lane, fresh.tile = found.lane, found.tile
    return fresh


def _look(facts: Facts, dominant: str | None = None) -> Outline:
    """dominant: the reduction that rules, if that is decided: operands that became values of their
    own leave others with as much work."""
    work = {v.name: facts.work(v) for v in facts.values}
    total = sum(work.values())
    reductions = [v for v in facts.values if v.reduction and not v.scans]
    main = max(reductions, key=lambda v: (v.name == dominant, work[v.name]), default=None)
    group = [v for v in reductions if main and _alike(v, main)]
    alone = [v for v in group if v.reads().isdisjoint(u.name for u in group)]
    stored = [v for v in facts.values if v.store]
    heavy = [v for v in facts.values if work[v.name] >= HEAVY * total]
    found = Outline(facts, stored, heavy, total, main, alone, _streams(facts), [])
    found.common = _common(found)
    return found


def _alike(v: Value, main: Value) -> bool:
    """They may share all loops, and one tile."""
    assert v.reduction is not None and main.reduction is not None
    same = set(v.axes) == set(main.axes) and v.over == main.over and v.domain == main.domain
    return same and v.reduction.op == main.reduction.op


def _streams(facts: Facts) -> list[str]:
    online = [v for v in facts.values if v.rescale]
    seen = set().union(*(u.reads(so_far=True) for u in facts.values))
    online += [v for v in facts.values if v.name in seen]
    return list(dict.fromkeys(a for v in online for a in v.over))


def _common(found: Outline) -> list[str]:
    facts = found.facts
    keep = found.heavy + found.stored
    serial = {a for v in facts.values for a in (*v.serial, *v.over)}
    order = dict.fromkeys(a for v in found.stored for a in v.axes)
    main = found.main  # it is made anew at each position of an axis that it lacks
    most = HEAVY * found.total / facts.work(main) if main else 0.0
    common, turns = list[str](), 1
    for a in order:
        if a in serial or a in facts.single or not all(a in v.axes for v in keep):
            continue
        again = facts.size[a] if main and a not in main.axes else 1
        if again == 1 or turns * again <= most:
            common.append(a)
            turns *= again
    return common


def _choose_lane(found: Outline, rows: bool) -> None:
    """One lane axis for all heavy reductions if that costs no more than each value's own best."""
    heavy = [v for v in found.heavy if v.reduction]
    heavy = heavy or [v for v in found.group if found.streams]
    if not heavy or not found.common:
        return
    sums = [found.facts.by_name[name] for v in found.values for name in v.rescale]
    lanes = [a for a in found.common if not rows or all(a in v.axes for v in sums)]
    costs = {lane: _lane_cost(found, heavy, lane) for lane in [*lanes, None]}
    each = inf if rows else costs[None][0]
    least = min([each, *(costs[lane][0] for lane in lanes)])
    near = [lane for lane in lanes if costs[lane][0] <= 1.05 * least]
    if near:
        found.lane = min(near, key=lambda a: costs[a][1])
    _decide_lane(found, costs, WORTH * least)
    found.cost = costs[found.lane][0]


def _decide_lane(
    found: Outline, costs: Mapping[str | None, tuple[float, int]], most: float
) -> None:
    """The lane axis, or another one that does not cost much more."""
    ranked = sorted((lane for lane in costs if costs[lane][0] <= most), key=lambda a: costs[a])
    options = [lane or EACH for lane in ranked]
    taken = found.facts.decisions.of("lane", found.lane or EACH, options)
    found.lane = None if taken == EACH else str(taken)


def _lane_cost(found: Outline, heavy: list[Value], lane: str | None) -> tuple[float, int]:
    """(cycles, copies and transposed stores): heavy reductions, and what is stored after them."""
    facts, solver = found.facts, Solver(found.facts)
    total, extra = 0.0, 0
    for v in heavy:
        tile = solver.solve(found.group if v in found.group else [v], lane)
        facts.lane_of[v.name] = None if tile.reduced else tile.lane
        total += tile.cycles * facts.points(v)
        total += sum(_copied_again(found, x, lane) for x in tile.copies)
        extra += len(tile.copies)
    for v in found.stored:
        turned = lane is not None and facts.store_stride(v, lane) != 1
        extra += turned
        if v.reduction is None:
            last = solver.solve([v], None if turned else lane, copies=False)
            total += last.cycles * facts.points(v)
    facts.lane_of.clear()
    return total, extra


def _copied_again(found: Outline, x: Access, lane: str | None) -> float:
    """Cycles of copying an operand of a stream in every unit of work that shares it with others."""
    if not found.streams:
        return 0.0
    again = {*shared_out(found, lane), *x.axes} - {lane}
    return COPIED * prod(found.size[a] for a in again) / found.facts.lanes


def shared_out(found: Outline, lane: str | None, operands: Collection[str] = ()) -> list[str]:
    """The axes of a stream whose positions are units of work: first those that all operands have;
    without lanes no more of fixed size than the threads need."""
    facts, taken, count = found.facts, list[str](), 1
    reads = [x for v in found.heavy if v.reduction for x in facts.accesses(v)]
    reads = [x for x in reads if x.load or x.name in operands]
    spread = [a for a in found.common if a != lane]
    for a in sorted(spread, key=lambda a: not all(a in x.axes for x in reads)):
        if lane or count < UNITS * found.target.threads or not facts.static[a]:
            taken.append(a)
            count *= found.size[a]
    return taken


def stream_of(found: Outline, value: Value) -> str | None:
    """The stream in whose loop a value stands: it walks its axis, or looks at a running value. A
    value may have the axis of another stream too, one that its results run through later."""
    running = [found.facts.by_name[n] for n in sorted(value.reads(so_far=True))]
    running += [v for v in found.values if value.name in v.rescale]
    readers = [v for v in found.values if value.name in v.reads()]
    soon = [a for v in readers for a in v.over if a in value.points]
    walked = [*value.over, *(a for v in running for a in v.over), *soon, *value.points]
    return next((a for a in walked if a in found.streams), None)


def side_by_side(found: Outline) -> Kernel:
    """The values of each stream, or the reductions of a group, side by side, so that they share
    their loops: what stands between and feeds none of them comes after."""
    values, ends = found.values, _ends_before(found)
    inside = [v for v in values if stream_of(found, v)] if found.streams else found.group
    for number in sorted({ends[v.name] for v in inside}):
        values = _together(values, {v.name for v in inside if ends[v.name] == number})
    return replace(found.kernel, values=values)


def _together(values: tuple[Value, ...], walked: set[str]) -> tuple[Value, ...]:
    """The walked values side by side: what one of them needs stands before, unless it needs one
    itself; what none needs stands after."""
    inside = [i for i, v in enumerate(values) if v.name in walked]
    first, last = inside[0], inside[-1]
    needed, made = set[str](), set[str]()
    for v in reversed(values[first : last + 1]):
        needed |= v.reads() if v.name in walked | needed else set()
    early: list[Value] = []
    kept: list[Value] = []
    late: list[Value] = []
    for v in values[first : last + 1]:
        if v.name in walked or (v.name in needed and v.reads() & made):
            made.add(v.name)
            kept.append(v)
        else:
            (early if v.name in needed else late).append(v)
    return (*values[:first], *early, *kept, *late, *values[last + 1 :])


def _ends_before(found: Outline) -> dict[str, int]:
    """How many ends of streams each value needs, one after another: the last maximum of a stream,
    or a sum that was rescaled."""
    looked_at = set().union(*(v.reads(so_far=True) for v in found.values))
    whole = {v.name for v in found.values if v.rescale} | looked_at
    ends: dict[str, int] = {}
    for v in found.values:
        ends[v.name] = max((ends[n] + (n in whole) for n in v.reads(so_far=False)), default=0)
    for v in found.values:  # the copy of a maximum so far stands in front of it
        ends[v.name] = max(ends[v.name], *(ends[n] for n in v.reads(so_far=True)), 0)
    return ends
