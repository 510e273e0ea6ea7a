"""One case: compile ours, check it, load the peers, check them, time all in turns, check again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import LuminalError
from ..graph import Graph
from .case import TOLERANCE, Case, Work, difference
from .machine import Elsewhere, on_first_processor, pin_workers
from .paired import Spread, interleaved
from .peers import PEERS, Side

OURS = "luminal"


@dataclass(frozen=True)
class Options:
    """peers: by name. rounds and seconds: of timing, seconds a side and round."""

    threads: int = 1
    peers: tuple[str, ...] = ("torch",)
    precision: str = "f32"
    search: int | str = 0
    rounds: int = 15
    seconds: float = 0.02


@dataclass(frozen=True)
class Cell:
    """One side of a case. ratio: its time over ours, round by round. setup: seconds to load or
    compile. error: largest difference from PyTorch over the largest value. fault: why there is no
    time; a wrong result is a fault."""

    setup: float = 0.0
    error: float | None = None
    time: Spread | None = None
    ratio: Spread | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Row:
    """One case. bytes: the least that must move. disturbed: share of the processors' time that
    went to other processes meanwhile, None if unknown."""

    name: str
    kind: str
    flops: float = 0.0
    bytes: int = 0
    ours: Cell = field(default_factory=Cell)
    peers: dict[str, Cell] = field(default_factory=dict)
    disturbed: float | None = None


def measure(case: Case, options: Options) -> Row:
    """The row of a case. Faults of either side are in the row; none is raised."""
    work = case.make()
    want = reference(work, options.threads)
    flops = counted(work) if work.flops is None else work.flops
    tolerance = TOLERANCE[options.precision]
    cells, sides = {}, {}
    for name, load in loaders(work, options):
        cells[name], side = _prepared(load, want, tolerance, options.threads)
        if side is not None:
            sides[name] = side
    elsewhere = Elsewhere()
    if sides:
        cells |= _timed(cells, sides, want, tolerance, options)
    disturbed = elsewhere.share()
    ours = cells.pop(OURS)
    return Row(case.name, case.kind, float(flops), work.bytes(want), ours, cells, disturbed)


def loaders(work: Work, options: Options) -> list[tuple[str, Callable[[], Side]]]:
    """(name, how to get it running) of every side, ours first."""

    def peer(name: str) -> Callable[[], Side]:
        return lambda: PEERS[name].load(work, options.threads, options.precision)

    return [(OURS, lambda: compiled(work, options)), *((n, peer(n)) for n in options.peers)]


def compiled(work: Work, options: Options) -> Side:
    """Our program for a work."""
    graph = Graph()
    inputs = [graph.tensor(a.shape, str(a.dtype)) for a in work.inputs]
    output = work.record(graph, inputs, work.state()).output()
    program = graph.compile(
        threads=options.threads, search=options.search, precision=options.precision
    )
    for tensor, array in zip(inputs, work.inputs):
        program[tensor] = array
    return Side(program.run, lambda: np.array(program[output], np.float32))


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
    start = time.perf_counter()
    try:
        side = load()
        side.run()
        setup = time.perf_counter() - start
        pin_workers(side.run, threads)
        error = difference(side.result(), want)
    except Exception as fault:  # whatever a compiler raises is this row's fault, not the suite's
        return Cell(time.perf_counter() - start, fault=summary(fault)), None
    if not error <= tolerance:
        return Cell(setup, error, fault=f"wrong result: off by {error:.1e}"), None
    return Cell(setup, error), side


def summary(fault: BaseException) -> str:
    """An exception in one line."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    name = "" if isinstance(fault, LuminalError) and not lines else f"{type(fault).__name__}: "
    return f"{name}{text}"[:200]


def _timed(
    cells: dict[str, Cell],
    sides: dict[str, Side],
    want: np.ndarray,
    tolerance: float,
    options: Options,
) -> dict[str, Cell]:
    """The cells with times; a side whose result is wrong after all its runs loses its time."""
    runs: dict[str, Any] = {name: side.run for name, side in sides.items()}
    with on_first_processor():
        samples = interleaved(runs, options.rounds, options.seconds)
    found = {}
    for name, side in sides.items():
        error = difference(side.result(), want)
        if not error <= tolerance:
            fault = f"wrong result in some runs: off by {error:.1e}"
            found[name] = replace(cells[name], error=error, fault=fault)
            continue
        ratio = Spread.of(samples[name] / samples[OURS]) if OURS in samples else None
        found[name] = replace(cells[name], time=Spread.of(samples[name]), ratio=ratio)
    return found


def failed(case: Case, peers: Sequence[str], fault: str) -> Row:
    """The row of a case that ended without one."""
    return Row(case.name, case.kind, ours=Cell(fault=fault), peers={name: Cell() for name in peers})
