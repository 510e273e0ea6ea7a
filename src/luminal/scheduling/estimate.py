"""What a drawn-up kernel takes, roughly: enough to tell whether several in its place are faster."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from ..kernel.kernel import Value
from .draft import Draft
from .facts import weight

SCATTERED, FAR = 2.0, 4.0  # cycles of an element apart from its neighbours, on another page
TURNED = 0.5  # the same where blocks are transposed in registers
WINDOWED, CROWDED = 1.1, 2.5  # times the cycles of a product that reads windows where they lie


def estimate(draft: Draft) -> float:
    """What a kernel takes, as far as its schedule tells: the tile of its product, and how often
    and in which steps through memory the values beside it are computed."""
    found, facts, target = draft.found, draft.facts, draft.target
    cycles = 0.0
    for v in found.values:
        each = _apiece(draft, v)
        if v in found.group and found.tile is not None:
            each = found.tile.cycles / len(found.group) * _windowed(draft, v)
        cycles += each * _again(draft, v) * facts.points(v)
    return cycles / target.clock / target.threads


def _windowed(draft: Draft, v: Value) -> float:
    """What a product takes longer for reading windows of an image where they lie: more where all
    steps of a sum land on one set of the first cache, or where they go through a floor."""
    target, factor = draft.target, 1.0
    way = target.l1 // target.l1_ways
    for x in draft.facts.accesses(v):
        if x.load and any(len(i.names()) > 1 for i in x.load.index):
            long = (a for a in x.axes.intersection(v.over) if draft.size[a] > target.l1_ways)
            crowded = any(x.stride(a) * x.dtype.bytes % way == 0 for a in long)
            dear = crowded or any(i.has_floor for i in (*x.load.index, *x.conditions))
            factor = max(factor, CROWDED if dear else WINDOWED)
    return factor


def _again(draft: Draft, v: Value) -> float:
    """How often each element of a value is computed: turns of loops over axes that it lacks."""
    within, turns = dict[str, int](), 1.0
    for loop in draft.paths.get(v.name, ()):
        before = within.get(loop.axis, draft.size[loop.axis])
        turns *= -(-before // loop.step) if loop.axis not in v.points else 1
        within[loop.axis] = loop.step
    return turns


def _apiece(draft: Draft, v: Value) -> float:
    """Cycles of an element: arithmetic in lanes, and one by one what lies apart along them, or
    what is turned in registers."""
    facts, tile = draft.facts, draft.tiles.get(v.name)
    lane = _lane(draft, v)
    steps = [(x.stride(lane), x.dtype) for x in facts.accesses(v) if lane in x.axes or not lane]
    if v.store is not None:
        steps.append((facts.store_stride(v, lane) if lane else 0, v.dtype))
    lanes = facts.lanes if lane else 1
    cycles = max(1.0, weight(v.body)) / lanes / draft.target.fma_ports + late(draft, v)
    for step, dtype in steps:
        if tile is not None and tile.across:
            cycles += FAR if draft.size[lane] % lanes else TURNED
        elif lane and abs(step) <= 1:
            cycles += 1 / lanes
        else:
            cycles += SCATTERED if abs(step) * dtype.bytes < draft.target.page else FAR
    return cycles


def _lane(draft: Draft, v: Value) -> str:
    return next((x.axis for x in draft.paths.get(v.name, ()) if x.kind == "vector"), "")


def late(draft: Draft, v: Value) -> float:
    """Cycles that an element waits for memory where its arrays are long and are walked a few
    elements here, a few on another page: two lines of each run come late."""
    facts, target, lane, run = draft.facts, draft.target, _lane(draft, v), 0
    others = [a for a in v.axes if a != lane]
    path = [loop for loop in draft.paths.get(v.name, ()) if not loop.constant]
    for loop, after in pairwise(path):
        run = loop.step if loop.axis == lane and after.axis != lane else run
    touched = [(x.name, x.dtype, x.stride) for x in facts.accesses(v) if x.load]
    if v.store is not None:
        touched.append((v.store.buffer, v.dtype, partial(facts.store_stride, v)))
    late = sum(
        facts.bytes(name) > target.l2 and stride(lane) == 1
        and any(abs(stride(a)) * dtype.bytes >= target.page for a in others)
        for name, dtype, stride in touched
    )  # fmt: skip
    return 2 * target.costs.cold * late / run if run else 0.0
