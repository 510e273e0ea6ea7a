"""Fetching what a packed constant holds further on, while the loops still read what stands here.

A panel that is read again by every turn of a loop around its own (the rows of a matrix product) is
followed by the next one: each turn asks for its share of that, line by line, into the second cache.

    for j < 16:                              for j < 16:
      for i < 96:                              q = panel + 73728 + j * 96 * 64
        x = load panel + i * 768       -->     for i < 96:
        ...                                      prefetch q + i * 64
                                                 x = load panel + i * 768

A panel that is read once (one row) streams from memory: each turn asks for what stands a little
ahead, where hardware foresees nothing beyond the page. Where a turn reads several panels side by
side, the hardware follows them by itself, and more requests only stand in its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from ..graph.dtype import i64
from ..kernel.program import Claim, For, Instruction, Program, Statement, Val, When
from ..kernel.target import Target
from .builder import integer

LINE = 64  # bytes
LEAST_PANEL = 8 << 10  # bytes below which a panel is not worth it
TURNS = 8  # turns of a loop whose count is not known, in which a panel is fetched
DISTANCE = 2048  # bytes ahead in a stream: of 512 to 8192 the fastest on Zen 3
PAGE = 4096  # bytes: what is further apart is another stream
FOLLOWED = 4  # streams that the hardware follows without help (8 of bf16: 15.4 to 20.0 GB/s)


def fetch_ahead(program: Program, target: Target) -> Program:
    """Insert prefetches into a lowered program, in place."""
    constants = [f"%p_{name}" for name in program.layouts]
    if constants:
        Ahead(constants, target.l2 // 2).visit(program.body, ())
    return program


@dataclass(frozen=True)
class Panel:
    """`step` bytes of a constant in each turn of a loop, from `start` on, read by `at`."""

    start: Val
    step: int
    at: Instruction


class Ahead:
    """`constants`: pointers to packed constants. `most`: bytes of the largest panel to fetch."""

    def __init__(self, constants: Iterable[str], most: int) -> None:
        self.most, self.count = most, 0
        self.moves: dict[str, frozenset[str]] = {}  # a value -> the loops that change it
        self.pointers = set(constants)

    def visit(self, body: list[Statement], loops: tuple[For, ...]) -> None:
        """`loops`: those around the body, outermost first."""
        made: list[Statement] = []
        for statement in body:
            if isinstance(statement, Instruction):
                self._note(statement)
            elif isinstance(statement, For):
                self.moves[statement.var.name] = frozenset([statement.var.name])
                if _innermost(statement):
                    made += self._fetch(statement, loops)
                else:
                    self.visit(statement.body, (*loops, statement))
            else:
                self.visit(statement.body, ())
            made.append(statement)
        body[:] = made

    def _note(self, ins: Instruction) -> None:
        if ins.out is not None:
            moves = (self.moves.get(a.name, frozenset()) for a in ins.args)
            self.moves[ins.out.name] = frozenset().union(*moves)
            if ins.op == "offset" and ins.args[0].name in self.pointers:
                self.pointers.add(ins.out.name)

    def _fetch(self, loop: For, loops: tuple[For, ...]) -> list[Statement]:
        """What stands before an innermost loop; prefetches are put into it."""
        panels = list(_panels(loop, self.pointers)) if loop.count.literal else []
        for panel in panels:
            if all(outer.var.name in self._moves(panel) for outer in loops):
                turns = prod(int(o.count.name) for o in loops if o.count.literal)
                _stream(loop, panel, turns)
        again = [p for p in panels if loops and loops[-1].var.name not in self._moves(p)]
        largest = max(again, key=lambda p: p.step, default=None)
        return self._next(loop, loops[-1], largest) if largest else []

    def _moves(self, panel: Panel) -> frozenset[str]:
        return self.moves.get(panel.start.name, frozenset())

    def _next(self, loop: For, outer: For, panel: Panel) -> list[Statement]:
        """The panel that lies behind one which all turns of the outer loop read."""
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


def _stream(loop: For, panel: Panel, turns: int) -> None:
    """Each turn asks for the lines that a later one reads. turns: of the loops around."""
    size = panel.step * int(loop.count.name) * turns
    where = panel.at.out
    if panel.step < LINE or size < LEAST_PANEL or where is None:
        return
    loads = [s for s in loop.body if isinstance(s, Instruction) and s.args[:1] == (where,)]
    starts = [s.attrs[0] for s in loads if s.op == "load"]
    if len({start // PAGE for start in starts}) >= FOLLOWED:
        return
    lines = sorted({(start + DISTANCE) // LINE * LINE for start in starts})
    after = loop.body.index(panel.at) + 1
    loop.body[after:after] = [Instruction(None, "prefetch", (where,), (line,)) for line in lines]


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
            yield Panel(ins.args[0], steps[ins.args[1].name], ins)
