"""The loop program: structured SSA, the same for all machines. A backend renders it as text.

A statement is an Instruction, a For with carried values, a When, or a Parallel (units of work that
workers share out). Memory is buffers and tiles of elements; an access names one of them and counts
elements. How far apart these lie, in bytes, only a backend knows. `lowering/verify.py` checks the
rules; the tests have a slow interpreter in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias, Union

from ..graph.dtype import DType
from .kernel import Buffer
from .schedule import Layout

LINE = 64  # bytes


@dataclass(frozen=True)
class Val:
    """An SSA value. `lanes`: ((axis, size), ...) it varies over in a vector, outermost first; ()
    is a scalar. dtype None: a position, the number of an element of the buffer or tile `memory`.
    A literal has no definition; `name` is its Python number (a bool: "0" or "1"), the same in all
    its lanes."""

    name: str
    dtype: DType | None
    lanes: tuple[tuple[str, int], ...] = ()
    depth: int = 0  # loop depth of its definition
    literal: bool = False
    memory: str = ""

    @property
    def width(self) -> int:
        return prod(size for _, size in self.lanes)


@dataclass
class Instruction:
    """out = op(args). Operations:

    every row of SCALARS       elementwise; operands have the lanes of the result; f16 and bf16
                               are only cast, selected and moved, never computed with
    fma                        (acc, a, b): acc + a * b in one rounding
    <matrix instruction>       (acc, a, b); a and b have the collapsed lanes too, or a has those
                               and the rows, b those and the columns
    expand                     repeat over lanes that the operand lacks
    iota                       attrs (step,): step * lane number, integers over one lane axis
    pack                       scalars -> one vector
    shuffle                    (a, b) attrs (picks...): lanes of the two, numbered through
    across.sum|max|min|prod    reduce all lanes; before they are threads, all but those it keeps
    offset                     (position, i64): so many elements further, in the same memory
    load                       (position[, mask]) attrs (n,): contiguous, from n elements further
                               on; 0 where masked
    gather                     (position[, mask]) attrs (n, strides...): lanes so many elements
                               apart, a number for each lane axis
    gather_at                  (position, i64 vector[, mask]): each lane so many elements further
    prefetch                   (position) attrs (n,): an element that is wanted soon; it may lie
                               outside of the memory
    store                      (value, position[, mask]) attrs (n,)
    scatter                    (value, position[, mask]) attrs (n, strides...)
    scatter_at                 (value, position, i64 vector[, mask]): lanes in order
    gemm                       (a, b, c, m, n, k, lda, ldb, ldc) attrs (a turned, b turned): c = a b
                               in f32, c (m, n), a (m, k), b (k, n); rows of memory are ld apart;
                               turned: a matrix lies in memory transposed
    barrier                    (): all threads of a unit come here before any of them goes on
    exchange                   (value) attrs (bit,): what that thread of the unit has whose number
                               differs in this bit alone; all come here
    copy                       (position in a tile, position[, mask]) attrs as a load's or gather's:
                               what would be loaded goes into the tile instead, while the thread
                               goes on; the result is what moves, for nobody to read
    commit                     (): what a thread has copied since its last commit is a group
    await                      attrs (n,): all but the last n groups of a thread have arrived, as
                               the others see behind the next barrier
    <staged instruction>       (acc, position of a, position of b), rows of a and of b's columns;
                               attrs (1,): under way until a settle, the accumulator too
    <streamed instruction>     (acc, a, position of b), of which only b is a tile: done at its end;
                               attrs (1,): when the next one is, which goes on with its sums
    settle                     attrs (n,): all but the last n staged instructions are done
    settled                    (acc): the same for all of them; the accumulator as a value
    """

    out: Val | None
    op: str
    args: tuple[Val, ...]
    attrs: tuple[int, ...] = ()


@dataclass
class For:
    """Counts var = 0 .. count - 1. carried: (phi, initial, next, result); the results are the
    initials where count is 0."""

    var: Val
    count: Val
    body: list[Statement]
    carried: list[tuple[Val, Val, Val, Val]] = field(default_factory=list)


@dataclass
class When:
    """The body runs if the condition (a scalar bool) holds; it defines nothing used later."""

    condition: Val
    body: list[Statement]


@dataclass
class Parallel:
    """var = 0 .. count - 1, in any order and side by side, at a level of the machine.

    "units": none needs another; threads of a CPU take them, groups of a GPU are them. A program has
    exactly one such loop, at its top level, and stores nothing outside it. "threads": those of one
    unit, a known number, which share tiles and meet at barriers; directly in the loop over units,
    which then has nothing else that stores.
    """

    var: Val
    count: Val
    body: list[Statement]
    level: str = "units"


Statement: TypeAlias = Union[Instruction, For, When, Parallel]


def statements(body: Iterable[Statement]) -> list[Statement]:
    """All statements of a body, also those inside loops."""
    found: list[Statement] = []
    for statement in body:
        found.append(statement)
        if not isinstance(statement, Instruction):
            found += statements(statement.body)
    return found


def instructions(body: Iterable[Statement]) -> list[Instruction]:
    """All instructions of a body."""
    return [s for s in statements(body) if isinstance(s, Instruction)]


@dataclass(frozen=True)
class Tile:
    """So many elements; what they hold does not outlast a unit. space: "own", of each worker or
    thread, or "shared", by the threads of a unit. row: in a staged tile, elements of a row; of
    each 128 bytes of it, one behind the others of all rows, the blocks of 16 bytes are numbered
    `block xor row mod 8`, so that eight threads meet all banks whether they walk a row or a column
    of blocks. turns: parts of a staged tile, each for another turn of a loop."""

    name: str
    dtype: DType
    elements: int
    space: str = "own"
    row: int = 0
    turns: int = 0

    @property
    def bytes(self) -> int:
        """In a workspace: whole cache lines, and one more, since masked tails may read further."""
        if self.row:
            return self.elements * self.dtype.bytes
        return -(-self.elements * self.dtype.bytes // LINE) * LINE + LINE


def start_of(memory: str) -> Val:
    """The position of the first element of a buffer or tile: every program has it."""
    return Val(f"%p_{memory}", None, memory=memory)


@dataclass
class Program:
    """A lowered kernel. Defined outside: where its buffers and tiles start (`start_of`), and
    "%d_<size>", the i64 run-time sizes.

    sizes: the run-time sizes in the order in which they are passed. layouts: constant buffers that
    must be packed before, as digits over their dimensions.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: list[Statement]
    tiles: tuple[Tile, ...] = ()
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def threads(self) -> int | None:
        """The threads of a unit; None where it has none."""
        units = [s for s in self.body if isinstance(s, Parallel)]
        inner = [s for unit in units for s in unit.body if isinstance(s, Parallel)]
        return int(inner[0].count.name) if inner else None

    @property
    def memories(self) -> dict[str, Buffer | Tile]:
        buffers: dict[str, Buffer | Tile] = {made.name: made for made in self.buffers}
        return buffers | {made.name: made for made in self.tiles}
