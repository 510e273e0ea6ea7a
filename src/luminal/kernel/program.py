"""The loop program: structured SSA, the same for all targets. A backend renders it as text.

A statement is an Instruction, a For with carried values, a When, or a Claim (work units that
threads take). `lowering/verify.py` checks the rules; the tests have a slow interpreter of it
in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from ..graph.dtype import DType
from .kernel import Buffer
from .schedule import Layout


@dataclass(frozen=True)
class Val:
    """An SSA value. `lanes`: ((axis, size), ...) it varies over in a vector, outermost first; ()
    is a scalar. dtype None: a pointer. A literal has no definition; `name` is its Python number
    (a bool: "0" or "1"), the same in all its lanes."""

    name: str
    dtype: DType | None
    lanes: tuple[tuple[str, int], ...] = ()
    depth: int = 0  # loop depth of its definition
    literal: bool = False

    @property
    def width(self) -> int:
        width = 1
        for _, size in self.lanes:
            width *= size
        return width


@dataclass
class Instruction:
    """out = op(args). Operations:

    every row of SCALARS       elementwise; operands have the lanes of the result; f16 and bf16
                               are only cast, selected and moved, never computed with
    fma                        (acc, a, b): acc + a * b in one rounding
    <matrix instruction>       (acc, a, b); a and b have the collapsed lanes too
    expand                     repeat over lanes that the operand lacks
    iota                       attrs (step,): step * lane number, integers over one lane axis
    pack                       scalars -> one vector
    shuffle                    (a, b) attrs (picks...): lanes of the two, numbered through
    across.sum|max|min|prod    reduce all lanes to a scalar
    offset                     (pointer, i64): pointer + bytes
    load                       (pointer[, mask]) attrs (byte offset,): contiguous; 0 where masked
    gather                     (pointer[, mask]) attrs (byte offset, byte stride): lanes apart
    gather_at                  (pointer, i64 byte offsets vector[, mask]): arbitrary lanes
    prefetch                   (pointer) attrs (byte offset,): a line that is wanted soon; it may
                               lie outside every buffer
    store                      (value, pointer[, mask]) attrs (byte offset,)
    scatter_at                 (value, pointer, i64 byte offsets vector[, mask]): lanes in order
    gemm                       (a, b, c, m, n, k, lda, ldb, ldc) attrs (a turned, b turned): c = a b
                               in f32, c (m, n), a (m, k), b (k, n); rows of memory are ld apart;
                               turned: a matrix lies in memory transposed
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
class Claim:
    """Threads share out units var = 0 .. count - 1: own contiguous range first, then others'. A
    program has exactly one, at its top level, and stores nothing outside it."""

    var: Val
    count: Val
    body: list[Statement]


Statement: TypeAlias = Union[Instruction, For, When, Claim]


@dataclass
class Program:
    """A lowered kernel. Names that are defined outside: "%p_<buffer>" pointers, "%d_<size>" i64
    run-time sizes, "%ws" the thread's workspace (`workspace` bytes, 64-byte aligned).

    sizes: the run-time sizes in the order in which they are passed. layouts: constant buffers that
    must be packed before, as digits over their dimensions.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: list[Statement]
    workspace: int
    layouts: Mapping[str, Layout] = field(default_factory=dict)
