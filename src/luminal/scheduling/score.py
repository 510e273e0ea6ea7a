"""The cycles of one register tile: arithmetic over ports, loads over ports, bytes over the rate of
the second cache, latency over independent chains; and what waits for memory beside them.
"""

from __future__ import annotations

from math import inf, prod

from ..kernel.target import MatrixInstruction
from .facts import round_up
from .instructions import ALONE, lies, stages
from .job import Job, Work
from .loads import AGAIN, Loads
from .tile import Pair, Tile

SPREAD = 2.5  # casts of a vector that one of a number which all lanes take costs
SUMS = 128  # registers of a thread for sums, where operands take none
MEETING = 100.0  # cycles of a turn in which a warp that meets others multiplies nothing
LEAST_MADE = 0.5 * (AGAIN - 1)  # operations on an element that do


class Score(Loads):
    """The cost of one tile shape for a job."""

    def __init__(
        self, job: Job, lane: str, sizes: dict[str, int], pair: Pair | None, rows: str = "",
        deep: tuple[str, int] = ("", 1),
    ) -> None:  # fmt: skip
        super().__init__(job, lane, sizes, pair, rows)
        self.deep, self.turns = deep, 0
        self.warps = pair[0].threads // self.target.group if rows and pair else 1

    def tile(self, most: float = inf) -> Tile | None:
        """The tile with its cost; None if its registers or cache ways do not suffice, or if its
        arithmetic alone takes more than `most` cycles a point."""
        instruction = self.pair[0] if self.rows and self.pair else None
        accumulators = self.vectors(self.kept) * len(self.job.group) if self.reduces else 0.0
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
        if accumulators >= most * self.warps or any(map(self.crowds_ways, accesses)):
            return False
        for x in accesses:
            self.charge(x)
        return (accumulators * partial + self._registers()) / self.warps + 1 <= most

    def _of_shared_tiles(self, instruction: MatrixInstruction, accumulators: float) -> bool:
        """Operands are copied into shared tiles once, and read from there by each part."""
        target, tile, products = self.target, 0, len(self.job.group)
        if products % 2 == 0 and instruction.wider(target.instructions):
            products //= 2
        part = next(i for i in target.instructions if i.name == instruction.part)
        for x in {x.name: x for x in self.job.accesses}.values():
            vectors, first = self.vectors(x.axes), self.rows in x.axes
            size = vectors * self.width * instruction.collapse * x.dtype.bytes
            across = products * (instruction.columns // part.columns)
            again = across if first else instruction.rows // part.rows
            self.loads += size * (1 + again) / (target.group * 4)
            tile += int(size)
            self.stream(x, vectors)
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
                self.copy(x)
            self.stream(x, self.vectors(x.axes))
        moved = 2 * accumulators / self.span[self.pair[1]]
        self.waits = instruction.collapse * (self.waits + moved)
        self.loads = float(instruction.rows * operands)
        fits = sums + operands <= instruction.registers
        return fits and not self.job.facts.domain(self.job.group[0])

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
        return sum(self._made(w) for w in self.job.work if casts or not w.cast)

    def _made(self, work: Work) -> float:
        """The operations of a step; those of a factor that all lanes share may be made before, in
        lanes of their own, and once for all tiles (see `operands`): not what a panel holds."""
        each = work.cost * self.vectors(work.axes)
        if not work.factor or work.constant or self.lane in work.axes or not self.job.may_copy:
            return each
        again = self.reuse(work.axes)
        apart = work.cost * (again - 1 / self.width) >= LEAST_MADE
        return each / (again * self.width) if apart else each

    def _widening(self, instruction: MatrixInstruction) -> float:
        """Casts of a step to what an instruction of lanes takes, floats by f32. What all lanes
        multiply is moved and spread out besides, and made once where tiles take it again."""
        total, taken = 0.0, (None, instruction.first, instruction.second)
        for each in self.job.work if not self.rows else ():
            if each.cast not in taken:
                again = 1 if each.constant else self.reuse(each.axes)
                spread = 1.0 if self.lane in each.axes else SPREAD / again
                total += each.cost * self.vectors(each.axes) * spread
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
