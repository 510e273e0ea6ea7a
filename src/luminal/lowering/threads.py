"""Lanes as threads: a loop program of vectors becomes one of numbers, for machines whose vectors
are many threads that work on a unit together.

Each thread has one lane of every vector; what has no lanes they all compute. Tiles are shared, a
scalar is stored by the first thread, and a barrier stands wherever a thread may touch what another
one has touched since the last, one of the two writing. Lanes are added up by exchanges with the
thread 1, 2, 4 ... further: afterwards all have the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
from ..kernel.target import Target
from .builder import integer
from .verify import parted

LOADS, STORES = ("load", "gather", "gather_at"), ("store", "scatter_at")
BARRIER = Instruction(None, "barrier", ())
THREAD = Val("%thread", i64)
NONE: frozenset[str] = frozenset()


def spread(program: Program, target: Target, ordered: frozenset[str] = NONE) -> Program:
    """The program with the target's threads in each unit, if it has vectors. ordered: buffers in
    which a later store counts. Raises Illegal for vectors that so many threads cannot hold, and for
    tiles that they cannot share."""
    (units,) = [s for s in program.body if isinstance(s, Parallel)]
    vectors = [s for s in program.body if isinstance(s, Instruction) and _width(s) > 1]
    body = [*vectors, *units.body]
    if all(_width(s) == 1 for s in _instructions(body)):
        return program
    stores = [_touched(s) for s in _instructions(body) if s.op in STORES]
    if any(s.lanes and s.position is None and s.memory in ordered for s in stores):
        raise Illegal("threads of a unit store the same elements in an order")
    written = {s.memory for s in stores}
    body, _ = _Barriers(written, ordered).body(body, frozenset())
    lanes = _Lanes(target.group, target.exchanges)
    together = Parallel(THREAD, integer(target.group), lanes.whole(body), "threads")
    if parted(together):
        raise Illegal("data say which threads of a unit come to a barrier")
    before = [s for s in program.body if s is not units and s not in vectors]
    tiles = (*(replace(t, space="shared") for t in program.tiles), *lanes.tiles.values())
    total = sum(tile.bytes for tile in tiles)
    if total > target.shared:
        raise Illegal(f"tiles of {total} bytes for the threads of a unit")
    around = [*before, replace(units, body=[together])]
    return replace(program, body=around, tiles=tiles, workspace=0)


def _instructions(body: Sequence[Statement]) -> Iterable[Instruction]:
    for s in body:
        if isinstance(s, Instruction):
            yield s
        else:
            yield from _instructions(s.body)


def _width(ins: Instruction) -> int:
    return max((v.width for v in (*ins.args, *([ins.out] if ins.out else []))), default=1)


# ---- barriers


@dataclass(frozen=True)
class Touch:
    """Elements that an instruction reads or writes: `width` of them from number `at` behind a
    position on (None: anywhere), one a thread if they are lanes."""

    memory: str
    stored: bool
    position: str | None
    at: int
    width: int
    lanes: bool

    def apart(self, other: Touch) -> bool:
        """No thread touches what another one does."""
        if self.position is None or self.position != other.position:
            return False
        if self.at == other.at and self.width == other.width and self.lanes and other.lanes:
            return True
        return self.at + self.width <= other.at or other.at + other.width <= self.at


Touches = frozenset[Touch]


def _touched(ins: Instruction) -> Touch:
    stored = ins.op in STORES
    position = ins.args[1 if stored else 0]
    moved = ins.args[0] if stored else ins.out
    assert moved is not None
    where = position.name if ins.op in ("load", "store") else None
    at = ins.attrs[0] if where is not None else 0
    return Touch(position.memory, stored, where, at, moved.width, bool(moved.lanes))


class _Barriers:
    """`written`: memories that change."""

    def __init__(self, written: set[str], ordered: frozenset[str]) -> None:
        self.written, self.ordered = written, ordered
        self._inside: dict[int, Touches] = {}

    def touches(self, ins: Instruction) -> Touches:
        if ins.op not in (*LOADS, *STORES):
            return frozenset()
        touch = _touched(ins)
        return frozenset([touch]) if touch.memory in self.written else frozenset()

    def inside(self, body: list[Statement]) -> Touches:
        """All that a body touches."""
        found = self._inside.get(id(body))
        if found is None:
            every = (self.touches(s) if isinstance(s, Instruction) else self.inside(s.body)
                     for s in body)  # fmt: skip
            found = self._inside[id(body)] = frozenset().union(*every)
        return found

    def meet(self, before: Touches, after: Touches) -> bool:
        """Some thread may touch what another one does, and one of them writes."""
        return any(self._clash(a, b) for b in after for a in before)

    def _clash(self, a: Touch, b: Touch) -> bool:
        if a.memory != b.memory or not (a.stored or b.stored):
            return False
        if a.stored and b.stored and a.memory not in self.ordered:
            return False
        return not a.apart(b)

    def body(self, body: list[Statement], since: Touches) -> tuple[list[Statement], Touches]:
        """The body with barriers. since: what was touched since the last one; then as it ends."""
        made: list[Statement] = []
        for s in body:
            mine = self.touches(s) if isinstance(s, Instruction) else self.inside(s.body)
            if since and mine and self.meet(since, mine):
                made.append(BARRIER)
                since = frozenset()
            if isinstance(s, Instruction):
                made.append(s)
                since |= mine
                continue
            turns = _elsewhere(mine, s.body) if isinstance(s, For) else frozenset()
            within, after = self.body(s.body, since | turns)
            made.append(replace(s, body=within))
            since |= after
        return made, since


def _elsewhere(touches: Touches, body: list[Statement]) -> Touches:
    """As the next turn of a loop sees them: positions that it moves are unknown."""
    moved = {s.out.name for s in _instructions(body) if s.out is not None}
    return frozenset(replace(t, position=None) if t.position in moved else t for t in touches)


# ---- numbers for vectors


class _Lanes:
    """What one of so many threads does. exchanges: of numbers; else through `tiles`."""

    def __init__(self, threads: int, exchanges: bool) -> None:
        self.threads, self.exchanges = threads, exchanges
        self.tiles: dict[tuple[DType, int], Tile] = {}
        self.names: dict[str, Val] = {}  # vector -> the number that stands for its lane
        self.out: list[Statement] = []
        self.made = 0

    def whole(self, body: list[Statement]) -> list[Statement]:
        """The body of a unit."""
        self.lane = {self.threads: THREAD, 1: integer(0)}
        self.few: dict[int, Val] = {}
        widths = {_width(s) for s in _instructions(body)} - set(self.lane)
        for width in sorted(widths):
            if self.threads % width:
                raise Illegal(f"vectors of {width} lanes in {self.threads} threads")
            self.lane[width] = self.emit("mod", (THREAD, integer(width)), i64)
        for width in sorted({1, *widths}):
            self.few[width] = self.emit("less", (THREAD, integer(width)), boolean)
        head, self.out = self.out, []
        return head + self.scope(body)

    def emit(
        self, op: str, args: tuple[Val, ...], dtype: DType | None, attrs: tuple[int, ...] = ()
    ) -> Val:
        self.made += 1
        memory = "" if dtype else args[0].memory
        made = Val(f"%w{self.made}", dtype, memory=memory)
        self.out.append(Instruction(made, op, args, attrs))
        return made

    def val(self, val: Val) -> Val:
        return self.names.get(val.name) or replace(val, lanes=())

    def scope(self, body: list[Statement]) -> list[Statement]:
        outer, self.out = self.out, []
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, For):
                inside = self.scope(s.body)
                val = self.val
                rows = [(val(a), val(b), val(c), val(d)) for a, b, c, d in s.carried]
                self.out.append(replace(s, body=inside, carried=rows, count=self.val(s.count)))
            elif isinstance(s, When):
                self.out.append(When(self.val(s.condition), self.scope(s.body)))
        made, self.out = self.out, outer
        return made

    def instruction(self, ins: Instruction) -> None:
        if ins.op == "barrier":
            self.out.append(ins)
        elif ins.op in STORES:
            self.store(ins)
        elif ins.out is not None:
            out, args = replace(ins.out, lanes=()), tuple(map(self.val, ins.args))
            if ins.op in SCALARS or ins.op in ("fma", "offset"):
                self.out.append(Instruction(out, ins.op, args, ins.attrs))
            else:
                self.names[out.name] = self.special(ins, ins.out, args)
        elif ins.op != "prefetch":
            raise Illegal(f"{ins.op} by the threads of a unit")

    def special(self, ins: Instruction, out: Val, args: tuple[Val, ...]) -> Val:
        """What is another operation for a number."""
        if ins.op in LOADS:
            return self.load(ins, out, args)
        if ins.op == "expand":
            inner = ins.args[0].lanes
            if inner and out.lanes[len(out.lanes) - len(inner) :] != inner:
                raise Illegal("lanes of one thread repeated in others")
            return args[0]
        if ins.op == "iota" and out.dtype is not None:
            step = self.emit("mul", (self.lane[out.width], integer(ins.attrs[0])), i64)
            return step if out.dtype is i64 else self.emit("cast", (step,), out.dtype)
        if ins.op.startswith("across."):
            assert out.dtype is not None
            return self.across(COMBINE[ins.op[7:]], args[0], out.dtype, ins.args[0].width)
        raise Illegal(f"{ins.op} by the threads of a unit")

    def load(self, ins: Instruction, out: Val, args: tuple[Val, ...]) -> Val:
        position, *mask = args
        if ins.op == "gather_at":
            where = mask.pop(0)
        else:
            where = self.lane[out.width]
            if ins.op == "gather":
                where = self.emit("mul", (where, integer(ins.attrs[1])), i64)
        at = ins.attrs[:1] if ins.op != "gather_at" else (0,)
        return self.emit("load", (self.moved(position, where), *mask), out.dtype, at)

    def moved(self, position: Val, where: Val) -> Val:
        return position if where.literal else self.emit("offset", (position, where), None)

    def store(self, ins: Instruction) -> None:
        value, position, *rest = map(self.val, ins.args)
        width = ins.args[0].width
        where = rest.pop(0) if ins.op == "scatter_at" else self.lane[width]
        if width < self.threads:
            few = self.few[width]
            rest = [self.emit("and", (rest[0], few), boolean) if rest else few]
        here = self.moved(position, where)
        self.out.append(Instruction(None, "store", (value, here, *rest), ins.attrs or (0,)))

    def across(self, op: str, value: Val, dtype: DType, width: int) -> Val:
        """Exchanged through two tiles in turn: one barrier is enough for each step."""
        if dtype in (f16, bf16):
            wide = self.across(op, self.emit("cast", (value,), f32), f32, width)
            return self.emit("cast", (wide,), dtype)
        steps = [1 << n for n in range(width.bit_length() - 1)]
        if self.exchanges:
            for step in steps:
                found = self.emit("exchange", (value,), dtype, (step,))
                value = self.emit(op, (value, found), dtype)
            return value
        for number, step in enumerate(steps):
            tile = start_of(self.tile(dtype, number % 2).name)
            mine = self.emit("offset", (tile, THREAD), None)
            self.out += [Instruction(None, "store", (value, mine), (0,)), BARRIER]
            other = self.emit("offset", (tile, self.partner(step)), None)
            found = self.emit("load", (other,), dtype, (0,))
            value = self.emit(op, (value, found), dtype)
        if len(steps) % 2:
            self.out.append(BARRIER)
        return value

    def partner(self, step: int) -> Val:
        return self.emit("xor", (THREAD, integer(step)), i64)

    def tile(self, dtype: DType, number: int) -> Tile:
        made = Tile(f"{dtype} exchange {number}", dtype, self.threads, "shared")
        return self.tiles.setdefault((dtype, number), made)
