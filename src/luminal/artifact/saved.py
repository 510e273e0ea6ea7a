"""A compiled program as data: all that a later process needs to run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..kernel.program import Instruction, Parallel, Program, Statement
from ..kernel.target import Target
from ..lowering.library import GEMM
from ..runtime.contract import Interface
from ..runtime.plan import Plan
from ..runtime.report import Report


@dataclass(frozen=True)
class Saved:
    """report: with the plan. needs: what the backend says that a machine must have. codes: the
    object file of each kernel. interface: None where the graph itself is at hand. arrays: by port.
    made: what a program has made of parameters that it does not hold any more, as bytes. recording:
    the rows of a `Recording` (see recording.py), where there is an interface.
    """

    report: Report
    needs: tuple[str, ...]
    target: Target
    codes: tuple[bytes, ...]
    interface: Interface | None = None
    arrays: Mapping[int, np.ndarray] = field(default_factory=dict)
    made: Mapping[int, np.ndarray] = field(default_factory=dict)
    recording: Sequence[Any] = ()

    @property
    def plan(self) -> Plan:
        assert self.report.plan is not None
        return self.report.plan

    def described(self) -> Saved:
        """Without bytes and arrays, and without what only a compiler needs."""
        memories = [replace(memory, value=None) for memory in self.plan.memories]
        kernels = [replace(made, program=outline(made.program)) for made in self.plan.kernels]
        plan = replace(self.plan, memories=memories, kernels=kernels)
        bare = replace(self, codes=(), arrays={}, made={}, recording=())
        return replace(bare, report=replace(self.report, plan=plan))


def outline(program: Program) -> Program:
    """A program without its statements: how much it shares out, and among how many threads, is all
    that a run must know; of a call of a library, what it is called with."""
    (units,) = (s for s in program.body if isinstance(s, Parallel))
    if any(isinstance(s, Instruction) and s.op == GEMM for s in units.body):
        return program
    threads = [replace(s, body=[]) for s in units.body if isinstance(s, Parallel)]
    needed, kept = {units.count.name}, list[Statement]()
    for s in reversed(program.body):
        if isinstance(s, Instruction) and s.out and s.out.name in needed:
            kept.insert(0, s)
            needed.update(a.name for a in s.args)
    return replace(program, body=[*kept, replace(units, body=[*threads])])
