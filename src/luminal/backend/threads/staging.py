"""Operands that an instruction takes from tiles which the threads of a unit share: copied there a
few turns before the loop comes to them, into one of several parts of a tile in turn.

In turn k the copies of turn k are awaited, and behind a barrier all threads see them. The same
barrier says that every thread has settled what it multiplied in turn k - 2: the tiles of that turn
are filled again. What is multiplied in turn k is under way until turn k + 1 has begun its own.
Where an instruction is done when it ends, it is the tiles of turn k - 1 that are filled again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise

from ...errors import Illegal
from ...graph.dtype import boolean, i64
from ...kernel.program import For, Instruction, Program, Statement, Tile, Val, When, start_of
from ...kernel.target import MatrixInstruction, Target
from ...lowering.builder import integer
from ...lowering.place import strides
from ...lowering.verify import STORES, instructions

READ = 2  # tiles that may be read in a turn: its own, and that of the turn before


def staged(program: Program, target: Target, stages: int) -> Program:
    """The program with copies for its staged instructions, `stages` turns of their loop in tiles.
    Raises Illegal for operands that are not rows of memory."""
    own = {i.name: i for i in target.instructions if i.staged or i.streamed}
    if not any(s.op in own for s in instructions(program.body)):
        return program
    made = _Staging(program, own, stages)
    body = made.body(program.body)
    if any(s.op in own and s.args[2].dtype for s in instructions(body)):
        raise Illegal("a staged instruction stands outside of a loop")
    return replace(program, body=body, tiles=(*made.tiles.values(), *program.tiles))


class _Staging:
    def __init__(
        self, program: Program, own: Mapping[str, MatrixInstruction], stages: int
    ) -> None:
        self.own, self.stages, self.ahead = own, stages, 0
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
        under_way = [s for s in products if self.own[s.op].late]
        self.ahead = self.stages - (READ if under_way else 1)
        if self.ahead < 1:
            raise Illegal(f"{self.stages} stages for copies ahead of what is read")
        operands = list(dict.fromkeys(v.name for s in products for v in self.tiled(s)))
        loads = [self.fetched(loop, name) for name in operands]
        made = {s.out.name: s for s in loop.body if isinstance(s, Instruction) and s.out}
        chosen = {made[name].args[1].name for name in operands if made[name].op == "select"}
        brought = chosen.union(operands)
        rest = [s for s in loop.body if not any(s is made[name] for name in brought)]
        others = (s for s in instructions(rest) if s not in products)
        running = {v.name for s in under_way for v in (s.args[0], s.out) if v and not v.literal}
        taken = {v.name for s in products for v in s.args if v not in self.tiled(s)}
        used = {v.name for s in others for v in s.args}
        if not used.isdisjoint(running | brought) or not taken.isdisjoint(brought):
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
        chained = {a.out.name for a, b in pairwise(products) if a.out and a.out == b.args[0]}
        chained -= used.union(row[2].name for row in loop.carried)
        for s in sorted(rest, key=lambda s: s in under_way):
            self.out.append(self.multiplied(s, loads, places, chained) if s in products else s)
        if under_way:
            self.emit("settle", attrs=(len(under_way) - self.joined(under_way),))
        inner, self.out = self.out, outer
        ends = [(row, self.fresh(row[3])) for row in loop.carried if row[2].name in running]
        rows = {id(row): (*row[:3], end) for row, end in ends}
        carried = [rows.get(id(row), row) for row in loop.carried]
        self.out.append(replace(loop, body=inner, carried=carried))
        self.out += [Instruction(row[3], "settled", (end,)) for row, end in ends]

    def tiled(self, s: Instruction) -> tuple[Val, ...]:
        """Its operands that are tiles."""
        return s.args[self.own[s.op].tiles]

    def multiplied(
        self, s: Instruction, loads: list[Instruction], places: Mapping[str, Val],
        chained: Collection[str],
    ) -> Instruction:  # fmt: skip
        """A product of what lies in tiles, by the instruction for how it lies there. chained: sums
        that the next product alone goes on with."""
        own, tiled = self.own[s.op], self.tiled(s)
        way = {name: strides(load, load.out.lanes)[-1] != 1
               for name, load in zip(places, loads) if load.out}  # fmt: skip
        like = (i for i in self.own.values() if way[tiled[-1].name] and i.turned
                and (i.first, i.rows, i.columns, i.staged)
                == (own.first, own.rows, own.columns, own.staged))  # fmt: skip
        kept = s.args[: len(s.args) - len(tiled)]
        args = (*kept, *(places[v.name] for v in tiled))
        on = own.late or (own.streamed and s.out is not None and s.out.name in chained)
        return replace(s, op=next(like, own).name, args=args, attrs=(1,) * on)

    def fetched(self, loop: For, name: str) -> Instruction:
        """The load that makes an operand: rows of memory that nobody writes."""
        made = {s.out.name: s for s in loop.body if isinstance(s, Instruction) and s.out}
        load, masks = made.get(name), list[Val]()
        if load and load.op == "select" and load.args[2].literal and not float(load.args[2].name):
            masks, load = [load.args[0]], made.get(load.args[1].name)
        if load is None or load.out is None or load.op not in ("load", "gather"):
            raise Illegal("an operand of a staged instruction is not loaded in its loop")
        if load.args[0].memory in self.written or 1 not in strides(load, load.out.lanes):
            raise Illegal(f"{load.args[0].memory} is not copied in rows")
        if load.args[1:] not in ((), tuple(masks)) and masks:
            raise Illegal(f"{load.args[0].memory} is copied under two conditions")
        return replace(load, out=made[name].out, args=(load.args[0], *masks)) if masks else load

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
            *first, b = (v.name for v in self.tiled(s))
            for a in first:
                bundles.setdefault(a, [a])
            bundles.setdefault(f"by {first or b}", []).append(b)
        found: dict[str, tuple[Tile, int]] = {}
        for number, names in enumerate(bundles.values()):
            outs = [loads[name].out for name in dict.fromkeys(names) if name not in found]
            widths = [out.width if out else 0 for out in outs]
            if not outs or outs[0] is None or outs[0].dtype is None:
                continue
            name, width = f"stage {number} of {sum(widths)}", sum(widths)
            row = outs[0].lanes[strides(loads[names[0]], outs[0].lanes).index(1)][1]
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
