"""The frame of a sum of sums: groups of a quantised weight, and units of groups. All sums share one
nest.

The inner sum of a group never leaves the registers; half of them hold it for a tile of rows and
vectors, and the outer sums wait beside them. For an 8-bit matrix product, rows a0, groups a2 of a3:

    inner:   a0/64@ a1/64@ a0/4 a1/16 a2/1 a3/2! a0/1! a1/8! a1/1# a3/1$
    outer:   a0/64@ a1/64@ a0/4 a1/16 a2/1 a0/1! a1/8! a1/1#
    operand: a0/64@ a1/64@ ...            the rows of a block, widened once
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from ..errors import Illegal
from ..graph.dtype import i32
from ..graph.order import post_order
from ..kernel.kernel import Kernel, Value
from ..kernel.schedule import Loop
from .draft import Draft
from .facts import round_up
from .outline import Outline
from .paths import Room
from .tile import Tile

WRITTEN = 32
VECTORS = 4  # of one row: streams that the hardware follows, and chains of additions
UNIT = 64  # lanes in a unit of work
MORE = 4  # times as many where each unit makes again what is alike for all lanes of one row


def sum_of_sums(found: Outline) -> list[Value]:
    """Reductions over kept axes of the dominant one, with no other axes: the first reads it, each
    other the one before. None if they cannot share its nest."""
    if found.main is None or found.tile is None or found.tile.reduced:
        return []
    if found.main.reduction is None or found.main.reduction.op != "sum":
        return []
    early, inner, sums = _early(found, found.tile.lane), found.main, list[Value]()
    for v in found.values:
        later = v is not inner and inner.name in v.reads()
        if later and v.reduction and not v.scans and set(v.axes) < set(inner.axes):
            shared = [a for a in inner.axes if a not in v.axes]
            own = [a for a in v.over if a not in inner.axes]
            inside = [u for u in found.values if set(shared) <= set(u.points)]
            laned = all(found.tile.lane in u.axes for u in [v, *inside] if u.name not in early)
            if laned and not own:
                sums.append(v)
                inner = v
    short = all(found.facts.static[a] for a in found.main.over)
    return sums if short else []


def in_turn(found: Outline) -> Kernel:
    """First what is alike for all lanes, which would part the loops of the two sums; then each
    product just before its reader, so that all registers are one product's."""
    early, by_name = _early(found, found.ruling[1].lane), found.facts.by_name
    first = sorted(found.values, key=lambda v: (v.name not in early, v in found.group))
    order = post_order([v.name for v in first], lambda name: sorted(by_name[name].reads()))
    return replace(found.kernel, values=tuple(by_name[name] for name in order))


def _early(found: Outline, lane: str) -> set[str]:
    """Values that are alike for all lanes: operands, and sums of them."""
    early: set[str] = set()
    for v in found.values:
        if lane not in v.points and not v.store and v.reads() <= early:
            early.add(v.name)
    return early


