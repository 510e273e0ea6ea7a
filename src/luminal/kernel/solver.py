"""The register tile of a value (or of several reductions over the same axes): solved, not searched.

For each lane axis and tile the cycles a point are the largest of arithmetic over ports, loads over
ports, bytes over the rate of the second cache, and latency over independent chains; all from
strides. The least wins; among those within 2% the one with fewer loads and less ragged edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..graph.scalars import SCALARS
from .facts import Access, Facts, is_product_sum, round_up
from .kernel import Apply, Value, walk
from .target import MatrixInstruction

GATHER, TRANSPOSED, ACROSS = 20.0, 6.0, 10.0  # vector loads, or operations, that these cost
MASKED = 1.5  # a masked load, in plain loads

Pair: TypeAlias = tuple[MatrixInstruction, str]
Work: TypeAlias = tuple[float, frozenset[str], bool]  # cost, axes, whether it is a cast


@dataclass(frozen=True)
class Tile:
    """lane: the lane axis ("" for none). sizes: axis -> elements held in registers, lane included.

    reduced: the lane axis is reduced. pair: instruction that collapses an axis. partial:
    accumulators of each vector. across: an axis walked `lanes` at a time, for transposing in
    registers. copies: accesses that want to be copied into a better layout first. loads: a vector
    operation.
    """

    lane: str
    reduced: bool
    sizes: Mapping[str, int]
    width: int  # lanes of a vector
    pair: Pair | None = None
    partial: int = 1
    across: str = ""
    copies: tuple[Access, ...] = ()
    cycles: float = 0.0
    loads: float = 0.0

    def size(self, axis: str) -> int:
        return self.sizes.get(axis, 1)


class Solver:
    """`span`: how far each axis goes below the loops that are already fixed."""

    def __init__(self, facts: Facts, span: Mapping[str, int] | None = None) -> None:
        self.facts, self.target, self.lanes = facts, facts.target, facts.lanes
        self.span = {**facts.size, **(span or {})}

    def solve(
        self, group: list[Value], lane: str | None = None, width: int | None = None,
        copies: bool = True,
    ) -> Tile:  # fmt: skip
        """The best tile for values with the same axes; `lane` and `width` force the lane axis."""
        found = self.candidates(group, lane, width, copies)
        if not found:
            found = [self._scalar(group[0])]
        least = min(t.cycles for t in found)
        near = [t for t in found if t.cycles <= 1.02 * least]  # equal for all we know
        accesses = self._accesses(group)
        return min(near, key=lambda t: (self._roughness(t, accesses), -t.size(t.lane)))

    def candidates(
        self, group: list[Value], lane: str | None, width: int | None, copies: bool
    ) -> list[Tile]:
        """All tiles that fit, for one lane axis or for each."""
        found: list[Tile] = []
        accesses = self._accesses(group)
        known = tuple((x.name, self.facts.lane_of.get(x.name)) for x in accesses if not x.load)
        spans = tuple(self.span[a] for a in group[0].points)
        for axis in [lane] if lane else self._lane_axes(group):
            key = (tuple(v.name for v in group), axis, width, copies, spans, known)
            tiles = self.facts.solved.get(key)
            if not isinstance(tiles, list):
                tiles = self._scored(group, accesses, axis, width, copies)
                self.facts.solved[key] = tiles
            found += tiles
        return found

    def _scored(
        self, group: list[Value], accesses: list[Access], axis: str, width: int | None,
        copies: bool,
    ) -> list[Tile]:  # fmt: skip
        value = group[0]
        pair = self.facts.pair(value) if axis in value.axes and len(group) == 1 else None
        pairs = [None, pair] if pair and axis != pair[1] else [None]
        work = _operations(self.facts, group)
        scores = (
            _Score(self, group, accesses, work, axis, sizes, each, copies).tile()
            for sizes in self._shapes(value, accesses, axis, width)
            for each in pairs
        )
        return [tile for tile in scores if tile is not None]

    def _scalar(self, value: Value) -> Tile:
        """No lanes at all: always legal."""
        return Tile("", False, {}, 1, cycles=float(self.lanes))

    def _accesses(self, group: list[Value]) -> list[Access]:
        return list({a: None for v in group for a in self.facts.accesses(v)})

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
        serial = unlaned(value)
        axes = [a for a in value.points if self.span[a] > 1 and a not in serial]
        for v in group:
            if v.store:
                axes = [a for a in axes if a in v.over or self.facts.store_stride(v, a) == 1]
        return axes

    def _shapes(
        self, value: Value, accesses: list[Access], axis: str, width: int | None
    ) -> Iterator[dict[str, int]]:
        """Tiles to look at: one axis in lanes, up to one more (two for dot products) in rows."""
        yield from ({axis: w} for w in self._widths(value, axis, width))
        if value.reduction is None:
            return
        seconds = self._second_axes(value, accesses, axis)
        for w in self._widths(value, axis, width):
            for a in seconds:
                most = self.target.registers * self.lanes // max(w, self.lanes)
                for t in range(2, min(15, self.span[a] + 1, most + 1)):
                    yield {axis: w, a: t}
        if axis in value.over and len(seconds) > 1:
            yield from self._dots(axis, seconds)

    def _dots(self, axis: str, seconds: list[str]) -> Iterator[dict[str, int]]:
        for a, b in (seconds[:2], seconds[1::-1]):
            for t in (2, 3, 4):
                for u in (2, 3, 4, 5, 6):
                    if t <= self.span[a] and u <= self.span[b]:
                        yield {axis: self.lanes, a: t, b: u}

    def _widths(self, value: Value, axis: str, width: int | None) -> list[int]:
        if width:
            return [width]
        if axis in value.over:
            return [self.lanes]
        counts = (4, 2, 1) if value.reduction is None else (1, 2, 3, 4, 6, 8)
        most = max(self.lanes, round_up(self.span[axis], self.lanes))
        return [w * self.lanes for w in counts if w * self.lanes <= most]

    def _second_axes(self, value: Value, accesses: list[Access], axis: str) -> list[str]:
        """Kept axes along which some operand is used again, nearest in memory first."""
        over, serial = set(value.over), unlaned(value)
        kept = [
            a for a in value.axes
            if a != axis and a not in serial and self.span[a] > 1
            and any(a not in x.axes and x.axes & over for x in accesses)
        ]  # fmt: skip

        def order(a: str) -> tuple[int, int]:
            near = max([min(x.stride(a), 1 << 16) for x in accesses if x.load] or [0])
            return -sum(a not in x.axes for x in accesses), near

        return sorted(kept, key=order)[:3]


def unlaned(value: Value) -> frozenset[str]:
    """Axes that must be walked one by one: of a scan, and where later stores win."""
    scanned = value.over if value.reduction and value.reduction.scan else ()
    return frozenset(scanned) | frozenset(value.store.ordered if value.store else ())


def _operations(facts: Facts, group: list[Value]) -> list[Work]:
    """The operations of a group, equal ones once; the product under a sum is part of its fma."""
    seen: dict[Apply, None] = {}
    found: list[Work] = []
    for v in group:
        skipped = v.body if is_product_sum(v) else None
        if v.reduction is not None:
            found.append((1.0, frozenset(v.points), False))
        seen.update({e: None for e in walk(v.body) if isinstance(e, Apply) and e is not skipped})
    for e in seen:
        found.append((SCALARS[e.op].cost, facts.axes_of(e), e.op == "cast"))
    return found


class _Score:
    """The cost of one tile shape."""

    def __init__(
        self, solver: Solver, group: list[Value], accesses: list[Access],
        work: list[Work], lane: str, sizes: dict[str, int],
        pair: Pair | None, copies: bool,
    ) -> None:  # fmt: skip
        self.solver, self.facts, self.target = solver, solver.facts, solver.target
        self.span, self.width = solver.span, solver.lanes
        self.group, self.value, self.accesses = group, group[0], accesses
        self.work = work
        self.lane, self.sizes, self.pair, self.may_copy = lane, sizes, pair, copies
        self.reduces = self.value.reduction is not None
        self.reduced = lane in self.value.over
        self.kept, self.over = frozenset(self.value.axes), frozenset(self.value.over)
        self.deep = pair[0].collapse if pair else 1
        self.loads, self.held, self.live, self.traffic = 0.0, 0.0, 0, 0.0
        self.copied: list[Access] = []
        self.across = ""

    def tile(self) -> Tile | None:
        """The tile with its cost; None if its registers or cache ways do not suffice."""
        accumulators = self._vectors(self.kept) * len(self.group) if self.reduces else 0.0
        if accumulators >= self.target.registers or self._ways_exceeded():
            return None
        partial = self._partial(accumulators)
        for x in self.accesses:
            self._charge(x)
        if accumulators * partial + self._registers() + 1 > self.target.registers:
            return None
        work = self._arithmetic()
        steps = self._steps(work, accumulators, partial)
        cycles = steps / self._points() * self._waste()
        return Tile(
            self.lane, self.reduced, self.sizes, self.width, self.pair, partial, self.across,
            tuple(self.copied), cycles, self.loads / max(work, 1e-9),
        )  # fmt: skip

    def _points(self) -> float:
        points = float(self.deep)
        for t in self.sizes.values():
            points *= t
        return points

    def _vectors(self, axes: frozenset[str]) -> float:
        total = 1.0
        for a, t in self.sizes.items():
            if a in axes:
                total *= t / self.width if a == self.lane else t
        return total

    def _partial(self, accumulators: float) -> int:
        """Accumulators of each vector that hide the latency of reduced lanes."""
        partial = 1
        if self.reduced:
            while accumulators * partial < 4 and partial * self.width < self.span[self.lane]:
                partial *= 2
        return partial

    # ---- loads

    def _charge(self, x: Access) -> None:
        vectors = self._vectors(x.axes)
        if self.lane not in x.axes:
            self.loads += vectors * 0.5
            self.live += 1
            return
        if x.axes & self.over:
            self._stream(x, vectors)
        self.loads += vectors * self._cost(x)
        together = self.held + vectors if is_product_sum(self.value) else 0.0
        self.held = max(self.held, vectors, together)  # factors stay while the rows go by

    def _cost(self, x: Access) -> float:
        """Plain vector loads that one vector of this access costs."""
        masked = MASKED if self._masked(x) else 1.0
        if x.packable:
            return 1.0
        if x.stride(self.lane) == 1:
            if self.may_copy and self.reduces and x.load is not None and self._scattered(x):
                self.copied.append(x)
            return masked
        other = [a for a in x.axes if x.stride(a) == 1 and a in self.kept and not self.reduces]
        if other and self.span[other[0]] >= self.width and self._transposable(x):
            self.across = other[0]
            return TRANSPOSED
        reuse = self._reuse(x)
        if self.may_copy and x.load and self.reduces and reuse >= 8:
            self.copied.append(x)
            return 1 + GATHER / 2 / reuse
        return GATHER * self.width / 16

    def _masked(self, x: Access) -> bool:
        return any(self.lane in c.names() for c in x.conditions)

    def _transposable(self, x: Access) -> bool:
        return x.dtype.bytes == 4 and not x.conditions and (x.load is None or not x.load.slots)

    def _stream(self, x: Access, vectors: float) -> None:
        """Bytes that do not stay in the first cache while the tile runs."""
        one = whole = x.dtype.bytes
        for a in x.axes & self.kept:
            one *= self.sizes.get(a, 1)
        for a in x.axes & self.over:
            one *= self.span[a]
        for a in x.axes:
            whole *= self.span[a]
        again = any(self.span[a] > self.sizes.get(a, 1) for a in self.kept - x.axes)
        if (one if again else whole) > self.target.l1 // 2:
            self.traffic += vectors * self.width * x.dtype.bytes * self.deep

    def _reuse(self, x: Access) -> int:
        """How often an element is loaded again by later tiles of the same value."""
        total = 1
        for a in self.kept - x.axes:
            total *= -(-self.span[a] // self.sizes.get(a, 1))
        return total

    def _scattered(self, x: Access) -> bool:
        """Contiguous in the lanes, but each reduced step lands on another page: copy if reused."""
        far = any(
            x.stride(a) * x.dtype.bytes >= self.target.page and self.span[a] >= 64
            for a in x.axes & self.over
        )
        return far and self._reuse(x) >= 8

    def _ways_exceeded(self) -> bool:
        """Rows far apart fight for the ways of the first cache."""
        for a, t in self.sizes.items():
            if a == self.lane:
                continue
            for x in self.accesses:
                if x.load is None or x.packable or a not in x.axes:
                    continue
                step = x.stride(a) * x.dtype.bytes
                most = self.target.l1_ways * (0.75 if step % self.target.page == 0 else 1.0)
                if step >= 512 and t > most:
                    return True
        return False

    # ---- registers and cycles

    def _registers(self) -> float:
        """Vectors alive beside the accumulators. Written-out taps share broadcasts: all stay."""
        if any(x.conditions for x in self.accesses) and is_product_sum(self.value):
            rows = [t for a, t in self.sizes.items() if a != self.lane]
            return max(self.held, self.live) + max(rows, default=0)
        return min(max(self.held, self.live), 4)

    def _arithmetic(self) -> float:
        """Vector operations of one step of the tile."""
        casts = self.pair is None  # the instruction widens its operands itself
        return sum(
            cost * self._vectors(axes) for cost, axes, is_cast in self.work if casts or not is_cast
        )

    def _steps(self, work: float, accumulators: float, partial: int) -> float:
        steps = max(work / self.target.fma_ports, self.loads / self.target.load_ports)
        steps = max(steps, self.traffic / self.target.l2_rate)
        if self.pair:  # narrow instructions have a rate of their own on some machines
            steps = max(steps, accumulators * self.pair[0].cycles / self.target.fma_ports)
        if self.reduces:
            chains = accumulators * partial
            steps = max(steps, self.target.latency * min(1.0, chains) / max(1, partial))
        if self.reduced:
            rounds = max(1.0, self.span[self.lane] / self.width)
            steps += ACROSS * accumulators / rounds / self.target.fma_ports
        return steps

    def _waste(self) -> float:
        """Points of ragged tiles over points that are wanted."""
        waste = 1.0
        for a, t in self.sizes.items():
            if a == self.lane or t > 1:
                unit = self.width if a == self.lane and self.reduced else t
                waste *= round_up(self.span[a], unit) / self.span[a]
        return waste
