"""A schedule in the making: paths of values as the frames decide them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from ..graph.dtype import DType
from ..graph.index import Index
from ..kernel.kernel import Kernel, Value
from ..kernel.schedule import Layout, Path, Schedule
from . import instructions
from .facts import Facts
from .outline import Outline
from .paths import Room, fitted, in_blocks, inner, narrowed
from .solver import Solver, storable
from .tile import Pair, Tile, packed

LIGHT = 0.05  # part of all the work: the tiles of lighter values are no decision


class Draft:
    """The schedule of one kernel, written value by value."""

    def __init__(self, found: Outline, operands: set[str]) -> None:
        self.found, self.operands = found, operands
        self.facts: Facts = found.facts
        self.target, self.size = found.target, found.size
        self.paths: dict[str, Path] = {}
        self.tiles: dict[str, Tile] = {}
        self.homes: dict[str, str] = {}
        self.layouts: dict[str, Layout] = {}
        self.tails: dict[str, str] = {}
        self.axes: dict[str, tuple[str, ...]] = {}  # value -> its axes, lane last
        self.stages = 0  # of a stream
        self.ends: dict[str, tuple[Index | None, Index | None]] = {}  # of axes, for all values

    def finish(self) -> tuple[Kernel, Schedule]:
        """The kernel with its values' axes in memory order, and the schedule."""
        made, schedule = self.so_far()
        return made, replace(schedule, stages=self.stages or self._stages())

    def so_far(self) -> tuple[Kernel, Schedule]:
        """The same, while nothing is copied ahead."""
        values = tuple(
            replace(v, axes=self.axes.get(v.name, v.axes), domain=self._domain(v))
            for v in self.facts.values
        )
        most = max(16, self.target.registers + 8)
        schedule = Schedule(self.paths, self.layouts, self.homes, self.tails, most)
        return replace(self.facts.kernel, values=values), schedule

    def _domain(self, v: Value) -> dict[str, tuple[Index | None, Index | None]]:
        known = {axis: ends for axis, ends in self.ends.items() if axis in v.points}
        return {**self.facts.domain(v), **known}

    def _stages(self) -> int:
        """How many turns of a staged product's loop have tiles: as many as there is room for."""
        tile = self.found.tile
        if not (tile and tile.pair and tile.turns):
            return 0
        options = range(tile.pair[0].stages, tile.turns + 1)
        return self.facts.decisions.number("stages", tile.turns, options)

    # ---- one value

    def bare(self, value: Value, room: Room) -> None:
        """One point inside the room: no loops of its own."""
        self.paths[value.name] = room.outer

    def put(self, value: Value, room: Room, tile: Tile, turns: int = 0) -> None:
        """A value with this tile. turns: of a sum that are written out, if that is decided."""
        if value.reduction is None and all(room.point(a, self.facts) for a in value.axes):
            self.bare(value, room)
            return
        tile = narrowed(value, fitted(tile, room), self.facts)
        lane = tile.lane if tile.lane and not tile.reduced else None
        self.facts.lane_of[value.name] = lane
        self.tiles[value.name] = tile
        loops = in_blocks(value, inner(value, tile, self.facts, room, turns), self.facts, room)
        self.paths[value.name] = room.outer + tuple(loops)
        if not value.store and lane in value.axes:
            self.axes[value.name] = (*(a for a in value.axes if a != lane), str(lane))

    def own(
        self, value: Value, room: Room, lane: str | None = None, width: int | None = None
    ) -> None:
        """A value with its own best tile inside the room."""
        if lane in value.serial:
            lane = width = None
        pair = self.paired(value) if value.reduction is None else None
        if pair is not None:
            self.put_paired(value, room, pair)
        else:
            decide = self.facts.work(value) > LIGHT * self.found.total
            self.put(value, room, self.solve(value, room, lane, width, decide))

    def solve(
        self, value: Value, room: Room, lane: str | None = None, width: int | None = None,
        decide: bool = False,
    ) -> Tile:  # fmt: skip
        span = {a: n if self.facts.static[a] is False else min(n, self.size[a])
                for a, n in room.within.items()}  # fmt: skip
        name = f"tile {value.name}" if decide else ""
        return Solver(self.facts, span).solve([value], lane, width, False, name)

    def bytes(self, dtype: DType, axes: Iterable[str]) -> int:
        """Of a tile over whole axes."""
        return dtype.bytes * prod(self.size[a] for a in axes)

    def units(self, blocks: Mapping[str, int], axes: Iterable[str]) -> int:
        """Of work, where these axes are shared out in blocks."""
        return prod(-(-self.size[a] // blocks.get(a, 1)) for a in axes)

    def storable(self, value: Value, lane: str) -> bool:
        """Whether it may be computed in these lanes."""
        return storable(self.facts, value, lane)

    # ---- operands that an instruction reads in pairs

    def paired(self, value: Value) -> Pair | None:
        """In what pairs, and along which axis, the dominant reduction reads this value; or one of
        a stream, whose lanes are those of all."""
        tile, found = self.found.tile, self.found
        pairs = [tile.pair for v in found.group if tile and value.name in v.reads()]
        if found.streams and found.lane:
            others = (v for v in found.values if v not in found.group and value.name in v.reads())
            pairs += [instructions.pair(self.facts, v) for v in others]
        fits = (pair for pair in pairs if pair and pair[0].rows == 1 and pair[1] in value.axes)
        return next(fits, None)

    def put_paired(self, value: Value, room: Room, pair: Pair) -> None:
        """Neighbours of the collapsed axis lie together: [.., axis / pair, lane, pair]."""
        tile, (instruction, axis) = self.found.tile, pair
        assert tile is not None
        lane = self.found.lane or tile.lane
        if lane not in value.axes:
            self.put(value, room, self.solve(value, room, axis))
            return
        order = (*(a for a in value.axes if a not in (lane, axis)), axis, lane)
        deep, last = instruction.together or instruction.collapse, len(order) - 1
        self.put(value, room, packed(lane, axis, deep, tile.width))
        kept = [(d, 1) for d in range(last - 1)]
        self.facts.packed.add((value.name, axis))
        self.layouts[value.name] = (*kept, (last - 1, deep), (last, 1), (last - 1, 1))
        self.axes[value.name] = order
