"""The rules of tiles that are filled while a program goes on: no thread reads one before all have
seen its copies arrive, or fills one that somebody may still read; sums that are under way are only
added to.

The threads take the same way, so one of them is followed, with the numbers that it computes: all
turns of a loop, or of a long one the first and the last, since what they do recurs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...graph.dtype import i64
from ...graph.scalars import SCALARS, compute
from ...kernel.program import For, Instruction, Program, Statement, Tile, Val, When, statements
from ...lowering.verify import require

EVENTS = ("copy", "commit", "await", "settle", "settled", "barrier")
FEW = 24  # turns, of which the next do what they did
SOME = (0, 1, 2, FEW)  # of a loop of unknown length


def check_arrivals(program: Program) -> None:
    """Raise VerifyError at the first statement that breaks a rule."""
    tiles = {tile.name: tile for tile in program.tiles if tile.turns}
    if tiles:
        _sums(program.body)
        loops = (s for s in statements(program.body) if isinstance(s, For))
        counts = {s.count.name for s in loops if any(map(_event, statements(s.body)))}
        for unknown in SOME:
            follower = _Follower(tiles, dict.fromkeys(counts, unknown))
            follower.body(program.body)
            require(not follower.on_the_way(), "copies are on the way when a unit ends")


@dataclass
class _Part:
    """What a turn has of a tile. group: of its last copy; state: "way", "arrived", "seen", "old";
    reader: number of the last product that reads it; free: none of them does any more."""

    group: int = 0
    state: str = "old"
    reader: int = 0
    free: bool = True


class _Follower:
    """unknown: how often loops turn, by what counts them, where that is not known."""

    def __init__(self, tiles: dict[str, Tile], unknown: dict[str, int]) -> None:
        self.tiles, self.unknown = tiles, unknown
        self.parts: dict[tuple[str, int], _Part] = {}
        self.known: dict[str, int] = {}
        self.group = self.products = self.settled = 0

    def on_the_way(self) -> bool:
        return any(part.state == "way" for part in self.parts.values())

    # ---- statements

    def body(self, body: Sequence[Statement]) -> None:
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, When):
                held = self.value(s.condition)
                if held is None or held:
                    self.body(s.body)
            elif not isinstance(s, For):
                self.known[s.var.name] = 0
                self.body(s.body)
            elif any(map(_event, statements(s.body))):
                for turn in self.turns(self.value(s.count) or 0):
                    self.known[s.var.name] = turn
                    self.body(s.body)

    def turns(self, count: int) -> Iterator[int]:
        """All of a loop, or those at its ends, as if there were so many less in between."""
        period = int(np.lcm.reduce([tile.turns for tile in self.tiles.values()]))
        skipped = max(0, count - 2 * FEW) // period * period
        yield from (t for t in range(count) if not FEW <= t < FEW + skipped)

    def instruction(self, s: Instruction) -> None:
        if s.op == "copy":
            self.copy(self.part(s.args[0]))
        elif s.op == "commit":
            self.group += 1
        elif s.op == "await":
            for part in self.parts.values():
                if part.state == "way" and part.group < self.group - s.attrs[0]:
                    part.state = "arrived"
        elif s.op == "barrier":
            self.barrier()
        elif s.op in ("settle", "settled"):
            self.settled = self.products - (s.attrs[0] if s.attrs else 0)
        elif tiles := _tiles(s):
            self.products += _staged(s)
            for place in tiles:
                self.read(self.part(place))
        elif s.out is not None:
            self.compute(s, s.out)

    def part(self, place: Val) -> _Part:
        tile, at = self.tiles[place.memory], self.value(place)
        require(at is not None, f"data say which part of {place.memory} is used")
        number = (at or 0) // (tile.elements // tile.turns)
        require(0 <= number < tile.turns, f"{place.memory} has no part {number}")
        return self.parts.setdefault((place.memory, number), _Part())

    # ---- what happens to a part

    def copy(self, part: _Part) -> None:
        require(part.free, "a tile is filled that threads may still read")
        part.group, part.state = self.group, "way"

    def read(self, part: _Part) -> None:
        require(part.state == "seen", "a tile is read whose copies not all threads have seen")
        part.reader, part.free = self.products, False

    def barrier(self) -> None:
        for part in self.parts.values():
            if part.state == "arrived":
                part.state = "seen"
            elif part.state == "seen" and not part.free:
                part.state = "old"
            part.free = part.free or part.reader <= self.settled

    # ---- numbers

    def value(self, val: Val) -> int | None:
        if val.literal:
            return int(val.name)
        found = 0 if val.name.startswith("%p_") else self.known.get(val.name)
        return self.unknown.get(val.name) if found is None else found

    def compute(self, s: Instruction, out: Val) -> None:
        dtype = out.dtype or i64
        if dtype.is_float or out.lanes or (s.op != "offset" and s.op not in SCALARS):
            return
        args = [self.value(a) for a in s.args if a.dtype is None or not a.dtype.is_float]
        self.known.pop(out.name, None)
        if len(args) == len(s.args) and None not in args:
            op, numbers = "add" if s.op == "offset" else s.op, [np.int64(a or 0) for a in args]
            self.known[out.name] = int(compute(op, dtype, *numbers))


def _tiles(s: Instruction) -> list[Val]:
    """Positions of what a matrix instruction takes from tiles."""
    made = s.out is not None and s.out.dtype is not None and s.op != "copy" and len(s.args) == 3
    return [a for a in s.args[1:] if a.dtype is None] if made and s.args[2].dtype is None else []


def _staged(s: Instruction) -> bool:
    """It is under way until it is settled."""
    return len(_tiles(s)) == 2 and bool(s.attrs)


def _event(s: Statement) -> bool:
    return isinstance(s, Instruction) and (s.op in EVENTS or bool(_tiles(s)))


def _sums(body: list[Statement]) -> None:
    """Sums that are under way are only kept, added to, and settled."""
    found, known = set[str](), -1
    while known < len(found):  # loops carry them round
        known = len(found)
        for s in statements(body):
            if isinstance(s, For):
                found |= {v.name for phi, _, val, end in s.carried if val.name in found
                          for v in (phi, end)}  # fmt: skip
            elif isinstance(s, Instruction) and s.out is not None:
                kept = s.op in ("pack", "shuffle") and any(a.name in found for a in s.args)
                kept = kept or (s.attrs == (1,) and bool(_tiles(s)))
                found |= {s.out.name} if kept else set()
    for s in statements(body):
        used = [a for a in s.args if a.name in found] if isinstance(s, Instruction) else []
        allowed = isinstance(s, Instruction) and (
            s.op in ("pack", "shuffle", "settled") or bool(_tiles(s))
        )
        require(not used or allowed, "sums are read that are under way")
