"""What a drawn-up kernel takes, roughly: enough to tell whether several in its place are faster."""

from __future__ import annotations

from functools import partial
from itertools import pairwise, product, takewhile
from math import prod

from ..kernel.kernel import Value
from .draft import Draft
from .facts import Access, weight

SCATTERED, FAR = 2.0, 4.0  # cycles of an element apart from its neighbours, on another page
PARTIAL = 2.0  # of a vector of which the axis fills a part
TURNED = 0.5  # the same where blocks are transposed in registers
LINE = 64  # bytes
WAIT = 480.0  # cycles from a load of a group of threads to its numbers
PLACES = 4  # of an axis, at which the ends of a domain are looked at
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
        each *= again(draft, v) * facts.points(v) * _walked(draft, v)
        cycles += _of_threads(draft, v, each) if target.group > 1 else each
    return cycles / target.clock / target.threads


def _of_threads(draft: Draft, v: Value, cycles: float) -> float:
    """The same where groups of threads of a GPU work on units: those that get no work, beyond what
    the price of its tile says, and what each of the others waits, turn by turn."""
    found, target, units, lanes, used, within = draft.found, draft.target, 1, 1, 1.0, {**draft.size}
    together = 1
    for loop in draft.paths.get(v.name, ()):
        if loop.kind == "parallel":
            units *= -(-within[loop.axis] // loop.step)
        elif loop.kind == "vector":
            lanes *= (n := within[loop.axis])
            used *= min(1.0, draft.size[loop.axis] / n)
        elif loop.constant:
            together *= -(-within[loop.axis] // loop.step)
        within[loop.axis] = loop.step
    idle = target.threads / (units * max(1, lanes // target.group))
    if v in found.group and found.tile is not None:
        tiles = prod(-(-draft.size[a] // found.tile.size(a)) for a in v.axes)
        warps = lanes // target.group if found.tile.deep[0] else 1
        idle /= max(1.0, target.threads / (tiles * max(1, warps)))
    turns = again(draft, v) * draft.facts.points(v) / (units * lanes * used * together)
    loads = any(x.load for x in draft.facts.accesses(v))
    groups = max(target.threads, units * lanes // target.group)
    return max(cycles * max(1.0, idle) / used, turns * WAIT * groups * loads)


def kept_bytes(draft: Draft) -> int:
    """Of values that those who read them find in tiles: they share only some of their loops."""
    return sum(
        v.dtype.bytes * max((_between(draft, v, u) for u in draft.facts.readers(v.name)), default=0)
        for v in draft.found.values if not v.store
    )  # fmt: skip


def _between(draft: Draft, v: Value, reader: Value) -> int:
    """Elements of a value inside of the loops that it shares with a reader; in registers none."""
    summed = set(v.over) - set(v.axes)  # loops carry what is summed up
    mine, its = ([x for x in draft.paths.get(u.name, ()) if not x.constant and x.axis not in gone]
                 for u, gone in ((v, summed), (reader, set[str]())))  # fmt: skip
    same = list(takewhile(lambda pair: pair[0] == pair[1], zip(mine, its)))
    sums = {a for u in draft.found.values if u.reduction and v.name in u.reads() for a in u.over}
    if not (reader.reduction or draft.found.streams):  # what is summed up first is walked before
        same = list(takewhile(lambda pair: pair[0].axis not in sums, same))
    within = {**draft.size, **{loop.axis: loop.step for loop, _ in same}}
    return prod(within[a] for a in v.axes) if len(same) < max(len(mine), len(its)) else 0


def _windowed(draft: Draft, v: Value) -> float:
    """What a product takes longer for reading windows of an image where they lie: more where all
    steps of a sum land on one set of the first cache, or where they go through a floor."""
    target, factor = draft.target, 1.0
    way = target.l1 // target.l1_ways
    for x in draft.facts.accesses(v):
        if x.load and any(len(i.names()) > 1 for i in x.load.index):
            long = (a for a in x.axes.intersection(v.over) if draft.size[a] > target.l1_ways)
            crowded = any(x.stride(a) * x.dtype.bytes % way == 0 for a in long)
            crowded |= any(i.floors for i in (*x.load.index, *x.conditions))
            factor = max(factor, CROWDED if crowded or _apart(draft, v, x) else WINDOWED)
    return factor


def _apart(draft: Draft, v: Value, x: Access) -> bool:
    """Each element of an operand that a product takes one by one lies on a line of its own."""
    loops = [loop.axis for loop in draft.paths.get(v.name, ()) if loop.axis in v.over]
    tile = draft.found.tile
    if tile is None or x.stride(tile.lane) or not loops:
        return False
    near = [abs(x.stride(a)) * x.dtype.bytes for a in {loops[-1], *tile.sizes} if x.stride(a)]
    return min(near, default=0) >= LINE


def _walked(draft: Draft, v: Value) -> float:
    """The part of its points that a value has within its domain, as an average over a few places
    of the axes that its ends depend on."""
    ends = [(low, high, a) for a, (low, high) in v.domain.items()]
    names = sorted({n for *two, _ in ends for i in two if i is not None for n in i.names()})
    spots = [{*range(0, s, max(1, s // PLACES))} for s in (draft.size.get(n, 0) for n in names)]
    if not all(spots):
        return 1.0
    shares = []
    for place in product(*spots):
        at, share = dict(zip(names, place)), 1.0
        for low, high, a in ends:
            size = draft.size[a]
            first = 0 if low is None else max(0, int(low.evaluate(at)))
            last = size if high is None else min(size, int(high.evaluate(at)))
            share *= max(0, last - first) / size
        shares.append(share)
    return sum(shares) / len(shares)


def again(draft: Draft, v: Value) -> float:
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
    together = tile.size(tile.packed) if tile is not None else 1
    if v.store is not None:
        steps.append((facts.store_stride(v, lane) // together if lane else 0, v.dtype))
    lanes, size = facts.lanes if lane else 1, draft.size.get(lane, 1)
    full, edge = min(lanes, size), size % lanes / size
    cycles = max(1.0, weight(v.body)) / full / draft.target.fma_ports + late(draft, v)
    for step, dtype in steps:
        if tile is not None and tile.across:
            cycles += TURNED * (1 - edge) + FAR * edge
        elif lane and abs(step) <= 1:
            cycles += (1 if full == lanes else PARTIAL) / full
        else:
            far = SCATTERED if abs(step) * dtype.bytes < draft.target.page else FAR
            cycles += far / together
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
