"""The cycles of one register tile: arithmetic over ports, loads over ports, bytes over the rate of
the second cache, latency over independent chains; and what waits for memory beside them.
"""

from __future__ import annotations

from math import inf, prod

from ..kernel.program import LINE
from ..kernel.target import MatrixInstruction
from .facts import Access, round_up
from .instructions import ALONE, lies, stages
from .job import Job
from .tile import Pair, Tile

SPREAD = 2.5  # casts of a vector that one of a number which all lanes take costs
COPIED = 6.0  # cycles to copy a vector into a better layout, whenever it is copied
WINDOW = 16  # positions of a window that are written out
SUMS = 128  # registers of a thread for sums, where operands take none
DIRECT = 3.5  # times a load of parts of matrices takes: eight rows, and few are on their way
FARTHER = 2.0  # times a byte of the third cache costs one of the second
MEETING = 100.0  # cycles of a turn in which a warp that meets others multiplies nothing
AGAIN = 8  # loads of an element that make up for a copy


class Score:
    """The cost of one tile shape for a job."""

    def __init__(
        self, job: Job, lane: str, sizes: dict[str, int], pair: Pair | None, rows: str = "",
        deep: tuple[str, int] = ("", 1),
    ) -> None:  # fmt: skip
        self.job, self.lane, self.sizes, self.pair, self.rows = job, lane, sizes, pair, rows
        self.deep = deep
        self.span, self.target, self.width = job.span, job.facts.target, job.facts.lanes
        value = job.group[0]
        self.reduces, self.reduced = value.reduction is not None, lane in value.over
        self.product = bool(value.factors)
        self.kept, self.over = frozenset(value.axes), frozenset(value.over)
        self.collapsed = pair[0].collapse if pair and not job.facts.rescales else 1
        self.points = float((pair[0].collapse if pair else 1) * prod(sizes.values()))
        self.loads, self.repeated, self.traffic, self.waits = 0.0, 0.0, 0.0, 0.0
        self.held, self.live, self.across, self.turns = 0.0, 0, "", 0
        self.warps = pair[0].threads // self.target.group if rows and pair else 1
        self.copied: list[Access] = []

    def tile(self, most: float = inf) -> Tile | None:
        """The tile with its cost; None if its registers or cache ways do not suffice, or if its
        arithmetic alone takes more than `most` cycles a point."""
        instruction = self.pair[0] if self.rows and self.pair else None
        accumulators = self._vectors(self.kept) * len(self.job.group) if self.reduces else 0.0
        partial = self._partial(accumulators)
        work, share = self._arithmetic(casts=not self.pair), self._waste() / self.points
        steps = self._busy(work, accumulators, partial)
        if steps * share > most:
            return None
        if instruction and instruction.registers:
            fits = self._of_rows(instruction, accumulators)
        elif instruction and instruction.staged:
            fits = self._of_shared_tiles(instruction, accumulators)
        else:
            fits = self._of_loads(accumulators, partial)
        if not fits:
            return None
        cycles = self._steps(steps, accumulators) * share * self._idle()
        return Tile(
            self.lane, self.reduced, self.sizes, instruction.columns if instruction else self.width,
            self.pair, partial, self.across, tuple(self.copied), cycles,
            (self.loads - self.repeated / 2) / max(work, 1e-9), self.rows, self.deep, self.turns,
        )  # fmt: skip

    def _vectors(self, axes: frozenset[str]) -> float:
        found = 1.0 / self.width if self.rows or self.lane in axes else 1.0
        for a, t in self.sizes.items():
            if a in axes:
                found *= t
        return found

    def _partial(self, accumulators: float) -> int:
        """Accumulators of each vector that hide the latency of reduced lanes; of a thread of a GPU
        one for each element that it loads at once."""
        partial, wide = 1, self._loaded_at_once() if self.target.group > 1 else 1
        while self.reduced and (
            accumulators * partial < self.target.costs.chains
            or (partial < wide and accumulators * partial < SUMS // 4)
        ):
            if partial * self.width >= self.span[self.lane]:
                break
            partial *= 2
        return partial

    def _loaded_at_once(self) -> int:
        """Elements along the lane, of the widest that is read there."""
        along = [x for x in self.job.accesses if self.lane in x.axes]
        if any(x.conditions for x in along):
            return 1
        return min((self.target.wide // x.dtype.bytes for x in along), default=1)

    # ---- loads, and whether there are registers for them

    def _of_loads(self, accumulators: float, partial: int) -> bool:
        """Operands are loaded into registers, of a group's threads into theirs."""
        most, accesses = self.target.registers, self.job.accesses
        if accumulators >= most * self.warps or any(map(self._crowds_ways, accesses)):
            return False
        for x in accesses:
            self._charge(x)
        return (accumulators * partial + self._registers()) / self.warps + 1 <= most

    def _of_shared_tiles(self, instruction: MatrixInstruction, accumulators: float) -> bool:
        """Operands are copied into shared tiles once, and read from there by each part."""
        target, tile, products = self.target, 0, len(self.job.group)
        if products % 2 == 0 and instruction.wider(target.instructions):
            products //= 2
        part = next(i for i in target.instructions if i.name == instruction.part)
        for x in {x.name: x for x in self.job.accesses}.values():
            vectors, first = self._vectors(x.axes), self.rows in x.axes
            size = vectors * self.width * instruction.collapse * x.dtype.bytes
            across = products * (instruction.columns // part.columns)
            again = across if first else instruction.rows // part.rows
            self.loads += size * (1 + again) / (target.group * 4)
            tile += int(size)
            self._stream(x, vectors)
        self.turns = stages(target, instruction, tile)
        alone = not instruction.late and instruction.threads <= ALONE
        self.waits += MEETING if alone and 2 * self.turns * tile > target.staging else 0.0
        return accumulators <= SUMS * self.warps and self.turns >= instruction.stages

    def _of_rows(self, instruction: MatrixInstruction, accumulators: float) -> bool:
        """Each row of a matrix in registers is a load. Panels lie as they are loaded, rows that do
        not are copied first; sums are stored, and read again."""
        size, across = self.sizes[self.rows], self.sizes[self.lane] // instruction.columns
        down = size // instruction.rows
        sums, operands = len(self.job.group) * down * across, 0
        assert self.pair is not None
        for x in self.job.accesses:
            first = self.rows in x.axes
            operands += down if first else across
            packed = x.packable and x.dtype is (instruction.first if first else instruction.second)
            if x.conditions or not (packed or first):
                return False
            if x.load and not packed and not lies(self.job.facts, x, self.pair, self.rows, size):
                self._copy(x)
            self._stream(x, self._vectors(x.axes))
        moved = 2 * accumulators / self.span[self.pair[1]]
        self.waits = instruction.collapse * (self.waits + moved)
        self.loads = float(instruction.rows * operands)
        fits = sums + operands <= instruction.registers
        return fits and not self.job.facts.domain(self.job.group[0])

    def _charge(self, x: Access) -> None:
        vectors = self._vectors(x.axes)
        if self.rows:
            self._matrix(x, vectors)
            return
        if self.lane not in x.axes:
            lines = self._lines(x)
            if lines and self._may_copy(x) and self._reuse(x.axes) >= AGAIN:
                self._copy(x)
            else:
                self.waits += self._cold(x)
                self.traffic += lines
            self.loads += vectors * self._shared(x)
            self.repeated += vectors * self._shared(x)
            self.live += 1
            return
        if x.axes & self.over:
            self._stream(x, vectors)
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
        self._stream(x, vectors)

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
        masked = costs.masked if any(self.lane in c.names() for c in x.conditions) else 1.0
        if x.packable:
            return 1.0
        vector = self.width * x.dtype.bytes
        if any(x.stride(a) * x.dtype.bytes % vector for a in x.axes - {self.lane}):
            masked *= 1 + costs.straddled * vector / LINE  # where it begins it may straddle two
        may_copy = self._may_copy(x)
        if x.stride(self.lane) == 1:
            if may_copy and self._scattered(x):
                self._copy(x)
            else:
                self.waits += self._cold(x)
            return masked
        other = [a for a in x.axes if x.stride(a) == 1 and a in self.kept and not self.reduces]
        other.sort(key=lambda a: (-self.span[a], a))  # of a window, the image and not the taps
        plain = x.dtype.bytes == 4 and not x.conditions and not (x.load and x.load.slots)
        if plain and other and self.span[other[0]] >= self.width:
            self.across = other[0]
            return costs.transposed
        reuse = self._reuse(x.axes)
        if may_copy and reuse >= AGAIN:
            self._copy(x)
            return 1 + costs.gather / 2 * self.collapsed / reuse
        self.waits += self._cold(x)
        second = x.load is not None and not x.load.slots and x.stride(self.lane) == 2
        each = self.width if self.target.group == 1 else min(self.width, self.target.group)
        return min(costs.second * masked if second else inf, costs.gather * each / 16)

    def _may_copy(self, x: Access) -> bool:
        return self.job.may_copy and self.reduces and x.load is not None

    def _copy(self, x: Access) -> None:
        self.copied.append(x)
        self.waits += COPIED * self._vectors(x.axes) / self._reuse(x.axes)

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

    def _stream(self, x: Access, vectors: float) -> None:
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

    def _reuse(self, axes: frozenset[str]) -> int:
        """How often what has these axes is taken by the tiles of the same value."""
        return prod(-(-self.span[a] // self.sizes.get(a, 1)) for a in self.kept - axes)

    def _scattered(self, x: Access) -> bool:
        """Contiguous in the lanes, but the reduced steps land on many pages, or on few sets of the
        first cache: copied if read again."""
        steps = ((self.span[a], x.stride(a) * x.dtype.bytes) for a in x.axes & self.over)
        far = any(
            count >= 64 and (step >= self.target.page or count > self.target.lines_apart(step))
            for count, step in steps
        )
        return far and self._reuse(x.axes) >= AGAIN

    def _crowds_ways(self, x: Access) -> bool:
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

    # ---- registers and cycles

    def _registers(self) -> float:
        """Vectors alive beside the accumulators. Written-out taps share broadcasts: all stay."""
        if self.rows:
            return self.held
        scratch = self.pair[0].scratch if self.pair else 0
        if any(x.conditions for x in self.job.accesses) and self.product:
            rows = [t for a, t in self.sizes.items() if a != self.lane]
            return max(self.held, self.live) + max(rows, default=0) + scratch
        return min(max(self.held, self.live), 4) + scratch

    def _arithmetic(self, casts: bool) -> float:
        """Vector operations of one step of the tile, with casts or without them."""
        return sum(w.cost * self._vectors(w.axes) for w in self.job.work if casts or not w.cast)

    def _widening(self, instruction: MatrixInstruction) -> float:
        """Casts of a step to what an instruction of lanes takes, floats by f32. What all lanes
        multiply is moved and spread out besides, and made once where tiles take it again."""
        total, taken = 0.0, (None, instruction.first, instruction.second)
        for each in self.job.work if not self.rows else ():
            if each.cast not in taken:
                again = 1 if each.constant else self._reuse(each.axes)
                spread = 1.0 if self.lane in each.axes else SPREAD / again
                total += each.cost * self._vectors(each.axes) * spread
        return total * (instruction.collapse if instruction.first.is_float else 1)

    def _busy(self, work: float, accumulators: float, partial: int) -> float:
        """Cycles of a step by its arithmetic: rate, and latency of what depends on each other."""
        steps = work / self.target.fma_ports
        if self.pair:  # narrow instructions have a rate of their own on some machines
            busy = accumulators * self.pair[0].cycles + self._widening(self.pair[0])
            steps = max(steps, busy / self.target.fma_ports)
        if self.reduces:
            chains = accumulators * partial
            steps = max(steps, self.target.latency * min(1.0, chains) / max(1, partial))
        return steps

    def _steps(self, steps: float, accumulators: float) -> float:
        """Cycles of a step, with its loads and what it waits for."""
        steps = max(steps, self.loads / self.target.load_ports)
        steps = max(steps, self.traffic / self.target.l2_rate)
        if self.reduced:
            rounds = max(1.0, self.span[self.lane] / self.width)
            steps += self.target.costs.across * accumulators / rounds / self.target.fma_ports
        if self.deep[0]:
            rounds = prod(self.span[a] for a in self.over) / self.deep[1]
            steps += self.target.costs.across * accumulators / rounds
        return steps + self.waits

    def _waste(self) -> float:
        """Points of ragged tiles over points that are wanted."""
        waste = 1.0
        for a, t in self.sizes.items():
            if a == self.lane or t > 1:
                unit = self.width if a == self.lane and self.reduced else t
                waste *= round_up(self.span[a], unit) / self.span[a]
        return waste

    def _idle(self) -> float:
        """Groups of threads that a machine has over those that get work, so many for a unit. A crew
        is few threads, and what it shares out is cut later. Of matrices each has several products
        on the way at once: half as many keep a core busy. Where one unit does, the last ones leave
        some cores idle."""
        if self.target.group == 1:
            return 1.0
        if self.rows and self.pair and self.pair[0].staged:
            cores, units = max(1, self.target.threads // self.target.busy), self._units()
            return -(-units // cores) * cores / units
        wanted = self.target.threads / (2 if self.rows else 1)
        return max(1.0, wanted / (self._units() * self.warps * self.deep[1]))

    def _units(self) -> int:
        return prod(-(-self.job.facts.size[a] // self.sizes.get(a, 1)) for a in self.kept)
