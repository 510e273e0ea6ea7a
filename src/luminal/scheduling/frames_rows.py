"""Frames without a dominant tile: rows or points are shared out, or online reductions stream.

row     no reuse: every value walks its rows in its own best way
stream  online reductions: all values share one loop over blocks of the reduced axis
"""

from __future__ import annotations

from math import inf, prod

from ..graph.index import names_of
from ..kernel.kernel import Value
from ..kernel.program import LINE
from ..kernel.schedule import Loop
from .draft import Draft
from .facts import Access, round_up
from .frames import UNITS, parallel
from .frames_matrices import matrices, matrix_frame
from .frames_tiles import stream_tiles, tiled_stream
from .keep import kept_bytes
from .outline import shared_out, stream_of
from .paths import Room

UNIT_POINTS = 32768  # points of a unit of rows: claiming costs a trip between cores
LANE_BLOCK = 8192  # most points of a lane axis in a unit
TURNED_BLOCK = 64  # the same where blocks are transposed in registers
STREAM, LEAST_STREAM = 64, 16  # positions of an online reduction at a time
TURNED_ROWS = 8  # least rows of a unit that are read across their order
VECTORS, OF_MATRICES = 4, 8  # vectors of the lane axis of a stream; of one in matrices, most


# ---- row


def row_frame(draft: Draft) -> None:
    """Units of rows; inside a unit every value has the row loop in common, and its own tile."""
    found, size = draft.found, draft.size
    every = [a for a in found.common if all(a in v.axes for v in found.values)] or found.common
    if draft.target.group > 1 and prod(size[a] for a in every) < draft.target.threads:
        every = found.common  # what lacks some of them is little work, and made in each unit
    tiles = [draft.solve(v, Room()) for v in found.heavy]
    lanes = {t.lane for t in tiles}
    turned = {a for t in tiles for a in (t.across, t.packed)} - {""}
    free = [a for a in every if a not in lanes | turned]
    work = prod(size[a] for a in size if a not in free)
    across = [str(t.lane) for v, t in zip(found.heavy, tiles) if t.lane in every and turned
              and any(abs(x.stride(t.lane)) > 1 for x in draft.facts.accesses(v))]  # fmt: skip
    near = _near(draft, free, across)
    room = _page_units(draft, free, near, across, work) if near else _row_units(draft, free, work)
    if not free or draft.units(room.within, room.within) < 2 * draft.target.threads:
        room = _lane_units(draft, [a for a in every if a in lanes], bool(turned), room)
    reducing = any(v.reduction for v in found.values)
    row = room
    for a in free:
        if reducing and not room.point(a, draft.facts):
            row = row.add(Loop(a, 1))
    for v in found.values:
        scalar = not set(v.points) - set(free) and not v.store
        single = all(row.point(a, draft.facts) for a in v.points)
        if scalar and single and work >= 2 * draft.facts.lanes:
            draft.bare(v, row)
        elif scalar:
            draft.own(v, room)
        else:
            _own_row(draft, v, row)


def _own_row(draft: Draft, v: Value, row: Room) -> None:
    """A value in its own tile; a reader of a running total stands in the loops of the total."""
    for scan in draft.found.values:
        if scan.scans and scan.name in v.reads():
            tile = draft.tiles[scan.name]
            alike = v.reduction is None and set(v.axes) == set(scan.axes)
            if alike and (not tile.lane or draft.storable(v, tile.lane)):
                draft.paths[v.name] = draft.paths[scan.name]
                draft.tiles[v.name] = tile
                draft.facts.lane_of[v.name] = draft.facts.lane_of[scan.name]
                return
    draft.own(v, row)


