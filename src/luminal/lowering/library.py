"""Contractions that a library computes: which kernels it can serve, and the program that calls it.

A call is one more schedule of a kernel, `library: gemm`, which a search may find to be the fastest;
no default takes it. The loop program then has the one operation `gemm` (see `program.py`), whose
meaning is that of the kernel: rows are shared out among threads, and each calls the library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..errors import Illegal
from ..graph.dtype import DType, bf16, f16, f32
from ..graph.index import Index, names_of
from ..kernel.kernel import Apply, Expression, Kernel, Load, Read, Reduction, Store, Value
from ..kernel.layout import Storage
from ..kernel.program import Instruction, Parallel, Statement, Val, start_of
from ..kernel.schedule import Schedule
from ..kernel.work import extents_at, usual_sizes
from .indexing import Indexing

GEMM = "gemm"
NAMES = {f32: GEMM, bf16: f"{GEMM}_bf16", f16: f"{GEMM}_f16"}  # by the dtype of the factors
ZERO = Index.of(0)


@dataclass(frozen=True)
class Matrix:
    """An access as a matrix. offset: elements from the start of the buffer, over axes. turned:
    neighbours lie along the first axis. leading: elements from one row of memory to the next."""

    buffer: str
    offset: Index
    turned: bool
    leading: Index


@dataclass(frozen=True)
class Contraction:
    """c[batch, row, column] = sum over `reduced` of a[batch, row, .] * b[batch, ., column]."""

    batch: tuple[str, ...]
    row: str
    column: str
    reduced: str
    a: Matrix
    b: Matrix
    c: Matrix
    dtype: DType = f32


def libraries(kernel: Kernel, available: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the libraries that can compute a prepared kernel."""
    found = contraction(kernel) if available else None
    return (NAMES[found.dtype],) if found is not None and NAMES[found.dtype] in available else ()


def call(library: str) -> Schedule:
    """The schedule that calls a library."""
    return Schedule({}, library=library)


def contraction(kernel: Kernel) -> Contraction | None:
    """The kernel as a product of matrices with sums in f32, stored as it is or in the narrower
    dtype of both; None if it is none."""
    value = kernel.values[0]
    factors, store = _factors(value), value.store or _rounded(kernel.values)
    if store is None or len(factors) != 2 or not _plain(value, store):
        return None
    kind, stored = factors[0].dtype, kernel.buffer(store.buffer).dtype
    if factors[1].dtype is not kind or stored not in (f32, kind):
        return None
    if len(kernel.values) > 1 and value.store is not None:
        return None
    (reduced,), (first, second) = value.over, factors
    uses = [names_of(load.index) for load in factors]
    batch = tuple(a for a in value.axes if a in uses[0] and a in uses[1])
    sides = [[a for a in value.axes if a in use and a not in batch] for use in uses]
    if any(len(side) != 1 for side in sides):
        return None
    (row,), (column,) = sides
    c = _matrix(kernel, store, (row, column), batch)
    if c is not None and c.turned:  # the transposed product
        row, column, first, second = column, row, second, first
        c = replace(c, turned=False)
    a = _matrix(kernel, first, (row, reduced), batch)
    b = _matrix(kernel, second, (reduced, column), batch)
    return Contraction(batch, row, column, reduced, a, b, c, kind) if a and b and c else None


def _factors(value: Value) -> tuple[Load, ...]:
    loads = map(_widened, value.factors if value.body.dtype is f32 else ())
    return tuple(a for a in loads if isinstance(a, Load) and a.dtype in NAMES and not a.slots)


def _widened(e: Expression) -> Expression:
    """What a cast to f32 is of."""
    return e.args[0] if isinstance(e, Apply) and e.op == "cast" and e.dtype is f32 else e


def _rounded(values: Sequence[Value]) -> Store | None:
    """Where the second of two values stores the first, rounded."""
    if len(values) != 2:
        return None
    first, last = values
    cast = isinstance(last.body, Apply) and last.body.op == "cast" and last.body.args
    same = cast and isinstance(cast[0], Read) and cast[0] == Read(first.name, first.dtype)
    return last.store if same and last.axes == first.axes and not last.reduction else None


def _plain(value: Value, store: Store) -> bool:
    """A whole sum, stored once for each point."""
    whole = value.reduction == Reduction("sum", value.over) and not value.domain
    return whole and store == Store(store.buffer, store.index) and len(value.over) == 1


def _matrix(
    kernel: Kernel, access: Load | Store, axes: tuple[str, str], batch: tuple[str, ...]
) -> Matrix | None:
    """An access that moves evenly along two axes, along one of them element by element."""
    buffer = kernel.buffer(access.buffer)
    offset = Storage(buffer.shape).offset(access.index, kernel.space())
    strides = {a: offset.slope(a) or ZERO for a in (*axes, *batch)}
    still = offset.without({*strides})
    if buffer.layout or sum((strides[a] * a for a in strides), still) is not offset:
        return None
    first, second = (strides[a] for a in axes)
    turned = second != 1
    near, leading, along = (first, second, axes[0]) if turned else (second, first, axes[1])
    if near != 1 or not kernel.space().nonnegative(leading - kernel.axes[along]):
        return None
    return Matrix(buffer.name, offset, turned, leading)


def body(kernel: Kernel, threads: int, indexing: Indexing) -> list[Statement]:
    """The statements of the program: a unit is one part of the rows, or of the columns where they
    are more, of one product of the batch. Raises Illegal where no library computes the kernel."""
    found = contraction(kernel)
    if found is None:
        raise Illegal("no library computes this kernel")
    extents, build = extents_at(kernel, usual_sizes(kernel)), indexing.build
    parts = 1 if prod(extents[a] for a in found.batch) >= threads else threads
    total = prod((kernel.axes[a] for a in found.batch), start=Index.of(parts))
    count = indexing.scalar(total)
    build.open()
    name, unit = indexing.counter(total)
    part, place = Index.of(name) % parts, Index.of(name) // parts
    at = dict.fromkeys(kernel.axes, ZERO)
    for axis in reversed(found.batch):
        at[axis], place = place % kernel.axes[axis], place // kernel.axes[axis]
    cut = found.row if extents[found.row] >= extents[found.column] else found.column
    at[cut] = part * kernel.axes[cut] // parts
    part_extent = (part + 1) * kernel.axes[cut] // parts - at[cut]
    build.append(_gemm(found, {**kernel.axes, cut: part_extent}, at, indexing))
    build.append(Parallel(unit, count, build.close()))
    return build.scopes[0].body


def _gemm(
    found: Contraction, extents: Mapping[str, Index], at: Mapping[str, Index], indexing: Indexing
) -> Instruction:
    def start(matrix: Matrix) -> Val:
        moved = indexing.scalar(matrix.offset.substitute(at))
        return indexing.build.offset(start_of(matrix.buffer), moved)

    matrices = (found.a, found.b, found.c)
    sizes = [extents[a] for a in (found.row, found.column, found.reduced)]
    numbers = [indexing.scalar(i) for i in (*sizes, *(m.leading for m in matrices))]
    turned = int(found.a.turned), int(found.b.turned)
    return Instruction(None, GEMM, (*map(start, matrices), *numbers), turned)
