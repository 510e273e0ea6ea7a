"""What a step of one register tile loads, what of it comes from beyond the first cache, and what is
copied first since it lies badly."""

from __future__ import annotations

from math import inf, prod

from ..kernel.program import LINE
from .facts import Access, round_up
from .job import Job
from .tile import Pair

COPIED = 6.0  # cycles to copy a vector into a better layout, whenever it is copied
WINDOW = 16  # positions of a window that are written out
DIRECT = 3.5  # times a load of parts of matrices takes: eight rows, and few are on their way
FARTHER = 2.0  # times a byte of the third cache costs one of the second
AGAIN = 8  # loads of an element that make up for a copy


class Loads:
    """Of a tile shape for a job, in a step. loads: of vectors; repeated: those of what all lanes
    take. traffic: bytes from the second cache. waits: cycles beside all else. held, live: vectors
    and numbers in registers. across: an axis along which blocks are turned."""

    def __init__(
        self, job: Job, lane: str, sizes: dict[str, int], pair: Pair | None, rows: str
    ) -> None:
        self.job, self.lane, self.sizes, self.pair, self.rows = job, lane, sizes, pair, rows
        self.span, self.target, self.width = job.span, job.facts.target, job.facts.lanes
        value = job.group[0]
        self.reduces, self.reduced = value.reduction is not None, lane in value.over
        self.product = bool(value.factors)
        self.kept, self.over = frozenset(value.axes), frozenset(value.over)
        self.collapsed = pair[0].collapse if pair and not job.facts.rescales else 1
        self.points = float((pair[0].collapse if pair else 1) * prod(sizes.values()))
        self.loads, self.repeated, self.traffic, self.waits = 0.0, 0.0, 0.0, 0.0
        self.held, self.live, self.across = 0.0, 0, ""
        self.copied: list[Access] = []

    def vectors(self, axes: frozenset[str]) -> float:
        """Of what has these axes, in a tile."""
        found = 1.0 / self.width if self.rows or self.lane in axes else 1.0
        for a, t in self.sizes.items():
            if a in axes:
                found *= t
        return found

    def reuse(self, axes: frozenset[str]) -> int:
        """How often what has these axes is taken by the tiles of the same value."""
        return prod(-(-self.span[a] // self.sizes.get(a, 1)) for a in self.kept - axes)

    def charge(self, x: Access) -> None:
        """One operand of the tile, as it lies or copied."""
        vectors = self.vectors(x.axes)
        if self.rows:
            self._matrix(x, vectors)
            return
        if self.lane not in x.axes:
            lines = self._lines(x)
            if lines and self._may_copy(x) and self.reuse(x.axes) >= AGAIN:
                self.copy(x)
            else:
                self.waits += self._cold(x)
                self.traffic += lines
            self.loads += vectors * self._shared(x)
            self.repeated += vectors * self._shared(x)
            self.live += 1
            return
        if x.axes & self.over:
            self.stream(x, vectors)
        self.loads += vectors * self._cost(x)
        together = self.held + vectors if self.product else 0.0
        self.held = max(self.held, vectors, together)  # factors stay while the rows go by

    def _matrix(self, x: Access, vectors: float) -> None:
        """An operand of a matrix instruction: each thread loads some of the collapsed axis, side by
        side if they lie so."""
        assert self.pair is not None
        instruction, axis = self.pair
        held = vectors * instruction.collapse * x.dtype.bytes / 4
        side = self.rows in x.axes
        way = instruction.fragments[1 if side else 2]
        once = instruction.collapse * (instruction.rows if side else instruction.columns)
        again = way.threads * len(way.elements) / once  # warps that hold the same
        self.held += held * again
        together = x.packable or x.stride(axis) == 1
        self.loads += DIRECT * again * held * (1 if together else 4 / x.dtype.bytes)
        self.stream(x, vectors)

    def _shared(self, x: Access) -> float:
        """Part of its loads that is left where a tile walks the positions of a window that is
        written out: neighbours share elements."""
        left = 1.0
        short = [b for b in x.axes & self.over if x.load and 1 < self.span[b] <= WINDOW]
        for a, t in self.sizes.items() if short else ():
            along = (self.span[b] for b in short if t > 1 and x.stride(b) == x.stride(a))
            wide = max(along, default=1)
            left *= (t + wide - 1) / (t * wide)
        return left

    def _cost(self, x: Access) -> float:
        """Plain vector loads that one vector of this access costs."""
        costs = self.target.costs
        asked = any(self.lane in c.names() for c in x.conditions)
        masked = costs.masked if asked else 1.0
        if x.packable:
            return 1.0
        vector = self.width * x.dtype.bytes
        if any(x.stride(a) * x.dtype.bytes % vector for a in x.axes - {self.lane}):
            masked *= 1 + costs.straddled * vector / LINE  # where it begins it may straddle two
        may_copy = self._may_copy(x)
        if x.stride(self.lane) == 1:
            if may_copy and self._scattered(x):
                self.copy(x)
            else:
                self.waits += self._cold(x)
            return masked
        other = [a for a in x.axes if x.stride(a) == 1 and a in self.kept and not self.reduces]
        other.sort(key=lambda a: (-self.span[a], a))  # of a window, the image and not the taps
        wide = max(2, self.target.maskable) <= x.dtype.bytes <= 4
        plain = wide and not asked and not (x.load and x.load.slots)
        if plain and other and self.span[other[0]] >= self.width:
            self.across = other[0]
            return costs.transposed
        reuse = self.reuse(x.axes)
        if may_copy and reuse >= AGAIN:
            self.copy(x)
            return 1 + self._turned(x) * self.collapsed / reuse
        self.waits += self._cold(x)
        alone = self._gathered(x)
        return min(costs.second * masked, alone) if self._every_second(x) else alone

    def _every_second(self, x: Access) -> bool:
        return x.load is not None and not x.load.slots and x.stride(self.lane) == 2

    def _gathered(self, x: Access) -> float:
        """Loads for elements anywhere; with their lines, if the first cache lacks them."""
        step, target = abs(x.stride(self.lane)) * x.dtype.bytes, self.target
        each = self.width if target.group == 1 else min(self.width, target.group)
        alone = target.costs.gather * each / 16
        if target.group > 1 or step < LINE or not self._crowded(step, self.sizes[self.lane]):
            return alone
        return alone + each * LINE / target.l2_rate * target.load_ports

    def _turned(self, x: Access) -> float:
        """Loads of a vector that is copied into a better layout: of a block that is turned in
        registers, of every second element, or of each alone."""
        if any(x.stride(a) == 1 and self.span[a] >= self.width for a in x.axes):
            return self.target.costs.gather / 2
        return self.target.costs.second if self._every_second(x) else self._gathered(x)

    def _may_copy(self, x: Access) -> bool:
        return self.job.may_copy and self.reduces and x.load is not None

    def copy(self, x: Access) -> None:
        """It is copied into a better layout before."""
        self.copied.append(x)
        self.waits += COPIED * self.vectors(x.axes) / self.reuse(x.axes)

    def stream(self, x: Access, vectors: float) -> None:
        """Bytes that do not stay in the first cache while the tile runs."""
        again = any(self.span[a] > self.sizes.get(a, 1) for a in self.kept - x.axes)
        tile = {a: self.sizes.get(a, 1) for a in self.kept} if again else {}
        count = prod(tile.get(a, self.span[a]) for a in x.axes)
        if count * x.dtype.bytes > self.target.l1 // 2:
            loaded = vectors * self.width * x.dtype.bytes * self.collapsed
            self.traffic += loaded * self._fetched(x)

    def _fetched(self, x: Access) -> float:
        """Part of what a tile loads that comes from beyond the first cache, if this holds the rest:
        the windows of neighbours overlap."""
        kept = {a: self.sizes.get(a, 1) for a in x.axes & self.kept}
        over = {a: self.span[a] for a in x.axes & self.over}
        loaded = prod(kept.values()) * prod(over.values())
        distinct = float(loaded)
        for a, t in kept.items():
            every = {b: x.stride(a) / x.stride(b) for b in over if x.stride(b)}
            joined = [t * n / (apart * (t - 1) + n) for b, n in over.items()
                      if (apart := every.get(b, inf)) >= 1]  # fmt: skip
            distinct /= max(1.0, *joined) if joined else 1.0
        return distinct / loaded if distinct * x.dtype.bytes <= self.target.l1 // 2 else 1.0

    def _cold(self, x: Access) -> float:
        """Cycles of waiting for memory in a step of the tile, where each reduced step lands on
        another page: for two lines of a run of the tile, or of a reduced lane axis, at most. Parts
        of lines count whole if the second cache does not hold the rest until the next tile comes
        for it."""
        far = (x.stride(a) * x.dtype.bytes >= self.target.page for a in x.axes & self.over)
        if x.load is None or x.packable or not any(far):
            return 0.0
        held = self.job.facts.bytes(x.name)
        if held <= self.target.l2:
            return 0.0
        run, deep = x.dtype.bytes, LINE
        for a in x.axes:
            walked = self.span[a] if self.reduced and a == self.lane else self.sizes.get(a, 1)
            run *= walked if (a in self.kept or a == self.lane) and x.stride(a) == 1 else 1
            deep *= self.span[a] if a in self.over else 1
        kept = deep <= self.target.l2 // 2
        lines = held / run * min(2, run / LINE if kept else -(-run // LINE) + bool(run % LINE))
        every = prod(self.span[a] for a in self.kept | self.over)
        return self.target.costs.cold * lines / every * self.points

    def _lines(self, x: Access) -> float:
        """Bytes from beyond the first cache in a step of the tile, of elements taken one by one:
        lines that drive each other out before the next tile takes its part of them. At twice the
        price where the second cache does not hold them either. A stream has few at a time."""
        axis = self.job.group[0].over[-1] if self.over else ""
        step = abs(x.stride(axis)) * x.dtype.bytes if axis in x.axes else 0
        if x.load is None or x.packable or step < LINE or self.job.facts.rescales:
            return 0.0
        count = min(self.span[axis], self.target.l1 // 2 // LINE)
        if count <= self.target.lines_apart(step):
            return 0.0
        kept = {a: self.sizes.get(a, 1) for a in x.axes & self.kept}
        run = prod(n for a, n in kept.items() if x.stride(a) == 1) * x.dtype.bytes
        rows = prod(n for a, n in kept.items() if x.stride(a) != 1)
        beyond = FARTHER if count > self.target.lines_apart(step, 2) else 1.0
        return rows * round_up(run, LINE) * beyond

    def _scattered(self, x: Access) -> bool:
        """Contiguous in the lanes, but the reduced steps land on many pages, or on few sets of the
        first cache: copied if read again."""
        far = any(
            self.span[a] >= 64 and self._crowded(x.stride(a) * x.dtype.bytes, self.span[a])
            for a in x.axes & self.over
        )
        return far and self.reuse(x.axes) >= AGAIN

    def _crowded(self, step: int, count: int) -> bool:
        """Lines this many bytes apart are each on a page of their own, or drive each other out."""
        return step >= self.target.page or count > self.target.lines_apart(step)

    def crowds_ways(self, x: Access) -> bool:
        """Rows far apart fight for the ways of the first cache."""
        if x.load is None or x.packable:
            return False
        ways, taken = self.target.l1_ways, self.pair[0].first.bytes if self.pair else 1
        for a, t in self.sizes.items():
            if t > 0.75 * ways and a != self.lane and a in x.axes:
                step = x.stride(a) * max(x.dtype.bytes, taken)  # widened, it lies so
                if step >= 512 and t > ways * (1.0 if step % self.target.page else 0.75):
                    return True
        return False
