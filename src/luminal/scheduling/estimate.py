"""What a drawn-up kernel takes, roughly: enough to tell whether several in its place are faster."""

from __future__ import annotations

from math import hypot, prod

from ..graph.dtype import DType
from ..graph.index import Index
from ..graph.space import share
from ..kernel.kernel import Value
from ..kernel.program import LINE
from .draft import Draft
from .facts import Access, weight, worked_out
from .instructions import STAGES
from .solver import APART

FAR = 4.0  # cycles of an element apart from its neighbours, on the same set of a cache
NEAR = 1.0  # the same of one that is loaded from the second cache
PARTIAL = 2.0  # of a vector of which the axis fills a part
TURNED = 0.5  # the same where blocks are transposed in registers
WAIT = 480.0  # cycles from a load of a group of threads to its numbers
WINDOWED, CROWDED = 1.01, 2.5  # times the cycles of a product that reads windows where they lie
ASKED = 1.3  # the same where it asks which taps there are
STREAMS = 32  # pages that are read in turns and still foreseen


def estimate(draft: Draft) -> float:
    """What a kernel takes, as far as its schedule tells: the tile of its product, and how often
    and in which steps through memory the values beside it are computed."""
    found, facts, target = draft.found, draft.facts, draft.target
    cycles = 0.0
    for v in found.values:
        each = _apiece(draft, v)
        left = found.streams and target.group == 1 and v.name in draft.tiles  # by a stream's loops
        if v in found.group and found.tile is not None and not left:
            each = found.tile.cycles / len(found.group) * _windowed(draft, v)
        elif v.factors and v.name in draft.tiles:
            each = draft.tiles[v.name].cycles
        each *= again(draft, v) * facts.points(v) * _walked(draft, v)
        if v.reduction is not None:
            each += _stored(draft, v) * prod(draft.size[a] for a in v.axes)
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
    tile = draft.tiles.get(v.name)
    matrix = tile.pair[0] if tile and tile.rows and tile.pair else None
    threads = matrix.threads if matrix else lanes  # lanes of matrices are elements of sums
    idle = target.threads / (units * max(1, threads // target.group))
    if v in found.group and found.tile is not None:
        tiles = prod(-(-draft.size[a] // found.tile.size(a)) for a in v.axes)
        warps = lanes // target.group if found.tile.deep[0] else 1
        idle /= max(1.0, target.threads / (tiles * max(1, warps)))
    together *= STAGES if matrix and matrix.staged else 1  # turns that are copied ahead
    turns = again(draft, v) * draft.facts.points(v) / (units * lanes * used * together)
    loads = any(x.load for x in draft.facts.accesses(v))
    groups = max(target.threads, units * threads // target.group)
    return max(cycles * max(1.0, idle) / used, turns * WAIT * groups * loads)


def _windowed(draft: Draft, v: Value) -> float:
    """What a product takes longer for reading windows of an image where they lie: more where their
    lines come again and again from beyond the first cache, or where they go through a floor, or ask
    at run time which taps there are; and what it works out for each element of an operand."""
    worked = any(worked_out(draft.facts, side) for side in v.factors)
    factor = CROWDED if worked else 1.0
    for x in draft.facts.accesses(v):
        if x.load and any(len(i.names()) > 1 for i in x.load.index):
            floors = any(i.floors for i in (*x.load.index, *x.conditions))
            factor = max(factor, CROWDED if floors else hypot(WINDOWED, _lines(draft, v, x)))
            factor *= ASKED if any(_asked(draft, c) for c in x.conditions) else 1.0
    return factor


def _lines(draft: Draft, v: Value, x: Access) -> float:
    """Cycles in which the second cache delivers what an operand brings in a step of the tile, whose
    elements it takes one by one, in times of the cycles of that step: steps that are written out
    share lines where they are neighbours."""
    (_, tile), target = draft.found.ruling, draft.target
    loops = [loop.axis for loop in draft.paths.get(v.name, ()) if loop.axis in v.over]
    if x.stride(tile.lane) or not loops:
        return 0.0
    steps, last = draft.size[loops[-1]], abs(x.stride(loops[-1])) * x.dtype.bytes
    together = min(steps, max(1, LINE // last)) if last else steps
    apart = ((n, abs(x.stride(a)) * x.dtype.bytes) for a, n in tile.sizes.items())
    lines = prod(max(1.0, n * min(1.0, each / LINE)) for n, each in apart)
    return lines / together * LINE / target.l2_rate / (tile.cycles * prod(tile.sizes.values()))


def _asked(draft: Draft, condition: Index) -> bool:
    """Whether a tap that is written out exists is known only as the loops go round."""
    names = condition.names()
    return bool(names & draft.facts.spelled) and not names <= _written(draft)


def _written(draft: Draft) -> frozenset[str]:
    """Axes of the tile, and of windows, of which every position is written out somewhere."""
    tile, size = draft.found.tile, draft.size
    edges = [a for a, n in (tile.sizes if tile else {}).items()
             if n >= size[a] or draft.tails.get(a) == "edges"]  # fmt: skip
    return draft.facts.spelled.union(edges)


def _walked(draft: Draft, v: Value) -> float:
    """The part of its points that a value has within its domain; of what is written out, where no
    operand is padding. What depends on run-time sizes counts as a whole."""
    facts, known = draft.facts, _written(draft)
    domain = facts.domain(v).items()
    inside = [Index.of(a) - low for a, (low, _) in domain if low is not None]
    inside += [high - 1 - a for a, (_, high) in domain if high is not None]
    for x in facts.accesses(v) if v in draft.found.group else ():
        inside += [c for c in x.conditions if c.names() & facts.spelled and c.names() <= known]
    return share([c for c in inside if c.names() <= draft.size.keys()], draft.size)


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
    what is turned in registers. Without lanes the innermost loop walks along lines."""
    facts, lane = draft.facts, _lane(draft, v)
    walked = lane or _innermost(draft, v)
    full = _lanes(draft, v) if lane else 1
    cycles = max(1.0, weight(v.body)) / full / draft.target.fma_ports + late(draft, v)
    for x in facts.accesses(v):
        if walked in x.axes or not lane:
            step = 0 if not lane and x.load is None else 1 if x.packable else x.stride(walked)
            cycles += _touched(draft, v, step, x.dtype, _loaded_apart(draft, v, x, step))
    return cycles + (_stored(draft, v) if v.reduction is None else 0.0)


def _loaded_apart(draft: Draft, v: Value, x: Access, step: int) -> float:
    """Cycles of an element that is loaded alone; streams are held by the first cache."""
    if draft.found.streams:
        return _apart_by(draft, step, x.dtype) / _together(draft, v)
    near = x.load is not None and draft.facts.bytes(x.name) <= draft.target.l2
    return NEAR if near else _apart_by(draft, step, x.dtype)


def _stored(draft: Draft, v: Value) -> float:
    """Cycles in which an element is stored, if it is."""
    if v.store is None:
        return 0.0
    walked = _lane(draft, v) or _innermost(draft, v)
    step = draft.facts.store_stride(v, walked) if walked in v.axes else 0
    together = _together(draft, v)
    step = step // together
    return _touched(draft, v, step, v.dtype, _apart_by(draft, step, v.dtype) / together)


def _touched(draft: Draft, v: Value, step: int, dtype: DType, apart: float) -> float:
    """Cycles of an element that is loaded or stored. step: elements between neighbours. apart: the
    cycles where it is loaded or stored alone."""
    target, tile, lane = draft.target, draft.tiles.get(v.name), _lane(draft, v)
    lanes, size = draft.facts.lanes if lane else 1, draft.size.get(lane, 1)
    full, edge = _lanes(draft, v), size % lanes / size
    if tile is not None and tile.across and abs(step) != 1:
        short = size < lanes and lanes % size == 0  # a vector holds several rows
        return TURNED * lanes / size if short else TURNED * (1 - edge) + FAR * edge
    if lane and abs(step) <= 1:
        return (1 if full == lanes else PARTIAL) / full
    if not lane and target.group == 1 and abs(step) * dtype.bytes < LINE:
        return 1 / target.load_ports
    return apart


def _apart_by(draft: Draft, step: int, dtype: DType) -> float:
    """Cycles of an element that lies so many elements from its neighbour in the lanes."""
    return FAR if step and step * dtype.bytes % draft.target.page == 0 else APART


def _together(draft: Draft, v: Value) -> int:
    """Elements that lie side by side for each lane."""
    tile = draft.tiles.get(v.name)
    return tile.size(tile.packed) if tile is not None else 1


def _innermost(draft: Draft, v: Value) -> str:
    return next((x.axis for x in draft.paths.get(v.name, ())[::-1]), "")


def _lane(draft: Draft, v: Value) -> str:
    return next((x.axis for x in draft.paths.get(v.name, ()) if x.kind == "vector"), "")


def _lanes(draft: Draft, v: Value) -> int:
    """Elements of a vector, along all of its axes."""
    axes = {x.axis for x in draft.paths.get(v.name, ()) if x.kind == "vector"}
    return min(draft.facts.lanes, prod(draft.size[a] for a in axes)) if axes else 1


def late(draft: Draft, v: Value) -> float:
    """Cycles that an element waits for memory where arrays that it reads are long and are walked a
    few elements here, a few on another page: four lines of each run come late. Nobody waits for
    what is stored, nor for a few pages in turns, which prefetchers follow."""
    facts, target, lane = draft.facts, draft.target, _lane(draft, v)
    long = (x for x in facts.accesses(v) if x.load and facts.bytes(x.name) > target.l2)
    runs = (_run(draft, v, x) for x in long if x.stride(lane) == 1)
    return sum(4 * target.costs.cold / run for run in runs if run)


def _run(draft: Draft, v: Value, x: Access) -> int:
    """Elements that its loops take from a page before they leave it for one of many; 0 if there are
    no such."""
    within, turns = {**draft.size}, list[tuple[int, int]]()
    for loop in draft.paths.get(v.name, ()):
        turns.append((-(-within[loop.axis] // loop.step), abs(x.stride(loop.axis))))
        within[loop.axis] = loop.step
    run = pages = 1
    for count, stride in turns[::-1]:
        away = stride * x.dtype.bytes >= draft.target.page
        run, pages = (run, pages * count) if away else (run * count if stride else run, pages)
        if pages > STREAMS:
            return run
    return 0
