"""Lanes as threads: a loop program of vectors becomes one of numbers, for machines whose vectors
are many threads that work on a unit together.

Each thread has one lane of every vector, and of a matrix the elements that its instruction's
fragment says; what has no lanes they all compute. Tiles are shared, and what one thread has is
stored by one; barriers stand between (see `barriers`). Lanes are added up by exchanges with the
thread 1, 2, 4 ... further: afterwards all have the sum. There are as many threads as the widest
vector has lanes; a vector of kept lanes inside reduced ones lies in them as a matrix does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

from ...errors import Illegal
from ...graph.dtype import DType, boolean, f32, i64
from ...graph.scalars import COMBINE, SCALARS
from ...kernel.program import (
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
from ...kernel.target import Fragment, Target
from ...lowering.builder import integer
from ...lowering.place import Lanes
from ...lowering.verify import LOADS, STORES, instructions, is_matrix
from .aligned import Multiples, together
from .barriers import BARRIER, with_barriers
from .fragments import fragments_of, most_lanes, steps_apart, widest
from .loads import few_at_a_time, loads_first, side_by_side
from .owners import THREAD, Row, Way, wide
from .rules import parted
from .shared_operands import Staged

NONE: frozenset[str] = frozenset()
PLAIN = ("barrier", "commit", "await", "settle")


def spread(program: Program, target: Target, ordered: frozenset[str] = NONE) -> Program:
    """The program with the target's threads in each unit, if it has vectors. ordered: buffers in
    which a later store counts. Raises Illegal for vectors that so many threads cannot hold, and for
    tiles that they cannot share."""
    (units,) = [s for s in program.body if isinstance(s, Parallel)]
    vectors = _of_vectors(program.body)
    body = [*vectors, *units.body]
    if all(most_lanes(s) == 1 for s in instructions(body)):
        return program
    stores = [s for s in instructions(body) if s.op in STORES]
    for s in stores:
        anywhere = s.args[0].lanes and s.op != "store"
        if anywhere and s.args[1].memory in ordered:
            raise Illegal("threads of a unit store the same elements in an order")
    written = {s.args[1].memory for s in stores}
    fragments = fragments_of(body, target)
    multiples = Multiples(instructions(program.body))
    lanes = _Lanes(target, fragments, multiples, widest(body), written)
    body = with_barriers(body, lanes.alone, written, ordered)
    together = Parallel(THREAD, integer(lanes.threads), lanes.whole(body), "threads")
    if parted(together):
        raise Illegal("data say which threads of a unit come to a barrier")
    before = [s for s in program.body if s is not units and s not in vectors]
    tiles = (*(replace(t, space="shared") for t in program.tiles), *lanes.tiles.values())
    total = sum(tile.bytes for tile in tiles)
    if total > max(target.shared, target.staging * any(tile.row for tile in tiles)):
        raise Illegal(f"tiles of {total} bytes for the threads of a unit")
    around = [*before, replace(units, body=[together])]
    return replace(program, body=around, tiles=tiles)


def _of_vectors(body: list[Statement]) -> list[Instruction]:
    """What is computed before the units in vectors, and what follows from that."""
    found, names = list[Instruction](), set[str]()
    for s in (s for s in body if isinstance(s, Instruction)):
        if most_lanes(s) > 1 or any(a.name in names for a in s.args):
            found.append(s)
            names |= {s.out.name} if s.out else set()
    return found


class _Lanes(Staged):
    """What one of the threads does. widest: lanes of a vector. written: memories that change."""

    def __init__(
        self, target: Target, fragments: Mapping[Lanes, Fragment], multiples: Multiples,
        widest: int, written: Collection[str],
    ) -> None:  # fmt: skip
        known = {i.name: i for i in target.instructions}
        super().__init__(max(target.group, widest), fragments, multiples, known)
        self.written = written
        self.exchanges, self.wide, self.warp = target.exchanges, target.wide, target.group
        self.tiles: dict[tuple[DType, int], Tile] = {}
        self.loaded: dict[str, str] = {}  # under a condition

    # ---- statements

    def whole(self, body: list[Statement]) -> list[Statement]:
        """The body of a unit."""
        vectors = [v.lanes for s in instructions(body) for v in (*s.args, s.out) if v]
        widths = {wide(lanes) for lanes in vectors if self.ways(lanes) == [None]} - set(self.lane)
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
        second: Statement | None = None
        for s, after in zip_longest(body, body[1:]):
            if s is second:
                continue
            if self.beside(s, after):
                second = after
            elif isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, For):
                self.loop(s)
            elif isinstance(s, When):
                self.out.append(When(self.scalar(s.condition), self.scope(s.body)))
        made, self.out = self.out, outer
        if self.wide <= 4:
            return made
        made = side_by_side(made, self.written, self.runs, self.several)
        return loads_first(few_at_a_time(made, self.written), self.written)

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
        if ins.op in PLAIN:
            self.out.append(ins)
        elif ins.op == "copy" and ins.out is not None:
            self.copy(ins, ins.out)
        elif ins.op in STORES:
            self.store(ins)
        elif ins.out is not None and (ins.op == "settled" or self.is_staged(ins)):
            self.staged(ins, [ins.out], [ins.args[0]])
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
            return self.reduced(ins, out, way)
        if ins.op == "iota":
            start, further = self.places(out.lanes[0], out.lanes, way)
            return tuple(self.counted(ins, out, start, more) for more in further)
        if ins.op in LOADS:
            return self.load(ins, out, way)
        if ins.op == "expand":
            return self.expanded(ins.args[0], out.lanes, way)
        rows = list(zip(*(self.row(a, way) for a in ins.args)))
        if ins.op == "select":
            return tuple(self.chosen(args, out) for args in rows)
        if ins.op in SCALARS or ins.op in ("fma", "offset"):
            return tuple(self.emit(ins.op, args, out.dtype, ins.attrs) for args in rows)
        raise Illegal(f"{ins.op} by the threads of a unit")

    def expanded(self, val: Val, lanes: Lanes, way: Way) -> Row:
        """Repeated along lanes that it lacks."""
        inner = val.lanes
        if way is None and inner and lanes[len(lanes) - len(inner) :] != inner:
            raise Illegal("lanes of one thread repeated in others")
        if way is None or not inner or inner == lanes or val.literal:
            return self.row(val, way)
        side = lanes.index(inner[0])
        few = way.side(side)
        row = dict(zip(few.elements, self.row(val, few), strict=True))
        return tuple(row[element[side], 0] for element in way.elements)

    def reduced(self, ins: Instruction, out: Val, way: Way) -> Row:
        """All lanes combined, or those of the rows or columns of a matrix: first those of a thread,
        then with the threads that have others."""
        (value,), (whole, *others), op = ins.args, self.ways(ins.args[0].lanes), COMBINE[ins.op[7:]]
        assert out.dtype is not None
        if whole is None and not out.lanes:
            steps = [1 << n for n in range(value.width.bit_length() - 1)]
            return (self.across(op, self.scalar(value), out.dtype, steps),)
        side = value.lanes.index(out.lanes[0]) if out.lanes else 0
        if whole is None or others or way is None or way != whole.side(side):
            raise Illegal("elements of a matrix are added up")
        sums: dict[int, Val] = {}
        for val, element in zip(self.row(value, whole), whole.elements):
            old = sums.get(element[side])
            sums[element[side]] = val if old is None else self.emit(op, (old, val), out.dtype)
        steps = steps_apart(whole, side)
        return tuple(self.across(op, sums[n], out.dtype, steps) for n, _ in way.elements)

    def chosen(self, args: Row, out: Val) -> Val:
        """What was loaded under a condition is 0 where that does not hold."""
        mask, value, other = args
        zero = other.literal and float(other.name) == 0
        if zero and mask.name in self.conjuncts(self.loaded.get(value.name, "")):
            return value
        return self.emit("select", args, out.dtype)

    def conjuncts(self, name: str) -> set[str]:
        """The conditions of which one is made."""
        ins = self.multiples.made.get(name)
        parts = ins.args if ins is not None and ins.op == "and" else ()
        return {name}.union(*(self.conjuncts(part.name) for part in parts))

    def counted(self, ins: Instruction, out: Val, start: Val, more: int) -> Val:
        assert out.dtype is not None
        step = self.once("mul", start, ins.attrs[0])
        step = self.once("add", step, more * ins.attrs[0]) if more else step
        return step if out.dtype is i64 else self.emit("cast", (step,), out.dtype)

    def matrix(self, ins: Instruction, out: Val) -> Row:
        """Executed by all threads together, each with its elements in registers."""
        whole = self.matrices[ins.op]
        held = [self.elements(val, fragment) for val, fragment in zip(ins.args, whole.fragments)
                if val.dtype]  # fmt: skip
        each = [len(f.elements) for f in self.matrices[whole.part or whole.name].fragments]
        first, made = self.packed(held[1], ins.args[1].dtype), list[Val]()
        for n in range(len(held[0]) // each[0]):
            acc, second = (self.packed(held[i][n * each[i] : (n + 1) * each[i]], ins.args[i].dtype)
                           if ins.args[i].dtype else self.scalar(ins.args[i])
                           for i in (0, 2))  # fmt: skip
            args = acc, first, second
            sums = self.emit(whole.part or ins.op, args, out.dtype, ins.attrs, acc.lanes)
            made += (self.emit("shuffle", (sums, sums), out.dtype, (i,)) for i in range(sums.width))
        found = dict(zip(whole.fragments[0].elements, made, strict=True))
        return tuple(found[element] for element in whole.fragments[0].ordered.elements)

    # ---- memory

    def load(self, ins: Instruction, out: Val, way: Way) -> Row:
        assert out.dtype is not None
        position = self.scalar(ins.args[0])
        rest = [self.row(a, way) for a in ins.args[1:]]
        if ins.op == "gather_at":
            position, constant = self.start(ins.args[0])
            here = [self.moved(position, where) for where in rest.pop(0)]
            return tuple(
                self.emit("load", args, out.dtype, (constant,)) for args in zip(here, *rest)
            )
        where, further = self.along(ins, out.lanes, way)
        begin = self.moved(position, where)
        return self.together(out, begin, further, rest[0] if rest else ())

    def start(self, position: Val) -> tuple[Val, int]:
        """A position, and a constant that was added to it last."""
        made = self.multiples.made.get(position.name)
        if made is not None and made.op == "offset" and made.args[1].literal:
            return self.scalar(made.args[0]), int(made.args[1].name)
        return self.scalar(position), 0

    def together(self, out: Val, begin: Val, further: list[int], masks: Row) -> Row:
        """Numbers that lie side by side, under one condition, in one load."""
        assert out.dtype is not None
        made: dict[tuple[str, int], Val] = {}
        for name, mask, places in self.alike(further, masks):
            for at, count in self.runs(begin, places, out.dtype):
                if count == 1:
                    made[name, at] = self.emit("load", (begin, *mask), out.dtype, (at,))
                    continue
                lanes = (("registers", count),)
                several = self.emit("load", (begin, *mask), out.dtype, (at,), lanes)
                for n in range(count):
                    one = self.emit("shuffle", (several, several), out.dtype, (n,))
                    made[name, at + n] = one
        names = [mask.name for mask in masks] or [""] * len(further)
        self.loaded |= {val.name: name for (name, _), val in made.items() if name}
        return tuple(made[key] for key in zip(names, further))

    def alike(self, further: list[int], masks: Row) -> list[tuple[str, Row, list[int]]]:
        """(its name, condition, places) of the numbers under each condition."""
        found: dict[str, tuple[Row, set[int]]] = {}
        for n, at in enumerate(further):
            mask = masks[n : n + 1]
            found.setdefault(mask[0].name if mask else "", (mask, set()))[1].add(at)
        return [(name, mask, sorted(places)) for name, (mask, places) in found.items()]

    def runs(self, begin: Val, places: list[int], dtype: DType) -> Iterator[tuple[int, int]]:
        """What one access takes: of places behind a position, (first, count)."""
        whole = dtype.bytes <= 4 and dtype is not boolean
        most = self.wide // dtype.bytes if whole else 1
        for at, count in together(places, self.multiples.of(begin), most):
            if count * dtype.bytes < 4:  # less than a register
                yield from ((at + n, 1) for n in range(count))
            else:
                yield at, count

    def store(self, ins: Instruction) -> None:
        value = ins.args[0]
        way = self.ways(value.lanes)[0]
        position, *rest = self.scalar(ins.args[1]), *(self.row(a, way) for a in ins.args[2:])
        row, first = self.row(value, way), self.first(value.lanes, way)
        if ins.op == "scatter_at":
            where, further = rest.pop(0), [0] * len(row)
            masks = self.all_of(rest, first, len(row))
            for n, (val, place) in enumerate(zip(row, where)):
                self.stored((val, self.moved(position, place), *masks[n : n + 1]), 0)
            return
        start, further = self.along(ins, value.lanes, way)
        begin, masks = self.moved(position, start), self.all_of(rest, first, len(row))
        numbers, dtype = dict(zip(further, row)), value.dtype
        assert dtype is not None
        for _, mask, places in self.alike(further, masks):
            for at, count in self.runs(begin, places, dtype):
                val = numbers[at]
                if count > 1:
                    val = self.packed(tuple(numbers[at + n] for n in range(count)), dtype)
                self.stored((val, begin, *mask), at)

    def stored(self, args: Row, further: int) -> None:
        self.out.append(Instruction(None, "store", args, (further,)))

    def all_of(self, rows: list[Row], first: list[Val], count: int) -> Row:
        """For each number the condition under which it is stored; nothing: always."""
        if not rows and not first:
            return ()
        known: dict[tuple[str, ...], Val] = {}
        made = []
        for masks in zip(*rows, *([val] * count for val in first), strict=True):
            key = tuple(mask.name for mask in masks)
            if key not in known:
                known[key], *others = masks
                for mask in others:
                    known[key] = self.emit("and", (known[key], mask), boolean)
            made.append(known[key])
        return tuple(made)

    def across(self, op: str, value: Val, dtype: DType, steps: list[int]) -> Val:
        """Exchanged inside warps, then through two tiles in turn: one barrier is enough for each
        step."""
        if dtype.is_half:
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
            partner = self.emit("xor", (THREAD, integer(step)), i64)
            other = self.emit("offset", (tile, partner), None)
            found = self.emit("load", (other,), dtype, (0,))
            value = self.emit(op, (value, found), dtype)
        if len(far) % 2:
            self.out.append(BARRIER)
        return value

    def tile(self, dtype: DType, number: int) -> Tile:
        made = Tile(f"{dtype} exchange {number}", dtype, self.threads, "shared")
        return self.tiles.setdefault((dtype, number), made)
