"""The rules of a unit that threads work on together: all take the same way to every barrier."""

from __future__ import annotations

from ...kernel.program import (
    For,
    Instruction,
    Parallel,
    Program,
    Statement,
    When,
    instructions,
    statements,
)  # fmt: skip
from ...lowering.verify import LOADS, is_matrix, require

MEETINGS = ("barrier", "exchange", "settle", "settled")  # of all threads of a unit


def check_threads(program: Program) -> None:
    """Raise VerifyError at the first statement of a verified program that breaks a rule."""
    (units,) = (s for s in program.body if isinstance(s, Parallel))
    inner = [s for s in statements(units.body) if isinstance(s, Parallel)]
    shared = [tile.name for tile in program.tiles if tile.space == "shared"]
    if not inner:
        require(not shared, "a tile is shared by no threads")
        require(not _barriers(units.body), "a barrier without threads")
        return
    (threads, *more) = inner
    require(not more and threads.level == "threads", "one loop over threads")
    require(threads in units.body, "the loop over threads stands in that over units")
    require(threads.count.literal, "the number of threads is known")
    beside: list[Statement] = [s for s in units.body if s is not threads]
    writes = [s for s in instructions(beside) if s.out is None]
    require(not writes, "a store stands outside the loop over threads")
    require(not parted(threads), "a barrier that some threads may not come to")


def parted(threads: Parallel) -> bool:
    """Whether threads may take different ways to a barrier: what is read from memory may differ."""
    return _parted(threads.body, {threads.var.name})


def _parted(body: list[Statement], differs: set[str]) -> bool:
    for s in body:
        if isinstance(s, Instruction):
            if s.out and (s.op in LOADS or any(a.name in differs for a in s.args)):
                differs.add(s.out.name)
            continue
        how = s.condition if isinstance(s, When) else s.count
        if isinstance(s, For):
            differs |= {v.name for row in s.carried for v in (row[0], row[3])}
        meets = _barriers(s.body) or any(map(is_matrix, instructions(s.body)))
        if (how.name in differs and meets) or _parted(s.body, differs):
            return True
    return False


def _barriers(body: list[Statement]) -> bool:
    return any(s.op in MEETINGS for s in instructions(body))
