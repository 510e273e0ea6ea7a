"""A search over a program: plans by measured kernels, schedules for the kernels of all its plans;
then whole programs race, the untuned one among them, and what the winner takes is kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

from ..backend.contract import Accelerator, Code, Kept
from ..backend.loops import loop_program
from ..errors import Illegal
from ..graph.dtype import DType
from ..graph.passes import Program
from ..kernel.canonical import canonical
from ..kernel.kernel import Kernel
from ..kernel.ranges import kernels_by_range
from ..kernel.target import Target
from ..lowering.legal import check
from ..progress import tracked
from ..rewrite.terms import Region
from ..runtime.interface import interface_of
from ..runtime.native import Native
from ..runtime.offloaded import Offloaded
from ..runtime.plan import Plan
from ..runtime.report import Report, main_operations
from ..scheduling.default import default_schedule
from ..scheduling.divide import divided
from ..scheduling.ranges import Settled
from . import launches
from .plans import Chosen, clearly_better, compared
from .tune import Budget, Task, Tuning
from .whole import Engine, fastest

CLEAR_GAIN = 1.1  # of a kernel measured alone: less may be none beside the others
Plans: TypeAlias = Mapping[str, Chosen]  # by the keys of regions
Rival: TypeAlias = tuple[Plans, float]  # plans; least gain of a kernel's choices
Build: TypeAlias = Callable[[Plans, Tuning, Report], tuple[Plan, Sequence[Kept]]]


def searched(
    program: Program, regions: Sequence[Region], plans: Plans, build: Build, tuning: Tuning,
    budget: Budget, report: Report,
) -> Plans:  # fmt: skip
    """The plans to take; the choices for kernels are kept by `tuning`. plans: the untuned ones."""
    found = {key: tuning.measured_plans(plans[key], budget)
             for key in tracked("measuring plans of region", list(plans))}  # fmt: skip
    better = {key: clearly_better(several) for key, several in found.items()}
    tuning.search(_tasks(program, regions, [plans, better], tuning, budget), budget)
    report.search += [compared(several) for several in found.values() if len(several) > 1]
    report.search += tuning.splits
    rivals = {"the defaults": (plans, math.inf)}
    if tuning.gains:
        rivals |= {"clear gains": (plans, CLEAR_GAIN), "all gains": (plans, 1.0)}
    if any(better[key] is not several[0] for key, several in found.items()):
        rivals["the measured plans"] = better, 1.0
    plans, least = _raced(program, rivals, build, tuning, report)
    tuning.settle(least)
    for key, chosen in plans.items():
        tuning.keep_plan(key, chosen)
    if isinstance(tuning.backend, Accelerator):
        plan, codes = build(plans, tuning, report.again())
        usual = program.graph.space.usual(tuning.target.hint)
        report.search += launches.settle(plan, codes, tuning, usual, partial(_inputs, program))
    return plans


def _raced(
    program: Program, rivals: Mapping[str, Rival], build: Build, tuning: Tuning, report: Report
) -> Rival:
    """The fastest whole program; the first where none is clearly faster."""
    if len(rivals) == 1:
        return next(iter(rivals.values()))
    engines: list[Engine] = []
    built, backend, timer = [], tuning.backend, None
    for plans, tuning.least in tracked("building whole program", list(rivals.values())):
        plan, codes = build(plans, tuning, report.again())
        built.append(plan)
        if isinstance(backend, Accelerator):
            engines.append(Offloaded(plan, [code.code for code in codes], backend))
            timer = backend.seconds
        else:
            engines.append(Native(plan, cast(Sequence[Code], codes), backend, report.threads))
    sizes = program.graph.space.usual(tuning.target.hint)
    inputs = _inputs(program, sizes)
    kernels = [made.kernel for made in built[0].kernels]
    outputs = len(built[0].outputs)
    number, times = fastest(engines, inputs, sizes, report.threads, outputs, kernels, timer)
    texts = [f"{name} {time:.3f}" if time < math.inf else f"{name} WRONG"
             for name, time in zip(rivals, times)]  # fmt: skip
    report.search.append(f"whole programs, in times of the first: {', '.join(texts)}")
    return list(rivals.values())[number]


def _inputs(
    program: Program, sizes: Mapping[str, int]
) -> dict[int, tuple[DType, tuple[int, ...]]]:
    """dtype and shape of each port that is needed."""
    return {
        number: (port.dtype, tuple(int(n.evaluate(sizes)) for n in port.shape))
        for number, port in enumerate(interface_of(program.graph, program).ports)
        if port.needed
    }


def _tasks(
    program: Program, regions: Sequence[Region], rivals: Sequence[Plans], tuning: Tuning,
    budget: Budget,
) -> list[Task]:  # fmt: skip
    """The prepared kernels of every run under any of the plans, with how often it calls them."""
    tasks, usual = [], program.graph.usual
    prepare = partial(tuning.measured_parts, budget=budget)
    counted = Counter(region.key for region in regions)
    for key, calls in tracked("measuring parts of region", list(counted.items())):
        several = {id(plans[key]): plans[key] for plans in rivals}
        for _, step in (each for chosen in several.values() for each in chosen.by_range):
            if not step.constant:
                parts = _prepared_by_range(step.kernel, usual, tuning.target, prepare)
                tasks += [Task(part, calls, "_".join(main_operations(part)))
                          for whole in parts for part in _legal(whole, tuning.target)]  # fmt: skip
    return tasks


def _prepared_by_range(
    kernel: Kernel,
    usual: Mapping[str, Sequence[int]],
    target: Target,
    prepare: Callable[[Kernel], Sequence[Kernel]],
) -> list[Kernel]:
    """The prepared kernels of all ranges, with constants as the first lays them out."""
    settled, found = Settled(), []
    for _, each in kernels_by_range(canonical(kernel)[0], usual):
        for part in prepare(canonical(each)[0]):
            found.append(settled.on(part))
            settled.keep(part, default_schedule(found[-1], target)[1])
    return found


def _legal(part: Kernel, target: Target) -> list[Kernel]:
    """The kernel, or what it is divided into where it has no default schedule; nothing where only
    the plain one is left."""
    try:
        scheduled, schedule = default_schedule(part, target)
        check(scheduled, schedule)
        loop_program(scheduled, schedule, target)
    except Illegal:
        return [each for half in divided(part) for each in _legal(half, target)]
    return [part]
