"""What the compiler did, kept for `explain()`: stages with times, kernels with their meaning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape

from ..graph.scalars import SCALARS
from ..kernel.kernel import Apply, Kernel, Value, walk
from ..kernel.work import usual_sizes, work
from .plan import Compiled, Loop, Plan

COSTLY = 6  # vector instructions: an operation that names a kernel
NAMED = 3  # operations in a name


@dataclass
class Report:
    """The record of one compilation."""

    device: str
    threads: int
    stages: dict[str, float] = field(default_factory=dict)  # seconds
    regions: int = 0
    distinct_regions: int = 0
    plans: list[str] = field(default_factory=list)
    origins: list[tuple[int, ...]] = field(default_factory=list)  # of each region: nodes' positions
    plan: Plan | None = None
    search: list[str] = field(default_factory=list)  # how plans were chosen
    joined: list[str] = field(default_factory=list)  # launches of several kernels

    def again(self) -> Report:
        """The record of a program that is only made to be measured."""
        return Report(self.device, self.threads)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; the times of a name add up."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + time.perf_counter() - start

    @property
    def kernels(self) -> list[Compiled]:
        """The distinct kernels, in the order of their first call."""
        return self.plan.kernels if self.plan else []

    @property
    def calls(self) -> list[str]:
        """Names of the kernels that one run calls, in order."""
        return [self.kernels[c.kernel].name for c in self.plan.running()] if self.plan else []

    def _repr_html_(self) -> str:
        """For notebooks."""
        whole = f"{self.regions} regions, {sum(self.stages.values()):.2f} s"
        text = escape(self.text())
        return f"<details><summary>Report({whole})</summary><pre>{text}</pre></details>"

    def text(self) -> str:
        """The report as text."""
        lines = [f"device {self.device}, {self.threads} threads"]
        lines += [f"  {name:<12} {1000 * spent:9.1f} ms" for name, spent in self.stages.items()]
        if self.plan is None:
            return "\n".join(lines + ["every node runs in NumPy: no kernels"])
        fixed = [call for call in self.plan.calls if call.constant]
        lines += [
            f"regions: {self.regions}, of which {self.distinct_regions} distinct",
            f"kernels: {len(self.kernels)} distinct, {len(self.calls)} calls in a run, "
            f"{len(fixed)} when parameters are set",
            self._origins(),
            *(self._loop(loop) for loop in reversed(self.plan.loops)),
            *self.search,
            *self.joined,
        ]
        for made in self.kernels:
            lines += ["", *describe(made, self.count(made))]
            lines += [f"    {note}" for note in made.notes]
        return "\n".join(lines)

    def _origins(self) -> str:
        """How the kernels were made."""
        libraries = [made.schedule.library for made in self.kernels if made.schedule.library]
        lowered = f"{len(self.kernels) - len(libraries)} lowered from schedules"
        names = ", ".join(dict.fromkeys(libraries))
        return f"{lowered}, {len(libraries)} library calls ({names})" if libraries else lowered

    def _loop(self, loop: Loop) -> str:
        """What runs again and again."""
        assert self.plan is not None
        calls = [c for c in self.plan.calls[loop.start : loop.stop] if not c.constant]
        names = ", ".join(dict.fromkeys(self.kernels[c.kernel].name for c in calls))
        steps = "steps while it holds" if loop.length is None else f"{loop.length} steps"
        text = f"loop: {steps} of {len(calls)} calls ({names}), {len(loop.carried)} carried"
        here = sum(carried.spare == carried.result for carried in loop.carried)
        return text + (f", {here} of them in place" if here else "")

    def count(self, made: Compiled) -> int:
        """How often a run calls this kernel."""
        return self.calls.count(made.name)


def describe(made: Compiled, calls: int) -> list[str]:
    """A kernel in a few lines: what it fuses, what it costs, how it runs."""
    done = work(made.kernel)
    sizes = ", ".join(f"{n} = {v}" for n, v in usual_sizes(made.kernel).items())
    head = f"{made.name}: {calls} calls, {len(made.kernel.values)} values"
    cost = f"{done.flops / 1e6:.3f} Mflop, {done.bytes / 1e6:.3f} MB"
    lines = [f"{head}, {cost}, {sizes}" if sizes else f"{head}, {cost}"]
    lines += [f"    {describe_value(value)}" for value in made.kernel.values]
    lines += [f"    | {line}" for line in made.schedule.text().splitlines()]
    return lines


def describe_value(value: Value) -> str:
    """v2[a0] = sum over a1 of mul exp2 -> b3."""
    ops = [e.op for body in value.expressions() for e in walk(body) if isinstance(e, Apply)]
    body = " ".join(dict.fromkeys(ops)) or "copy"
    if value.reduction:
        over = " ".join(value.reduction.over)
        online = " (online)" if value.reduction.rescale else ""
        body = f"{value.reduction.op}{online} over {over} of {body}"
    stored = f" -> {value.store.buffer}" if value.store else ""
    return f"{value.name}[{' '.join(value.axes)}] = {body} : {value.dtype}{stored}"


def main_operations(kernel: Kernel) -> list[str]:
    """Reductions and costly operations, in order; cheap ones only where there is nothing else."""
    reductions = [v.reduction.op for v in kernel.values if v.reduction]
    applied = [
        e.op for v in kernel.values for root in v.expressions() for e in walk(root)
        if isinstance(e, Apply)
    ]  # fmt: skip
    costly = [op for op in applied if SCALARS[op].cost >= COSTLY]
    found = list(dict.fromkeys(reductions + costly)) or list(dict.fromkeys(applied))
    return found[:NAMED] or ["copy"]
