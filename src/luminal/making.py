"""Kernels as loop programs and machine code. Each distinct kernel of a program is a job; where
cores are free, helpers (processes that `main` serves) do a part of the jobs."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import cores
from .backend import devices
from .backend.ahead import Ahead
from .backend.contract import Accelerator
from .backend.devices import Device
from .backend.loops import loop_program, verify_loops
from .children import Helpers, serve
from .collecting import collected_later
from .earlier import Done, Earlier, Results
from .errors import Illegal, InputError
from .graph.passes import Program
from .jobs import Job, jobs_of
from .kernel.kernel import Buffer, Kernel, verify_scopes
from .kernel.schedule import Layout, Schedule
from .kernel.target import Target
from .kernel.work import usual_sizes
from .lowering.legal import check
from .planning import Planning, done_by_all
from .progress import showing
from .rewrite.lower_plan import Step
from .runtime.link import Made
from .runtime.plan import Compiled
from .runtime.report import Report, main_operations
from .scheduling.decisions import Choices, Decisions
from .scheduling.default import default_schedule
from .scheduling.divide import divided, plain_schedule
from .scheduling.laid_out import laid_out, makers_apart
from .scheduling.ranges import Settled
from .search.tune import Tuning

PROCESSES = "LUMINAL_COMPILE_PROCESSES"  # how many compile at most, this one among them
MOST = 8
NODES = 40  # distinct ones for each process: its start takes as long as two kernels


def helpers(program: Program, tuning: Tuning, report: Report) -> Helpers:
    """Processes to help with a program's kernels; none where it is small, or cores are few. They
    start while it is cut into these: how many there will be is guessed from its nodes."""
    asked = os.environ.get(PROCESSES) or str(MOST)
    if not asked.isdecimal():
        raise InputError(f"{PROCESSES}={asked!r}: expected a number of processes")
    own = 1 if getattr(sys, "frozen", False) else cores.count()  # no Python to start
    distinct = len({(node.op, node.shape, node.dtype) for node in program.nodes()})
    allowed = min(own, int(asked), distinct // NODES)
    opening = report.device, tuning.target, tuning.seed, tuning.database
    return Helpers(max(0, allowed - 1), __name__, *opening)


def make_all(
    groups: Iterable[Sequence[Step]], usual: Mapping[str, Sequence[int]], tuning: Tuning,
    report: Report, ahead: Ahead, others: Helpers, earlier: Earlier,
) -> Mapping[str, Made]:  # fmt: skip
    """What runs in place of each kernel, by the text of its canonical form. groups: steps that
    agree on how constants lie."""
    known = {tuple(id(step.kernel) for step in group): group for group in groups}
    jobs, parts = jobs_of(known.values(), usual)
    with report.stage("earlier"):
        done = {job.number: found for job in jobs if (found := earlier.find(job))}
    for each in done.values():
        ahead.known([one.program for one in each.all], each.codes)
    made = {number: each.kernels for number, each in done.items()}
    fresh = sorted((job for job in jobs if job.number not in made), key=lambda job: -job.values)
    made |= _made_now(fresh, tuning, report, ahead, others)  # the longest is not begun last
    for job in fresh:
        earlier.add(job, made[job.number])
    named = dict[str, Sequence[Compiled]]()
    for job in jobs:
        named |= _labelled(job, made[job.number])
    return {text: [(r, named[each]) for r, each in several] for text, several in parts.items()}


def _made_now(
    jobs: Sequence[Job], tuning: Tuning, report: Report, ahead: Ahead, others: Helpers
) -> dict[int, Results]:
    """By the numbers of the jobs, which helpers share."""

    def here(job: Job) -> Done:
        return Done(make(job, tuning, report, ahead), ())

    made = done_by_all(jobs, here, others, report, "making kernel")
    for _, done in made:
        if done.codes:  # a helper's
            ahead.known([one.program for one in done.all], done.codes)
    return {job.number: done.kernels for job, done in made}


def _labelled(job: Job, made: Results) -> Results:
    """As they would be named had they been made for this job: their functions may be another's."""
    heads = _heads(job)
    return {
        text: [replace(one, label=_name(next(heads), one.kernel)) for one in several]
        for text, several in made.items()
    }


def _heads(job: Job) -> Iterator[str]:
    """Numbers of its parts, with which names begin."""
    yield f"k{job.number}"
    yield from (f"k{job.number}_{part}" for part in itertools.count(2))


def _name(head: str, kernel: Kernel) -> str:
    """With what it mostly does."""
    return "_".join((head, *main_operations(kernel)))


