"""One case: compile ours, check it, load the peers, check them, time all in turns, check again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import LuminalError
from ..graph import Graph
from . import peers
from .case import TOLERANCE, Case, Mark, Work, difference
from .machine import Elsewhere, ceilings_of, on_first_processor, pin_workers, settle
from .paired import Call, Spread, interleaved
from .peers import PEERS, Side

OURS = "luminal"
BESIDE = ("read", "plain read", "copy", "plain")  # among the ceilings, and no instructions
NEAR = 0.85  # of a ceiling: a rival beyond leaves little to win


@dataclass(frozen=True)
class Options:
    """peers: by name. marked: only those that a case's marks are about, and PyTorch. rounds and
    seconds: of timing, seconds a side and round."""

    threads: int = 1
    peers: tuple[str, ...] = ("torch",)
    precision: str = "f32"
    search: int | str = 0
    rounds: int = 15
    seconds: float = 0.02
    marked: bool = False

    def peers_of(self, case: Case) -> tuple[str, ...]:
        """The peers that take part in a case."""
        wanted = ("torch", *case.rivals(self.precision, self.threads))
        return tuple(p for p in self.peers if not self.marked or p in wanted)


@dataclass(frozen=True)
class Cell:
    """One side of a case. ratio: its time over ours, round by round. setup: seconds to load or
    compile. error: largest difference from PyTorch over the largest value. fault: why there is no
    time; a wrong result is a fault. cpu: of setup, processor seconds, with children that ended."""

    setup: float = 0.0
    error: float | None = None
    time: Spread | None = None
    ratio: Spread | None = None
    fault: str | None = None
    cpu: float = 0.0


@dataclass(frozen=True)
class Row:
    """One case. bytes: the least that must move. ceilings: the least time by each of them, measured
    in the same rounds, and that of `Case.plain` for as many operations. marks: which it may reach.
    disturbed: share of the processors' time that went to other processes meanwhile, None if
    unknown."""

    name: str
    kind: str
    flops: float = 0.0
    bytes: int = 0
    ours: Cell = field(default_factory=Cell)
    peers: dict[str, Cell] = field(default_factory=dict)
    ceilings: dict[str, Cell] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    disturbed: float | None = None

    @property
    def bound(self) -> str | None:
        """The ceiling that binds: the best instruction, or reading; None where none was timed."""
        times = {name: cell.time.median for name, cell in self.ceilings.items() if cell.time}
        multiplying = [name for name in times if name not in BESIDE]
        best = min(multiplying, key=lambda name: times[name], default=None)
        found = [name for name in (best, "read") if name in times]
        return max(found, key=lambda name: times[name], default=None)

    def ratio(self, rival: str) -> float | None:
        """Time of a peer, or of a ceiling ("peak", "read"), over ours."""
        name = self.bound if rival == "peak" else rival
        cell = self.peers.get(name or "") or self.ceilings.get(name or "")
        return cell.ratio.median if cell and cell.ratio else None

    def wanted(self, mark: Mark) -> float:
        """The ratio of a mark; level is enough beside a peer that is near the ceiling itself."""
        share, ratio = self.ratio("peak"), self.ratio(mark.rival)
        near = share is not None and ratio is not None and share > NEAR * ratio
        return min(1.0, mark.ratio) if near and mark.rival in self.peers else mark.ratio

    def reached(self, mark: Mark) -> bool | None:
        """Whether its ratio stands where the mark wants it; None where it was not measured."""
        found = self.ratio(mark.rival)
        return None if found is None else found >= self.wanted(mark)


def measure(case: Case, options: Options, tell: Callable[[str], object] = str) -> Row:
    """The row of a case. Faults of either side are in the row; none is raised. tell: is called
    with the name of each side whose turn to compile comes, and with "timing"."""
    work = case.make()
    want = reference(work, options.threads)
    flops = float(counted(work) if work.flops is None else work.flops)
    size = work.bytes(want, options.precision)
    marks = case.marks_for(options.precision, options.threads)
    rivals = {mark.rival for mark in marks}
    bounds = ceilings_of(flops, size, options.precision, options.threads, rivals)
    if case.plain is not None and "plain" in rivals:
        tell("plain")
        plain = case.plain()
        bounds["plain"] = compiled(plain, options).run, flops / (plain.flops or flops)
    tolerance = TOLERANCE[options.precision]
    cells, sides = {}, {}
    limits: dict[str, Cell] = {}
    for name, load in loaders(work, options, options.peers_of(case)):
        tell(name)
        cells[name], side = _prepared(load, want, tolerance, options.threads)
        if side is not None:
            sides[name] = side
    settle()
    elsewhere = Elsewhere()
    if sides:
        tell("timing")
        timed, limits = _timed(cells, sides, bounds, want, tolerance, options)
        cells |= timed
    disturbed = elsewhere.share()
    ours = cells.pop(OURS)
    return Row(case.name, case.kind, flops, size, ours, cells, limits, marks, disturbed)


def loaders(
    work: Work, options: Options, peers: Sequence[str]
) -> list[tuple[str, Callable[[], Side]]]:
    """(name, how to get it running) of every side, ours first."""

    def peer(name: str) -> Callable[[], Side]:
        return lambda: PEERS[name].load(work, options.threads, options.precision)

    return [(OURS, lambda: compiled(work, options)), *((n, peer(n)) for n in peers)]


def compiled(work: Work, options: Options) -> Side:
    """Our program for a work."""
    if work.record is None:
        return through_torch(work, options)
    graph = Graph()
    inputs = [graph.tensor(a.shape, str(a.dtype)) for a in work.inputs]
    output = work.record(graph, inputs, work.state()).output()
    program = graph.compile(
        threads=options.threads, search=options.search, precision=options.precision, cache=False
    )
    for tensor, array in zip(inputs, work.inputs):
        program[tensor] = array
    return Side(program.run, lambda: np.array(program[output], np.float32))


def through_torch(work: Work, options: Options) -> Side:
    """Our program as `torch.compile` makes it."""
    from ..frontend.torch import backend

    ours = {name: getattr(options, name) for name in ("threads", "search", "precision")}
    return peers.compiled(work, options.threads, backend=backend, options=ours | {"cache": False})


def reference(work: Work, threads: int) -> np.ndarray:
    """What PyTorch computes, eager, in f32."""
    import torch

    torch.set_num_threads(threads)
    with torch.no_grad():
        result = work.module(*(torch.from_numpy(array) for array in work.inputs))
    return np.asarray(result.numpy())


def counted(work: Work) -> int:
    """Operations of the contractions of a module, as PyTorch counts them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        work.module(*(torch.from_numpy(array) for array in work.inputs))
    return int(counter.get_total_flops())


