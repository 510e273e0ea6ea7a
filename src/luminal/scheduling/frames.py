"""Frames with a dominant tile: how the values of a kernel share the machine and each other's loops.

tile    one reduction with reuse rules: blocks of its register tile, everything else around it
"""

from __future__ import annotations

from itertools import combinations
from math import prod

from ..kernel.kernel import Value
from ..kernel.program import LINE
from ..kernel.schedule import Loop
from .blocks import IDLE, blocks_of, copies_panels
from .draft import Draft
from .facts import round_up, weight
from .outline import UNITS
from .panels import read_once
from .paths import WINDOW, Room
from .tile import Tile

THIRD = 16  # times the second cache: what the third may hold
SPELLED = 512  # instructions behind a sum that are written out for a whole tile
LEAST_DEPTH = 64  # steps of a block of a reduced axis
SMALLER = 4  # times: how much smaller than usual a run-time size may be
LINES = 8  # of an image that a unit takes at once, at most
CHANNELS = 2  # first caches that weights of a block of channels fill
LEAST_UNIT = 8192  # points of a unit, which is claimed in the time of some 300
FAR_MEMORY = 4  # price of a byte from memory, in bytes from the third cache


def parallel(axis: str, step: int) -> Loop:
    return Loop(axis, step, "parallel")


# ---- tile


def tile_frame(draft: Draft) -> None:
    """One tile rules: the loops of the dominant reduction, shared by all that have its axes."""
    found, (main, tile) = draft.found, draft.found.ruling
    rows = [a for a in tile.sizes if a != tile.lane and a in found.common]
    written = _written(draft, tile, main)
    blocks = blocks_of(draft, tile, rows, written)
    order = _order(draft, tile, main, rows, blocks, written)
    order = _decide_order(draft, order + _lacked(draft, order, rows, blocks, written))
    if _lanes_inside(draft, tile, order, blocks):
        order.pop()
    order = _claimed(draft, main, order, blocks)
    lines = _lines_together(draft, tile, main, order, blocks)
    room = Room()
    for a in order:
        step = blocks.get(a, 1)
        if step < draft.size[a] or not draft.facts.static[a] or (a == order[-1] and not room.outer):
            room = room.add(parallel(a, step))
            ragged = draft.size[a] % step or not draft.facts.static[a]
            if tile.rows and a in tile.sizes and ragged and not tile.matrices:
                draft.tails[a] = "units"
    base, width = room, room.within.get(tile.lane, 0)
    together = width > tile.size(tile.lane) and copies_panels(draft, tile)
    block = _reduced_block(draft, tile, main, width if together else 0, bool(lines))
    deep, blocked = room.add(*block), {loop.axis for loop in block}
    own = [Loop(a, 1) for a in lines]
    for a in written:
        if draft.size[a] > tile.size(a):
            own.append(Loop(a, tile.size(a)))
            draft.tails[a] = "edges"
    if tile.matrices:  # whole ones are multiplied, also where there is less
        parts = [a for a, n in tile.sizes.items()
                 if draft.size[a] % blocks.get(a, n) or not draft.facts.static[a]]  # fmt: skip
        draft.tails |= dict.fromkeys(parts, "guard")
    if together:  # panel by panel for a few rows
        own += [Loop(a, tile.size(a)) for a in rows]
    behind = _behind(draft, base.add(*own), tile)
    for v in found.values:
        made = deep if v.name in draft.operands and blocked & {*v.axes} else base
        if together and v.name in draft.operands and tile.lane in v.axes:
            made = made.add(*made.walk(tile.lane, tile.size(tile.lane)))
        _place(draft, v, made, behind, deep.add(*own), tile)
    if together:
        _lay_panels(draft, tile)


