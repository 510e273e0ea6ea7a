"""Chains of byte products: a sum of them stays in 16 bits as long as none can overflow.

    s1 = vpmaddubsw acc, a1, b1            p = products of a1, b1 in 16 bits
    s2 = vpmaddubsw s1, a2, b2      -->    p = p + products of a2, b2
    s3 = vpmaddubsw s2, a3, b3             p = p + products of a3, b3;  s3 = acc + neighbours of p

Four bits leave room for eight of them: half of the multiplications are saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ...graph.dtype import i16
from ...kernel.program import For, Instruction, Program, Statement, Val
from ...lowering.verify import statements
from .instructions import Emission


def unfinished(program: Program, matrix: Mapping[str, Emission]) -> set[str]:
    """Results that only the next product of a chain reads, and that may wait for it in 16 bits."""
    uses = Counter(val.name for val in _uses(program.body))
    most = {ins.out.name: _largest(ins) for ins in _instructions(program.body) if ins.out}
    found: set[str] = set()
    nested = [s.body for s in statements(program.body) if not isinstance(s, Instruction)]
    for body in [program.body, *nested]:
        room: dict[str, float] = {}  # a result -> what its 16 bits can still take
        for ins in body:
            if not isinstance(ins, Instruction) or ins.op not in matrix or ins.out is None:
                continue
            emission, (acc, a, _) = matrix[ins.op], ins.args
            if emission.short is None:
                continue
            largest = min(most.get(a.name, float("inf")), emission.instruction.most)
            cost = -2 * largest * emission.instruction.second.lowest
            if room.get(acc.name, 0) >= cost and uses[acc.name] == 1:
                found.add(acc.name)
                room[ins.out.name] = room[acc.name] - cost
            else:
                room[ins.out.name] = i16.highest - cost
    return found


def _instructions(body: list[Statement]) -> Iterator[Instruction]:
    return (s for s in statements(body) if isinstance(s, Instruction))


def _uses(body: list[Statement]) -> Iterator[Val]:
    for s in statements(body):
        if isinstance(s, Instruction):
            yield from s.args
        elif isinstance(s, For):
            yield from (val for _, first, following, _ in s.carried for val in (first, following))


def _largest(ins: Instruction) -> float:
    """What an unsigned result does not exceed."""
    numbers = [int(a.name) for a in ins.args if a.literal] if ins.op == "and" else []
    return min([n for n in numbers if n >= 0], default=float("inf"))