def _prepared(
    load: Callable[[], Side], want: np.ndarray, tolerance: float, threads: int
) -> tuple[Cell, Side | None]:
    """A side, running and right; or the fault."""
    start, busy = time.perf_counter(), sum(os.times()[:4])
    try:
        side = load()
        side.run()
        setup, cpu = time.perf_counter() - start, sum(os.times()[:4]) - busy
        pin_workers(side.run, threads)
        error = difference(side.result(), want)
    except Exception as fault:  # whatever a compiler raises is this row's fault, not the suite's
        return Cell(time.perf_counter() - start, fault=summary(fault)), None
    if not error <= tolerance:
        return Cell(setup, error, fault=f"wrong result: off by {error:.1e}"), None
    return Cell(setup, error, cpu=cpu), side


def summary(fault: BaseException) -> str:
    """An exception in one line."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    name = "" if isinstance(fault, LuminalError) and not lines else f"{type(fault).__name__}: "
    return f"{name}{text}"[:200]


def _timed(
    cells: dict[str, Cell],
    sides: dict[str, Side],
    bounds: Mapping[str, tuple[Call, float]],
    want: np.ndarray,
    tolerance: float,
    options: Options,
) -> tuple[dict[str, Cell], dict[str, Cell]]:
    """The cells with times, and those of the ceilings; a side whose result is wrong after all its
    runs loses its time."""
    runs: dict[str, Call] = {name: side.run for name, side in sides.items()}
    runs |= {_bound(name): run for name, (run, _) in bounds.items()}
    with on_first_processor():
        samples = interleaved(runs, options.rounds, options.seconds)

    def cell(taken: np.ndarray, before: Cell) -> Cell:
        ratio = Spread.of(taken / samples[OURS]) if OURS in samples else None
        return replace(before, time=Spread.of(taken), ratio=ratio)

    found = {}
    for name, side in sides.items():
        error = difference(side.result(), want)
        if error <= tolerance:
            found[name] = cell(samples[name], cells[name])
        else:
            fault = f"wrong result in some runs: off by {error:.1e}"
            found[name] = replace(cells[name], error=error, fault=fault)
    limits = {n: cell(samples[_bound(n)] * part, Cell()) for n, (_, part) in bounds.items()}
    return found, limits


def _bound(name: str) -> str:
    return f"ceiling {name}"


def failed(case: Case, peers: Sequence[str], fault: str) -> Row:
    """The row of a case that ended without one."""
    return Row(case.name, case.kind, ours=Cell(fault=fault), peers={name: Cell() for name in peers})
