"""Loads before what is computed with them: a thread of a GPU does its instructions in their order,
and the loads that it has passed wait for memory together. What matrix instructions read stays in
its order: their registers leave no room, and the next loads are to go on while they multiply."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from ...kernel.program import Instruction, Statement
from ..verify import STORES, instructions, is_matrix
from .in_turn import PURE

WORDS = 32  # registers of loads that are on their way at once


def loads_first(body: list[Statement], written: Collection[str]) -> list[Statement]:
    """The statements of one scope. written: memories that change: their loads stay in order."""
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

    loads = [n for n, s in enumerate(run) if s.op == "load" and s.args[0].memory not in written]
    while loads:
        finish(range(loads[0]))
        group, words = list[int](), 0
        addresses = set[int]()
        for n in loads:
            words += _words(run[n])
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


def _words(load: Instruction) -> int:
    assert load.out is not None and load.out.dtype is not None
    return max(1, load.out.width * load.out.dtype.bytes // 4)


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
