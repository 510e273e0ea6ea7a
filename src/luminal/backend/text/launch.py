"""How much a program has to share out: what a launch is cut to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.dtype import i64
from ...graph.scalars import SCALARS, compute
from ...kernel.program import Instruction, Parallel, Program, Val, start_of
from ...kernel.target import Costs, Target


def group_target(
    group: int, groups: int, shared: int, exchanges: bool = False, wide: int = 4
) -> Target:
    """So many threads work on a unit, each in a lane, and so many such groups at once. What lies
    far apart in lanes is as many loads; a sum of lanes takes a step for each bit of a lane."""
    return Target(
        "groups", vector_bytes=4 * group, registers=96, fma_ports=4, load_ports=1, l1=64 << 10,
        l2=4 << 20, l2_rate=64, l3=1 << 30, threads=groups, clock=1.5e9, bandwidth=2e11,
        index_bits=32, group=group, shared=shared, exchanges=exchanges, wide=wide,
        costs=Costs(masked=1, second=2, gather=8, transposed=group, straddled=0.25,
                    across=60 if exchanges else 200, cold=0),
    )  # fmt: skip


def units(program: Program, sizes: Sequence[int]) -> int:
    """The steps of its loop over units, at these run-time sizes."""
    before, loop = shared_out(program)
    return int(value(loop.count, computed(before, sizes_of(program, sizes))))


def shared_out(program: Program) -> tuple[list[Instruction], Parallel]:
    """(what stands before its loop over units, the loop)."""
    (loop,) = (s for s in program.body if isinstance(s, Parallel))
    return [s for s in program.body if isinstance(s, Instruction)], loop


def sizes_of(program: Program, sizes: Sequence[int]) -> dict[str, Any]:
    """What is known before it runs: its run-time sizes, and that memories begin at 0."""
    pairs = zip(program.sizes, sizes, strict=True)
    known = {f"%d_{name}": i64.numpy.type(size) for name, size in pairs}
    return known | {start_of(memory).name: i64.numpy.type(0) for memory in program.memories}


def value(val: Val, known: Mapping[str, Any]) -> Any:
    """A number; an array where many units are known at once."""
    if not val.literal:
        return known[val.name]
    assert val.dtype is not None
    return val.dtype.numpy.type((float if val.dtype.is_float else int)(val.name))


def computed(body: Sequence[Instruction], known: Mapping[str, Any]) -> dict[str, Any]:
    """With what is known, what instructions make of it: nothing where they take anything else."""
    found = dict(known)
    for s in body:
        if s.out is None or not all(a.literal or a.name in found for a in s.args):
            continue
        if s.op == "offset":
            found[s.out.name] = value(s.args[0], found) + np.int64(value(s.args[1], found))
        elif s.op in SCALARS and s.out.dtype:
            args = (value(a, found) for a in s.args)
            found[s.out.name] = compute(s.op, s.out.dtype, *args)
    return found
