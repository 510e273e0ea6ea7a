"""Indices in 32 bits where that is proven: what GPUs compute with in one instruction.

Every i64 has an interval: a run-time size from its bounds, a counter from its count, a result from
its operands. An operation whose operands and result all fit is done in i32. What data say is not
known, until it has been clamped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isinf

from ...graph.dtype import DType, i32, i64
from ...graph.space import RANGES, UNBOUNDED, Range, quotient, times
from ...kernel.program import For, Instruction, Parallel, Program, Statement, Val, When

LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1
KEPT = ("less", "equal", "offset", "gather_at", "scatter_at", "cast")  # take either width


def narrow_indices(program: Program, sizes: Mapping[str, Range]) -> Program:
    """The same program with narrow indices. sizes: bounds of run-time sizes."""
    return _Narrow(program, sizes).program()


def _shifted(a: Range, b: Range) -> Range:
    return quotient(a, (1 << int(b[0]), 1 << int(b[1]))) if 0 <= b[0] <= b[1] < 32 else UNBOUNDED


def _bits(most: float) -> Range:
    return UNBOUNDED if isinf(most) else (0, (1 << int(most).bit_length()) - 1)


RULES: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "mul": times,
    "min": RANGES["min"],
    "max": RANGES["max"],
    "mod": lambda a, b: (0, b[1] - 1) if b[0] > 0 else UNBOUNDED,
    "floor_div": lambda a, b: quotient(a, b) if b[0] > 0 else UNBOUNDED,
    "shift_right": _shifted,
    "expand": lambda a: a,
    "xor": lambda a, b: _bits(max(a[1], b[1])) if min(a[0], b[0]) >= 0 else UNBOUNDED,
}


class _Narrow:
    def __init__(self, program: Program, sizes: Mapping[str, Range]) -> None:
        self.before, self.sizes = program, sizes
        self.intervals: dict[str, Range] = {}
        self.narrow: dict[str, Val] = {}  # i64 name -> the same number in 32 bits
        self.gone: set[str] = set()  # names that are defined in 32 bits only
        self.body: list[Statement] = []
        self.count = 0

    def program(self) -> Program:
        for name in self.before.sizes:
            size = Val(f"%d_{name}", i64)
            self.intervals[size.name] = self.sizes.get(name, UNBOUNDED)
            self._shorten(size)
        self._statements(self.before.body)
        return replace(self.before, body=self.body)

    # ---- values

    def interval(self, val: Val) -> Range:
        if val.literal:
            return int(val.name), int(val.name)
        return self.intervals.get(val.name, UNBOUNDED)

    def _fits(self, val: Val) -> bool:
        low, high = self.interval(val)
        return low >= LOWEST and high <= HIGHEST and (val.literal or val.name in self.narrow)

    def _short(self, val: Val) -> Val:
        return replace(val, dtype=i32) if val.literal else self.narrow[val.name]

    def _shorten(self, val: Val) -> None:
        """A number that was computed in 64 bits and fits, as one of 32."""
        low, high = self.interval(val)
        if low >= LOWEST and high <= HIGHEST:
            self.narrow[val.name] = self._cast(val, i32)

    def _cast(self, val: Val, dtype: DType) -> Val:
        self.count += 1
        made = replace(val, name=f"%n{self.count}", dtype=dtype)
        self.body.append(Instruction(made, "cast", (val,)))
        return made

    def _wide(self, val: Val) -> Val:
        return self._cast(self.narrow[val.name], i64) if val.name in self.gone else val

    # ---- statements

    def _statements(self, body: Sequence[Statement]) -> None:
        for statement in body:
            if isinstance(statement, Instruction):
                self._instruction(statement)
            elif isinstance(statement, When):
                inside = self._inside(statement.body)
                self.body.append(replace(statement, body=inside))
            else:
                self._loop(statement)

    def _inside(self, body: Sequence[Statement], uses: Sequence[Val] = ()) -> list[Statement]:
        """A body of its own; what it ends with is wide."""
        outer, self.body = self.body, []
        self._statements(body)
        self.ends = [self._wide(val) for val in uses]
        inside, self.body = self.body, outer
        return inside

    def _loop(self, loop: For | Parallel) -> None:
        count, var = self._wide(loop.count), loop.var
        high = self.interval(loop.count)[1]
        if self._fits(loop.count) and high >= 1:
            count, var = self._short(loop.count), replace(loop.var, dtype=i32)
            self.intervals[var.name] = (0, high - 1)
            self.narrow[var.name] = var
            self.gone.add(var.name)
        if isinstance(loop, Parallel):
            self.body.append(replace(loop, var=var, count=count, body=self._inside(loop.body)))
            return
        first = [self._wide(initial) for _, initial, _, _ in loop.carried]
        inside = self._inside(loop.body, [following for _, _, following, _ in loop.carried])
        rows = [(row[0], a, b, row[3]) for row, a, b in zip(loop.carried, first, self.ends)]
        self.body.append(For(var, count, inside, rows))

    def _instruction(self, ins: Instruction) -> None:
        out, moved = ins.out, ins.args[:1] if ins.op == "scatter_at" else ()  # as memory has it
        indices = [a for a in ins.args if a.dtype is i64 and a not in moved]
        short = all(self._fits(a) for a in indices)
        if out is not None and out.dtype is i64 and self._computed(ins, out, short):
            return
        keep = short and ins.op in KEPT and bool(indices)
        args = [self._short(a) if keep and a in indices else self._wide(a) for a in ins.args]
        self.body.append(replace(ins, args=tuple(args)))
        if out is not None and out.dtype is i64:
            self._shorten(out)

    def _computed(self, ins: Instruction, out: Val, short: bool) -> bool:
        """An index that is computed in 32 bits, if its interval is known to allow that."""
        if ins.op == "iota":
            ends = (0, ins.attrs[0] * (out.width - 1))
            found: Range = (min(ends), max(ends))
        elif ins.op in RULES:
            found = RULES[ins.op](*map(self.interval, ins.args))
        else:
            return False
        self.intervals[out.name] = found
        if not short or not (found[0] >= LOWEST and found[1] <= HIGHEST):
            return False
        self.narrow[out.name] = made = replace(out, dtype=i32)
        self.gone.add(out.name)
        self.body.append(replace(ins, out=made, args=tuple(map(self._short, ins.args))))
        return True
