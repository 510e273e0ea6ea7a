"""Online reductions whose products go through registers of matrices: attention in bf16 on a CPU
that has them.

The queries are lanes, and columns of all matrices. A block of keys gives a tile of scores; what is
made of them is rounded in pairs, as the second operand of the next product, whose sums lie in a
tile, too. Rows of first operands lie along what is summed: keys as they are, values turned.
"""

from __future__ import annotations

from ..kernel.kernel import Read, Value, walk
from ..kernel.schedule import Loop
from . import instructions
from .draft import Draft
from .outline import Outline, stream_of
from .paths import Room
from .tile import Pair, Tile

BLOCK = 64  # positions of a stream at a time
TOGETHER = 2  # matrices of a tile in each direction


def stream_tiles(found: Outline) -> dict[str, Tile]:
    """By name, tiles of matrices for the products of a stream, if all of them have such."""
    products = [v for v in found.values if v.factors and stream_of(found, v)]
    one = found.target.group == 1 and len(found.streams) == 1 and bool(found.lane)
    tiles = {v.name: _tile(found, v) for v in products if one and v in found.heavy and not v.store}
    known = {name: tile for name, tile in tiles.items() if tile is not None}
    return known if len(known) == len(products) else {}


def _tile(found: Outline, v: Value) -> Tile | None:
    lane, size = str(found.lane), found.size
    rows = [a for a in v.axes if instructions.apart(found.facts, v, a, lane)]
    pair = _pair(found, v, rows[0]) if len(rows) == 1 and len(v.over) == 1 else None
    if pair is None or pair[0].columns != found.facts.lanes or size[lane] < pair[0].columns:
        return None
    each = {lane: pair[0].columns, rows[0]: pair[0].rows}
    sizes = {a: n * min(TOGETHER, -(-size[a] // n)) for a, n in each.items()}
    return Tile(lane, False, sizes, pair[0].columns, pair, rows=rows[0])


def _pair(found: Outline, v: Value, row: str) -> Pair | None:
    """What is summed is a multiple of what an instruction sums, or a stream: behind its end there
    are zeros."""
    (axis,), facts = v.over, found.facts
    for i in found.target.instructions:
        whole = facts.static[axis] and found.size[axis] % i.collapse == 0
        sums = i.registers and i.accumulator is v.dtype and (whole or axis in found.streams)
        if sums and instructions.taken(facts, v, i, row):
            return i, axis
    return None


def tiled_stream(draft: Draft, room: Room, tiles: dict[str, Tile], width: int) -> None:
    """Paths of all values. room: the units of work."""
    found, (stream,) = draft.found, draft.found.streams
    lane = str(found.lane)
    block = draft.facts.decisions.number("stream", BLOCK, (BLOCK, 2 * BLOCK, BLOCK // 2))
    inside = room.add(Loop(stream, block))
    for v in found.values:
        own = inside if stream_of(found, v) else room
        readers = [tiles[u.name] for u in found.values if u.name in tiles and _multiplies(u, v)]
        pair = next((tile.pair for tile in readers), None)
        if v.name in tiles:
            draft.put(v, own, tiles[v.name])
        elif pair and lane in v.axes:
            draft.put_paired(v, own, pair)
        elif pair:
            draft.own(v, own, pair[1])
        elif lane in v.axes and draft.storable(v, lane):
            draft.own(v, own, lane, width)
        else:
            draft.own(v, own)
    fixed, size = draft.facts.static, draft.size
    draft.tails |= {a: "guard" for tile in tiles.values() for a, n in tile.sizes.items()
                    if not fixed[a] or size[a] % (width if a == lane else n)}  # fmt: skip
    draft.tails[stream] = "inner"


def _multiplies(v: Value, factor: Value) -> bool:
    return any(isinstance(e, Read) and e.value == factor.name for x in v.factors for e in walk(x))
