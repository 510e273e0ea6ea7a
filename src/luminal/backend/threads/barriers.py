"""Barriers between the threads of a unit: one wherever a thread may touch what another one has
touched since the last, one of the two writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...kernel.program import For, Instruction, Statement
from ...lowering.place import Lanes
from ...lowering.verify import LOADS, STORES, instructions

BARRIER = Instruction(None, "barrier", ())


def with_barriers(
    body: list[Statement], alone: Callable[[Lanes], bool], written: set[str],
    ordered: frozenset[str],
) -> list[Statement]:  # fmt: skip
    """The body of a unit, in vectors. alone: whether each element of one has a thread of its own.
    written: memories that change. ordered: buffers in which a later store counts."""
    made, _ = _Barriers(alone, written, ordered).body(body, frozenset())
    return made


@dataclass(frozen=True)
class Touch:
    """Elements that an instruction reads or writes: `width` of them from number `at` behind a
    position on (None: anywhere). lanes: where each element has one thread, of the same lanes always
    the same."""

    memory: str
    stored: bool
    position: str | None
    at: int
    width: int
    lanes: Lanes

    def apart(self, other: Touch) -> bool:
        """No thread touches what another one does."""
        if self.position is None or self.position != other.position:
            return False
        if self.at == other.at and self.lanes == other.lanes != ():
            return True
        return self.at + self.width <= other.at or other.at + other.width <= self.at


Touches = frozenset[Touch]


class _Barriers:
    def __init__(
        self, alone: Callable[[Lanes], bool], written: set[str], ordered: frozenset[str]
    ) -> None:
        self.alone, self.written, self.ordered = alone, written, ordered
        self._inside: dict[int, Touches] = {}

    def touches(self, ins: Instruction) -> Touches:
        if ins.op not in (*LOADS, *STORES):
            return frozenset()
        stored = ins.op in STORES
        position = ins.args[1 if stored else 0]
        moved = ins.args[0] if stored else ins.out
        assert moved is not None
        if position.memory not in self.written:
            return frozenset()
        lanes = moved.lanes if moved.lanes and self.alone(moved.lanes) else ()
        where = position.name if ins.op in ("load", "store") else None
        at = ins.attrs[0] if where is not None else 0
        return frozenset([Touch(position.memory, stored, where, at, moved.width, lanes)])

    def inside(self, body: list[Statement]) -> Touches:
        """All that a body touches."""
        found = self._inside.get(id(body))
        if found is None:
            every = (self.touches(s) if isinstance(s, Instruction) else self.inside(s.body)
                     for s in body)  # fmt: skip
            found = self._inside[id(body)] = frozenset().union(*every)
        return found

    def clash(self, a: Touch, b: Touch) -> bool:
        """Some thread may touch what another one does, and one of them writes."""
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
            if any(self.clash(a, b) for b in mine for a in since):
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
    moved = {s.out.name for s in instructions(body) if s.out is not None}
    return frozenset(replace(t, position=None) if t.position in moved else t for t in touches)
