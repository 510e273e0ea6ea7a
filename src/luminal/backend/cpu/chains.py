"""Chains of byte products: a sum of them stays in 16 bits as long as none can overflow.

    s1 = vpmaddubsw acc, a1, b1            p = products of a1, b1 in 16 bits
    s2 = vpmaddubsw s1, a2, b2      -->    p = p + products of a2, b2
    s3 = vpmaddubsw s2, a3, b3             p = p + products of a3, b3;  s3 = acc + neighbours of p

Four bits leave room for eight of them: half of the multiplications are saved. If such a sum starts
at zero and is only multiplied by 16 bits, its neighbours are not added before, but with it:

    s3 * w                       -->    neighbours of p * (w, w), added
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ...graph.dtype import i8, i16, u8
from ...kernel.program import For, Instruction, Program, Statement, Val
from ...lowering.verify import statements
from .instructions import Emission


def unfinished(program: Program, matrix: Mapping[str, Emission]) -> set[str]:
    """Results that only the next product of a chain reads, or one multiplication by 16 bits, and
    that may wait for it in 16 bits."""
    uses = Counter(val.name for val in _uses(program.body))
    made = {ins.out.name: ins for ins in _instructions(program.body) if ins.out}
    found: set[str] = set()
    nested = [s.body for s in statements(program.body) if not isinstance(s, Instruction)]
    for body in [program.body, *nested]:
        room: dict[str, float] = {}  # a result -> what its 16 bits can still take
        alone: set[str] = set()  # results that are sums of 16 bits and nothing else
        for ins in body:
            if not isinstance(ins, Instruction) or ins.out is None:
                continue
            for val, other in zip(ins.args, ins.args[::-1]):
                if ins.op == "mul" and val.name in alone and _narrow(other, made):
                    found.update({val.name} if uses[val.name] == 1 else ())
            if ins.op not in matrix or matrix[ins.op].short is None:
                continue
            emission, (acc, a, _) = matrix[ins.op], ins.args
            largest = min(_largest(made.get(a.name)), emission.instruction.most)
            cost = -2 * largest * emission.instruction.second.lowest
            if room.get(acc.name, 0) >= cost and uses[acc.name] == 1:
                found.add(acc.name)
                room[ins.out.name] = room[acc.name] - cost
            else:
                room[ins.out.name] = i16.highest - cost
            if (acc.literal and float(acc.name) == 0) or (acc.name in found & alone):
                alone.add(ins.out.name)
    return found


def _instructions(body: list[Statement]) -> Iterator[Instruction]:
    return (s for s in statements(body) if isinstance(s, Instruction))


def _uses(body: list[Statement]) -> Iterator[Val]:
    for s in statements(body):
        if isinstance(s, Instruction):
            yield from s.args
        elif isinstance(s, For):
            yield from (val for _, first, following, _ in s.carried for val in (first, following))


def _largest(ins: Instruction | None) -> float:
    """What an unsigned result does not exceed."""
    if ins is None or ins.op != "and":
        return float("inf")
    numbers = [int(a.name) for a in ins.args if a.literal]
    return min([n for n in numbers if n >= 0], default=float("inf"))


def _narrow(val: Val, made: Mapping[str, Instruction]) -> bool:
    """It was a number of at most 16 bits, with its sign."""
    ins = made.get(val.name)
    while ins is not None and ins.op == "expand":
        ins = made.get(ins.args[0].name)
    return ins is not None and ins.op == "cast" and ins.args[0].dtype in (u8, i8, i16)
