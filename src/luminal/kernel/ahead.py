"""Fetching the next panel of a packed constant while the loops still read this one.

A panel is read again by every turn of a loop around its own (the rows of a matrix product). Its
first turn would wait for memory: hardware foresees nothing beyond the page. So each turn asks for
its share of the panel that lies behind, line by line, into the second cache.

    for j < 16:                              for j < 16:
      for i < 96:                              q = panel + 73728 + j * 96 * 64
        x = load panel + i * 768       -->     for i < 96:
        ...                                      prefetch q + i * 64
                                                 x = load panel + i * 768
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..graph.dtype import i64
from .builder import integer
from .program import Claim, For, Instruction, Program, Statement, Val, When
from .target import Target

LINE = 64  # bytes
LEAST_PANEL = 8 << 10  # bytes below which a panel is not worth it
TURNS = 8  # turns of a loop whose count is not known, in which a panel is fetched


def fetch_ahead(program: Program, target: Target) -> Program:
    """Insert prefetches into a lowered program, in place."""
    constants = {f"%p_{name}" for name in program.layouts}
    if constants:
        Ahead(constants, target.l2 // 2).visit(program.body, None, set(constants))
    return program


@dataclass(frozen=True)
class Panel:
    """`step` bytes of a constant in each turn of a loop, from `start` on."""

    start: Val
    step: int


class Ahead:
    """`constants`: pointers to packed constants. `most`: bytes of the largest panel to fetch."""

    def __init__(self, constants: set[str], most: int) -> None:
        self.constants, self.most, self.count = constants, most, 0

    def visit(self, body: list[Statement], outer: For | None, known: set[str]) -> None:
        """`known`: pointers into constants that are defined outside of the loop `outer`."""
        here = known | self._pointers(body, known)
        for at, statement in reversed(list(enumerate(body))):
            if isinstance(statement, Instruction):
                continue
            if isinstance(statement, For) and outer is not None and _innermost(statement):
                body[at:at] = self._fetch(statement, outer, known)
            else:
                self.visit(statement.body, statement if isinstance(statement, For) else None, here)

    def _pointers(self, body: Iterable[Statement], known: set[str]) -> set[str]:
        found = set(known)
        for ins in body:
            if isinstance(ins, Instruction) and ins.op == "offset" and ins.args[0].name in found:
                assert ins.out is not None
                found.add(ins.out.name)
        return found

    def _fetch(self, loop: For, outer: For, known: set[str]) -> list[Statement]:
        """What stands before the inner loop; prefetches are put into it."""
        panel = max(_panels(loop, known), key=lambda p: p.step, default=None)
        if panel is None or not loop.count.literal:
            return []
        turns = int(outer.count.name) if outer.count.literal else TURNS
        count = int(loop.count.name)
        size = panel.step * count
        if turns < 2 or not LEAST_PANEL <= size <= self.most:
            return []
        lines = -(-size // (LINE * count * turns))
        before: list[Statement] = []
        turn = outer.var
        if not outer.count.literal:
            turn = self._add(before, "min", (turn, integer(turns - 1)), outer.var.depth)
        moved = self._add(before, "mul", (turn, integer(lines * count * LINE)), turn.depth)
        moved = self._add(before, "add", (moved, integer(size)), turn.depth)
        start = self._add(before, "offset", (panel.start, moved), turn.depth)
        inside: list[Statement] = []
        moved = self._add(inside, "mul", (loop.var, integer(lines * LINE)), loop.var.depth)
        here = self._add(inside, "offset", (start, moved), loop.var.depth)
        inside += [Instruction(None, "prefetch", (here,), (LINE * n,)) for n in range(lines)]
        loop.body[:0] = inside
        return before

    def _add(self, body: list[Statement], op: str, args: tuple[Val, ...], depth: int) -> Val:
        self.count += 1
        out = Val(f"%ahead{self.count}", None if op == "offset" else i64, (), depth)
        body.append(Instruction(out, op, args))
        return out


def _innermost(loop: For) -> bool:
    return not any(isinstance(s, (For, When, Claim)) for s in loop.body)


def _panels(loop: For, known: set[str]) -> Iterator[Panel]:
    """What a loop reads in equal steps, from where a pointer from outside stands."""
    steps: dict[str, int] = {}
    for ins in loop.body:
        if not isinstance(ins, Instruction) or ins.out is None:
            continue
        if ins.op == "mul" and ins.args[0] == loop.var and ins.args[1].literal:
            steps[ins.out.name] = int(ins.args[1].name)
        elif ins.op == "offset" and ins.args[0].name in known and ins.args[1].name in steps:
            yield Panel(ins.args[0], steps[ins.args[1].name])
