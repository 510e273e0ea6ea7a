"""Blocks of the outer loops around a register tile: so large that little is made again and caches
hold what is read again, and so that a crew shares the work out evenly."""

from __future__ import annotations

from functools import partial
from itertools import product
from math import lcm

from .draft import Draft
from .facts import round_up
from .outline import UNITS
from .tile import Tile

BLOCK = 128  # elements of a row axis in a block
IDLE = 1.1  # times what threads that share a loop evenly take
MANY = 16  # units of work a thread: they even out
TOGETHER = 128  # elements of the lane axis for which rows are read once
STRIPE, SPARE = 4, 16  # parts of the second cache: sums of a unit, and where it holds columns too
EVEN, LONG = 6, 512  # units a thread of long rows; elements of a row that are as good as more


def blocks_of(draft: Draft, tile: Tile, rows: list[str], written: list[str]) -> dict[str, int]:
    """Steps of the outer loops: large enough that little is recomputed, small enough for caches."""
    found, size = draft.found, draft.size
    least = {a: max(t, _least_block(draft, a, t)) for a, t in tile.sizes.items()
             if a in found.common}  # fmt: skip
    blocks = {a: size[a] if a in written else step for a, step in least.items()}
    rows = [a for a in rows if a not in written]
    for a in rows:
        t = tile.size(a)
        unit = _unit(draft, tile, a)
        wanted = min(max(least[a], round_up(BLOCK, unit)), max(least[a], _cache_block(draft, a, t)))
        blocks[a] = max(least[a], _equal_block(size[a], unit, wanted))
    while rows and draft.units(blocks, found.common) < UNITS * draft.target.threads:
        a = max(rows, key=lambda s: blocks[s] / least[s])
        if blocks[a] <= least[a]:
            break
        blocks[a] = max(least[a], round_up(blocks[a] // 2, tile.size(a)))
    for a in rows:
        blocks[a] = _shared_out(draft, a, blocks, _unit(draft, tile, a))
    if tile.lane in blocks and rows and not written:
        blocks[tile.lane] = _panels_together(draft, tile, blocks | {a: size[a] for a in rows})
    if tile.matrices and rows == [tile.rows] and tile.lane in blocks:
        blocks |= _stripe(draft, tile, blocks)
    for a in [a for a in blocks if a not in written]:
        blocks[a] = _decide_block(draft, a, tile.size(a), blocks[a])
    return blocks


def _equal_block(size: int, unit: int, wanted: int) -> int:
    """A multiple of the unit near to what is wanted: one that divides the axis, so that there is no
    code for what is left over, else one of which as many are nearly equal."""
    exact = [n for n in range(unit, 2 * wanted, unit) if size % n == 0 and 2 * n > wanted]
    if exact:
        return min(exact, key=lambda n: max(n, wanted) / min(n, wanted))
    parts = -(-size // wanted)
    return round_up(-(-size // parts), unit)


def _shared_out(draft: Draft, axis: str, blocks: dict[str, int], unit: int) -> int:
    """The block of a row axis, or one that a crew shares out more evenly, where it would stand idle
    for a tenth of the time: large blocks before small ones, in which more is made again."""
    size, known = draft.size[axis], draft.target.group == 1 and draft.facts.static[axis]
    idle = partial(_idle, draft, axis, blocks)
    if not known or idle(blocks[axis]) <= IDLE:
        return blocks[axis]
    most = _cache_block(draft, axis, unit)
    counts = range(-(-size // most), -(-size // unit) + 1)
    options = dict.fromkeys(round_up(-(-size // n), unit) for n in counts)
    return min([blocks[axis], *options], key=lambda n: (round(idle(n), 2), -n))


def _idle(draft: Draft, axis: str, blocks: dict[str, int], block: int) -> float:
    """Time that a crew takes for units with such a block of an axis, over what it would take if
    all were always busy."""
    size, threads = draft.size[axis], draft.target.threads
    others = draft.units({**blocks, axis: size}, draft.found.common)
    if -(-size // block) * others > MANY * threads:
        return 1.0
    busy = [0] * threads
    for first in [*range(0, size, block)] * others:  # a unit goes to whoever is free
        busy[busy.index(min(busy))] += min(block, size - first)
    return max(busy) * threads / (size * others)


def _panels_together(draft: Draft, tile: Tile, blocks: dict[str, int]) -> int:
    """The block of the lane axis: several panels that a unit copies, for a few rows each, where the
    rows come from beyond the second cache for each block, and it holds the panels."""
    found, target, (main, _) = draft.found, draft.target, draft.found.ruling
    lane, size, unit = tile.lane, draft.size[tile.lane], blocks[tile.lane]
    fixed = unit == tile.size(lane) and draft.facts.static[lane]
    if not (fixed and copies_panels(draft, tile)):
        return unit
    swept = [x for x in draft.facts.accesses(main) if lane not in x.axes]
    if sum(draft.bytes(x.dtype, x.axes) for x in swept) <= target.l2 // 2:
        return unit
    each = sum(draft.bytes(main.dtype, set(main.over)) for _ in found.group)
    whole = target.l2 // 2 // each  # elements along the lanes of which it holds all sums
    most = min(TOGETHER, whole) if whole >= unit else 2 * TOGETHER
    options = [n for n in range(unit, most + 1, unit) if size % n == 0 or size % unit]
    even = max(IDLE, _idle(draft, lane, blocks, unit))
    return max((n for n in options if _idle(draft, lane, blocks, n) <= even), default=unit)


def _stripe(draft: Draft, tile: Tile, blocks: dict[str, int]) -> dict[str, int]:
    """Blocks of sums that lie in memory when they are done: what is made of them walks along the
    lanes, best along whole rows of the arrays beside. Of few rows at a time, where the second cache
    holds the columns of all of them."""
    target, (main, _) = draft.target, draft.found.ruling
    rows, lane = tile.rows, tile.lane
    if target.group > 1 or not draft.facts.static[lane] or tile.pair is None:
        return {}
    columns = (x for x in draft.facts.accesses(main) if rows not in x.axes)
    held = sum(draft.bytes(tile.pair[0].second, x.axes) for x in columns)
    near = held <= target.l2 // 2
    size, unit, most = draft.size[lane], tile.size(lane), blocks[rows]
    many = draft.size[rows] > most  # blocks, for each of which the columns are read again
    few, far = many and near, many and not near
    wide = [n for n in range(unit, size, unit) if size % n == 0
            and not (far and held * n > size * target.l2 // 2)]  # fmt: skip
    if near or held <= draft.bytes(main.dtype, main.axes):
        wide.append(round_up(size, unit))
    tall = [n for n in range(tile.size(rows), most + 1, tile.size(rows)) if most % n == 0]
    if not few:
        tall = [n for n in tall if n == most or (many and 2 * n == most)]
    each = draft.bytes(main.dtype, ()) * len(draft.found.group)
    even = max(IDLE, _idle(draft, rows, blocks, blocks[rows]))
    enough = EVEN * target.threads * (1 if near else 2)
    found = [
        (c, r) for c, r in product(wide, tall)
        if each * c * r <= target.l2 // (SPARE if few and r > tile.size(rows) else STRIPE)
        and draft.units({**blocks, lane: c, rows: r}, draft.found.common) >= enough
        and _idle(draft, rows, {**blocks, lane: c}, r) <= even
    ]  # fmt: skip
    best = max(found, key=lambda b: (b[0] if few else min(b[0], LONG), b[1], b[0]), default=())
    return dict(zip((lane, rows), best))


def copies_panels(draft: Draft, tile: Tile) -> bool:
    """A unit copies what its lanes read: plain vectors, on a CPU."""
    plain = not (tile.reduced or tile.pair or tile.across)
    copied = (v for v in draft.found.values if v.name in draft.operands and tile.lane in v.axes)
    return draft.target.group == 1 and plain and any(copied)


def _decide_block(draft: Draft, axis: str, unit: int, block: int) -> int:
    """The block of an axis: another number of tiles, near ones first."""
    options = [unit << n for n in range(16) if unit << n < 2 * draft.size[axis]]
    options.sort(key=lambda n: max(n, block) / min(n, block))
    return draft.facts.decisions.number(f"block {axis}", block, options[:8])


def _unit(draft: Draft, tile: Tile, axis: str) -> int:
    """What a block of a row axis is a multiple of: its tile, and whole vectors of it where a
    value is stored along it instead of along the lanes."""
    turned = any(
        axis in v.axes and not draft.storable(v, tile.lane) and draft.storable(v, axis)
        for v in draft.found.stored if v.reduction is None
    )  # fmt: skip
    both = lcm(tile.size(axis), draft.facts.lanes)
    return both if turned and both <= BLOCK else tile.size(axis)


def _least_block(draft: Draft, axis: str, step: int) -> int:
    """Smallest block at which values without this axis are recomputed for 3% of the work."""
    found, size = draft.found, draft.size[axis]
    lost = sum(draft.facts.work(v) for v in found.values if axis not in v.axes)
    least = int(size * 4 * lost / (0.03 * found.total))  # 4: rows run at load speed
    return min(round_up(max(least, step), step), round_up(size, step))


def _cache_block(draft: Draft, axis: str, step: int) -> int:
    """Largest block at which values kept in memory fill half of the second cache."""
    found, (_, tile) = draft.found, draft.found.ruling
    outer = {a for a in found.common if a != tile.lane} | {axis}
    bytes_each = sum(
        draft.bytes(v.dtype, set(v.axes) - outer)
        for v in found.values if axis in v.axes and not v.store and v.reduction is None
    )  # fmt: skip
    if not bytes_each:
        return draft.size[axis]
    return max(step, draft.target.l2 // 2 // bytes_each // step * step)
