"""What a thread loads and computes for its stores alone, a few of these at a time: it holds the
sums of a tile already, and there is no room for as many numbers again."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from ...graph.scalars import SCALARS
from ...kernel.program import Instruction, Statement
from ..verify import STORES, instructions

FEW = 32  # numbers that are stored at a time: so many loads may wait for memory together
PURE = {*SCALARS, "fma", "offset", "pack", "shuffle"}


def few_at_a_time(body: list[Statement], written: Collection[str]) -> list[Statement]:
    """The statements of one scope. written: memories that change."""
    made: list[Statement] = []
    for straight, several in groupby(body, lambda s: isinstance(s, Instruction)):
        run = [*several]
        made += _in_turn(instructions(run), written) if straight else run
    return made


def _in_turn(run: list[Instruction], written: Collection[str]) -> list[Statement]:
    """The same, without loops and conditions inside."""
    later = _for_stores(run, written)
    if sum(s.out.width for s in later.values() if s.op == "load" and s.out) <= FEW:
        return list(run)
    made: list[Statement] = []
    stores: list[Instruction] = []

    def finish() -> None:
        wanted = {a.name for s in stores for a in s.args}
        for s in reversed(later.values()):  # uses before what they use
            if s.out and s.out.name in wanted:
                wanted.update(a.name for a in s.args)
        due = [name for name in later if name in wanted and name in seen]
        made.extend([*(later.pop(name) for name in due), *stores])
        stores.clear()

    seen = set[str]()
    for s in run:
        if s.out and s.out.name in later:
            seen.add(s.out.name)
        elif s.op in STORES:
            stores.append(s)
            if sum(each.args[0].width for each in stores) >= FEW:
                finish()
        else:
            if s.op not in PURE:
                finish()
            made.append(s)
    finish()
    return made


def _for_stores(run: list[Instruction], written: Collection[str]) -> dict[str, Instruction]:
    """What is loaded, of memories that do not change, and what is made of it, where nothing but
    stores of this run needs it: by name, in order."""
    loaded = set[str]()
    for s in run:
        fixed = s.op == "load" and s.args[0].memory not in written
        if s.out and (fixed or (s.op in PURE and any(a.name in loaded for a in s.args))):
            loaded.add(s.out.name)
    used, elsewhere = set[str](), set[str]()
    for s in reversed(run):
        name = s.out.name if s.out else ""
        alone = name in loaded and name in used and name not in elsewhere
        if alone or s.op in STORES:
            used.update(a.name for a in s.args)
        else:
            elsewhere.update(a.name for a in s.args)
    names = loaded & used - elsewhere
    return {s.out.name: s for s in run if s.out and s.out.name in names}
