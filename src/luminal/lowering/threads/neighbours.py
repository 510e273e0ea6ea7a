"""What a thread reads side by side, read at once: loads from one position of a memory that nobody
writes, under one condition, become loads of several numbers, made where the first of them stood."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ...graph.dtype import DType
from ...kernel.program import Instruction, Statement, Val

Where = tuple[object, ...]
Runs = Callable[[Val, list[int], DType], Iterable[tuple[int, int]]]


def side_by_side(
    body: list[Statement], written: Collection[str], runs: Runs, fresh: Callable[[DType, int], Val]
) -> list[Statement]:
    """The statements of one scope. runs: of places behind a position what one load takes, (first,
    count). fresh: names several numbers."""
    first: dict[str, Instruction] = {}  # by the name of what it replaces first
    parts: dict[str, tuple[Val, int]] = {}
    for loads in _alike(body, written):
        dtype, position = _out(loads[0]).dtype, loads[0].args[0]
        assert dtype is not None
        for at, count in runs(position, sorted({s.attrs[0] for s in loads}), dtype):
            if count > 1:
                same = [s for s in loads if at <= s.attrs[0] < at + count]
                several = fresh(dtype, count)
                first[_out(same[0]).name] = Instruction(several, "load", loads[0].args, (at,))
                parts |= {_out(s).name: (several, s.attrs[0] - at) for s in same}
    made: list[Statement] = []
    for s in body:
        if isinstance(s, Instruction) and s.out is not None and s.out.name in parts:
            made += [first[s.out.name]] if s.out.name in first else []
            several, number = parts[s.out.name]
            s = Instruction(s.out, "shuffle", (several, several), (number,))
        made.append(s)
    return made


def _out(s: Instruction) -> Val:
    assert s.out is not None
    return s.out


def _alike(body: list[Statement], written: Collection[str]) -> Iterable[list[Instruction]]:
    """Loads of numbers by where they begin: equal positions may have several names."""
    loads: dict[Where, list[Instruction]] = {}
    same: dict[str, Where] = {}

    def where(val: Val) -> Where:
        return same.get(val.name, (val.name, val.memory))

    for s in body:
        if isinstance(s, Instruction) and s.op == "offset":
            same[_out(s).name] = tuple(map(where, s.args))
        elif isinstance(s, Instruction) and s.op == "load" and s.args[0].memory not in written:
            position, *condition = s.args
            if _out(s).width == 1:
                key = where(position), *(mask.name for mask in condition)
                loads.setdefault(key, []).append(s)
    return loads.values()
