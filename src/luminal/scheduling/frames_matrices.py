"""Online reductions whose products are of matrices: attention of many queries, on a machine whose
threads multiply matrices together.

Rows of one axis, the queries, are a unit's. A block of the stream, the keys, gives matrices of
scores: their columns are reduced within the threads that share a row, and they lie among threads as
the first operand of the next product does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ..kernel.kernel import Apply, Expression, Load, Read, Value, walk
from ..kernel.schedule import Loop
from . import instructions
from .draft import Draft
from .outline import Outline, shared_out, stream_of
from .tile import Pair

BLOCKS = (64, 32, 16)  # positions of a stream at a time
HELD = 130  # registers of a thread that may hold sums, scores and what is multiplied again
HELD_BY_TILES = 150  # the same where operands come from tiles
TOGETHER = 128  # rows of a unit that keeps a multiprocessor busy
MADE = 12  # registers that it takes to make an operand of what is loaded


@dataclass(frozen=True)
class Matrices:
    """stream: the axis of an online reduction, `block` positions at a time. rows: the axis of the
    rows of all its matrices. wide: how much of each axis a matrix has. stages: blocks for which
    there are tiles, into which operands are copied ahead; 0: each thread loads what it multiplies.
    """

    stream: str
    block: int
    rows: str
    wide: dict[str, int]
    stages: int = 0


def matrices(found: Outline) -> Matrices | None:
    """How the products of a stream are products of matrices, if all of them are."""
    if len(found.streams) != 1 or found.target.group == 1:
        return None
    (stream,) = found.streams
    sums = _products(found)
    if not sums or not all(instructions.matrices(found.facts, v) for v in sums):
        return None
    rows = [a for a in found.common if all(_column(found, v, a) for v in sums)]
    for row in sorted(rows, key=lambda a: -found.size[a]):
        for known in (_streamed(found, sums, row), [_plain(found, v) for v in sums]):
            made = _sized(found, sums, known, row, stream)
            if made and all(_fits(found, v, made) for v in found.values):
                return made
    return None


def _products(found: Outline) -> list[Value]:
    """The sums of products that a stream adds up, or computes."""
    return [v for v in found.values if v.factors and stream_of(found, v)]


def _column(found: Outline, v: Value, row: str) -> str | None:
    """The axis of the columns, where these are the rows: that of the stream, or one that is left
    when it is summed up."""
    columns = [a for a in v.axes if a in found.streams] or [a for a in v.axes if a != row]
    return next((a for a in columns if instructions.apart(found.facts, v, row, a)), None)


def _plain(found: Outline, v: Value) -> list[Pair]:
    return instructions.matrices(found.facts, v)


def _streamed(found: Outline, sums: list[Value], row: str) -> list[list[Pair]]:
    """Instructions that take what the stream brings from tiles, with as many rows for each unit as
    leave one for each multiprocessor."""
    cores = found.target.threads // found.target.busy
    others = prod(found.size[a] for a in shared_out(found, row))
    made = [instructions.streamed(found.facts, v, row, str(_column(found, v, row))) for v in sums]
    rows = sorted({i.rows for known in made for i, _ in known}, reverse=True)
    many = [n for n in rows if others * -(-found.size[row] // n) >= cores] or rows[-1:]
    unit = found.facts.decisions.number("rows", many[0], rows) if rows else 0
    return [[(i, axis) for i, axis in known if i.rows == unit] for known in made]


def _sized(
    found: Outline, sums: list[Value], known: list[list[Pair]], row: str, stream: str
) -> Matrices | None:
    """The largest matrices for which registers suffice. known: instructions for each sum."""
    pairs = {pair for each in known for pair in each}
    deep = {axis: i.collapse for i, axis in pairs}
    whole = all(a == stream or found.size[a] % n == 0 for a, n in deep.items())
    for unit in sorted({i.rows for i, _ in pairs}, reverse=True) if all(known) and whole else ():
        kinds = {i for i, _ in pairs if i.rows == unit}
        same = {i.fragments[1].ordered for i in kinds} & {i.fragments[0].ordered for i in kinds}
        kinds = {i for i in kinds if i.fragments[1].ordered in same}
        wide = deep | {row: unit}
        for v in sums:
            column = str(_column(found, v, row))
            widths = (i.columns for i in kinds if i.columns == deep.get(column, i.columns))
            wide[column] = max((n for n in widths if not found.size[column] % n
                                or column == stream), default=0)  # fmt: skip
        if not all(wide.values()) or 2 * found.size[row] <= unit:
            continue
        tiled = next(i for i in kinds).streamed
        each = unit / next(i.threads for i in kinds)
        kept = (found.size[a] / (1 + (a in deep)) for a in wide if a not in (row, stream))
        held = each * sum(kept) + MADE * sum(_made(found, v) for v in sums)
        for block in (n for n in BLOCKS if n >= wide[stream]):
            if held + 1.5 * each * block <= (HELD_BY_TILES if tiled else HELD):
                made = Matrices(stream, block, row, wide)
                return _staged(found, made, unit) if tiled else made
    return None


def _staged(found: Outline, made: Matrices, unit: int) -> Matrices | None:
    """With tiles for as many blocks as there is room for."""
    beside = [a for a in made.wide if a not in (made.rows, made.stream)]
    turn = 2 * made.block * sum(found.size[a] for a in beside)
    room = found.target.staging // (2 if unit < TOGETHER else 1)
    most, facts = min(instructions.STAGES, room // turn), found.facts
    if 2 * made.block > found.size[made.stream] and facts.static[made.stream]:
        return None
    stages = facts.decisions.number("stages", most, (0, *range(2, most + 1)))
    return replace(made, stages=stages) if stages > 1 else None


def _made(found: Outline, v: Value) -> bool:
    """A factor is computed, in each block, of what is loaded."""
    changing = (e for e in _narrow(found, v) if found.facts.kernel.axes_of(e) & {*found.streams})
    return any(isinstance(e, Apply) and any(isinstance(x, Load) for x in walk(e)) for e in changing)


def _narrow(found: Outline, v: Value) -> Sequence[Expression]:
    """What its instruction multiplies."""
    (instruction, _), *_ = instructions.matrices(found.facts, v)
    return instructions.taken(found.facts, v, instruction) or ()


def _fits(found: Outline, v: Value, made: Matrices) -> bool:
    """It has the rows, and besides them what a matrix has, and what units are shared out by."""
    outer = {*shared_out(found, made.rows)}
    return made.rows in v.axes and {*v.points} <= {*outer, *made.wide}


# ---- what is the same in all blocks


def kept_factors(found: Outline) -> dict[str, Value]:
    """By the sum that multiplies it: a factor that is the same in all blocks, as a value."""
    made, kept = matrices(found), dict[str, Value]()
    for v in _products(found) if made else []:
        assert made is not None
        for side, factor in zip("ab", _narrow(found, v)):
            axes = found.facts.kernel.axes_of(factor)
            if made.stream not in axes and not isinstance(factor, Read):
                order = tuple(a for a in v.points if a in axes)
                kept[v.name] = Value(f"{v.name}_{side}", order, factor, factor.dtype)
    return kept


# ---- paths


def matrix_frame(draft: Draft, made: Matrices) -> None:
    """Units of rows, and in them a loop over blocks of the stream."""
    found, rows = draft.found, made.rows
    draft.tails[made.stream] = "guard"  # two loops would hold twice the addresses
    draft.stages = made.stages
    running = set[str]().union(*(v.reads(so_far=True) for v in found.values))
    ends = {v.domain.get(made.stream) for v in found.values if v.name in running}
    if len(ends) == 1 and (end := ends.pop()) is not None:
        draft.ends[made.stream] = end  # beyond it scores are minus infinite, and weights zero
    unit = [Loop(a, 1, "parallel") for a in shared_out(found, rows)]
    unit.append(Loop(rows, made.wide[rows], "parallel"))
    for v in found.values:
        path = [*unit, Loop(made.stream, made.block)] if stream_of(found, v) else list(unit)
        mine = [a for a in v.points if a in made.wide and a != rows]
        path += [Loop(a, made.wide[a], "unroll") for a in mine]
        pair = instructions.pair(found.facts, v) if v.factors else None
        path += [Loop(a, 1, "vector") for a in (rows, *mine) if not pair or a != pair[1]]
        path += [Loop(pair[1], 1, "collapse")] if pair else []
        draft.paths[v.name] = tuple(path)
