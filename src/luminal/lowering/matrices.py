"""Registers of matrices: which one each matrix of a loop program has, and how its rows lie in
memory. An accumulator keeps its register from loop to loop, an operand has one until its last use:
nothing is ever spilled. Raises Illegal where there are too few, or where something else is done
with a matrix than to load, multiply and store it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from ..errors import Illegal
from ..kernel.program import For, Instruction, Program, Statement, Val
from ..kernel.target import MatrixInstruction
from .place import strides
from .verify import LOADS, STORES, instructions, statements


def registers(
    program: Program, known: Collection[MatrixInstruction]
) -> Mapping[str, tuple[int, int]]:
    """Value -> (its register, elements between its rows where it is loaded or stored; 0)."""
    own = {i.name: i for i in known if i.registers}
    if not any(s.op in own for s in instructions(program.body)):
        return {}
    plan = _Plan(program, own)
    plan.body(program.body)
    return {name: (number, plan.apart.get(name, 0)) for name, number in plan.numbers.items()}


class _Plan:
    """numbers: what each matrix has or had; held: which of them are wanted still."""

    def __init__(self, program: Program, own: Mapping[str, MatrixInstruction]) -> None:
        self.own, self.side = own, dict[str, int]()  # a matrix -> which operand of a product
        self.shape: dict[str, MatrixInstruction] = {}
        self.last: dict[str, Statement] = {}  # after which nobody wants it
        self.numbers: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.apart: dict[str, int] = {}
        self.free = list(range(min(i.registers for i in own.values())))
        known = -1
        while known < len(self.side):  # what a loop carries is a matrix if what it gives on is one
            known = len(self.side)
            self._find(program.body)
        self._look(program.body)

    def _is(self, val: Val | None) -> bool:
        return val is not None and not val.literal and val.name in self.side

    def _find(self, body: list[Statement]) -> None:
        for s in statements(body):
            if isinstance(s, For):
                for row in s.carried:
                    names = {v.name for v in row if not v.literal}
                    for name in names & self.side.keys():
                        self._note(self.shape[name], 0, names)
            elif isinstance(s, Instruction) and s.op in self.own and s.out:
                for side, v in (*enumerate(s.args), (0, s.out)):
                    self._note(self.own[s.op], side, {v.name} if not v.literal else set())

    def _note(self, instruction: MatrixInstruction, side: int, names: set[str]) -> None:
        self.side |= dict.fromkeys(names, side)
        self.shape |= dict.fromkeys(names, instruction)

    def _look(self, body: list[Statement]) -> set[str]:
        """Note the last use of each; gives those of outside that the body uses."""
        used, made = set[str](), set[str]()
        for s in body:
            if isinstance(s, Instruction):
                wanted = {v.name for v in s.args if self._is(v)}
                made |= {s.out.name} if s.out else set()
            else:
                rows = s.carried if isinstance(s, For) else []
                self.last |= {row[2].name: s for row in rows}
                wanted = self._look(s.body) - {row[0].name for row in rows}
                wanted |= {row[1].name for row in rows if self._is(row[1])}
                made |= {row[3].name for row in rows}
            self.last |= dict.fromkeys(wanted, s)
            used |= wanted
        return used - made

    # ---- statements, in order

    def body(self, body: list[Statement]) -> None:
        for s in body:
            if isinstance(s, Instruction):
                if any(map(self._is, (*s.args, s.out))):
                    self._instruction(s)
                continue
            rows = [row for row in s.carried if self._is(row[0])] if isinstance(s, For) else []
            carried = [self._started(first, s) for _, first, _, _ in rows]
            for row, number in zip(rows, carried):
                self._give(row[0], number)
            self.body(s.body)
            if [self.held.pop(row[2].name, None) for row in rows] != carried:
                raise Illegal("a matrix changes its register in a loop")
            self._over(s)
            for row, number in zip(rows, carried):
                self._give(row[3], number)

    def _instruction(self, s: Instruction) -> None:
        stored = s.op in STORES and len(s.args) == 2
        if s.op in self.own and s.out:
            acc, a, b = s.args
            number = self._started(acc, s)
            if not {a.name, b.name} <= self.held.keys():
                raise Illegal("an operand that is in no register")
            self._over(s)
            self._give(s.out, number)
        elif stored or (s.op in LOADS and len(s.args) == 1 and s.out):
            val = s.args[0] if stored else s.out
            assert val is not None
            self.apart[val.name] = self._rows_apart(s, val)
            if stored:
                self._over(s)
            else:
                self._give(val, self._taken())
        else:
            raise Illegal(f"{s.op} of a matrix")

    def _rows_apart(self, s: Instruction, val: Val) -> int:
        """A row holds the innermost lanes side by side; of a second operand the collapsed lanes but
        for the last are rows."""
        made, side = self.shape[val.name], self.side[val.name]
        second = side == 2
        sizes, steps = [n for _, n in val.lanes], [*strides(s, val.lanes)]
        rows, apart = sizes.pop(second), steps.pop(second)
        near = [prod(sizes[n + 1 :]) for n in range(len(sizes))]
        wanted = (made.collapse // made.together, made.columns * made.together)
        wanted = wanted if second else (made.rows, made.collapse if side else made.columns)
        if (rows, prod(sizes)) != wanted or steps != near or apart < prod(sizes):
            raise Illegal(f"{s.op} of a matrix whose rows do not lie side by side")
        if self.apart.get(val.name, apart) != apart:
            raise Illegal("a matrix that lies in two ways")
        return apart

    # ---- registers

    def _taken(self) -> int:
        if not self.free:
            raise Illegal("more matrices are held at once than there are registers")
        return self.free.pop(0)

    def _give(self, val: Val, number: int) -> None:
        self.numbers[val.name] = self.held[val.name] = number

    def _started(self, val: Val, s: Statement) -> int:
        """The register of an accumulator that a statement goes on with: no one else may want it."""
        if val.literal:
            if float(val.name) != 0:
                raise Illegal("a matrix starts at another number than 0")
            return self._taken()
        if self.last[val.name] is not s or val.name not in self.held:
            raise Illegal("an accumulator is wanted again after a product")
        return self.held.pop(val.name)

    def _over(self, s: Statement) -> None:
        """Nobody wants these after a statement: their registers are free."""
        for name in [name for name in self.held if self.last.get(name) is s]:
            self.free.append(self.held.pop(name))