def _place(draft: Draft, v: Value, base: Room, behind: Room, block: Room, tile: Tile) -> None:
    """base: the outer loops of a value by itself. behind: of what shares the tile. block: of the
    sums."""
    found = draft.found
    if v in found.group:
        draft.put(v, block, tile)
    elif _shares(draft, v, tile):
        draft.put(v, behind, tile)
    elif v.name in draft.operands and tile.lane in v.axes:
        draft.own(v, base, tile.lane, None if tile.reduced else tile.size(tile.lane))
    elif v.name in draft.operands and found.main and found.main.over[-1] in v.axes:
        draft.own(v, base, found.main.over[-1])
    else:
        draft.own(v, base)


def _lay_panels(draft: Draft, tile: Tile) -> None:
    """What is copied for several panels lies panel by panel."""
    for v in draft.found.values:
        axes = draft.axes.get(v.name, v.axes)
        if v.name in draft.operands and axes[-1:] == (tile.lane,):
            last = len(axes) - 1
            kept = [(d, 1) for d in range(last)]
            draft.layouts[v.name] = ((last, tile.size(tile.lane)), *kept, (last, 1))


def _shares(draft: Draft, v: Value, tile: Tile) -> bool:
    """It has the tile of the sums: it is computed where they end."""
    main, _ = draft.found.ruling
    whole = {a for a in tile.sizes if a in main.axes} <= set(v.axes)
    vectors = v.reduction is None and not tile.reduced and not tile.matrices
    return vectors and whole and draft.storable(v, tile.lane)


def _behind(draft: Draft, room: Room, tile: Tile) -> Room:
    """The loops of what shares the tile: row by row, where it would be a long text written out."""
    each = sum(weight(v.body) for v in draft.found.values if _shares(draft, v, tile))
    if draft.target.group > 1 or each * tile.vectors <= SPELLED:
        return room
    rows = [a for a in tile.sizes if a != tile.lane and tile.size(a) > tile.unit(a)]
    for a in (tile.lane, *rows):
        room = room.add(*room.walk(a, tile.size(a)))
    return room.add(*(Loop(a, tile.unit(a)) for a in rows))


