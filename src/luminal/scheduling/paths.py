"""The loops of one value below those that it shares: its register tile, written as a path.

Every constant loop stands inside a serial loop of exactly its tile, so constant steps always
divide; a loop that runs once costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..kernel.kernel import Value
from ..kernel.schedule import CHAIN, Loop
from .facts import Facts, weight
from .loads import WINDOW
from .tile import Tile

TIMES = (1, 2, 4, 8)  # how often a body may be written out
FEW = 4  # rounds of a written-out body that make up for what is left over
UNROLLED = 128  # instructions in the body of an innermost loop, at most
WHOLE = 200  # instructions in positions of a window that are written out
LONGEST = 4096  # the same, where each takes a long expression
LOADS = 8  # of a thread of a GPU that wait together, where each takes as much as it can
AT_ONCE = 16  # elements for which a thread of a GPU waits together
LEAST_LANES = 4  # shorter vectors gain nothing over scalars


@dataclass(frozen=True)
class Room:
    """The loops above a value's own. within: axis -> step of the innermost of them."""

    outer: tuple[Loop, ...] = ()
    within: Mapping[str, int] = field(default_factory=dict)

    def add(self, *loops: Loop) -> Room:
        """The room inside further loops."""
        steps = {loop.axis: loop.step for loop in loops}
        return Room(self.outer + loops, {**self.within, **steps})

    def walk(self, axis: str, step: int) -> list[Loop]:
        """A serial loop in steps, unless the loops above leave just one step."""
        return [] if self.within.get(axis) == step else [Loop(axis, step)]

    def point(self, axis: str, facts: Facts) -> bool:
        """The axis has only one place left."""
        return self.within.get(axis) == 1 or axis in facts.single


