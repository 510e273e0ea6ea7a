"""What a schedule may know about a machine: lanes, registers, ports, caches, instructions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..graph.dtype import DType


@dataclass(frozen=True)
class Fragment:
    """Where a matrix lies among threads. The digits of a thread's number, lowest first, each move
    it so many rows and columns; from there its elements are so many further. Threads that a digit
    moves nowhere have the same."""

    digits: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    elements: tuple[tuple[int, int], ...]

    @property
    def threads(self) -> int:
        return math.prod(self.digits)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns, (threads, elements) each."""
        rows, columns = (np.array(side) + np.zeros((self.threads, 1), int)
                         for side in np.array(self.elements).T)  # fmt: skip
        rest = np.arange(self.threads)[:, None]
        for digit, row, column in zip(self.digits, self.rows, self.columns):
            rest, here = np.divmod(rest, digit)
            rows, columns = rows + row * here, columns + column * here
        return rows, columns

    @property
    def ordered(self) -> Fragment:
        """The same with elements in order, by digits that count."""
        kept = [n for n, digit in enumerate(self.digits) if digit > 1]
        digits, rows, columns = (tuple(side[n] for n in kept)
                                 for side in (self.digits, self.rows, self.columns))  # fmt: skip
        return Fragment(digits, rows, columns, tuple(sorted(self.elements)))

    def side(self, number: int) -> Fragment:
        """Where a column of it lies (0), or a row (1), as a matrix of one column."""
        still = (0,) * len(self.digits)
        elements = tuple((n, 0) for n in sorted({each[number] for each in self.elements}))
        return Fragment(self.digits, (self.rows, self.columns)[number], still, elements)


