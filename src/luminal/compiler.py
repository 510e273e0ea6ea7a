"""The compiler on one page: from a graph to a program that runs, stage by stage.

    passes -> normalise -> regions -> optimise -> lower the plan -> prepare -> schedule -> check
    -> lower -> verify -> render -> build -> link

Equal regions are optimised once, equal kernels are lowered once in a process; the repeats only cost
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from . import cores
from .artifact.executables import engine_of, saver
from .artifact.recalled import Note, recalled
from .artifact.recording import recorder
from .artifact.saved import Saved
from .artifact.shortcut import Shortcut
from .backend import devices
from .backend.ahead import Ahead
from .backend.contract import Accelerator, Kept
from .children import Helpers
from .collecting import collected_later
from .earlier import Earlier
from .errors import InputError
from .graph.graph import Graph
from .graph.passes import Pass, Program, program_of, run_passes
from .graph.stages import BasicBlock, Stage, blocks_of, stages_of
from .making import helpers, make_all
from .options import backend_of, checked_threads, usual_passes
from .planning import Planned, Planning, plan_regions
from .progress import tracked
from .rewrite.by_range import grouped
from .rewrite.normal import Normal
from .rewrite.normalise import normalise
from .rewrite.regions import regions
from .rewrite.terms import Region
from .runtime.contract import Interface
from .runtime.executable import Executable
from .runtime.interface import interface_of
from .runtime.interpreted import Interpreted
from .runtime.joining import joint_codes
from .runtime.link_stages import linked_plan
from .runtime.plan import Plan
from .runtime.recorded import executable_of_graph, known_values
from .runtime.report import Report
from .search.compare import check_results
from .search.plans import Chosen
from .search.programs import searched
from .search.tune import Budget, Tuning
from .store import Store

NOBODY, NONE = Helpers(0, ""), Earlier()
Plans: TypeAlias = Mapping[str, Chosen | Planned]  # by the keys of regions


def compile_graph(
    graph: Graph,
    device: str = "auto",
    search: int | str = 0,
    precision: str = "f32",
    threads: int | None = None,
    seed: int = 0,
    passes: Sequence[Pass] | None = None,
    database: str | Path | bool | None = None,
    cache: str | Path | bool | None = None,
    elsewhere: Callable[[], None] | None = None,
    check: bool = False,
    flush_denormals: bool = False,
    shortcut: Shortcut | None = None,
) -> Executable:
    """The graph's outputs and states, compiled.

    device: "cpu", "opencl", "reference" (NumPy, for checking), or "auto" (the fastest there is).
    threads: as many as the process may use if None. seed: of every random choice. passes: graph to
    graph, in order; None means `default_passes(precision)`. search: so many candidates for each
    distinct kernel, or a time for all ("30s", "5m"); 0 takes what earlier searches on this kind of
    machine have found for exactly these kernels, else sound defaults. database: the tuning database
    of a project, read before the user's and written instead; False: none. cache: the folder where
    compiled programs are kept for later processes, the user's if None; False: none is read or kept.
    elsewhere: has another process compile this graph; called where no program of it is kept. check:
    hold every kernel and all outputs against NumPy, on random and hostile inputs (slow).
    flush_denormals: kernels may take subnormal floats for zeros, on which processors of Intel spend
    many cycles (on x86; not where kernels are checked or searched, which compares them with NumPy).
    shortcut: where to note the program, for a later process that then need not record the graph.
    Raises DeviceError, Unsupported, InputError; where `check` finds a fault, WrongResult.
    """
    backend = backend_of(device)
    budget = Budget.of(search)
    if not graph.outputs and not graph.states:
        raise InputError("the graph has no output: call .output() on a tensor before compile()")
    threads = checked_threads(threads)
    report = Report(devices.resolved(device), threads or cores.count())
    with report.stage("passes"):
        program = run_passes(
            program_of(graph), usual_passes(precision, backend) if passes is None else passes
        )
    interface = interface_of(graph, program)
    if backend is None:
        return executable_of_graph(graph, interface, Interpreted(program), report, program)
    if budget is not None and isinstance(backend, Accelerator):
        backend.finish()  # raises DeviceError where it is not here to be timed
    target = backend.target(report.threads)
    compared = check or budget is not None
    flushes = flush_denormals and not compared
    target = replace(target, rounds=precision == "bf16", flushes=flushes)
    tuning = Tuning(backend, target, seed, database)
    note = None if shortcut is None else partial(_note, shortcut, graph, interface)
    saved = kept_program(program, tuning, budget, report, Store.of(cache), elsewhere, note)
    with saved.report.stage("place"):
        engine = engine_of(saved, backend, report.threads)
    if check:
        with saved.report.stage("compare"):
            check_results(program, interface, engine_of(saved, backend, report.threads))
    save = saver(saved, recorder(program, interface, report.threads, target))
    return executable_of_graph(graph, interface, engine, saved.report, program, save)


def kept_program(
    program: Program, tuning: Tuning, budget: Budget | None, report: Report, store: Store,
    elsewhere: Callable[[], None] | None, note: Note | None = None,
) -> Saved:  # fmt: skip
    """The program as an earlier compilation has kept it, if nothing is to be searched; else
    compiled now, and kept. note: called with the key that it is kept under."""
    make = partial(_native, program, tuning, budget, report)
    return recalled(program, tuning, report, store, make, budget is not None, elsewhere, note)


def _note(shortcut: Shortcut, graph: Graph, interface: Interface, key: str | None) -> None:
    """The way to a program that is kept now."""
    shortcut.keep(key, interface, known_values(graph))


@dataclass(frozen=True)
class Source:
    """A program in stages: basic blocks in named axes, cut into regions, and loops of such."""

    program: Program
    stages: Sequence[Stage]
    parts: Mapping[BasicBlock, tuple[Normal, Sequence[Region]]]

    @property
    def regions(self) -> list[Region]:
        return [region for _, found in self.parts.values() for region in found]

    @property
    def plannings(self) -> list[Planning]:
        """Of the distinct regions."""
        usual = self.program.graph.usual
        return [Planning(r, usual) for r in {r.key: r for r in self.regions}.values()]


def _native(program: Program, tuning: Tuning, budget: Budget | None, report: Report) -> Saved:
    """Everything between the graph and machine code."""
    others = NOBODY if budget is not None else helpers(program, tuning, report)
    with others, Ahead(tuning.backend, tuning.target) as ahead:
        plans: Plans = {}
        with collected_later():
            source = _source(program, report)
            if budget is None:
                plans = plan_regions(source.plannings, tuning, report, others)
        if budget is not None:
            with report.stage("search"), tuning:
                jobs = tracked("planning region", source.plannings)
                own = {each.region.key: each.chosen(tuning) for each in jobs}
                build = partial(_build, source, ahead)
                plans = searched(program, source.regions, own, build, tuning, budget, report)
        with collected_later():
            earlier = NONE if budget is not None else Earlier.of(tuning.backend, tuning.state)
            _, codes = _build(source, ahead, plans, tuning, report, others, earlier)
    needs, objects = tuning.backend.needs(tuning.target), tuple(code.code for code in codes)
    return Saved(report, needs, tuning.target, objects)


def _source(program: Program, report: Report) -> Source:
    """The program cut into regions."""
    with report.stage("normalise"):
        states = [source for source, _ in program.states]
        stages, space = stages_of(program.roots, states), program.graph.space
        normals = {
            block: normalise(
                space, block.kept, states, block.given, block.ends, block.steady
            )
            for block in blocks_of(stages)
        }
    with report.stage("regions"):
        parts = {block: (normal, regions(normal)) for block, normal in normals.items()}
    source = Source(program, stages, parts)
    places = {node.number: place for place, node in enumerate(program.nodes())}
    report.origins = [tuple(places[n] for n in region.origins) for region in source.regions]
    return source


def _build(
    source: Source, ahead: Ahead, plans: Plans, tuning: Tuning, report: Report,
    others: Helpers = NOBODY, earlier: Earlier = NONE,
) -> tuple[Plan, Sequence[Kept]]:  # fmt: skip
    """The kernels of these plans, linked, as machine code."""
    report.regions, report.distinct_regions = len(source.regions), len(plans)
    steps = {key: chosen.by_range for key, chosen in plans.items()}
    groups = [group for region in source.regions for group in grouped(steps[region.key])]
    made = make_all(groups, source.program.graph.usual, tuning, report, ahead, others, earlier)
    with report.stage("link"):
        plan = linked_plan(source.program, source.stages, source.parts, steps, made)
    report.plan = plan
    report.plans = [text for chosen in plans.values() for text in chosen.described]
    with report.stage("build"):
        codes = ahead.codes([made.program for made in plan.kernels])
        earlier.keep(ahead)
        if isinstance(tuning.backend, Accelerator):
            usual = source.program.graph.space.usual(tuning.target.hint)
            report.joined, more = joint_codes(
                plan, tuning.backend, tuning.target, codes, usual, tuning.joins
            )
            codes = [*codes, *more]
        return plan, codes
