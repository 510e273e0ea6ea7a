"""The schedules of one kernel as a space: what the default schedule decides, by name.

A point says which decisions are taken otherwise; the empty point is the default. The default's own
frames write the schedule of every point, so that nearly all points are legal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import CompileError, Illegal
from ..kernel.kernel import Kernel
from ..kernel.schedule import Schedule
from ..kernel.target import Target
from ..lowering.legal import check
from ..scheduling.decisions import Choice, Choices, Decision, Decisions
from ..scheduling.default import default_schedule
from .points import point_text


@dataclass(frozen=True, eq=False)
class Candidate:
    """A legal point: the schedule, and the kernel with the operand values that belong to it.

    decisions: all that were asked for on the way, which are the ways on from here.
    """

    choices: Mapping[str, Choice]
    kernel: Kernel
    schedule: Schedule
    decisions: Mapping[str, Decision]

    @property
    def name(self) -> str:
        return point_text(self.choices)


class Space:
    """All schedules of a prepared kernel for a target."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.default = self.at({})

    def at(self, choices: Choices) -> Candidate:
        """The candidate with these choices. Raises Illegal where there is none."""
        decisions = Decisions(choices)
        try:
            kernel, schedule = default_schedule(self.kernel, self.target, decisions)
            check(kernel, schedule)
        except Illegal:
            raise
        except (CompileError, ArithmeticError, AssertionError, LookupError, ValueError) as error:
            if not choices:
                raise
            raise Illegal(f"no schedule with {point_text(choices)}: {error!r}") from error
        return Candidate(decisions.point, kernel, schedule, decisions.made)
