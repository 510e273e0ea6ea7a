"""When a thread loads: what it reads side by side at once, what only its stores need a few of these
at a time, and all else before what is computed with it.

A thread does its instructions in their order, and the loads that it has passed wait for memory
together. But it holds the sums of a tile already: there is no room for as many numbers again. What
matrix instructions read stays in its order: their registers leave no room, and the next loads are
to go on while they multiply. All of that is about memories that do not change (others: `written`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby

from ...graph.dtype import DType
from ...graph.scalars import SCALARS
from ...kernel.program import Instruction, Statement, Val
from ...lowering.verify import STORES, instructions, is_matrix

FEW = 32  # numbers that are stored at a time: so many loads may wait for memory together
WORDS = 32  # registers of loads that are on their way at once
PURE = {*SCALARS, "fma", "offset", "pack", "shuffle"}

Where = tuple[object, ...]
Runs = Callable[[Val, list[int], DType], Iterable[tuple[int, int]]]


def _fixed(s: Statement, written: Collection[str]) -> bool:
    """A load that gives the same wherever it stands."""
    return isinstance(s, Instruction) and s.op == "load" and s.args[0].memory not in written


def _out(s: Instruction) -> Val:
    assert s.out is not None
    return s.out


# ---- side by side


def side_by_side(
    body: list[Statement], written: Collection[str], runs: Runs, fresh: Callable[[DType, int], Val]
) -> list[Statement]:
    """The statements of one scope: loads from one position, under one condition, are loads of
    several numbers, made where the first of them stood. runs: of places behind a position what one
    load takes, (first, count). fresh: names several numbers."""
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


def _alike(body: list[Statement], written: Collection[str]) -> Iterable[list[Instruction]]:
    """Loads of numbers by where they begin: equal positions may have several names."""
    loads: dict[Where, list[Instruction]] = {}
    same: dict[str, Where] = {}

    def where(val: Val) -> Where:
        return same.get(val.name, (val.name, val.memory))

    for s in (s for s in body if isinstance(s, Instruction)):
        if s.op == "offset":
            same[_out(s).name] = tuple(map(where, s.args))
        elif _fixed(s, written) and _out(s).width == 1:
            position, *condition = s.args
            key = where(position), *(mask.name for mask in condition)
            loads.setdefault(key, []).append(s)
    return loads.values()


# ---- for stores alone


def few_at_a_time(body: list[Statement], written: Collection[str]) -> list[Statement]:
    """The statements of one scope: what only its stores need, before a few of these."""
    made: list[Statement] = []
    for straight, several in groupby(body, lambda s: isinstance(s, Instruction)):
        run = [*several]
        made += _in_turn(instructions(run), written) if straight else run
    return made


def _in_turn(run: list[Instruction], written: Collection[str]) -> list[Instruction]:
    """The same, without loops and conditions inside."""
    later = _for_stores(run, written)
    if sum(_out(s).width for s in later.values() if s.op == "load") <= FEW:
        return run
    made: list[Instruction] = []
    stores: list[Instruction] = []

    def finish() -> None:
        wanted = {a.name for s in stores for a in s.args}
        for name, s in reversed(later.items()):  # uses before what they use
            wanted |= {a.name for a in s.args} if name in wanted else set()
        made.extend([*(later.pop(name) for name in [*later] if name in wanted), *stores])
        stores.clear()

    for s in run:
        if s.op in STORES:
            stores.append(s)
            if sum(each.args[0].width for each in stores) >= FEW:
                finish()
        elif not (s.out and s.out.name in later):
            if s.op not in PURE:
                finish()
            made.append(s)
    finish()
    return made


def _for_stores(run: list[Instruction], written: Collection[str]) -> dict[str, Instruction]:
    """What is loaded, and what is made of it, where nothing but stores of this run needs it: by
    name, in order."""
    loaded = set[str]()
    for s in run:
        made = s.op in PURE and any(a.name in loaded for a in s.args)
        if s.out and (made or _fixed(s, written)):
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


# ---- before what is computed


def loads_first(body: list[Statement], written: Collection[str]) -> list[Statement]:
    """The statements of one scope: loads before what is computed with them."""
    if any(isinstance(s, Instruction) and is_matrix(s) for s in body):
        return body
    made: list[Statement] = []
    for moves, several in groupby(body, _moves):
        run = [*several]
        made += _reordered(instructions(run), written) if moves else run
    return made


def _moves(s: Statement) -> bool:
    return isinstance(s, Instruction) and s.op in (*PURE, *STORES, "load")


def _reordered(run: list[Instruction], written: Collection[str]) -> list[Instruction]:
    """The same, of which nothing waits for other threads."""
    made: list[Instruction] = []
    number = {s.out.name: n for n, s in enumerate(run) if s.out}
    done = [False] * len(run)

    def finish(wanted: Sequence[int]) -> None:
        for n in wanted:
            if not done[n]:
                done[n] = True
                made.append(run[n])

    loads = [n for n, s in enumerate(run) if _fixed(s, written)]
    while loads:
        finish(range(loads[0]))
        group, words = list[int](), 0
        addresses = set[int]()
        for n in loads:
            words += _words(_out(run[n]))
            needed = _needed(run, number, n, done)
            if group and (words > WORDS or any(run[m].op not in PURE for m in needed)):
                break
            addresses |= needed
            group.append(n)
        finish(sorted(addresses))
        finish(group)
        loads = loads[len(group) :]
    finish(range(len(run)))
    return made


def _words(val: Val) -> int:
    assert val.dtype is not None
    return max(1, val.width * val.dtype.bytes // 4)


def _needed(
    run: list[Instruction], number: dict[str, int], which: int, done: Sequence[bool]
) -> set[int]:
    """What must be done before an instruction, and is not."""
    found, open_ = set[int](), [which]
    while open_:
        for arg in run[open_.pop()].args:
            n = number.get(arg.name)
            if n is not None and not done[n] and n not in found:
                found.add(n)
                open_.append(n)
    return found