def make(job: Job, tuning: Tuning, report: Report, ahead: Ahead) -> Results:
    """The loop programs of each kernel, and their machine code begun. The first that reads a
    constant says how it lies."""
    made, shared = dict[str, Sequence[Compiled]](), dict[Buffer, Layout]()
    heads = _heads(job)
    for text, (kernel, names) in job.kernels.items():
        programs = lower_kernel(kernel, tuning, report, Settled(shared=shared, names=names))
        programs = [_called(_name(next(heads), one.kernel), one) for one in programs]
        with report.stage("render"):
            for one in programs:
                ahead.start(one.program)
        made[text] = [_with_limit(one, tuning.backend) for one in programs]
    return made


def _called(name: str, made: Compiled) -> Compiled:
    kernel, program = replace(made.kernel, name=name), replace(made.program, name=name)
    return replace(made, kernel=kernel, program=program)


def main() -> None:
    """Serve jobs of another process; its first message says of which device and tuning."""
    known = list[tuple[str, Tuning]]()

    def answer(message: tuple[Any, ...]) -> Any:
        if not known:
            device, *rest = message
            known.append((device, Tuning(devices.find(device), *rest)))
            return None
        (job,) = message
        if isinstance(job, Planning):
            return job.planned(known[0][1])
        return made_for_another(job, *known[0])

    serve(answer)


def made_for_another(job: Job, device: str, tuning: Tuning) -> Done:
    """A job with its machine code."""
    report = Report(device, tuning.target.threads)
    with showing(False), collected_later(), Ahead(tuning.backend, tuning.target) as ahead:
        done = Done(make(job, tuning, report, ahead), ())
        return replace(done, codes=ahead.finished([one.program for one in done.all]))


# ---- one kernel


def _with_limit(made: Compiled, backend: Device) -> Compiled:
    """With a note of what bounds it, where the device knows."""
    if not isinstance(backend, Accelerator):
        return made
    found = backend.modelled(made.kernel, made.program, usual_sizes(made.kernel))
    return made if found is None else _noted(made, str(found))


def _noted(made: Compiled, *notes: str) -> Compiled:
    return replace(made, notes=(*made.notes, *notes))


def lower_kernel(
    kernel: Kernel, tuning: Tuning, report: Report, settled: Settled
) -> list[Compiled]:
    """Loop programs of a kernel: several where a long reduction is split, or where no schedule
    walks all of it. settled: layouts of constants to keep to; those decided here join them."""
    with report.stage("verify"):
        verify_scopes(kernel)
    with report.stage("prepare"):
        parts = tuning.prepared(kernel)
    makers, readers = makers_apart(parts)
    made = {id(part): _lower_parts([part], tuning, report, settled) for part in readers}
    layouts = settled.for_makers(readers)
    for maker in makers:  # each comes before its reader, and behind what it reads itself
        made[id(maker)] = _lower_parts(laid_out(maker, layouts), tuning, report, settled)
    return [each for part in parts for each in made[id(part)]]


def _lower_parts(
    parts: Sequence[Kernel], tuning: Tuning, report: Report, settled: Settled
) -> list[Compiled]:
    """Loop programs of prepared kernels, one after another."""
    todo, made = [(part, "") for part in parts], list[Compiled]()
    while todo:
        part, refused = todo.pop(0)
        try:
            made.append(_lower_part(settled.on(part), tuning, report))
        except Illegal as error:
            halves = [(half, f"part of a kernel: {error}") for half in divided(part)]
            if halves:
                todo = [*halves, *todo]
                continue
            alone = settled.on(part)
            plain = plain_schedule(alone, tuning.target)
            made.append(_lowered(alone, plain, tuning.target, report))
            refused = f"one point after another: {error}"
        settled.keep(part, made[-1].schedule)
        if refused:
            made[-1] = _noted(made[-1], refused)
    return made


def _lower_part(part: Kernel, tuning: Tuning, report: Report) -> Compiled:
    """With the best known choices; with the default's own where those no longer fit."""
    choices, notes, tried = tuning.known(part)
    try:
        lowered = lower_scheduled(part, tuning.target, choices, report)
    except Illegal as error:
        if not choices:
            raise
        notes = [f"stored choices were refused: {error}"]
        lowered = lower_scheduled(part, tuning.target, {}, report)
    return replace(lowered, notes=tuple(notes), tried=tuple(tried))


def lower_scheduled(part: Kernel, target: Target, choices: Choices, report: Report) -> Compiled:
    """The loop program of a prepared kernel under the default schedule with these choices."""
    with report.stage("schedule"):
        scheduled, schedule = default_schedule(part, target, Decisions(choices))
    try:
        return _lowered(scheduled, schedule, target, report)
    except Illegal:
        if target == target.in_vectors:
            raise
        return lower_scheduled(part, target.in_vectors, choices, report)


def _lowered(kernel: Kernel, schedule: Schedule, target: Target, report: Report) -> Compiled:
    """The loop program of a kernel under a schedule. Raises Illegal."""
    with report.stage("check"):
        check(kernel, schedule)
    with report.stage("lower"):
        program = loop_program(kernel, schedule, target)
    with report.stage("verify"):
        verify_loops(program)
    return Compiled(kernel, schedule, program)
