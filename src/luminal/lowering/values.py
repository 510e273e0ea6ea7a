"""Expressions as code, at a place: arithmetic, guards, reads, and the best multiply-accumulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ..errors import Illegal
from ..graph.dtype import DType, boolean, f32
from ..graph.index import Index, names_of
from ..graph.scalars import COMBINE, identity
from ..kernel.domains import outside
from ..kernel.kernel import Apply, Constant, Expression, Guard, Load, Position, Read, Value
from ..kernel.narrow import operands
from ..kernel.program import Val
from ..kernel.target import MatrixInstruction
from .access import Access
from .builder import literal, number
from .homes import Homes
from .place import Lanes, Place, lane_name
from .shuffles import turned

Key = tuple[object, ...]


def register_of(value: Value, role: str, place: Place) -> Key:
    """What an accumulator ("sum") or a finished value ("value") is held by: its position."""
    partial: object = place.partial if role == "sum" else ()
    axes = value.axes
    if role == "sum" and value.scans:
        axes = tuple(a for a in axes if a not in value.over)
    return (value.name, role, partial, *(place.scalar(a) for a in axes))


class Values:
    """Evaluates expressions of a kernel. held: SSA values of what is in registers."""

    def __init__(
        self, access: Access, homes: Homes, values: Mapping[str, Value],
        instructions: tuple[MatrixInstruction, ...],
    ) -> None:  # fmt: skip
        self.access, self.indexing, self.build = access, access.indexing, access.build
        self.homes, self.values, self.instructions = homes, values, instructions
        self.held: dict[Key, Val] = {}
        access.evaluate = self.evaluate

    # ---- expressions

    def evaluate(self, expression: Expression, place: Place) -> Val:
        """The value of an expression, over the lanes on which it depends."""
        if isinstance(expression, Constant):
            return literal(expression.value, expression.dtype)
        if isinstance(expression, Load):
            return self.access.load(expression, place)
        if isinstance(expression, Read):
            return self.read(expression.value, place)
        if isinstance(expression, Position):
            index = self.indexing.at(expression.index, place)
            return self.indexing.vector(index, place.lanes, expression.dtype)
        if isinstance(expression, Guard):
            return self._guard(expression, place)
        args = [self.evaluate(a, place) for a in expression.args]
        return self.apply(expression.op, args, expression.dtype, place)

    def apply(self, op: str, args: Sequence[Val], dtype: DType, place: Place) -> Val:
        """An elementwise operation; f16 and bf16 are widened, computed and rounded."""
        order = place.lanes
        if op == "cast":
            return self.indexing.cast(args[0], dtype)
        if op != "select" and any(a.dtype is not None and a.dtype.is_half for a in args):
            wide = [self.indexing.cast(a, f32) for a in args]
            result = self.indexing.apply(op, wide, boolean if dtype is boolean else f32, order)
            return self.indexing.cast(result, dtype)
        return self.indexing.apply(op, list(args), dtype, order)

    def read(self, name: str, place: Place) -> Val:
        """Another value of the kernel at this place."""
        value = self.values.get(name)
        if value is None:
            raise Illegal(f"nothing computes {name}")
        home = self.homes.by_name.get(name)
        if home is None:
            raise Illegal(f"{name} is stored: nothing in its kernel may read it")
        if home.lent is not None:
            load = Load(home.lent.buffer, home.lent.index, value.dtype)
            return self.access.load(load, place)
        if not home.registers:
            return self.access.load_tile(value, home, place)
        key = register_of(value, "value", place)
        found = self.held.get(key)
        if found is None:  # a reduction that is still running
            found = self.held.get((name, "sum", *key[2:]))
        if found is None:
            raise Illegal(f"{name} is read where it has not been computed")
        return found

    # ---- guards

    def _guard(self, guard: Guard, place: Place) -> Val:
        """body where all conditions hold, else other; what ranges decide is not tested."""
        masks, side = self.conditions(guard, place), self._alone(guard.conditions, place)
        column = self._column(guard, place, side) if masks else None
        if column is not None:
            return column
        if not masks:
            return self.evaluate(guard.other if masks is None else guard.body, side)
        mask = self.indexing.all_of(masks, place.lanes)
        assert mask is not None
        body, below = self.evaluate(guard.body, side.under(mask)), side
        if not isinstance(guard.other, Constant):
            below = side.under(self.indexing.negation(mask))
        args = [mask, body, self.evaluate(guard.other, below)]
        return self.apply("select", args, guard.dtype, place)

    def _column(self, guard: Guard, place: Place, side: Place) -> Val | None:
        """Of a block that is turned in registers, whose rows run along a written-out axis under its
        conditions: these are asked for all positions of a row at once."""
        load, alone = guard.body, len(place.lanes) == 1 and self.build.shuffles
        if not isinstance(load, Load) or load.slots or not alone:
            return None
        ((axis, size),) = place.lanes
        asked, ends = names_of(guard.conditions), {axis, *place.unrolled} & place.ends.keys()
        step = partial(self.access.step, load, place.plain(frozenset({axis})))
        if axis in asked or ends or not isinstance(guard.other, Constant) or step(axis) == 1:
            return None
        for other in place.unrolled.keys() - side.unrolled.keys():
            position, block = place.unrolled[other]
            if block != size or step(other) != 1:
                continue
            self.indexing.lane(other, size)
            start = place.plain(frozenset({axis})).moved(other, -position)
            along = {other: start.index[other] + Index.of(lane_name(other, size))}
            start = replace(start, lanes=((other, size),), index=start.index | along, unrolled={})
            rows = [self._guard(guard, start.moved(axis, n)) for n in range(size)]
            if all(row.lanes == start.lanes for row in rows):
                return turned(self.build, rows, place.lanes)[position]
        return None

    def _alone(self, conditions: Sequence[Index], place: Place) -> Place:
        """The place without the written-out axes along which a condition may change: what is loaded
        for all their positions together would lie outside at some."""

        def still(axis: str, position: int, size: int) -> bool:
            ends = [place.moved(axis, n - position) for n in (0, size - 1)]
            known = ({self.indexing.known(self.indexing.at(c, end), end.facts) for end in ends}
                     for c in conditions if axis in c.names())  # fmt: skip
            return all(found in ({True}, {False}) for found in known)

        shared = {axis: where for axis, where in place.unrolled.items() if still(axis, *where)}
        return replace(place, unrolled=shared)

    def conditions(self, guard: Guard, place: Place) -> list[Val] | None:
        """The conditions that have to be tested; None where one is known to fail."""
        loose = place.ends.keys() - {a for a, _ in place.lanes}
        touched = loose & names_of(guard.conditions)
        if touched:  # the loads below stand at the last element, so their conditions must too
            place = self.access.clamped(touched, place)
        here = (self.indexing.at(condition, place) for condition in guard.conditions)
        return self.indexing.open_conditions(here, place)

    # ---- reductions

    def is_identity(self, expression: Expression, op: str, place: Place) -> bool:
        """Proven from ranges: the summand is the identity of the reduction here."""
        neutral = identity(op, expression.dtype)
        fails = (c for c, number in outside(expression).items() if number == neutral)
        here = (self.indexing.at(condition, place) for condition in fails)
        return _is_identity(expression, op) or any(
            self.indexing.known(condition, place.facts) is False for condition in here
        )

    def accumulate(self, value: Value, old: Val, place: Place) -> Val:
        """The accumulator with the body combined in; the old one where a condition fails."""
        assert value.reduction is not None
        op, body = value.reduction.op, value.body
        tails = place.ends.keys() & {*value.over} - place.collapsed
        masks = [self.access.tail(axis, place) for axis in sorted(tails)]
        while isinstance(body, Guard) and _is_identity(body.other, op):
            found = self.conditions(body, place)
            if found is None:
                return old
            place = self._alone(body.conditions, place).under(*found)
            masks, body = masks + found, body.body
        if self.is_identity(body, op, place):
            return old
        new = self._combined(op, value, old, body, place)
        mask = self.indexing.all_of(masks, place.lanes)
        if mask is None:
            return new
        return self.apply("select", [mask, new, old], value.dtype, place)

    def _combined(self, op: str, value: Value, old: Val, body: Expression, place: Place) -> Val:
        if op == "sum" and isinstance(body, Apply) and body.op == "mul":
            new = self._multiply_add(old, body.args[0], body.args[1], place)
            if new is not None:
                return new
        if place.collapsed:
            raise Illegal(f"no instruction computes {value.name} over {sorted(place.collapsed)}")
        operand = self.indexing.cast(self.evaluate(body, place), value.dtype)
        if old.literal and number(old) == identity(op, value.dtype):
            return self.indexing.expand(operand, old.lanes)
        return self.apply(COMBINE[op], [old, operand], value.dtype, place)

    def _multiply_add(self, old: Val, a: Expression, b: Expression, place: Place) -> Val | None:
        """old + a * b in one instruction, or None where no instruction is specified so."""
        if not place.collapsed:
            if old.dtype is None or old.dtype.name not in ("f32", "f64"):
                return None
            pair = [self.evaluate(x, place) for x in (a, b)]
            return self.indexing.apply("fma", [old, *pair], old.dtype, place.lanes)
        kept = tuple(size for axis, size in place.lanes if axis not in place.collapsed)
        collapse = prod(size for axis, size in place.lanes if axis in place.collapsed)
        for instruction in self.instructions:
            shape = (instruction.rows, instruction.columns) if instruction.rows > 1 else kept
            wanted = instruction.collapse, instruction.accumulator, shape
            if (collapse, old.dtype, kept) != wanted:
                continue
            for x, y in ((a, b), (b, a)):
                found = operands(instruction, x, y, self.values)
                if found is None or not _lie(instruction, found):
                    continue
                if self._in_order(instruction, old, found[1], place):
                    return self._matrix(instruction, old, found, place)
        return None

    def _in_order(
        self, instruction: MatrixInstruction, old: Val, second: Expression, place: Place
    ) -> bool:
        """Rows of matrices are the first operand's, if it matters which is the first."""
        free = instruction.rows == 1 or instruction.first is instruction.second
        return free or old.lanes[0] not in self.evaluate(second, place).lanes

    def _matrix(
        self, instruction: MatrixInstruction, old: Val, factors: Sequence[Expression],
        place: Place,
    ) -> Val:  # fmt: skip
        """Operands with the lanes of the accumulator (a row or a column of them, if it is a
        matrix) and, inside them, the collapsed ones."""
        swallowed = tuple(lane for lane in place.lanes if lane[0] in place.collapsed)
        pair = [self.evaluate(operand, place) for operand in factors]
        sides: list[Lanes] = [old.lanes] * 2
        if instruction.rows > 1:
            sides = [old.lanes[:1], old.lanes[1:]]
            turned = instruction.first is instruction.second and sides[1][0] in pair[0].lanes
            pair = pair[::-1] if turned else pair
        tiles = [e.value for e in factors if isinstance(e, Read)] if instruction.registers else []
        whole = {axis for axis in place.collapsed if len(tiles) == 2
                 and all(self.homes.multiplied(name, axis) for name in tiles)}  # fmt: skip
        for side, (value, lanes) in enumerate(zip(pair, sides)):
            for axis in sorted(place.ends.keys() & place.collapsed - whole):
                zero = literal(0, value.dtype or f32)
                mask = self.access.tail(axis, place)
                value = self.indexing.apply("select", [mask, value, zero], zero.dtype or f32,
                                            lanes + swallowed)  # fmt: skip
            if not {*value.lanes} <= {*lanes, *swallowed}:
                raise Illegal(f"an operand of {instruction.name} has rows and columns")
            pair[side] = self.indexing.expand(value, lanes + swallowed)
        return self.build.emit(instruction.name, (old, *pair), old.dtype, old.lanes)


def _lie(instruction: MatrixInstruction, factors: Sequence[Expression]) -> bool:
    """Those that an instruction takes from tiles are read from memory, the other one is not."""
    loads = sum(isinstance(e, Load) for e in factors)
    return not instruction.turned and loads in ((2,) if instruction.staged else
                                                (1,) if instruction.streamed else (0, 1, 2))


def _is_identity(expression: Expression, op: str) -> bool:
    return isinstance(expression, Constant) and (
        expression.value == identity(op, expression.dtype)
    )