def _row_units(draft: Draft, free: list[str], work: int) -> Room:
    """Parallel loops over rows, in blocks of about UNIT_POINTS."""
    size, room, units = draft.size, Room(), 1
    left, options = prod(size[a] for a in free), [int(UNIT_POINTS * n) for n in (2, 0.5, 4, 0.25)]
    points = draft.facts.decisions.number("unit", UNIT_POINTS, options)
    for a in free:
        left //= size[a]
        block = max(1, min(size[a], points // max(1, work * left)))
        while block > 1 and units * -(-size[a] // block) < UNITS * draft.target.threads:
            block //= 2
        block = -(-size[a] // -(-size[a] // block))  # equal blocks
        units *= -(-size[a] // block)
        room = room.add(parallel(a, block))
        if block > 1:
            break
    return room


def _near(draft: Draft, free: list[str], across: list[str]) -> list[str]:
    """Rows of a copy along which it reads on, on the same page, if what it walks first comes from
    too many other places. across: lanes that are turned in registers."""
    (value, *others), facts = draft.found.values, draft.facts
    if others or value.reduction or draft.target.group > 1:
        return []
    reads = [x for x in facts.accesses(value) if x.load and not x.load.slots]
    order = [*free, *across]

    def within(a: str, x: Access) -> bool:
        """Neighbours along the axis lie on a page, those of a later one farther apart."""
        step = abs(x.stride(a))
        farther = (abs(x.stride(b)) > step for b in order[order.index(a) + 1 :])
        return 0 < step * x.dtype.bytes < draft.target.page and any(farther)

    near = [a for a in free if facts.static[a] and a not in facts.domain(value)
            and any(within(a, x) for x in reads)]  # fmt: skip
    between = LINE * prod(draft.size[a] for a in order if a not in near)
    return near if between > draft.target.l1 // 2 else []


def _page_units(
    draft: Draft, free: list[str], near: list[str], across: list[str], work: int
) -> Room:
    """Units in which all that lies on some pages is read before the next pages are."""
    rest, room = [a for a in free if a not in near], Room()
    each = work * prod(draft.size[a] for a in near)
    if across:
        turned = parallel(across[0], min(TURNED_BLOCK, draft.size[across[0]]))
        alone = Room().add(turned)
        enough = not rest or draft.units(alone.within, across[:1]) >= UNITS * draft.target.threads
        return alone if enough else _row_units(draft, rest, each).add(turned)
    if TURNED_ROWS * each > UNIT_POINTS:
        block = max(1, UNIT_POINTS * draft.size[near[0]] // (TURNED_ROWS * each))
        room = room.add(parallel(near[0], block))
    rows = _row_units(draft, rest, each)
    last = rows.outer[-1]
    step = min(max(last.step, TURNED_ROWS), draft.size[last.axis])
    return room.add(*rows.outer[:-1], parallel(last.axis, step))


def _lane_units(draft: Draft, axes: list[str], turned: bool, room: Room) -> Room:
    """Parallel loops over the lane axes too, where rows alone are too few."""
    for a in axes:
        most = TURNED_BLOCK if turned else LANE_BLOCK
        share = min(most, draft.size[a] // (UNITS * draft.target.threads))
        block = round_up(max(64, share), 64)
        if draft.size[a] > block or not draft.facts.static[a] or not room.outer:
            room = room.add(parallel(a, block))
    return room


# ---- stream


def stream_frame(draft: Draft) -> None:
    """Online reductions: all values of a stream share one loop over blocks of its axis."""
    found, size = draft.found, draft.size
    made = matrices(found)
    if made is not None:
        matrix_frame(draft, made)
        return
    lane = found.lane if found.lane and 2 * size[found.lane] >= draft.facts.lanes else None
    tiles, width = stream_tiles(found) if lane else {}, 0
    if lane:
        units = prod(size[a] for a in shared_out(found, lane)) * size[lane]
        many = tiles and units >= UNITS * draft.target.threads * OF_MATRICES * draft.facts.lanes
        vectors = draft.facts.decisions.number(
            "vectors", OF_MATRICES if many else VECTORS, (2, 4, 8, 1)
        )
        width = min(vectors * draft.facts.lanes, round_up(size[lane], draft.facts.lanes))
    if lane and tiles:
        width = round_up(width, max(tile.size(lane) for tile in tiles.values()))
        tiled_stream(draft, _stream_units(draft, lane, width), tiles, width)
        return
    _stream_paths(draft, lane, width, inf)
    most, shared = STREAM, draft.target.shared
    while draft.target.group > 1 and kept_bytes(draft) > shared // 4:  # several units share a core
        if width > draft.facts.lanes:
            width -= draft.facts.lanes
        elif most > LEAST_STREAM:
            most //= 2
        elif lane and kept_bytes(draft) > shared // 2:
            lane, most = None, STREAM  # a row at a time
        else:
            break
        _stream_paths(draft, lane, width, most)


def _stream_paths(draft: Draft, lane: str | None, width: int, most: float) -> None:
    """most: positions of a stream at a time."""
    found, size = draft.found, draft.size
    room = _stream_units(draft, lane, width)
    for v in found.values:
        stream = stream_of(found, v)
        own = room
        if stream:
            static = draft.facts.static[stream]
            block = min(most, _positions(draft, stream, lane))
            block = draft.facts.decisions.number("stream", int(block), (64, 32, 128, 16))
            own = room.add(Loop(stream, min(block, size[stream]) if static else block))
        if lane and lane in v.axes and draft.storable(v, lane):
            draft.own(v, own, lane, width)
        else:
            draft.own(v, own)


def _positions(draft: Draft, stream: str, lane: str | None) -> int:
    """Positions of a stream at a time: where lanes walk across them, a line of each leaves half of
    the first cache's sets to the tiles; where their end moves with the rows, few are walked in
    vain."""
    most = STREAM
    for v in draft.found.values:
        loads = [x for x in draft.facts.accesses(v) if x.load and stream in x.axes]
        steps = [x.stride(stream) * x.dtype.bytes for x in loads if lane]
        apart = [draft.target.lines_apart(step) // 2 for step in steps if step >= LINE]
        ends = [draft.size[stream] // 4] if stream in draft.facts.domain(v) else []
        most = min([most, *apart, *ends])
    return 1 << max(LEAST_STREAM, most).bit_length() - 1


def _stream_units(draft: Draft, lane: str | None, width: int) -> Room:
    """Parallel loops, the lanes last; without lanes blocks of rows, which end each by itself."""
    shared = shared_out(draft.found, lane, draft.operands)
    room = Room().add(*(parallel(a, 1) for a in shared))
    if lane:
        return room.add(parallel(lane, width))
    domains = (draft.facts.domain(v).values() for v in draft.found.values)
    ends = names_of(e for each in domains for pair in each for e in pair if e is not None)
    rows = [a for a in draft.found.common if a in ends and a not in shared]
    return room.add(*(parallel(a, STREAM) for a in rows if draft.size[a] > STREAM))
