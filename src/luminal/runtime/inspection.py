"""What people may look at in a program that runs: where memory lies, texts of kernels, rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..backend.contract import Accelerator, Backend
from ..kernel.program import Program
from ..kernel.target import Target
from .plan import Compiled, Plan
from .show import program_text


def _lowered(made: Compiled, target: Target) -> Program:
    from ..backend.loops import loop_program  # for who looks: a run needs nothing of it

    return loop_program(replace(made.kernel, name=made.name), made.schedule, target)


def sources(
    plan: Plan, backend: Backend | Accelerator, threads: int = 1, flushes: bool = False
) -> dict[str, str]:
    """The text of each kernel and of each launch of several, by name: lowered again, for a kept
    program has no statements."""
    target = replace(backend.target(threads), flushes=flushes)
    programs = [_lowered(made, target) for made in plan.kernels]
    texts = {program.name: backend.render(program, target) for program in programs}
    if isinstance(backend, Accelerator):
        for joint in plan.joints:
            parts = tuple(programs[number] for number in joint.kernels)
            texts[joint.name] = backend.render_joined(replace(joint.program(plan), parts=parts))
    return texts


@dataclass(frozen=True)
class Placed:
    """A temporary memory in the arena: bytes at an offset, from a step of a run to another, both
    inclusive. On a device with buffers of its own these lie behind each other."""

    memory: int
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Inspected:
    """sizes: of the last run; running: the numbers of its calls; placed: its temporaries. Empty
    before a run. flushes: see `Target`."""

    plan: Plan
    backend: Backend | Accelerator
    threads: int
    sizes: Mapping[str, int]
    running: Sequence[int]
    placed: Sequence[Placed]
    flushes: bool = False

    def listing(self, kernel: int) -> dict[str, str]:
        """The texts on a kernel's way to machine code, by kind, in order."""
        made = self.plan.kernels[kernel]
        target = replace(self.backend.target(self.threads), flushes=self.flushes)
        program = _lowered(made, target)
        text = self.backend.render(program, target)
        if isinstance(self.backend, Accelerator):
            return {"loops": program_text(program), "source": text}
        assembly = self.backend.build([text], target)[0].assembly()
        return {"loops": program_text(program), "IR": text, "assembly": assembly}

    def rates(self) -> Mapping[str, float]:
        """What the device can do at most, measured now: see `Backend.rates`."""
        return self.backend.rates(self.threads)
