"""Operands that an instruction takes from tiles which the threads of a unit share: copied there a
few turns before the loop comes to them, into one of several parts of a tile in turn.

In turn k the copies of turn k are awaited, and behind a barrier all threads see them. The same
barrier says that every thread has settled what it multiplied in turn k - 2: the tiles of that turn
are filled again. What is multiplied in turn k is under way until turn k + 1 has begun its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise

from ..errors import Illegal
from ..graph.dtype import boolean, i64
from ..kernel.program import For, Instruction, Program, Statement, Tile, Val, When, start_of
from ..kernel.target import MatrixInstruction, Target
from .builder import integer
from .place import strides
from .verify import STORES, instructions

READ = 2  # tiles that may be read in a turn: its own, and that of the turn before


def staged(program: Program, target: Target, stages: int) -> Program:
    """The program with copies for its staged instructions, `stages` turns of their loop in tiles.
    Raises Illegal for operands that are not rows of memory."""
    own = {i.name: i for i in target.instructions if i.staged}
    if not any(s.op in own for s in instructions(program.body)):
        return program
    if stages <= READ:
        raise Illegal(f"{stages} stages for copies ahead of what is read")
    made = _Staging(program, own, stages)
    body = made.body(program.body)
    if any(s.op in own and s.args[1].dtype for s in instructions(body)):
        raise Illegal("a staged instruction stands outside of a loop")
    return replace(program, body=body, tiles=(*made.tiles.values(), *program.tiles))


class _Staging:
    def __init__(
        self, program: Program, own: Mapping[str, MatrixInstruction], stages: int
    ) -> None:
        self.own, self.stages, self.ahead = own, stages, stages - READ
        self.written = {s.args[1].memory for s in instructions(program.body) if s.op in STORES}
        self.tiles: dict[tuple[int, int], Tile] = {}
        self.made = 0
        self.out: list[Statement] = []

    def body(self, body: list[Statement]) -> list[Statement]:
        outer, self.out = self.out, []
        for s in body:
            if isinstance(s, For) and any(isinstance(x, Instruction) and x.op in self.own
                                          for x in s.body):  # fmt: skip
                self.loop(s)
            else:
                inner = s if isinstance(s, Instruction) else replace(s, body=self.body(s.body))
                self.out.append(inner)
        made, self.out = self.out, outer
        return made

    # ---- one loop

    def loop(self, loop: For) -> None:
        """Copies of the first turns, the loop, and what is still under way behind it."""
        products = [s for s in loop.body if isinstance(s, Instruction) and s.op in self.own]
        operands = list(dict.fromkeys(v.name for s in products for v in s.args[1:]))
        loads = [self.fetched(loop, name) for name in operands]
        used = [v.name for s in instructions(loop.body) if s not in products for v in s.args]
        running = {v.name for s in products for v in (s.args[0], s.out) if v and not v.literal}
        if not running.union(operands).isdisjoint(used):
            raise Illegal("something else is done with what a staged instruction multiplies")
        tiles = self.allotted(products, dict(zip(operands, loads)))
        self.emit("barrier")  # what stood in these tiles has been read
        for turn in range(self.ahead):
            self.fill(loop, loads, tiles, integer(turn))
        outer, self.out = self.out, []
        self.emit("await", attrs=(self.ahead - 1,))
        self.emit("barrier")
        self.fill(loop, loads, tiles, self.value("add", loop.var, integer(self.ahead)))
        slot = self.value("mod", loop.var, integer(self.stages))
        places = dict(zip(operands, self.places(tiles, slot)))
        self.out += (s for s in loop.body if s not in loads and s not in products)
        for s in products:
            args = (s.args[0], *(places[v.name] for v in s.args[1:]))
            self.out.append(replace(s, args=args))
        self.emit("settle", attrs=(len(products) - self.joined(products),))
        inner, self.out = self.out, outer
        ends = [(row, self.fresh(row[3])) for row in loop.carried if row[2].name in running]
        rows = {id(row): (*row[:3], end) for row, end in ends}
        carried = [rows.get(id(row), row) for row in loop.carried]
        self.out.append(replace(loop, body=inner, carried=carried))
        self.out += [Instruction(row[3], "settled", (end,)) for row, end in ends]

    def fetched(self, loop: For, name: str) -> Instruction:
        """The load that makes an operand: rows of memory that nobody writes."""
        made = {s.out.name: s for s in loop.body if isinstance(s, Instruction) and s.out}
        load = made.get(name)
        if load is None or load.out is None or load.op not in ("load", "gather"):
            raise Illegal("an operand of a staged instruction is not loaded in its loop")
        if load.args[0].memory in self.written or strides(load, load.out.lanes)[-1] != 1:
            raise Illegal(f"{load.args[0].memory} is not copied in rows")
        return load

    def joined(self, products: list[Instruction]) -> int:
        """How many of them are executed with the one before (see `Staged.beside`)."""
        alike = [a.op == b.op and a.args[1] == b.args[1] for a, b in pairwise(products)]
        pairs = sum(alike[::2]) if len(products) % 2 == 0 else 0
        wide = self.own[products[0].op].wider(self.own.values())
        return pairs if wide and all(alike[::2]) else 0

    def allotted(
        self, products: list[Instruction], loads: Mapping[str, Instruction]
    ) -> list[tuple[Tile, int]]:
        """For each operand a tile and where it lies in a turn's part: what multiplies the same
        first operand lies side by side. All loops use the same tiles."""
        bundles: dict[str, list[str]] = {}
        for s in products:
            a, b = (v.name for v in s.args[1:])
            bundles.setdefault(a, [a])
            bundles.setdefault(f"by {a}", []).append(b)
        found: dict[str, tuple[Tile, int]] = {}
        for number, names in enumerate(bundles.values()):
            outs = [loads[name].out for name in dict.fromkeys(names) if name not in found]
            widths = [out.width if out else 0 for out in outs]
            if not outs or outs[0] is None or outs[0].dtype is None:
                continue
            name, width = f"stage {number} of {sum(widths)}", sum(widths)
            row = outs[0].lanes[-1][1]
            made = Tile(name, outs[0].dtype, self.stages * width, row=row, turns=self.stages)
            made = self.tiles.setdefault((number, width), made)
            ends = accumulate(widths, initial=0)
            found |= {out.name: (made, at) for out, at in zip(outs, ends) if out}
        return [found[name] for name in loads]

    def fill(
        self, loop: For, loads: list[Instruction], tiles: list[tuple[Tile, int]], turn: Val
    ) -> None:
        """A turn's copies, if it comes to that; a group in any case."""
        first = len(self.out)
        known = {loop.var.name: turn}
        for s in _leading_to(loop, loads):
            self.again(s, known)
        slot = self.value("mod", turn, integer(self.stages))
        for load, place in zip(loads, self.places(tiles, slot)):
            assert load.out is not None
            args = tuple(known.get(v.name, v) for v in load.args)
            copy = Instruction(self.fresh(load.out), "copy", (place, *args), load.attrs)
            self.out.append(copy)
        copies, self.out = self.out[first:], self.out[:first]
        wanted = self.value("less", turn, loop.count)
        self.out.append(When(wanted, copies))
        self.emit("commit")

    def again(self, s: Instruction, known: dict[str, Val]) -> None:
        """The same instruction in another turn."""
        assert s.out is not None
        known[s.out.name] = made = self.fresh(s.out)
        args = tuple(known.get(v.name, v) for v in s.args)
        self.out.append(replace(s, out=made, args=args))

    # ---- values

    def fresh(self, like: Val) -> Val:
        self.made += 1
        return replace(like, name=f"%s{self.made}", literal=False)

    def emit(self, op: str, args: tuple[Val, ...] = (), attrs: tuple[int, ...] = ()) -> None:
        self.out.append(Instruction(None, op, args, attrs))

    def value(self, op: str, a: Val, b: Val) -> Val:
        if op == "mod" and a.literal:
            return integer(int(a.name) % int(b.name))
        made = self.fresh(Val("", boolean if op == "less" else i64))
        self.out.append(Instruction(made, op, (a, b)))
        return made

    def places(self, tiles: list[tuple[Tile, int]], slot: Val) -> list[Val]:
        """Where a turn's operands begin."""
        parts: dict[str, Val] = {}
        for tile, _ in tiles:
            if tile.name not in parts:
                further = self.value("mul", slot, integer(tile.elements // self.stages))
                parts[tile.name] = self.further(start_of(tile.name), further)
        return [self.further(parts[tile.name], integer(at)) if at else parts[tile.name]
                for tile, at in tiles]  # fmt: skip

    def further(self, position: Val, by: Val) -> Val:
        made = self.fresh(position)
        self.out.append(Instruction(made, "offset", (position, by)))
        return made


def _leading_to(loop: For, loads: list[Instruction]) -> Iterator[Instruction]:
    """The instructions of a loop's body that say where something is loaded, in order."""
    phis = {row[0].name for row in loop.carried}
    wanted = {v.name for load in loads for v in load.args}
    found = list[Instruction]()
    for s in reversed(loop.body):
        if isinstance(s, Instruction) and s.out and s.out.name in wanted:
            found.append(s)
            wanted |= {v.name for v in s.args}
    if wanted & phis:
        raise Illegal("what a loop carries says where an operand lies")
    yield from reversed(found)
