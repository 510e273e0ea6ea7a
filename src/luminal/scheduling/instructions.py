"""Instructions that multiply narrow operands and add neighbours of a reduced axis, or whole
matrices: which of them a sum of products can take, and along which axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..graph.index import Index, names_of
from ..kernel.kernel import Apply, Expression, Load, Read, Value, walk
from ..kernel.narrow import operands
from ..kernel.program import LINE
from ..kernel.target import MatrixInstruction, Target
from .facts import Access, Facts, round_up
from .tile import Pair

STAGES, MOST = 4, 6  # turns of a loop, at least and at most, whose operands are copied ahead
ALONE = 128  # threads of which no two share a scheduler


def pair(facts: Facts, value: Value) -> Pair | None:
    """The first instruction that finds neighbours of an axis together."""
    if value.name not in facts.pairs:
        found = ((i, axis) for i in _multiplying(facts, value) for axis in value.over[::-1]
                 if _along(facts, value, i, axis))  # fmt: skip
        facts.pairs[value.name] = next(found, None)
    return facts.pairs[value.name]


def multiplied(facts: Facts, value: Value) -> Sequence[Expression]:
    """The factors as an instruction of lanes takes them, that which finds neighbours together
    before others; as they are where there is none."""
    found = pair(facts, value)
    first = [found[0]] if found else [i for i in _multiplying(facts, value) if i.rows == 1]
    return (either(facts, value, first[0]) if first else None) or value.factors


def unpaired(facts: Facts, value: Value, taken: bool) -> list[str]:
    """Reduced axes that an instruction would collapse if neighbours lay together, where none does.
    taken: such a one is taken, of what lies so."""
    found = [i for i in _multiplying(facts, value) if i.rows == 1]
    paired = taken and pair(facts, value)
    return [a for a in value.over if not paired and any(_whole(facts, i, a) for i in found)]


def matrices(facts: Facts, value: Value) -> list[Pair]:
    """As `pair`, for all instructions that multiply matrices alike, or take their operands from
    memory and leave the sums there."""
    found = pair(facts, value)
    if found is None or found[0].rows == 1:
        return [
            (i, axis) for i in facts.target.instructions for axis in value.over[::-1]
            if i.registers and i.accumulator is value.dtype and value.factors
            and _whole(facts, i, axis)
        ]  # fmt: skip
    like, axis = found
    return [
        (i, axis) for i in facts.target.instructions if i.rows > 1 and i.tiles.start == 3
        and (i.first, i.second, i.collapse) == (like.first, like.second, like.collapse)
    ]  # fmt: skip


def staged(facts: Facts, value: Value, row: str, column: str) -> list[Pair]:
    """As `matrices`, for instructions whose operands, rows of memory, are copied ahead: along what
    is summed, of the second one along the columns where there is an instruction for that."""
    found = pair(facts, value)
    if found is None or found[0].rows == 1 or value.rescale or len(value.over) > 1:
        return []
    (like, axis), sides = found, taken(facts, value, found[0], row) or ()
    along = [[a for a in (axis, column) if isinstance(e, Load) and _in_rows(facts, e, a)]
             for e in sides]  # fmt: skip
    if not along or axis not in along[0] or not along[1]:
        return []
    known = [i for i in facts.target.instructions if i.staged
             and (i.first, i.second) == (like.first, like.second)]  # fmt: skip
    turned = {(i.rows, i.columns) for i in known if i.turned}
    return [
        (i, axis) for i in known
        if not i.turned and (axis in along[1] or (i.rows, i.columns) in turned)
        and i.threads > facts.target.group  # one alone copies no rows
        and _whole(facts, i, axis) and facts.size[axis] >= STAGES * i.collapse
    ]  # fmt: skip


def streamed(facts: Facts, value: Value, row: str, column: str) -> list[Pair]:
    """As `staged`, for instructions that take the factor with the rows from where it was made, and
    rows of the other one, along what is summed or along the columns, from a tile."""
    found, axis = pair(facts, value), value.over[-1]
    sides = taken(facts, value, found[0], row) if found and found[0].rows > 1 else None
    if not (found and sides and isinstance(sides[1], Load)) or len(value.over) > 1:
        return []
    kept = sides[1].buffer not in facts.kernel.outputs
    lie = [_in_rows(facts, sides[1], a) for a in (axis, column)]
    return [
        (i, axis) for i in facts.target.instructions
        if i.streamed and kept and lie[i.turned] and not facts.access(sides[1]).packable
        and (i.first, i.second) == (found[0].first, found[0].second)
    ]  # fmt: skip


def taken(
    facts: Facts, value: Value, instruction: MatrixInstruction, row: str = ""
) -> tuple[Expression, Expression] | None:
    """What the instruction multiplies, for the factors in their order; row: for the one that has
    this axis, and then the other."""
    x, y = value.factors
    sides = (y, x) if row and row not in facts.kernel.axes_of(x) else (x, y)
    return operands(instruction, *sides, facts.by_name)


def either(
    facts: Facts, value: Value, instruction: MatrixInstruction
) -> tuple[Expression, Expression] | None:
    """What the instruction multiplies for each factor, whichever of them is its first."""
    found, (x, y) = taken(facts, value, instruction), value.factors
    if found is None and (turned := operands(instruction, y, x, facts.by_name)):
        return turned[1], turned[0]
    return found


def apart(facts: Facts, value: Value, row: str, column: str) -> bool:
    """Of the factors of a sum of products one has the first of these axes, the other the second,
    and neither both."""
    sides = [facts.kernel.axes_of(arg) & {row, column} for arg in value.factors]
    return row != column and sorted(map(sorted, sides)) == sorted([[row], [column]])


def rows_of(facts: Facts, value: Value, instruction: MatrixInstruction, row: str) -> bool:
    """The factor with this axis is the first one of the instruction; the other one is read as it
    lies."""
    found = taken(facts, value, instruction, row)
    return found is not None and isinstance(found[1], (Load, Read))


# ---- one instruction


def _multiplying(facts: Facts, value: Value) -> Iterator[MatrixInstruction]:
    """Those that multiply what the value multiplies, wherever that lies."""
    for i in facts.target.instructions if value.factors else ():
        collapses = i.collapse > 1 and i.accumulator is value.dtype
        if collapses and not i.registers and i.tiles.start == 3 and either(facts, value, i):
            yield i


def _whole(facts: Facts, instruction: MatrixInstruction, axis: str) -> bool:
    return facts.static[axis] and facts.size[axis] % instruction.collapse == 0


def _along(facts: Facts, value: Value, instruction: MatrixInstruction, axis: str) -> bool:
    """Both factors have neighbours of the axis together, and none is left out; matrices are loaded
    as they lie."""
    if instruction.rows > 1:
        return _whole(facts, instruction, axis) or bool(value.rescale)
    every = _whole(facts, instruction, axis) and (value.rescale or not _chosen(facts, value, axis))
    return bool(every) and all(_together(facts, value, side, axis) for side in value.factors)


def _chosen(facts: Facts, value: Value, axis: str) -> bool:
    """Where a sum ends, a factor itself is 0 beyond it: pairs would have to ask."""
    asked = (c for x in facts.accesses(value) for c in x.conditions)
    return axis in facts.domain(value) and axis in names_of(asked)


def _together(facts: Facts, value: Value, side: Expression, axis: str) -> bool:
    if value.rescale and sum(isinstance(e, Apply) for e in walk(side)) > 1:
        return axis in facts.kernel.axes_of(side)  # it is computed: a value, of our layout
    found = (facts.access(e) for e in walk(side) if isinstance(e, (Load, Read)))
    return any(
        axis in x.axes and (x.stride(axis) == 1 or x.free or x.packable
                            or (x.name, axis) in facts.packed)
        for x in found
    )  # fmt: skip


def lies(facts: Facts, x: Access, found: Pair, row: str, size: int) -> bool:
    """Rows of a matrix in registers are loaded from where a first operand lies, so many at a time:
    also those behind the last one are there, and they do not drive each other out of the cache."""
    (instruction, axis), e = found, x.load
    if e is None or e.slots or x.conditions or x.dtype is not instruction.first:
        return False
    step = x.stride(row) * x.dtype.bytes
    if x.stride(axis) != 1 or step < LINE or size > facts.target.lines_apart(step):
        return False
    space = facts.kernel.space({row: Index.of(round_up(facts.size[row], size))})
    return facts.static[row] and all(map(space.inside, e.index, facts.buffers[e.buffer].shape))


def _in_rows(facts: Facts, e: Load, axis: str) -> bool:
    """Its rows run along an axis, and begin at multiples of 16 bytes."""
    buffer, each, rest = facts.buffers[e.buffer], 16 // e.dtype.bytes, e.index[-1] - Index.of(axis)
    plain = not e.slots and axis not in rest.names() and all(n % each == 0 for _, n in rest.terms)
    if plain and not buffer.layout and not facts.access(e).packable:
        row, above = buffer.shape[-1], names_of(e.index[:-1])
        return row.is_constant and row.constant * e.dtype.bytes % 16 == 0 and axis not in above
    return facts.access(e).packable


def stages(target: Target, instruction: MatrixInstruction, tile: int) -> int:
    """Turns of a loop for whose operands, so many bytes in each, there is room: for two units that
    multiply while the other one waits, if that is enough."""
    whole, half = (target.staging // n // max(1, tile) for n in (1, 2))
    alone = instruction.late or instruction.threads > ALONE or half < instruction.stages
    return min(MOST, whole if alone else half)
