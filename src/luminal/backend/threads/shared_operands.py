"""What a thread brings of the operands that it shares, what it has of their products, and where it
has its elements of a matrix."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from ...errors import Illegal
from ...graph.dtype import DType
from ...kernel.program import Instruction, Statement, Val
from ...kernel.target import Fragment
from ...lowering.builder import integer
from ...lowering.place import Lanes, strides
from .owners import Owners, Row, Way


class Staged(Owners):
    """Products of operands in tiles that threads share, and the copies that bring these there."""

    def is_staged(self, ins: Instruction) -> bool:
        return ins.op in self.matrices and self.matrices[ins.op].staged

    def beside(self, ins: Statement, after: Statement | None) -> bool:
        """Two products of the same rows with columns that lie side by side, as one."""
        if not (isinstance(ins, Instruction) and isinstance(after, Instruction)):
            return False
        known = self.matrices.get(ins.op)
        wide = known.wider(self.matrices.values()) if known else None
        if not (known and wide and ins.out and after.out) or after.op != ins.op:
            return False
        place = self.multiples.made.get(after.args[2].name)
        further = known.columns * known.collapse
        if place is None or ins.args[1] != after.args[1] or place.op != "offset" or \
                (place.args[0], place.args[1].name) != (ins.args[2], str(further)):  # fmt: skip
            return False
        self.staged(replace(ins, op=wide.name), [ins.out, after.out], [ins.args[0], after.args[0]])
        return True

    def staged(self, ins: Instruction, outs: list[Val], sums: list[Val]) -> None:
        """Under way until it is settled: each warpgroup has rows or columns of its own."""
        way, positions, op = self.ways(outs[0].lanes)[0], list(ins.args[1:]), ins.op
        assert way is not None
        if positions:
            whole = self.matrices[ins.op]
            op, each = whole.part, len(self.matrices[whole.part].fragments[0].ordered.digits)
            digits = list(zip(self.digits(way), way.rows, way.columns))[each:]
            for side, place in enumerate(map(self.scalar, positions)):
                for digit, *moves in digits:
                    further = self.once("mul", digit, moves[side] * whole.collapse)
                    place = self.moved(place, further) if moves[side] else place
                positions[side] = place
        known = (i.fragments[0] for i in self.matrices.values() if i.staged)
        order = next(f.elements for f in known if f.ordered == way)
        ordered, dtype = replace(way, elements=order), outs[0].dtype
        acc = self.packed(tuple(x for val in sums for x in self.elements(val, ordered)), dtype)
        new = self.emit(op, (acc, *positions), dtype, ins.attrs, acc.lanes)
        made = [self.emit("shuffle", (new, new), dtype, (i,)) for i in range(new.width)]
        for n, out in enumerate(outs):
            found = dict(zip(order, made[n * len(order) :]))
            self.names[out.name, way] = tuple(found[element] for element in way.elements)

    def elements(self, val: Val, fragment: Fragment) -> Row:
        """In the order in which an instruction takes them."""
        way = fragment.ordered
        row = dict(zip(way.elements, self.row(val, way), strict=True))
        return tuple(row[element] for element in fragment.elements)

    def packed(self, row: Row, dtype: DType | None) -> Val:
        return self.emit("pack", row, dtype, lanes=(("registers", len(row)),))

    def copy(self, ins: Instruction, out: Val) -> None:
        """A thread's parts of rows, 16 bytes each, to where a staged tile has them (`Tile.row`)."""
        way, (tile, source) = self.ways(out.lanes)[0], map(self.scalar, ins.args[:2])
        assert out.dtype is not None and way is not None
        masks = self.row(ins.args[2], way) if len(ins.args) > 2 else ()
        where, further = self.along(ins, out.lanes, way)
        begin, each = self.moved(source, where), 16 // out.dtype.bytes
        side_by_side = strides(ins, out.lanes).index(1)
        lanes = out.lanes[1 - side_by_side], out.lanes[side_by_side]
        (row, rows), (column, columns) = (self.places(lane, out.lanes, way) for lane in lanes)
        size = 8 * each
        block = self.once("xor", self.once("floor_div", column, each), self.once("mod", row, 8))
        place = self.once("add", self.once("mul", row, size), self.once("mul", block, each))
        to, aligned = self.moved(tile, place), self.multiples.of(begin)
        for n, at in enumerate(further):
            if columns[n] % each:
                continue
            if gcd(aligned, at) % each or rows[n] % 8 or columns[n] % size:
                raise Illegal(f"{source.memory} is not copied by 16 bytes")
            further_on = rows[n] * size + columns[n] * lanes[0][1]
            here = self.emit("offset", (to, integer(further_on)), None) if further_on else to
            self.out.append(Instruction(
                self.fresh(out.dtype, (("registers", each),)), "copy",
                (here, begin, *masks[n : n + 1]), (at,),
            ))  # fmt: skip

    def along(self, ins: Instruction, lanes: Lanes, way: Way) -> tuple[Val, list[int]]:
        """Where a thread begins behind a position, and its numbers from there on."""
        count = len(way.elements) if way else 1
        total, further = integer(0), [ins.attrs[0]] * count
        for lane, stride in zip(lanes, strides(ins, lanes)):
            start, more = self.places(lane, lanes, way)
            if stride:
                total = self.once("add", total, self.once("mul", start, stride))
                further = [n + m * stride for n, m in zip(further, more)]
        return total, further

    def moved(self, position: Val, where: Val) -> Val:
        return position if where.literal else self.emit("offset", (position, where), None)
