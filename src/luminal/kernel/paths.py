"""The loops of one value below those that it shares: its register tile, written as a path.

Every constant loop stands inside a serial loop of exactly its tile, so constant steps always
divide; a loop that runs once costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .facts import Facts
from .kernel import Value
from .schedule import Loop
from .score import Tile

TIMES = (1, 2, 4, 8)  # how often a body may be written out
FEW = 4  # rounds of a written-out body that make up for what is left over
UNROLLED = 128  # instructions in the body of an innermost loop, at most


@dataclass(frozen=True)
class Room:
    """The loops above a value's own. within: axis -> step of the innermost of them."""

    outer: tuple[Loop, ...] = ()
    within: Mapping[str, int] = field(default_factory=dict)

    def add(self, *loops: Loop) -> Room:
        """The room inside further loops."""
        steps = {loop.axis: loop.step for loop in loops}
        return Room(self.outer + loops, {**self.within, **steps})


def walk_axis(axis: str, step: int, room: Mapping[str, int]) -> list[Loop]:
    """A serial loop in steps, unless the loops above leave just one step."""
    return [] if room.get(axis) == step else [Loop(axis, step)]


def inner(
    value: Value, tile: Tile, facts: Facts, room: Mapping[str, int], taps: Iterable[str] = ()
) -> list[Loop]:
    """The loops of a value below the shared ones. `taps`: reduced axes that are written out."""
    tile = _fit(tile, room)
    if value.reduction is None:
        return _map_inner(value, tile, facts, room)
    return _reduced_inner(value, tile, facts, room, frozenset(taps))


def _fit(tile: Tile, room: Mapping[str, int]) -> Tile:
    """A tile no larger than what the loops above leave."""
    sizes = {a: min(t, room.get(a, t)) for a, t in tile.sizes.items()}
    lane = tile.lane
    if sizes.get(lane, 0) > tile.width:
        sizes[lane] = sizes[lane] // tile.width * tile.width
    partial = tile.partial
    if tile.reduced and lane in room:
        partial = max(1, min(partial, room[lane] // tile.width))
    return replace(tile, sizes=sizes, partial=partial)


def point(axis: str, facts: Facts, room: Mapping[str, int]) -> bool:
    """The axis has only one place left."""
    return room.get(axis) == 1 or axis in facts.single


def _lanes(tile: Tile) -> list[Loop]:
    if not tile.lane:
        return []
    size = tile.size(tile.lane)
    unrolled = [Loop(tile.lane, tile.width, "unroll")] if size > tile.width else []
    return [*unrolled, Loop(tile.lane, 1, "vector")]


def _rows(tile: Tile) -> list[Loop]:
    return [Loop(a, 1, "unroll") for a, t in tile.sizes.items() if a != tile.lane and t > 1]


def _map_inner(value: Value, tile: Tile, facts: Facts, room: Mapping[str, int]) -> list[Loop]:
    sizes = {a: t for a, t in tile.sizes.items() if a == tile.lane or t > 1}
    loops: list[Loop] = []
    for a in value.axes:
        if a not in sizes and a != tile.across and not point(a, facts, room):
            loops += walk_axis(a, 1, room)
    if tile.across:
        loops += walk_axis(tile.across, tile.width, room)
        loops += walk_axis(tile.lane, tile.width, room)
        return [*loops, Loop(tile.across, 1, "unroll"), Loop(tile.lane, 1, "vector")]
    if tile.lane in value.axes:
        loops += walk_axis(tile.lane, sizes[tile.lane], room)
    for a, t in sizes.items():
        if a != tile.lane:
            loops += walk_axis(a, t, room)
    return loops + _rows(tile) + (_lanes(tile) if tile.lane in value.axes else [])


def _reduced_inner(
    value: Value, tile: Tile, facts: Facts, room: Mapping[str, int], taps: frozenset[str]
) -> list[Loop]:
    loops: list[Loop] = []
    for a in value.axes:
        if a not in tile.sizes and a not in value.over and not point(a, facts, room):
            loops += walk_axis(a, 1, room)
    first = [] if tile.reduced or not tile.lane else [tile.lane]
    for a in first + [a for a in tile.sizes if a != tile.lane]:
        if tile.sizes[a] > 1 or not point(a, facts, room):
            loops += walk_axis(a, tile.sizes[a], room)
    loops += _reduced_loops(value, tile, facts, room, taps)
    if tile.reduced:
        block = tile.width * tile.partial
        loops += walk_axis(tile.lane, min(block, room.get(tile.lane, block)), room)
    loops += _rows(tile)
    if tile.reduced:
        partial = [Loop(tile.lane, tile.width, "partial")] if tile.partial > 1 else []
        return [*loops, *partial, Loop(tile.lane, 1, "vector")]
    collapse = [Loop(tile.pair[1], 1, "collapse")] if tile.pair else []
    return loops + _lanes(tile) + collapse


def _reduced_loops(
    value: Value, tile: Tile, facts: Facts, room: Mapping[str, int], taps: frozenset[str]
) -> list[Loop]:
    """The loops over reduced axes that are not lanes; the last one is unrolled a little."""
    over = [a for a in value.over if a != tile.lane and not point(a, facts, room)]
    written = [a for a in over if a in taps]
    paired = tile.pair[1] if tile.pair else None
    bounded = [a for a in over if a in value.domain and a not in room and a not in taps]
    loops = [loop for a in bounded for loop in walk_axis(a, 1, room)]
    plain = [a for a in over if a not in written and a not in bounded and a != paired]
    plain += [paired] if paired in over else []
    taps_loops = [Loop(a, 1, "unroll") for a in written]
    if not plain:
        return loops + taps_loops
    for a in plain[:-1]:
        loops += walk_axis(a, 1, room)
    last, step = plain[-1], tile.pair[0].collapse if tile.pair else 1
    if (value.reduction and value.reduction.scan) or tile.reduced:
        return loops + walk_axis(last, step, room) + taps_loops
    many = _times(last, step, tile, facts, room, written)
    fitting = [n for n in TIMES if room.get(last, facts.size[last]) % (n * step) == 0]
    if last in room or facts.static[last]:
        many = facts.decisions.number(f"unroll {value.name}", many, fitting)
    loops += walk_axis(last, many * step, room)
    # taps innermost: the elements that neighbouring taps share stay in registers for a short time
    return loops + ([Loop(last, step, "unroll")] if many > 1 else []) + taps_loops


def _times(
    axis: str, step: int, tile: Tile, facts: Facts, room: Mapping[str, int], written: list[str]
) -> int:
    """How often the body of the innermost reduced loop is written out."""
    body = 1.0
    for a, t in tile.sizes.items():
        body *= t / tile.width if a == tile.lane else t
    for a in written:
        body *= facts.size[a]
    most = max(1, min(4, int(UNROLLED // max(1.0, body))))
    if axis not in room and not facts.static[axis]:
        return most
    steps = max(1, room.get(axis, facts.size[axis]) // step)
    exact = next(n for n in range(most, 0, -1) if steps % n == 0)
    return most if exact == 1 and steps >= FEW * most else exact