def _order(
    draft: Draft, tile: Tile, main: Value, rows: list[str], blocks: dict[str, int],
    written: list[str],
) -> list[str]:  # fmt: skip
    """The outer axes, outermost first: those that every operand has, so that nothing is used again,
    before those that some lack."""
    found, loads = draft.found, [x for x in draft.facts.accesses(main) if x.load]
    lanes = [tile.lane] if tile.lane in blocks else []
    others = [a for a in found.common if a not in blocks]
    before = [a for a in others if all(a in x.axes for x in loads)]
    after = [a for a in others if a not in before]
    lacking = [v for v in found.values if lanes and tile.lane not in v.axes and found.matters(v)]
    inside = [a for a in rows if a in written
              or any(a not in v.axes and found.matters(v) for v in found.values)]  # fmt: skip
    outside = [a for a in rows if a not in inside]
    still = sum(draft.bytes(x.dtype, x.axes) for x in loads if not x.axes & set(after))
    walked = prod(draft.size[a] // blocks.get(a, 1) for a in before + after + outside)
    enough = draft.target.group == 1 or walked >= draft.target.threads
    if after and still <= draft.target.l1 // 2 and enough:  # weights stay in the first cache
        known = [a for a in lanes if draft.facts.static[a]]  # a tile may hold all of it
        return before + after + outside + [a for a in lanes if a not in known]
    apart, inner = (_rereads(draft, tile, main, blocks, where) for where in (True, False))
    if lanes and after + outside and apart > inner:
        return before + after + outside + lanes
    if after and outside:
        return before + lanes + after + outside
    return before + (outside + lanes if lacking else lanes + outside) + after


def _lacked(
    draft: Draft, order: list[str], rows: list[str], blocks: dict[str, int], written: list[str]
) -> list[str]:  # fmt: skip
    """Axes inside of a unit, since some values lack them, that are shared out after all: a crew
    would stand idle for a tenth of the time, or where a run-time size is smaller than usual."""
    threads = draft.target.threads if draft.target.group == 1 else 1
    small = {a: draft.size[a] // (1 if draft.facts.static[a] else SMALLER) for a in order}
    units = prod(max(1, -(-small[a] // blocks.get(a, 1))) for a in order)
    idle = -(-units // threads) * threads > IDLE * units
    return [a for a in rows if idle and a not in order and a not in written]


def _lanes_inside(
    draft: Draft, tile: Tile, order: list[str], blocks: dict[str, int]
) -> bool:
    """A unit of work walks all lanes: what lacks them is made once for it, nothing else is kept for
    all of them, and there are units enough."""
    found, lane = draft.found, tile.lane
    rest = [v for v in found.values if v not in found.group and not _shares(draft, v, tile)]
    lacking = any(found.matters(v) for v in rest) and all(lane not in v.axes for v in rest)
    units = draft.units(blocks, order[:-1])
    fixed = draft.target.group > 1 or tile.reduced or tile.matrices
    return order[-1:] == [lane] and lacking and not fixed and units >= UNITS * draft.target.threads


def _claimed(
    draft: Draft, main: Value, order: list[str], blocks: dict[str, int]
) -> list[str]:
    """The axes of units, without the last ones where they would make units of little work, beside
    what it takes to claim one, and there are enough without them."""
    fixed, alike = draft.facts.static, set(draft.found.common)
    alike.intersection_update(*(v.axes for v in draft.found.values))
    left = [a for a in order if not fixed[a] or blocks.get(a, 1) < draft.size[a]]
    while draft.target.group == 1 and len(left) > 1:
        axis, units = left[-1], draft.units(blocks, left[:-1])
        each = draft.facts.points(main) // (units * draft.size[axis])
        small = each < LEAST_UNIT and units >= UNITS * draft.target.threads
        if not (small and fixed[axis] and axis in alike and axis not in blocks):
            break
        left.pop()
    return left or order[-1:]


def _lines_together(
    draft: Draft, tile: Tile, main: Value, order: list[str], blocks: dict[str, int]
) -> list[str]:  # fmt: skip
    """An axis of lines of an image, several of which a unit takes for a block of channels: no more
    than the first cache holds sums for. `blocks` holds how many."""
    plain = draft.target.group == 1 and not (tile.reduced or tile.rows) and draft.facts.spelled
    panel = [x for x in draft.facts.accesses(main) if tile.lane in x.axes]
    over = [a for a in main.over if a not in draft.facts.spelled and draft.facts.static[a]]
    axes = [a for a in order if a in main.axes and a not in tile.sizes and draft.facts.static[a]
            and not any(a in x.axes for x in panel)]  # fmt: skip
    if not (plain and over and axes and _reduced_block(draft, tile, main, lines=True)):
        return []
    axis, units = axes[-1], draft.units(blocks, order)
    line = 4 * prod(tile.size(a) if a in order else draft.size[a] for a in tile.sizes)
    fits = min(LINES, draft.target.l1 // line, units // (UNITS * draft.target.threads))
    blocks[axis] = max(1, min(fits, draft.size[axis]))
    return [axis] if blocks[axis] > 1 else []


def _decide_order(draft: Draft, order: list[str]) -> list[str]:
    """The order, or one with two axes exchanged."""
    options = []
    for i, j in combinations(range(len(order)), 2):
        other = list(order)
        other[i], other[j] = other[j], other[i]
        options.append(" ".join(other))
    return str(draft.facts.decisions.of("order", " ".join(order), options)).split()


def _written(draft: Draft, tile: Tile, main: Value) -> list[str]:
    """Kept axes whose tiles have edges: there a tile knows which positions of its windows lie in
    the padding."""
    near = {a for a in tile.sizes if a in main.axes and draft.facts.static[a]}
    short = {a for a in main.over if draft.size[a] <= WINDOW}
    rows: list[str] = []
    for condition in (c for x in draft.facts.accesses(main) for c in x.conditions):
        names = condition.names()
        fixed = all(draft.facts.static[a] for a in names if a in draft.size)
        if names & short and names & near and fixed:
            rows += [a for a in tile.sizes if a in names & near]
            draft.facts.spelled |= names & short
    others = prod(draft.size[a] for a in draft.found.common if a not in rows)
    lanes = others >= UNITS * draft.target.threads  # there is enough to share out without them
    if draft.target.group > 1 and others < draft.target.threads * tile.size(tile.lane):
        return []  # a load under a condition costs less than threads without work
    return [a for a in dict.fromkeys(rows) if lanes or a != tile.lane]


def _reduced_block(
    draft: Draft, tile: Tile, main: Value, width: int = 0, lines: bool = False
) -> list[Loop]:  # fmt: skip
    """A loop over blocks of a reduced axis, whose steps lie farthest apart, if a panel, or those of
    so many elements that a unit takes together, would fill the second cache, or what is read beside
    it the first. With lines of images that a unit takes together blocks are small: lines far apart
    drive each other out long before they fill a cache."""
    known = [a for a in main.over if a not in draft.facts.spelled and draft.facts.static[a]]
    accesses, size = draft.facts.accesses(main), draft.size
    panels = [x for x in accesses if tile.lane in x.axes]
    once = all(read_once(draft.facts, x, main) for x in panels)
    staged = tile.pair and tile.pair[0].staged  # copied ahead
    if tile.reduced or staged or once or not known or (draft.facts.spelled and not lines):
        return []
    axis = max(known, key=lambda a: max(abs(x.stride(a)) for x in accesses))
    panel = 4 * (width or tile.size(tile.lane)) * prod(size[a] for a in main.over)
    panel //= tile.pair[0].together or tile.pair[0].collapse if tile.pair else 1
    block = size[axis]
    held = block * (draft.target.l2 // 4) // panel if panel > draft.target.l2 // 2 else block
    most = min(held, _near_steps(draft, tile, main, axis))
    if lines:
        most = block * CHANNELS * draft.target.l1 // panel
    each = tile.pair[0].collapse if tile.pair and axis == tile.pair[1] else 1
    while block > most and block % (2 * each) == 0:
        block //= 2
    least = min(LEAST_DEPTH, block)
    options = [size[axis] >> k for k in range(12) if size[axis] % (each << k) == 0]
    options = [n for n in options if n >= least]
    block = draft.facts.decisions.number(f"depth {axis}", block, options)
    return [Loop(axis, block)] if block < size[axis] else []


def _near_steps(draft: Draft, tile: Tile, main: Value, axis: str) -> int:
    """Steps of a reduced axis for which the first cache holds what an operand brings, where
    each step lands on lines of its own and the tile comes again for them."""
    held = 1
    for x in draft.facts.accesses(main):
        again = any(draft.size[a] > tile.size(a) for a in main.axes if a not in x.axes)
        if x.load and not x.packable and again and x.stride(axis) * x.dtype.bytes >= LINE:
            run = prod(tile.size(a) for a in x.axes if a in main.axes and x.stride(a) == 1)
            held = max(held, round_up(run * x.dtype.bytes, LINE))
    return max(LEAST_DEPTH, draft.target.l1 // 2 // held)


def _rereads(
    draft: Draft, tile: Tile, main: Value, blocks: dict[str, int], lanes_outside: bool
) -> float:
    """Bytes from beyond the second cache, at the price of the third, if the loop over the lane axis
    stands outside the loops over the other axes, or inside."""
    total = 0.0
    for x in draft.facts.accesses(main):
        held = draft.facts.bytes(x.name) if x.load else 0
        turned = (a for a in main.axes if a not in x.axes and (a == tile.lane) == lanes_outside)
        again = prod(-(-draft.size[a] // blocks.get(a, 1)) for a in turned)
        price = 1 if held <= THIRD * draft.target.l2 else FAR_MEMORY
        total += held * price * (again if held > draft.target.l2 // 2 else 1)
    return total