@dataclass(frozen=True)
class MatrixInstruction:
    """acc[i] += sum over j < collapse of wide(a[i, j]) * wide(b[i, j]), for all lanes i of acc; or,
    with rows, acc[r, c] += sum over j of wide(a[r, j]) * wide(b[c, j]), r < rows, c < columns.

    cycles: measured issue cost, in units of one f32 fma instruction. most: the largest number that
    the first operand may be (where an instruction's own sums would overflow). scratch: registers
    that it takes beside its operands. fragments: of acc, a and b, where threads hold them.
    part: the instruction of which a group of threads executes one or several side by side, each
    with a part of the elements of acc and b. function: what executes it, if that has another name.
    registers: of whole matrices, where there are such: they are loaded from rows of memory and
    stored there. together: so many of b's collapsed numbers lie side by side in these rows, then
    those of the next column. staged: a and b are tiles that the threads share, in rows of
    `collapse` elements (see `Tile.row`); their fragments say which elements a thread brings there.
    late: it is under way until it is waited for; else it is done when it ends. streamed: b alone is
    such a tile, a lies among threads. turned: rows of the tile run along b's columns, not along
    what is collapsed.
    """

    name: str
    collapse: int
    first: DType
    second: DType
    accumulator: DType
    cycles: float = 1.0
    most: float = math.inf
    scratch: int = 0
    rows: int = 1
    columns: int = 1
    fragments: tuple[Fragment, ...] = ()
    part: str = ""
    function: str = ""
    registers: int = 0
    together: int = 0
    staged: bool = False
    late: bool = False
    streamed: bool = False
    turned: bool = False

    @property
    def tiles(self) -> slice:
        """Which of its operands are tiles."""
        return slice(1 if self.staged else 2 if self.streamed else 3, 3)

    @property
    def threads(self) -> int:
        """That execute it together."""
        return self.fragments[0].threads if self.fragments else 1

    @property
    def stages(self) -> int:
        """Turns of a loop for which it needs tiles, at least."""
        return 3 if self.late else 2

    def wider(self, known: Iterable[MatrixInstruction]) -> MatrixInstruction | None:
        """The staged instruction that does what two of this do beside each other."""
        wanted = (self.first, self.second, self.rows, 2 * self.columns)
        found = (i for i in known if (i.first, i.second, i.rows, i.columns) == wanted)
        return next((i for i in found if self.staged and i.staged), None)

    def specification(self, acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """NumPy meaning: acc (..., i), a and b (..., i, j); or acc (r, c), a (r, ...), b
        (c, ...)."""
        wide = self.accumulator.numpy
        if self.rows > 1:
            a, b = (side.reshape(len(side), -1).astype(wide) for side in (a, b))
            return acc + a @ b.T
        return acc + (a.astype(wide) * b.astype(wide)).sum(-1, dtype=wide)


@dataclass(frozen=True)
class Costs:
    """What these cost, in plain loads of a vector: a load under a mask; one of every second
    element; one of 16 elements anywhere; a vector of a block transposed in registers; how much of a
    load more where it straddles two lines. across: operations to add up the lanes of a vector.
    cold: cycles for a line of memory that no prefetcher foresees, one on each page. chains: sums
    side by side, in lanes of a reduced axis, that hide the latency of an addition and its load."""

    masked: float = 2.0
    second: float = 4.0
    gather: float = 20.0
    transposed: float = 6.0
    straddled: float = 1.0
    across: float = 10.0
    cold: float = 16.0
    chains: int = 4


@dataclass(frozen=True)
class Target:
    """A machine as plans and schedules see it. Sizes in bytes, rates in cycles.

    vector_bytes: width of a vector register. busy: threads that share a core, its ports and its
    caches, so that it never waits. group: on a GPU, the threads that work on a unit
    together, each of them a lane of its vectors; several such, up to `crowd` threads, have wider
    vectors. shared: bytes of the tiles that they share, where many groups are to fit on a core.
    staging: the same where one group keeps it busy, by operands that are copied ahead.
    exchanges: they hand each other numbers, without one. wide: bytes that one of them loads or
    stores at once.
    l2_rate: bytes a cycle from the second cache. clock: cycles a second, on all threads at once.
    bandwidth: bytes a second from memory, for all threads together. launch: seconds of a kernel
    and its barrier. hint: assumed value of a run-time size without a hint of its own. index_bits:
    32 where indices shall be narrow if they are known to fit. libraries: those that can be called
    (see `library.py`). rounds: weights of a running softmax, and what they weigh, may be rounded to
    two bytes where an instruction multiplies such: the contract of the program says so. flushes:
    subnormal floats count as zeros. maskable: bytes of the narrowest elements that vectors are
    loaded of under a mask.
    """

    name: str
    vector_bytes: int
    registers: int
    fma_ports: int = 2
    load_ports: int = 2
    latency: int = 4
    l1: int = 32 << 10
    l1_ways: int = 8
    l2: int = 1 << 20
    l2_ways: int = 8
    l2_rate: int = 24
    l3: int = 32 << 20
    page: int = 4096
    threads: int = 1
    busy: int = 1
    clock: float = 3.75e9
    bandwidth: float = 2e10
    launch: float = 2e-6
    hint: int = 128
    index_bits: int = 64
    group: int = 1
    crowd: int = 1
    shared: int = 48 << 10
    staging: int = 0
    exchanges: bool = False
    wide: int = 4
    costs: Costs = Costs()
    instructions: tuple[MatrixInstruction, ...] = ()
    libraries: tuple[str, ...] = ()
    rounds: bool = False
    flushes: bool = False
    maskable: int = 4

    def lanes(self, dtype: DType) -> int:
        """Elements of a dtype in a vector register, counting narrow types as 4 bytes: they are
        widened before they are computed with."""
        if self.group > 1:
            return self.group
        return max(1, self.vector_bytes // max(4, dtype.bytes))

    @property
    def in_vectors(self) -> Target:
        """Without instructions that have registers of matrices."""
        kept = tuple(i for i in self.instructions if not i.registers)
        return self if kept == self.instructions else replace(self, instructions=kept)

    def lines_apart(self, step: int, level: int = 1) -> int:
        """How many lines of the first or second cache hold what lies so many bytes apart, at least
        a line."""
        size, ways = ((self.l1, self.l1_ways), (self.l2, self.l2_ways))[level - 1]
        way = size // ways
        return way // math.gcd(step, way) * ways
