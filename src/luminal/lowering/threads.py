"""Lanes as threads: a loop program of vectors becomes one of numbers, for machines whose vectors
are many threads that work on a unit together.

Each thread has one lane of every vector, and of a matrix the elements that its instruction's
fragment says; what has no lanes they all compute. Tiles are shared, and what one thread has is
stored by one; barriers stand between (see `barriers`). Lanes are added up by exchanges with the
thread 1, 2, 4 ... further: afterwards all have the sum. There are as many threads as the widest
vector has lanes; a vector of kept lanes inside reduced ones lies in them as a matrix does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..errors import Illegal
from ..graph.dtype import DType, bf16, boolean, f16, f32, i64
from ..graph.scalars import COMBINE, SCALARS
from ..kernel.program import (
    For,
    Instruction,
    Parallel,
    Program,
    Statement,
    Tile,
    Val,
    When,
    start_of,
)
from ..kernel.target import Fragment, Target
from .aligned import Multiples, together
from .barriers import BARRIER, with_barriers
from .builder import integer
from .neighbours import side_by_side
from .owners import THREAD, Owners, Row, Way, wide
from .place import Lanes, strides
from .verify import LOADS, STORES, instructions, is_matrix, parted

NONE: frozenset[str] = frozenset()


def spread(program: Program, target: Target, ordered: frozenset[str] = NONE) -> Program:
    """The program with the target's threads in each unit, if it has vectors. ordered: buffers in
    which a later store counts. Raises Illegal for vectors that so many threads cannot hold, and for
    tiles that they cannot share."""
    (units,) = [s for s in program.body if isinstance(s, Parallel)]
    vectors = [s for s in program.body if isinstance(s, Instruction) and _width(s) > 1]
    body = [*vectors, *units.body]
    if all(_width(s) == 1 for s in instructions(body)):
        return program
    stores = [s for s in instructions(body) if s.op in STORES]
    for s in stores:
        anywhere = s.args[0].lanes and s.op != "store"
        if anywhere and s.args[1].memory in ordered:
            raise Illegal("threads of a unit store the same elements in an order")
    written = {s.args[1].memory for s in stores}
    fragments = _fragments(body, target)
    multiples = Multiples(instructions(program.body))
    lanes = _Lanes(target, fragments, multiples, _widest(body), written)
    body = with_barriers(body, lanes.alone, written, ordered)
    together = Parallel(THREAD, integer(lanes.threads), lanes.whole(body), "threads")
    if parted(together):
        raise Illegal("data say which threads of a unit come to a barrier")
    before = [s for s in program.body if s is not units and s not in vectors]
    tiles = (*(replace(t, space="shared") for t in program.tiles), *lanes.tiles.values())
    total = sum(tile.bytes for tile in tiles)
    if total > target.shared:
        raise Illegal(f"tiles of {total} bytes for the threads of a unit")
    around = [*before, replace(units, body=[together])]
    return replace(program, body=around, tiles=tiles, workspace=0)


def _width(ins: Instruction) -> int:
    return max((v.width for v in (*ins.args, *([ins.out] if ins.out else []))), default=1)


def _fragments(body: list[Statement], target: Target) -> dict[Way, Fragment]:
    """How the matrices of a program lie, by their lanes."""
    known = {i.name: i.fragments for i in target.instructions}
    found: dict[Way, Fragment] = {}
    for ins in instructions(body):
        if is_matrix(ins):
            for val, fragment in zip(ins.args, known[ins.op], strict=True):
                if found.setdefault(val.lanes, fragment) != fragment:
                    raise Illegal(f"{val.lanes} are rows here and columns there")
        elif ins.op.startswith("across.") and ins.out and ins.out.lanes:
            (_, outer), (_, inner) = ins.args[0].lanes
            found[ins.args[0].lanes] = Fragment((inner, outer), (0, 1), (1, 0), ((0, 0),))
    if len({fragment.threads for fragment in found.values()}) > 1:
        raise Illegal("matrices of different numbers of threads")
    return found


def _widest(body: list[Statement]) -> int:
    """Lanes of the widest vector that no matrix instruction touches."""
    matrices = {v.lanes for s in instructions(body) if is_matrix(s) for v in s.args}
    vectors = [v.lanes for s in instructions(body) for v in (*s.args, s.out) if v]
    free = (wide(x) for x in vectors if not any({*x} <= {*way} for way in matrices))
    return max(free, default=1)


class _Lanes(Owners):
    """What one of the threads does. widest: lanes of a vector. written: memories that change."""

    def __init__(
        self, target: Target, fragments: Mapping[Way, Fragment], multiples: Multiples, widest: int,
        written: Collection[str],
    ) -> None:  # fmt: skip
        super().__init__(max(target.group, widest), fragments, multiples)
        self.written = written
        self.exchanges, self.wide, self.warp = target.exchanges, target.wide, target.group
        self.tiles: dict[tuple[DType, int], Tile] = {}

    # ---- statements

    def whole(self, body: list[Statement]) -> list[Statement]:
        """The body of a unit."""
        vectors = [v.lanes for s in instructions(body) for v in (*s.args, s.out) if v]
        widths = {wide(lanes) for lanes in vectors if self.ways(lanes) == [()]} - set(self.lane)
        for width in sorted(widths):
            if self.threads % width:
                raise Illegal(f"vectors of {width} lanes in {self.threads} threads")
            self.lane[width] = self.once("mod", THREAD, width)
        self.out = self.head
        for width in sorted({1, *widths}):
            self.few[width] = self.emit("less", (THREAD, integer(width)), boolean)
        made = self.scope(body)
        return self.head + made

    def scope(self, body: list[Statement]) -> list[Statement]:
        outer, self.out = self.out, []
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, For):
                self.loop(s)
            elif isinstance(s, When):
                self.out.append(When(self.scalar(s.condition), self.scope(s.body)))
        made, self.out = self.out, outer
        if self.wide <= 4:
            return made
        return side_by_side(made, self.written, self.multiples, self.wide, self.several)

    def several(self, dtype: DType, count: int) -> Val:
        return self.fresh(dtype, (("registers", count),))

    def loop(self, loop: For) -> None:
        ways = [(row, way) for row in loop.carried for way in self.ways(row[0].lanes)]
        starts = [self.row(initial, way) for (_, initial, _, _), way in ways]
        for ((phi, _, _, result), way), start in zip(ways, starts):
            for val in (phi, result):
                made = tuple(self.fresh(phi.dtype, memory=phi.memory) for _ in start)
                self.names[val.name, way] = made
        body = self.scope(loop.body)
        carried = [
            each
            for ((phi, _, following, result), way), start in zip(ways, starts)
            for each in zip(self.row(phi, way), start, self.row(following, way),
                            self.row(result, way))
        ]  # fmt: skip
        self.out.append(replace(loop, body=body, carried=carried, count=self.scalar(loop.count)))

    def instruction(self, ins: Instruction) -> None:
        if ins.op == "barrier":
            self.out.append(ins)
        elif ins.op in STORES:
            self.store(ins)
        elif ins.out is not None:
            for way in self.ways(ins.out.lanes):
                self.names[ins.out.name, way] = self.numbers(ins, ins.out, way)
        elif ins.op != "prefetch":
            raise Illegal(f"{ins.op} by the threads of a unit")

    def numbers(self, ins: Instruction, out: Val, way: Way) -> Row:
        """What an instruction makes, as a part of a matrix or lane by lane."""
        if is_matrix(ins):
            return self.matrix(ins, out)
        if ins.op.startswith("across."):
            if self.ways(ins.args[0].lanes) != [way]:
                raise Illegal("elements of a matrix are added up")
            assert out.dtype is not None
            (value,) = self.row(ins.args[0], way)
            steps = [1 << n for n in range(31) if out.width <= 1 << n < ins.args[0].width]
            return (self.across(COMBINE[ins.op[7:]], value, out.dtype, steps),)
        if ins.op == "iota":
            start, further = self.places(out.lanes[0], out.lanes, way)
            return tuple(self.counted(ins, out, start, more) for more in further)
        if ins.op in LOADS:
            return self.load(ins, out, way)
        rows = list(zip(*(self.row(a, way) for a in ins.args)))
        if ins.op == "expand":
            if not way:
                self.check_expand(ins.args[0].lanes, out.lanes)
            return tuple(args[0] for args in rows)
        if ins.op in SCALARS or ins.op in ("fma", "offset"):
            return tuple(self.emit(ins.op, args, out.dtype, ins.attrs) for args in rows)
        raise Illegal(f"{ins.op} by the threads of a unit")

    def check_expand(self, inner: Lanes, lanes: Lanes) -> None:
        if inner and lanes[len(lanes) - len(inner) :] != inner:
            raise Illegal("lanes of one thread repeated in others")

    def counted(self, ins: Instruction, out: Val, start: Val, more: int) -> Val:
        assert out.dtype is not None
        step = self.once("mul", start, ins.attrs[0])
        step = self.once("add", step, more * ins.attrs[0]) if more else step
        return step if out.dtype is i64 else self.emit("cast", (step,), out.dtype)

    def matrix(self, ins: Instruction, out: Val) -> Row:
        """Executed by all threads together, each with its elements in registers."""
        packed = []
        for val in ins.args:
            row = self.row(val, val.lanes)
            packed.append(self.emit("pack", row, val.dtype, lanes=(("registers", len(row)),)))
        made = self.emit(ins.op, tuple(packed), out.dtype, lanes=packed[0].lanes)
        return tuple(
            self.emit("shuffle", (made, made), out.dtype, (n,)) for n in range(made.width)
        )

    # ---- memory

    def load(self, ins: Instruction, out: Val, way: Way) -> Row:
        assert out.dtype is not None
        position = self.scalar(ins.args[0])
        rest = [self.row(a, way) for a in ins.args[1:]]
        if ins.op == "gather_at":
            here = [self.moved(position, where) for where in rest.pop(0)]
            return tuple(self.emit("load", args, out.dtype, (0,)) for args in zip(here, *rest))
        where, further = self.along(ins, out.lanes, way)
        begin = self.moved(position, where)
        if not rest and way and out.dtype.bytes <= 4 and out.dtype is not boolean:
            return self.together(ins, out, begin, further)
        return tuple(
            self.emit("load", (begin, *mask), out.dtype, (at,)) for at, *mask in zip(further, *rest)
        )

    def together(self, ins: Instruction, out: Val, begin: Val, further: list[int]) -> Row:
        """Numbers that lie side by side in one load."""
        assert out.dtype is not None
        made: dict[int, Val] = {}
        most = self.wide // out.dtype.bytes
        for at, count in together(sorted(set(further)), self.multiples.of(begin), most):
            if count == 1 or count * out.dtype.bytes < 4:
                for n in range(at, at + count):
                    made[n] = self.emit("load", (begin,), out.dtype, (n,))
                continue
            several = self.emit("load", (begin,), out.dtype, (at,), (("registers", count),))
            for n in range(count):
                made[at + n] = self.emit("shuffle", (several, several), out.dtype, (n,))
        return tuple(made[at] for at in further)

    def along(self, ins: Instruction, lanes: Lanes, way: Way) -> tuple[Val, list[int]]:
        """Where a thread begins behind a position, and its numbers from there on."""
        count = len(self.fragments[way].elements) if way else 1
        total, further = integer(0), [ins.attrs[0]] * count
        for lane, stride in zip(lanes, strides(ins, lanes)):
            start, more = self.places(lane, lanes, way)
            if stride:
                total = self.once("add", total, self.once("mul", start, stride))
                further = [n + m * stride for n, m in zip(further, more)]
        return total, further

    def moved(self, position: Val, where: Val) -> Val:
        return position if where.literal else self.emit("offset", (position, where), None)

    def store(self, ins: Instruction) -> None:
        value = ins.args[0]
        way = self.ways(value.lanes)[0]
        position, *rest = self.scalar(ins.args[1]), *(self.row(a, way) for a in ins.args[2:])
        row, first = self.row(value, way), self.first(value.lanes, way)
        if ins.op == "scatter_at":
            here, further = [self.moved(position, w) for w in rest.pop(0)], [0] * len(row)
        else:
            where, further = self.along(ins, value.lanes, way)
            begin = self.moved(position, where)
            if not rest and not first and way and self.stored_together(row, begin, further):
                return
            here = [begin] * len(row)
        for number, (val, at, more) in enumerate(zip(row, here, further)):
            masks = [mask[number] for mask in rest] + first
            while len(masks) > 1:
                masks[:2] = [self.emit("and", (masks[0], masks[1]), boolean)]
            self.out.append(Instruction(None, "store", (val, at, *masks), (more,)))

    def stored_together(self, row: Row, begin: Val, further: list[int]) -> bool:
        """Numbers that lie side by side in one store, where a register holds a whole number."""
        dtype, numbers = row[0].dtype, dict(zip(further, row))
        if dtype is None or dtype.bytes > 4 or dtype is boolean:
            return False
        most = self.wide // dtype.bytes
        for at, count in together(sorted(numbers), self.multiples.of(begin), most):
            val = numbers[at]
            if count * dtype.bytes >= 4 and count > 1:
                several = tuple(numbers[at + n] for n in range(count))
                val = self.emit("pack", several, dtype, lanes=(("registers", count),))
                self.out.append(Instruction(None, "store", (val, begin), (at,)))
                continue
            for n in range(count):
                self.out.append(Instruction(None, "store", (numbers[at + n], begin), (at + n,)))
        return True

    def across(self, op: str, value: Val, dtype: DType, steps: list[int]) -> Val:
        """Exchanged inside warps, then through two tiles in turn: one barrier is enough for each
        step."""
        if dtype in (f16, bf16):
            wide = self.across(op, self.emit("cast", (value,), f32), f32, steps)
            return self.emit("cast", (wide,), dtype)
        near = [step for step in steps if self.exchanges and step < self.warp]
        for step in near:
            found = self.emit("exchange", (value,), dtype, (step,))
            value = self.emit(op, (value, found), dtype)
        far = steps[len(near) :]
        for number, step in enumerate(far):
            tile = start_of(self.tile(dtype, number % 2).name)
            mine = self.emit("offset", (tile, THREAD), None)
            self.out += [Instruction(None, "store", (value, mine), (0,)), BARRIER]
            other = self.emit("offset", (tile, self.partner(step)), None)
            found = self.emit("load", (other,), dtype, (0,))
            value = self.emit(op, (value, found), dtype)
        if len(far) % 2:
            self.out.append(BARRIER)
        return value

    def partner(self, step: int) -> Val:
        return self.emit("xor", (THREAD, integer(step)), i64)

    def tile(self, dtype: DType, number: int) -> Tile:
        made = Tile(f"{dtype} exchange {number}", dtype, self.threads, "shared")
        return self.tiles.setdefault((dtype, number), made)
