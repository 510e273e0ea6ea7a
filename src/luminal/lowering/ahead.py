"""Fetching what memory holds further on, while the loops still read what stands here.

A panel that is read again by every turn of a loop around its own (the rows of a matrix product) is
followed by the next one: each turn asks for its share of that, line by line, into the second cache.

    for j < 16:                              for j < 16:
      for i < 96:                              q = panel + 73728 + j * 96 * 64
        x = load panel + i * 768       -->     for i < 96:           (numbers of bytes)
        ...                                      prefetch q + i * 64
                                                 x = load panel + i * 768

A panel that is read once (one row) streams from memory: each turn asks for what stands a little
ahead, where hardware foresees nothing beyond the page. Where a turn reads several panels side by
side, the hardware follows them by itself, and more requests only stand in its way.

Other buffers are fetched ahead where a loop walks them block by block, each once (keys and values
of one token's attention): while the loops inside compute with a block, which takes them several
turns over it, they ask for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias, TypeGuard

from ..graph.dtype import i64
from ..kernel.program import For, Instruction, Parallel, Program, Statement, Val, When, start_of
from ..kernel.target import Target
from .builder import integer

LINE = 64  # bytes
LEAST_PANEL = 8 << 10  # bytes below which a panel is not worth it
TURNS = 8  # turns of a loop whose count is not known, in which a panel is fetched
DISTANCE = 2048  # bytes ahead in a stream: of 512 to 8192 the fastest on Zen 3
BURST = 8  # lines of a block that a turn may ask for
LEAST_BLOCK = 4096  # bytes of a block that hardware does not follow to the next one
PAGE = 4096  # bytes: what is further apart is another stream
FOLLOWED = 4  # streams that the hardware follows without help (8 of bf16: 15.4 to 20.0 GB/s)

Nest: TypeAlias = tuple[For, ...]  # outermost first
Steps: TypeAlias = dict[str, int | None]  # loop variable -> what each turn adds; None: it differs


def fetch_ahead(program: Program, target: Target) -> Program:
    """Insert prefetches into a lowered program, in place."""
    constants = [start_of(name).name for name in program.layouts]
    sizes = {name: made.dtype.bytes for name, made in program.memories.items()}
    Ahead(constants, sizes, target.l2 // 2).visit(program.body, ())
    return program


@dataclass(frozen=True)
class Panel:
    """`step` bytes of a constant in each turn of a loop, from `start` on, read by `at`. size: bytes
    of an element."""

    start: Val
    step: int
    at: Instruction
    size: int


class Ahead:
    """`constants`: positions in packed constants. `sizes`: bytes of the elements of each memory.
    `most`: bytes of the largest panel to fetch."""

    def __init__(self, constants: Iterable[str], sizes: Mapping[str, int], most: int) -> None:
        self.most, self.sizes, self.count = most, sizes, 0
        self.steps: dict[str, Steps] = {}
        self.positions = set(constants)
        self.before: dict[str, Val] = {}  # a position -> the one that it is counted from

    def visit(self, body: list[Statement], loops: tuple[For | Parallel, ...]) -> None:
        """`loops`: those around the body, outermost first."""
        made: list[Statement] = []
        for statement in body:
            if isinstance(statement, Instruction):
                self._note(statement)
            elif isinstance(statement, When):
                self.visit(statement.body, ())
            else:
                self.steps[statement.var.name] = {statement.var.name: 1}
                if isinstance(statement, For) and _innermost(statement):
                    made += self._fetch(statement, [x for x in loops if isinstance(x, For)])
                    for inside in filter(_is_instruction, statement.body):
                        self._note(inside)
                else:
                    self.visit(statement.body, (*loops, statement))
                    if isinstance(statement, For):
                        self._fetch_blocks(statement, loops)
            made.append(statement)
        body[:] = made

    def _note(self, ins: Instruction) -> None:
        if ins.out is None:
            return
        self.steps[ins.out.name] = _steps(ins, [self.steps.get(a.name, {}) for a in ins.args])
        if ins.op == "offset":
            self.before[ins.out.name] = ins.args[0]
            if ins.args[0].name in self.positions:
                self.positions.add(ins.out.name)

    def _fetch(self, loop: For, loops: Sequence[For]) -> list[Statement]:
        """What stands before an innermost loop; prefetches are put into it."""
        panels = list(_panels(loop, self.positions, self.sizes)) if loop.count.literal else []
        for panel in panels:
            if all(outer.var.name in self._moves(panel) for outer in loops):
                turns = prod(int(o.count.name) for o in loops if o.count.literal)
                _stream(loop, panel, turns)
        again = [p for p in panels if loops and loops[-1].var.name not in self._moves(p)]
        largest = max(again, key=lambda p: p.step, default=None)
        return self._next(loop, loops[-1], largest) if largest else []

    def _moves(self, panel: Panel) -> Steps:
        return self.steps.get(panel.start.name, {})

    def _next(self, loop: For, outer: For, panel: Panel) -> list[Statement]:
        """The panel that lies behind one which all turns of the outer loop read."""
        turns = int(outer.count.name) if outer.count.literal else TURNS
        count = int(loop.count.name)
        size = panel.step * count
        if turns < 2 or not LEAST_PANEL <= size <= self.most:
            return []
        lines, line = -(-size // (LINE * count * turns)), LINE // panel.size
        before: list[Statement] = []
        turn = outer.var
        if not outer.count.literal:
            turn = self._add(before, "min", (turn, integer(turns - 1)), outer.var.depth)
        moved = self._add(before, "mul", (turn, integer(lines * count * line)), turn.depth)
        further = (moved, integer(size // panel.size))
        moved = self._add(before, "add", further, turn.depth)
        start = self._add(before, "offset", (panel.start, moved), turn.depth)
        inside: list[Statement] = []
        moved = self._add(inside, "mul", (loop.var, integer(lines * line)), loop.var.depth)
        here = self._add(inside, "offset", (start, moved), loop.var.depth)
        inside += [Instruction(None, "prefetch", (here,), (line * n,)) for n in range(lines)]
        loop.body[:0] = inside
        return before

    # ---- blocks

    def _fetch_blocks(self, loop: For, loops: tuple[For | Parallel, ...]) -> None:
        """Prefetches into the loops inside one that walks buffers block by block."""
        nests: dict[str, tuple[Val, int, Nest]] = {}
        read: dict[str, int] = {}
        for nest, load in _loads(loop.body, ()):
            where, steps = load.args[0], self.steps.get(load.args[0].name, {})
            step, once = steps.get(loop.var.name), all(steps.get(x.var.name) for x in loops)
            size = (step or 0) * self.sizes[where.memory]
            if not (once and LEAST_BLOCK <= size <= self.most):
                continue
            while not steps.keys().isdisjoint(x.var.name for x in nest):
                where = self.before[where.name]
                steps = self.steps.get(where.name, {})
            known = nests.setdefault(where.name, (where, size, nest))
            if known[2][-1] is nest[-1] and where.name not in self.positions:
                read[where.name] = read.get(where.name, 0) + self._bytes(nest, load, size)
        for name, (where, size, nest) in nests.items():
            if 3 * size <= 4 * read.get(name, 0):
                self._next_block(where, size, nest)

    def _bytes(self, nest: Nest, load: Instruction, size: int) -> int:
        """What all turns of a nest read within a block of this size; 0 where that is not plain."""
        steps = self.steps.get(load.args[0].name, {})
        moves = [(steps.get(loop.var.name, 0), int(loop.count.name)) for loop in nest]
        last, element = sum((step or 0) * (count - 1) for step, count in moves), 0
        if load.out is not None and load.out.dtype is not None:
            element = load.out.dtype.bytes
        if last * element >= size or any(step is None for step, _ in moves):
            return 0
        return element * prod(c for step, c in moves if step) * (load.out.width if load.out else 0)

    def _next_block(self, start: Val, size: int, nest: Nest) -> None:
        """Each turn of the outer loops of a nest asks for its share of the next block."""
        counts, line = [int(loop.count.name) for loop in nest], LINE // self.sizes[start.memory]
        elements = size // self.sizes[start.memory]
        shares = [-(-elements // prod(counts[:depth])) for depth in range(1, len(nest) + 1)]
        few = [depth for depth, share in enumerate(shares, 1) if share <= BURST * line]
        depth = few[0] if few else len(nest)
        share = shares[depth - 1]
        for number, loop in enumerate(nest[:depth]):
            inside: list[Statement] = []
            turn = integer(share * prod(counts[number + 1 : depth]))
            moved = self._add(inside, "mul", (loop.var, turn), loop.var.depth)
            start = self._add(inside, "offset", (start, moved), loop.var.depth)
            if number == depth - 1:
                lines = range(elements, elements + share, line)
                inside += [Instruction(None, "prefetch", (start,), (n,)) for n in lines]
            loop.body[:0] = inside

    def _add(self, body: list[Statement], op: str, args: tuple[Val, ...], depth: int) -> Val:
        self.count += 1
        name, memory = f"%ahead{self.count}", args[0].memory
        out = Val(name, None if memory else i64, (), depth, memory=memory)
        body.append(Instruction(out, op, args))
        return out


def _stream(loop: For, panel: Panel, turns: int) -> None:
    """Each turn asks for the lines that a later one reads. turns: of the loops around."""
    size = panel.step * int(loop.count.name) * turns
    where = panel.at.out
    if panel.step < LINE or size < LEAST_PANEL or where is None:
        return
    loads = [s for s in loop.body if isinstance(s, Instruction) and s.args[:1] == (where,)]
    starts = [s.attrs[0] * panel.size for s in loads if s.op == "load"]
    if len({start // PAGE for start in starts}) >= FOLLOWED:
        return
    lines = sorted({(start + DISTANCE) // LINE * LINE // panel.size for start in starts})
    after = loop.body.index(panel.at) + 1
    loop.body[after:after] = [Instruction(None, "prefetch", (where,), (line,)) for line in lines]


def _steps(ins: Instruction, parts: list[Steps]) -> Steps:
    """What turns of loops add to a result, from what they add to the operands."""
    names = {name for part in parts for name in part}
    if ins.op in ("add", "offset"):
        of = {name: [part[name] for part in parts if name in part] for name in names}
        return {n: None if None in steps else sum(filter(None, steps)) for n, steps in of.items()}
    if ins.op == "mul" and ins.args[1].literal and ins.args[1].dtype is i64:
        factor = int(ins.args[1].name)
        return {n: None if step is None else step * factor for n, step in parts[0].items()}
    return dict.fromkeys(names)


def _loads(body: list[Statement], nest: Nest) -> Iterator[tuple[Nest, Instruction]]:
    """Vectors and numbers read inside of loops in a body, with these loops."""
    for statement in body:
        if isinstance(statement, For) and statement.count.literal:
            yield from _loads(statement.body, (*nest, statement))
        elif isinstance(statement, Instruction) and statement.op == "load" and nest:
            yield nest, statement


def _is_instruction(statement: Statement) -> TypeGuard[Instruction]:
    return isinstance(statement, Instruction)


def _innermost(loop: For) -> bool:
    return not any(isinstance(s, (For, When, Parallel)) for s in loop.body)


def _panels(loop: For, known: set[str], sizes: Mapping[str, int]) -> Iterator[Panel]:
    """What a loop reads in equal steps, from where a position from outside stands."""
    steps = {loop.var.name: 1}
    for ins in loop.body:
        if not isinstance(ins, Instruction) or ins.out is None:
            continue
        if ins.op == "mul" and ins.args[0] == loop.var and ins.args[1].literal:
            steps[ins.out.name] = int(ins.args[1].name)
        elif ins.op == "offset" and ins.args[0].name in known and ins.args[1].name in steps:
            size = sizes[ins.args[0].memory]
            yield Panel(ins.args[0], steps[ins.args[1].name] * size, ins, size)
