"""What a thread reads side by side, read at once: loads from one position of a memory that nobody
writes, under one condition, become loads of several numbers, made where the first of them stood."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...graph.dtype import DType, boolean
from ...kernel.program import Instruction, Statement, Val
from .aligned import Multiples, together

Where = tuple[object, ...]


def side_by_side(
    body: list[Statement], written: Collection[str], multiples: Multiples, most: int,
    fresh: Callable[[DType, int], Val],
) -> list[Statement]:  # fmt: skip
    """The statements of one scope. most: bytes of a load. fresh: names several numbers."""
    found = _Found(written)
    for s in body:
        if isinstance(s, Instruction):
            found.see(s)
    first: dict[str, Instruction] = {}  # by the name of what it replaces first
    parts: dict[str, tuple[Val, int]] = {}
    for loads in found.loads.values():
        dtype, position = _out(loads[0]).dtype, loads[0].args[0]
        assert dtype is not None
        places = sorted({s.attrs[0] for s in loads})
        for at, count in together(places, multiples.of(position), most // dtype.bytes):
            same = [s for s in loads if at <= s.attrs[0] < at + count]
            if count == 1 or count * dtype.bytes < 4:
                continue
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


class _Found:
    """Loads of numbers by where they begin: equal positions may have several names."""

    def __init__(self, written: Collection[str]) -> None:
        self.written = written
        self.loads: dict[Where, list[Instruction]] = {}
        self.same: dict[str, Where] = {}

    def see(self, s: Instruction) -> None:
        if s.op == "offset":
            self.same[_out(s).name] = tuple(self._key(a) for a in s.args)
        if s.op != "load" or s.args[0].memory in self.written:
            return
        out, (position, *condition) = _out(s), s.args
        if out.width == 1 and out.dtype and out.dtype.bytes <= 4 and out.dtype is not boolean:
            key = self._key(position), *(mask.name for mask in condition)
            self.loads.setdefault(key, []).append(s)

    def _key(self, val: Val) -> Where:
        return self.same.get(val.name, (val.name, val.memory))
