"""How much a program has to share out: what a launch is cut to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.dtype import i64
from ...graph.scalars import SCALARS, compute
from ...kernel.program import Instruction, Parallel, Program, Val


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