def joint_frame(draft: Draft) -> None:
    """All reductions in one nest."""
    found, sums = draft.found, sum_of_sums(draft.found)
    main, tile = found.ruling
    shared = [a for v in sums[::-1] for a in main.axes if a in v.over]
    tile = found.tile = _tile(draft, tile, main)
    rows = [a for a in tile.sizes if a != tile.lane]
    width = tile.size(tile.lane)
    early = _early(found, tile.lane) | draft.operands
    unit = UNIT if rows or not early else UNIT * MORE
    unit = max(width, min(unit // width * width, draft.size[tile.lane]))
    room = Room()
    for a in found.common:
        if a != tile.lane:
            room = room.add(Loop(a, _block(draft, a, tile) if a in rows else 1, "parallel"))
    kind = "parallel" if tile.lane in found.common else "serial"  # unless a later sum is over it
    room = base = room.add(Loop(tile.lane, unit, kind))
    for a in (*rows, tile.lane):
        room = room.add(Loop(a, tile.size(a))) if room.within[a] > tile.size(a) else room
    nest, written = _nest(draft, room, shared, tile), _written(draft, sums, tile)
    for v in found.values:
        if v.name in early:
            lane = tile.lane if tile.lane in v.axes else None
            draft.own(v, base, lane, tile.size(lane) if lane else None)
        elif depth := _depth(draft, v, shared):
            inside = nest if depth == len(shared) else _units(room, shared[:depth])
            own = tile if v in found.group else replace(tile, pair=None)
            draft.put(v, inside, own, max(1, written // tile.vectors))
        elif tile.lane in v.axes:
            draft.put(v, room, tile if v in found.group else replace(tile, pair=None))
        else:
            draft.own(v, room)


def _tile(draft: Draft, tile: Tile, main: Value) -> Tile:
    """Rows are worth more than vectors: a row's operand is one broadcast. One row alone is read
    from memory: each vector of each product is a stream."""
    row = next((a for a in tile.sizes if a != tile.lane and a in draft.found.common), None)
    half, width = draft.target.registers // 2, tile.width
    vectors = 2 if row else max(1, VECTORS // len(draft.found.group))
    vectors = min(vectors, round_up(draft.size[tile.lane], width) // width)
    if settled := draft.facts.panel(main, tile.lane):  # one row reads several such panels
        if settled < width:
            raise Illegal(f"a panel of {settled} is no vector of {width}")
        vectors = settled // width * (1 if row else max(1, vectors * width // settled))
    sizes = {tile.lane: tile.width * vectors}
    if row:
        sizes[row] = min(half // vectors, draft.size[row])
    return replace(tile, sizes=sizes)


def _block(draft: Draft, row: str, tile: Tile) -> int:
    """Rows whose widened operands fill half of the second cache."""
    wide = [v for v in draft.found.values if v.name in draft.operands and row in v.axes]
    row_bytes = sum(draft.bytes(v.dtype, set(v.axes) - {row}) for v in wide)
    size, step = draft.size[row], tile.size(row)
    most = draft.target.l2 // 2 // max(1, row_bytes) if row_bytes else size
    parts = -(-size // max(step, min(most, 2 * UNIT)))
    return round_up(-(-size // parts), step)


def _deep(draft: Draft, tile: Tile) -> int:
    """Instructions of the inner sum for one vector."""
    main, _ = draft.found.ruling
    deep = prod(draft.size[a] for a in main.over)
    return max(1, deep // (tile.pair[0].collapse if tile.pair else 1))


def _depth(draft: Draft, v: Value, shared: list[str]) -> int:
    """How many of the loops that sums share a value stands in. A sum that no product is part of has
    loops of its own, so that its registers are free while products are added up."""
    found, products = draft.found, {u.name for u in draft.found.group}
    apart = v.reduction is not None and v.name not in products | found.kernel.behind(products)
    outside = [a for a in shared if a not in v.points or (apart and a in v.over)]
    return shared.index(outside[0]) if outside else len(shared)


def _units(room: Room, axes: list[str]) -> Room:
    return room.add(*(Loop(a, 1) for a in axes))


def _nest(draft: Draft, room: Room, shared: list[str], tile: Tile) -> Room:
    """The loops over groups; several short ones are written out."""
    many = max(1, 16 // (_deep(draft, tile) * tile.vectors))
    nest = _units(room, shared[:-1]).add(Loop(shared[-1], many))
    return nest.add(Loop(shared[-1], 1, "unroll")) if many > 1 else nest


def _written(draft: Draft, sums: list[Value], tile: Tile) -> int:
    """Products of the inner sum that are written out: as far as code may grow; all where the next
    sum takes what 16 bits hold until then."""
    short = tile.pair is not None and tile.pair[0].most < inf
    return tile.vectors * _deep(draft, tile) if short and sums[0].dtype is i32 else WRITTEN
