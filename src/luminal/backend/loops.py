"""The loop program that a machine runs: of vectors, as it is lowered, or, where lanes are threads
that work on a unit together, of what each of them does (`threads`); with narrow indices if it asks.
"""

from __future__ import annotations

from ..kernel.kernel import Kernel
from ..kernel.program import Program
from ..kernel.schedule import Schedule
from ..kernel.target import Target
from ..lowering.lower import lower
from ..lowering.verify import verify
from .threads.arrivals import check_arrivals
from .threads.narrow import narrow_indices
from .threads.rules import check_threads
from .threads.spread import spread
from .threads.staging import staged


def loop_program(kernel: Kernel, schedule: Schedule, target: Target) -> Program:
    """Raises Illegal where the schedule cannot be lowered for the target."""
    program = lower(kernel, schedule, target)
    if schedule.library:
        return program
    if target.group > 1:
        program = spread(staged(program, target, schedule.stages), target, _ordered(kernel))
    return narrow_indices(program, kernel.sizes) if target.index_bits == 32 else program


def verify_loops(program: Program) -> None:
    """Raise VerifyError at the first statement that breaks a rule, of programs or of threads."""
    verify(program)
    check_threads(program)
    check_arrivals(program)


def _ordered(kernel: Kernel) -> frozenset[str]:
    """Buffers in which an element may be stored more than once, or combined with what was there."""
    stores = (v.store for v in kernel.values if v.store)
    return frozenset(s.buffer for s in stores if s.ordered or s.mode != "set")