def fitted(tile: Tile, room: Room) -> Tile:
    """A tile no larger than what the loops above leave, whose lanes divide every step around them;
    without lanes if nothing else does."""
    if tile.rows:
        whole = all(x.step % tile.size(x.axis) == 0 for x in room.outer if x.axis in tile.sizes)
        return tile if whole else Tile("", False, {}, 1, cycles=tile.cycles)
    width = tile.width
    while width > 1 and any(x.step % width for x in room.outer if x.axis == tile.lane):
        width //= 2
    sizes = {a: min(t, room.within.get(a, t)) for a, t in tile.sizes.items()}
    rows = {a: t for a, t in sizes.items() if a != tile.lane and t > 1}
    if any(x.step % rows.get(tile.packed, 1) for x in room.outer if x.axis == tile.packed):
        rows.pop(tile.packed)
    if width == tile.width:
        partial = tile.partial
        if tile.lane:
            rows = {tile.lane: max(width, sizes[tile.lane] // width * width), **rows}
        if tile.reduced:
            partial = min(partial, room.within.get(tile.lane, partial * width) // width)
        return replace(tile, sizes=rows, partial=max(1, partial))
    if width >= LEAST_LANES:
        rows = {tile.lane: width, **rows}
        return replace(tile, sizes=rows, width=width, partial=1, across="")
    rows.pop(tile.across, None)
    return Tile("", False, rows, 1, cycles=tile.cycles, loads=tile.loads)


def narrowed(value: Value, tile: Tile, facts: Facts) -> Tile:
    """Vectors as short as a short lane axis: they have no lanes to mask."""
    extent = facts.size[tile.lane] if tile.lane else 0
    short = LEAST_LANES <= extent < tile.width and extent & (extent - 1) == 0
    if not short or value.reduction or tile.across or tile.rows or not facts.static[tile.lane]:
        return tile
    return replace(tile, sizes={**tile.sizes, tile.lane: extent}, width=extent)


def inner(value: Value, tile: Tile, facts: Facts, room: Room, most: int) -> list[Loop]:
    """The loops of a value below the shared ones, for a tile that fits: other axes one by one,
    steps of the tile, reduced axes, and the tile written out."""
    lane, width, rows = tile.lane, tile.width, [a for a in tile.sizes if a != tile.lane]
    loops: list[Loop] = []
    others = [
        a for a in value.axes
        if a not in (*tile.sizes, *value.over, tile.across) and not room.point(a, facts)
    ]  # fmt: skip
    known = {} if tile.across else _conditional(value, tile, facts, room, others)
    for a in others:
        loops += room.walk(a, known.get(a, 1))
    if tile.across:
        loops += room.walk(tile.across, width) + room.walk(lane, width)
        return [*loops, Loop(tile.across, 1, "unroll"), Loop(lane, 1, "vector")]
    for a in ([lane] if lane in value.axes and not tile.reduced else []) + rows:
        loops += room.walk(a, tile.sizes[a])
    serial, written = _reduced(value, tile, facts, room, most)
    loops += serial
    run = _run(value, tile, facts) if tile.reduced else 1
    if tile.reduced:
        block = width * tile.partial
        turns = _turns(tile, facts, room, run) if run > 1 else 1
        loops += room.walk(lane, min(turns * block, room.within.get(lane, turns * block)))
        loops += [Loop(lane, block, "unroll")] if turns > 1 else []
    loops += written + [Loop(a, 1, "unroll") for a in known]
    loops += [Loop(a, tile.unit(a), "unroll") for a in rows if tile.size(a) > tile.unit(a)]
    if run > 1:
        loops += [Loop(lane, width * run, "partial")] if tile.partial > run else []
        return [*loops, Loop(lane, run, "vector"), Loop(lane, 1, "partial")]
    if tile.reduced and tile.partial > 1:
        loops.append(Loop(lane, width, "partial"))
    if lane in value.points:
        loops += [Loop(lane, width, "unroll")] if tile.sizes[lane] > width else []
        loops += [Loop(tile.rows, 1, "vector")] if tile.rows else []
        loops += [Loop(tile.deep[0], 1, "vector")] if tile.deep[0] in value.over else []
        loops.append(Loop(lane, 1, "vector"))
        loops += [Loop(tile.packed, 1, "vector")] if tile.size(tile.packed) > 1 else []
    if tile.pair and tile.pair[1] in value.over:
        instruction, axis = tile.pair
        steps = [instruction.together, 1] if instruction.together else [1]
        loops += [Loop(axis, step, "collapse") for step in steps]
    return loops


def in_blocks(value: Value, loops: list[Loop], facts: Facts, room: Room) -> list[Loop]:
    """The loops of a value, with one more around the first that adds up very many floats: what a
    block of it adds up is whole before it joins the rest (see `lowering/reduce.py`)."""
    r, group = value.reduction, facts.target.group
    if r is None or r.op != "sum" or not value.dtype.is_float or value.rescale or group > 1:
        return loops
    for number, (axis, step, kind) in enumerate((x.axis, x.step, x.kind) for x in loops):
        turns = room.within.get(axis, facts.most(axis)) / step
        if kind == "serial" and axis in value.over and turns >= 2 * CHAIN:
            exact = range(CHAIN, CHAIN // 8, -1) if facts.static[axis] else ()
            block = next((n for n in exact if turns % n == 0), CHAIN)
            return [*loops[:number], Loop(axis, block * step), *loops[number:]]
    return loops


def _run(value: Value, tile: Tile, facts: Facts) -> int:
    """Elements of a sum that a thread of a GPU reads at once: all that is read along its lanes lies
    side by side."""
    read = [x for x in facts.accesses(value) if tile.lane in x.axes]
    if facts.target.group == 1 or not read:
        return 1
    if any(x.conditions or (x.stride(tile.lane) != 1 and not x.packable) for x in read):
        return 1
    most = min(facts.target.wide // x.dtype.bytes for x in read)
    return max((n for n in (2, 4, 8, 16) if n <= most and tile.partial % n == 0), default=1)


def _turns(tile: Tile, facts: Facts, room: Room, run: int) -> int:
    """Steps of a tile in wide lanes that are written out, so that enough is on its way."""
    block, extent = tile.width * tile.partial, room.within.get(tile.lane, facts.size[tile.lane])
    each = (tile.vectors + 1) * tile.partial // run
    fits = (n for n in TIMES[::-1] if n * each <= LOADS and extent % (n * block) == 0)
    return next(fits, 1) if facts.static[tile.lane] else 1


def _conditional(
    value: Value, tile: Tile, facts: Facts, room: Room, axes: list[str]
) -> dict[str, int]:
    """The innermost of these axes, written out where that makes conditions constants: the places in
    windows and images that are a few elements wide. On a GPU as many places as a thread waits for
    together, in kernels without sums."""
    if value.reduction or not tile.lane:
        return {}
    if facts.target.group > 1:
        return _at_once(value, tile, facts, room, axes)
    named = {a for x in facts.accesses(value) for c in x.conditions for a in c.names()}
    known, copies = list[str](), tile.vectors * (2 + int(weight(value.body)))
    for a in axes[::-1]:
        copies *= facts.size[a]
        free = a in room.within or a in value.serial or a in facts.domain(value)
        if free or a not in named or not facts.static[a]:
            break
        if facts.size[a] > WINDOW or copies > WHOLE:
            break
        known.insert(0, a)
    return {a: facts.size[a] for a in known}


def _at_once(
    value: Value, tile: Tile, facts: Facts, room: Room, axes: list[str]
) -> dict[str, int]:  # fmt: skip
    if any(v.reduction for v in facts.by_name.values()):
        return {}
    known, left = dict[str, int](), AT_ONCE // tile.vectors
    for a in axes[::-1]:
        extent, moving = facts.size[a], a in value.serial or a in facts.domain(value)
        block = room.within.get(a, extent)
        if facts.static[a] and not moving and extent % block == 0:
            known[a] = next(n for n in range(max(1, min(left, block)), 0, -1) if block % n == 0)
            left //= known[a]
    return {a: known[a] for a in axes if known.get(a, 1) > 1}


def _reduced(
    value: Value, tile: Tile, facts: Facts, room: Room, left: int
) -> tuple[list[Loop], list[Loop]]:
    """The loops over reduced axes that are not lanes: short ones are written out whole, the next
    one a little, from the innermost on; beside lanes that are reduced only on a GPU. Neighbouring
    positions of a window share elements, digits of packed numbers whole vectors. left: turns that
    are written out, in the order that the value has, if that is decided."""
    deep, parts = tile.deep
    over = [a for a in value.over if a not in (tile.lane, deep) and not room.point(a, facts)]
    bounds, pair = facts.domain(value), tile.pair[1] if tile.pair else None
    asked = {a for x in facts.accesses(value) for c in x.conditions for a in c.names()}
    bounded = [a for a in over if a in bounds and a in asked and a not in room.within]
    over = [a for a in over if a not in bounded]
    if not left:
        over.sort(key=lambda a: (a == pair, _still(value, tile, facts, a), -_leap(value, facts, a)))
    folded = tile.reduced and facts.target.group == 1
    body = 0 if value.scans or folded else tile.vectors * tile.partial
    each = 1 + int(weight(value.body))
    serial: list[Loop] = []
    written: list[Loop] = []
    done = tile.vectors
    for a in over[::-1]:
        step = tile.pair[0].collapse if tile.pair and a == pair else 1
        turns = room.within.get(a, facts.size[a]) // step
        fixed = a in room.within or facts.static[a]
        most = UNROLLED if written else WHOLE
        whole = fixed and 0 < body * turns <= min(most, LONGEST // each) and turns <= WINDOW
        if left:
            many = max(n for n in range(1, turns + 1) if turns % n == 0 and n <= left)
            whole, left = many == turns, max(1, left // turns)
        else:
            many = turns if whole else _times(value, facts, turns if fixed else 0, body, each)
        if tile.pair and tile.pair[0].staged:
            whole, many = False, 1
        if not (whole and many > 1 and a not in room.within):
            serial = room.walk(a, many * step) + serial
        written = ([Loop(a, step, "unroll")] if many > 1 else []) + written
        body, done = body * many if whole else 0, done * many
    if deep in value.over:
        most, turns = facts.target.costs.chains, room.within.get(deep, facts.size[deep]) // parts
        steps = next(n for n in TIMES[::-1] if turns % n == 0 and (n == 1 or n * done <= most))
        serial = room.walk(deep, parts * steps) + serial
        written = [Loop(deep, parts, "unroll")] * (steps > 1) + written
    return [loop for a in bounded for loop in room.walk(a, 1)] + serial, written


def _still(value: Value, tile: Tile, facts: Facts, axis: str) -> int:
    """How many of the vectors that are read stay the same along a short axis: along digits of
    packed numbers all of them."""
    if facts.size[axis] > WINDOW or not facts.static[axis]:
        return 0
    vectors = (x for x in facts.accesses(value) if x.load and tile.lane in x.axes)
    return sum(axis not in x.axes for x in vectors)


def _leap(value: Value, facts: Facts, axis: str) -> int:
    """Bytes between neighbours of what is read where it lies, if that is a page or more: near in
    time, such elements would have few places in a cache."""
    far = [
        x.stride(axis) * x.dtype.bytes for x in facts.accesses(value) if x.load and not x.conditions
    ]
    return max((n for n in far if n >= facts.target.page), default=0)


def _times(value: Value, facts: Facts, turns: int, body: int, each: int) -> int:
    """How often the body of a loop over a reduced axis is written out. turns: 0 if not known."""
    if not body:
        return 1
    near = max(4, facts.target.costs.chains // body)  # loads that are waited for together
    most = max(1, min(near, UNROLLED // body, LONGEST // (body * each)))
    if not turns:
        return most
    exact = next(n for n in range(most, 0, -1) if turns % n == 0)
    many = most if exact == 1 and turns >= FEW * most else exact
    fitting = [n for n in TIMES if turns % n == 0]
    return facts.decisions.number(f"unroll {value.name}", many, fitting)
