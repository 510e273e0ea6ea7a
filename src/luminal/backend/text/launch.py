"""How much a program has to share out: what a launch is cut to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.dtype import i64
from ...graph.scalars import SCALARS, compute
from ...kernel.program import Instruction, Parallel, Program, Val
from ...kernel.target import Costs, Target


def group_target(
    group: int, groups: int, shared: int, exchanges: bool = False, wide: int = 4
) -> Target:
    """So many threads work on a unit, each in a lane, and so many such groups at once. What lies
    far apart in lanes is as many loads; a sum of lanes takes a step for each bit of a lane."""
    return Target(
        "groups", vector_bytes=4 * group, registers=96, fma_ports=4, load_ports=1, l1=64 << 10,
        l2=4 << 20, l2_rate=64, l3=1 << 30, threads=groups, clock=1.5e9, bandwidth=2e11,
        index_bits=32, group=group, shared=shared, exchanges=exchanges,
        wide=wide,
        costs=Costs(masked=1, second=2, gather=8, transposed=group, straddled=0.25,
                    across=60 if exchanges else 200, cold=0),
    )  # fmt: skip


def units(program: Program, sizes: Sequence[int]) -> int:
    """The steps of its loop over units, at these run-time sizes."""
    known: dict[str, Any] = {
        f"%d_{name}": i64.numpy.type(size) for name, size in zip(program.sizes, sizes, strict=True)
    }

    def value(val: Val) -> Any:
        assert val.dtype is not None
        return val.dtype.numpy.type(int(val.name)) if val.literal else known[val.name]

    for s in program.body:
        if isinstance(s, Parallel):
            return int(value(s.count))
        if not isinstance(s, Instruction) or s.op not in SCALARS:
            continue
        if s.out and s.out.dtype and all(a.literal or a.name in known for a in s.args):
            known[s.out.name] = compute(s.op, s.out.dtype, *map(value, s.args))
    raise AssertionError("a program has a loop over units")
