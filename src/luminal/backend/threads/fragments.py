"""How the matrices of a program lie among threads, and how wide its vectors are."""

from __future__ import annotations

from ...errors import Illegal
from ...kernel.program import Instruction, Statement
from ...kernel.target import Fragment, Target
from ...lowering.place import Lanes
from ...lowering.verify import instructions, is_matrix
from .owners import wide


def most_lanes(ins: Instruction) -> int:
    return max((v.width for v in (*ins.args, *([ins.out] if ins.out else []))), default=1)


def fragments_of(body: list[Statement], target: Target) -> dict[Lanes, Fragment]:
    """How the matrices of a program lie, by their lanes."""
    known = {i.name: i.fragments for i in target.instructions}
    found: dict[Lanes, Fragment] = {}
    matrices = [s for s in instructions(body) if is_matrix(s)]
    pairs = [pair for s in matrices for pair in zip(s.args, known[s.op], strict=True)]
    staged = {val.memory: fragment for val, fragment in pairs if val.dtype is None}
    pairs += [(s.out, staged[s.args[0].memory]) for s in copies(body) if s.out]
    for val, fragment in pairs:
        if val.dtype and found.setdefault(val.lanes, fragment.ordered) != fragment.ordered:
            raise Illegal(f"{val.lanes} are rows here and columns there")
    for ins in instructions(body):
        if ins.op.startswith("across.") and ins.out and ins.out.lanes:
            (_, outer), (_, inner) = ins.args[0].lanes
            vector = Fragment((inner, outer), (0, 1), (1, 0), ((0, 0),))
            found.setdefault(ins.args[0].lanes, vector.ordered)
    if len({fragment.threads for fragment in found.values()}) > 1:
        raise Illegal("matrices of different numbers of threads")
    return found


def copies(body: list[Statement]) -> list[Instruction]:
    return [s for s in instructions(body) if s.op == "copy"]


def steps_apart(way: Fragment, side: int) -> list[int]:
    """How far apart the threads are that have others of the same row (0) or column (1)."""
    steps, bit = list[int](), 1
    for digit, *moves in zip(way.digits, way.rows, way.columns):
        if moves[1 - side]:
            if moves[side]:
                raise Illegal("threads have other rows and other columns")
            steps += (bit << n for n in range(digit.bit_length() - 1))
        bit *= digit
    return steps


def widest(body: list[Statement]) -> int:
    """Lanes of the widest vector that no matrix instruction touches."""
    matrices = {v.lanes for s in instructions(body) if is_matrix(s) for v in s.args}
    matrices |= {s.out.lanes for s in copies(body) if s.out}
    vectors = [v.lanes for s in instructions(body) for v in (*s.args, s.out) if v]
    free = (wide(x) for x in vectors if not any({*x} <= {*way} for way in matrices))
    return max(free, default=1)
