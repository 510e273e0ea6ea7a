"""The register tile of a value (or of several reductions over the same axes): solved, not searched.

For each lane axis and tile `score` counts the cycles a point, all from strides. The least wins;
among those within 2% the one with fewer loads and less ragged edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import inf, prod

from ..kernel.kernel import Value
from ..kernel.program import LINE
from . import instructions
from .facts import Access, Facts, round_up, weight
from .job import Job, operations
from .paths import AT_ONCE, LEAST_LANES
from .score import Score
from .tile import Pair, Tile, packed

NEAR, TILES = 1.6, 16  # times the least cycles, and number, of tiles that a search may try
ROWS = 14  # of a tile, at most
APART = 2.0  # cycles of an element that is loaded alone
STORED_APART = 4.0  # cycles of a result that is stored alone
TURNED = 1.1  # what it costs that another axis than the columns is stored side by side
DEEP = (2, 4, 8, 16, 32, 64)  # parts of a sum in further lanes
MATRICES = (1, 2, 3, 4, 6, 8)  # of a tile, in each direction
POWERS = (16, 8, 4, 2, 1)  # vectors of a tile without sums
PACKED = (2, 4)  # elements of a lane that lie side by side


def storable(facts: Facts, value: Value, lane: str) -> bool:
    """With these lanes: they lie side by side, or no others would, and what is computed in them
    counts for more than that each is stored alone."""
    if value.store is None or facts.store_stride(value, lane) == 1:
        return True
    sides = (a for a in value.axes if facts.store_stride(value, a) == 1)
    others = any(facts.size[a] >= LEAST_LANES for a in sides)
    return facts.target.group == 1 and not others and weight(value.body) >= STORED_APART


class Solver:
    """`span`: how far each axis goes below the loops that are already fixed."""

    def __init__(self, facts: Facts, span: Mapping[str, int] | None = None) -> None:
        self.facts, self.target, self.lanes = facts, facts.target, facts.lanes
        self.span = {**facts.size, **(span or {})}

    def solve(
        self, group: list[Value], lane: str | None = None, width: int | None = None,
        copies: bool = True, name: str = "", matrices: bool = False,
    ) -> Tile:  # fmt: skip
        """The best tile for values with the same axes; `lane` and `width` force the lane axis. With
        a name it is a decision, open to the tiles that should be nearly as good. matrices: it may
        have two axes in lanes, where an instruction multiplies matrices."""
        together = None if lane else self._packed(group)
        if together is not None:
            return together
        axes, job = [lane] if lane else self._lane_axes(group), self._job(group, copies)
        found = [t for a in axes for t in self._candidates(job, a, width)]
        if matrices:
            kept = [a for a in group[0].axes if self.span[a] > 1]  # they are stored by others
            either = axes if self.target.group > 1 else kept
            found += [t for a in either for t in self._matrices(job, a)]
            found += [t for a in axes for t in self._deep(job, a)]
        found = found or [Tile("", False, {}, 1, cycles=float(self.lanes))]  # always legal
        least = min(t.cycles for t in found)
        near = [t for t in found if t.cycles <= 1.02 * least]  # equal for all we know
        best = min(near, key=lambda t: (self._roughness(t, job.accesses), -t.size(t.lane)))
        if not name:
            return best
        ranked: dict[str, Tile] = {}
        for t in sorted(found, key=lambda t: t.cycles):
            if t.cycles <= NEAR * best.cycles:
                ranked.setdefault(t.text, t)
        options = list(ranked)[:TILES]
        return {**ranked, best.text: best}[str(self.facts.decisions.of(name, best.text, options))]

    def _job(self, group: list[Value], copies: bool) -> Job:
        every = (x for v in group for x in self.facts.accesses(v))
        accesses = list({(x.name, x.load, x.conditions): x for x in every}.values())
        work = operations(self.facts, group)
        return Job(self.facts, group, accesses, work, self.span, copies and self.target.group == 1)

    def _candidates(self, job: Job, lane: str, width: int | None) -> list[Tile]:
        """All tiles that fit, for one lane axis."""
        group, value, facts = job.group, job.group[0], self.facts
        lanes = tuple((x.name, facts.lane_of.get(x.name)) for x in job.accesses if not x.load)
        spans = tuple(self.span[a] for a in value.points)
        key = (tuple(v.name for v in group), lane, width, job.may_copy, spans, lanes)
        if key in facts.solved:
            return facts.solved[key]
        pair, *others = {instructions.pair(facts, v) for v in group}
        fits = pair and pair[0].rows == 1 and not others and lane in value.axes
        pairs = [None, pair] if fits else [None]
        tiles: list[Tile] = []
        most = inf
        for sizes, each in product(self._shapes(value, job.accesses, lane, width), pairs):
            tile = Score(job, lane, sizes, each).tile(most)
            if tile is not None:
                beside = self._stored(value, tile) + self._torn(value, tile)
                beside += self._apart(value, tile)
                tile = replace(tile, cycles=tile.cycles + beside) if beside else tile
                tiles.append(tile)
                most = min(most, NEAR * tile.cycles)
        facts.solved[key] = tiles
        return tiles

    def _matrices(self, job: Job, lane: str) -> Iterator[Tile]:
        """Tiles of whole matrices: one factor has the rows, the other the lanes as columns."""
        group, value, facts = job.group, job.group[0], self.facts
        rows = [a for a in value.axes if instructions.apart(facts, value, a, lane)]
        for (pair, a), t, u in product(self._pairs(group, lane, rows), MATRICES, MATRICES):
            sizes = {lane: t * pair[0].columns, a: u * pair[0].rows}
            if pair[0].staged and ((t, u) != (1, 1) or _floored(job.accesses, {lane, a})):
                continue
            fits = (instructions.rows_of(facts, v, pair[0], a) for v in group)
            if pair[0].registers and not all(fits):
                continue
            if any(n & n - 1 and any(x.packable and b in x.axes for x in job.accesses)
                   for b, n in sizes.items() if self.target.group > 1):  # fmt: skip
                continue  # a row alone has lanes that fit panels of constants
            if all(n < 2 * max(self.span[b], pair[0].rows) for b, n in sizes.items()):
                tile = Score(job, lane, sizes, pair, a).tile()
                if tile is not None:
                    turned = self._storable(a) and not self._storable(lane)
                    yield replace(tile, cycles=tile.cycles * (TURNED if turned else 1.0))

    def _pairs(self, group: list[Value], lane: str, rows: list[str]) -> list[tuple[Pair, str]]:
        """Instructions that all of the group can take, with an axis for their rows."""
        each, *others = {tuple(instructions.matrices(self.facts, v)) for v in group}
        found = [] if others else [(pair, a) for pair in each for a in rows]
        for a in rows if not others else ():
            each, *others = {tuple(instructions.staged(self.facts, v, a, lane)) for v in group}
            found += [] if others else [(pair, a) for pair in each]
        return found

    def _deep(self, job: Job, lane: str) -> Iterator[Tile]:
        """Tiles of a group of threads whose lanes are positions of a sum too: added up at its
        end, where units are fewer than the machine wants."""
        value, facts = job.group[0], self.facts
        if lane not in value.axes:
            return
        outer = value.over[:-1] or value.over
        known = [a for a in outer if facts.static[a] and a not in facts.domain(value)]
        panel, lanes = facts.panel(value, lane) or 2 * self.lanes, self.lanes
        widths = (lanes, 2 * lanes) if self.span[lane] >= lanes else (self.span[lane],)
        widths = (panel & -panel,) if panel % min(widths) else widths  # no lane in two panels
        outputs = facts.points(value) // prod(self.span[a] for a in value.over)
        for axis, parts, width in product(known, DEEP, widths):
            warps = max(1, parts * min(width, lanes) // lanes)
            fits = parts * min(width, lanes) in range(lanes, self.target.crowd + 1)
            few = outputs // width * warps <= 2 * self.target.threads
            if fits and few and self.span[axis] % parts == panel % width == 0:
                tile = Score(job, lane, {lane: width}, None, deep=(axis, warps)).tile()
                if tile is not None:
                    yield replace(tile, width=min(width, lanes), deep=(axis, parts))

    def _stored(self, value: Value, tile: Tile) -> float:
        """Cycles of a point for results that lie apart in memory along the lanes: one by one where
        the tile has no axis along which they are neighbours, and other lanes would have."""
        if tile.pair is None or self.facts.rescales or self.target.group > 1:
            return 0.0
        near = [a for a in value.axes if self.span[a] >= self.lanes and self._storable(a)]
        stored = any(v.store and tile.lane in v.axes for v in self.facts.values)
        if not (stored and near) or any(a == tile.lane or tile.size(a) > 1 for a in near):
            return 0.0
        return STORED_APART / prod(self.span[a] for a in value.over)

    def _apart(self, value: Value, tile: Tile) -> float:
        """Cycles of a point for sums of what it gives, whose other operands are loaded one by one
        along its lanes."""
        facts, cycles = self.facts, 0.0
        for v in facts.values if self.target.group == 1 and not tile.reduced else ():
            if v.reduction and tile.lane in v.axes and value.name in v.reads():
                loads = (x for x in facts.accesses(v) if x.load and not x.packable)
                far = sum(x.stride(tile.lane) > 1 for x in loads)
                cycles += APART * far * facts.points(v) / facts.points(value)
        return cycles

    def _torn(self, value: Value, tile: Tile) -> float:
        """Cycles of a point for lines of results that a tile writes in part, where rows a page
        apart drive them out before its neighbour writes the rest."""
        lane, facts = tile.lane, self.facts
        width = tile.size(lane)
        if tile.reduced or not value.factors or self.target.group > 1 or self.span[lane] <= width:
            return 0.0
        for v in facts.values:
            each = v.dtype.bytes
            if not v.store or width * each % LINE == 0 or facts.store_stride(v, lane) != 1:
                continue
            steps = {a: facts.store_stride(v, a) * each for a in v.axes}
            rows = (self.span[a] for a, n in steps.items() if n and n % self.target.page == 0)
            if any(row > self.target.l1_ways for row in rows):
                return self.target.costs.cold / (width * prod(self.span[a] for a in value.over))
        return 0.0

    def _storable(self, axis: str) -> bool:
        return any(v.store and self.facts.store_stride(v, axis) == 1 for v in self.facts.values)

    def _roughness(self, tile: Tile, accesses: list[Access]) -> float:
        """Loads, ragged edges and far strides: what tells equal tiles apart."""
        rough = tile.loads
        for a, n in tile.sizes.items():
            ragged = self.span[a] % n and not (a == tile.lane and tile.reduced)
            rough += (0.05 if a == tile.lane else 0.15) * bool(ragged)
        rough = round(rough, 2)
        for a, n in tile.sizes.items():
            if a != tile.lane and n > 1:
                far = [x for x in accesses if x.load and not x.packable]
                rough += sum(min(x.stride(a), 1 << 16) / 1e7 for x in far)
        return rough

    def _lane_axes(self, group: list[Value]) -> list[str]:
        value = group[0]
        axes = [a for a in value.points if self.span[a] > 1 and a not in value.serial]
        for v in group:
            if v.store:
                axes = [a for a in axes if a in v.over or storable(self.facts, v, a)]
        return axes

    def _packed(self, group: list[Value]) -> Tile | None:
        """Lanes that each have a few elements side by side where a value is stored: the pairs that
        an instruction multiplies, pixels of a tile."""
        (value, *others), facts = group, self.facts
        if others or value.reduction or value.store is None or self.target.group > 1:
            return None
        by_stride = {facts.store_stride(value, a): a for a in value.axes if facts.static[a]}
        short = by_stride.get(1, "")
        count = self.span.get(short, 1)
        lane = by_stride.get(count)
        if count not in PACKED or lane is None or not value.serial.isdisjoint((short, lane)):
            return None
        for x in facts.accesses(value):
            along = {x.stride(a) for a in (short, lane) if a in x.axes}
            wide = x.dtype.bytes >= self.target.maskable and x.stride(short) != 1
            loaded = x.load and not x.load.slots and (wide or not x.conditions)
            if along and not loaded and (x.load or short in x.axes):  # no number of a whole lane
                return None
        extent = self.span[lane]
        width = min(self.lanes, extent & -extent)  # a power of two that divides it
        if width < LEAST_LANES and extent < self.lanes:
            width = 1 << extent.bit_length()  # one vector, in part
        return packed(lane, short, count, width) if width >= LEAST_LANES else None

    def _shapes(
        self, value: Value, accesses: list[Access], axis: str, width: int | None
    ) -> Iterator[dict[str, int]]:
        """Tiles to look at: one axis in lanes, up to one more (two for dot products) in rows."""
        widths = self._widths(value, axis, width)
        yield from ({axis: w} for w in widths)
        if value.reduction is None:
            return
        seconds, panel = self._second_axes(value, accesses, axis), self.facts.panel(value, axis)
        widths = [panel] if panel else widths  # rows read it again: several would crowd the cache
        for w, a in product(widths, seconds):
            most = self.target.registers * self.lanes // max(w, self.lanes)
            for t in range(2, min(ROWS, self.span[a], most) + 1):
                yield {axis: w, a: t}
        if axis in value.over and len(seconds) > 1:
            for (a, b), t, u in product((seconds[:2], seconds[1::-1]), range(2, 5), range(2, 7)):
                if t <= self.span[a] and u <= self.span[b]:
                    yield {axis: self.lanes, a: t, b: u}

    def _widths(self, value: Value, axis: str, width: int | None) -> list[int]:
        if width:
            return [width]
        if axis in value.over:
            return [self.lanes]
        waited = AT_ONCE if self.target.group > 1 else 4
        room = self.target.registers // len(self.facts.values)  # each value has as many vectors
        alone = [n for n in POWERS if n <= max(1, min(waited, room))]
        counts = alone if value.reduction is None else (1, 2, 3, 4, 6, 8)
        most = max(self.lanes, round_up(self.span[axis], self.lanes))
        widths = [w * self.lanes for w in counts if w * self.lanes <= most]
        panel = self.facts.panel(value, axis)
        return [w for w in widths if w % panel == 0] or [panel] if panel else widths

    def _second_axes(self, value: Value, accesses: list[Access], axis: str) -> list[str]:
        """Kept axes along which some operand is used again, nearest in memory first."""
        over, serial = set(value.over), value.serial
        kept = [
            a for a in value.axes
            if a != axis and a not in serial and self.span[a] > 1
            and any(a not in x.axes and x.axes & over for x in accesses)
        ]  # fmt: skip

        def order(a: str) -> tuple[int, int]:
            near = max([min(x.stride(a), 1 << 16) for x in accesses if x.load] or [0])
            return -sum(a not in x.axes for x in accesses), near

        return sorted(kept, key=order)[:3]


def _floored(accesses: list[Access], axes: set[str]) -> bool:
    """Something is loaded at floors of these axes: threads do not find it a row at a time."""
    floors = (f for x in accesses if x.load for i in x.load.index for f in i.floors)
    return any(not axes.isdisjoint(f.first.names()) for f in floors)
