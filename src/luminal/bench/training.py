"""A training step on the bench: AdamW, the same start and the same data beside PyTorch's.

First the losses of some steps are compared, then all sides take turns in one process. Processor
time is that of all threads, which other programs on the machine hardly change.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .. import nn, ops, train
from ..errors import InputError
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from .machine import cpu_name, process_peak
from .paired import Spread, settle
from .training_models import CASES, Batch, Case

Side: TypeAlias = Callable[[Batch], float]  # a step: its loss
Start: TypeAlias = Mapping[str, Any]  # parameters by name, as tensors of PyTorch

OURS, EAGER, COMPILED = SIDES = ("luminal", "torch", "inductor")
FINE_TUNING = "smollm2"  # whose two models are not written once, see `finetuning.py`
NAMES = (*CASES, FINE_TUNING)
RATE, WARM = 3e-4, 2
ROUND = 0.1  # seconds of steps
APART = 1e-2  # of losses in f32, relative: further apart something is wrong


def step_of_ours(
    graph: Graph, loss: Tensor, inputs: Sequence[Tensor], parameters: Iterable[Tensor],
    threads: int, rate: float = RATE, precision: str = "f32",
) -> Side:  # fmt: skip
    """Forward, backward and update as one program."""
    train.Step(loss, parameters, train.AdamW(rate))
    rt = graph.compile(threads=threads, precision=precision)

    def step(batch: Batch) -> float:
        for tensor, array in zip(inputs, batch, strict=True):
            rt[tensor] = array
        rt.run()
        return float(rt[loss])

    return step


def step_of_torch(
    module: Any, logits: Callable[[Any], Any], compiled: bool, rate: float = RATE,
    precision: str = "f32",
) -> Side:  # fmt: skip
    """Forward and backward of cross-entropy, compiled if so asked, and the fused update; bf16:
    under autocast."""
    import torch
    from torch.nn.functional import cross_entropy

    optimizer = torch.optim.AdamW(module.parameters(), rate, fused=True)

    def loss_of(x: Any, y: Any) -> Any:
        return cross_entropy(logits(x).float(), y)

    function = torch.compile(loss_of) if compiled else loss_of

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, precision == "bf16"):
            loss = function(*map(torch.from_numpy, batch))
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def _start(case: Case) -> dict[str, Any]:
    """Parameters as PyTorch draws them; tables and matrices as small as a language model's."""
    import torch

    torch.manual_seed(0)
    module = _in_torch(case)
    for parameter in module.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.02)
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def _in_torch(case: Case) -> Any:
    import torch

    def make(name: str, *given: Any, **named: Any) -> Any:
        return getattr(torch.nn, name)(*given, **named)

    return case.model(torch.nn.Module, make, torch.nn.functional)


def _ours(case: Case, start: Start, threads: int, precision: str) -> Side:
    graph = Graph()

    def make(name: str, *given: Any, **named: Any) -> Any:
        return getattr(nn, name)(graph, *given, **named)

    module = case.model(nn.Module, make, ops)
    module.load_state_dict({name: start[name] for name in module.state_dict()})
    module.train()
    first = next(case.data())
    x, y = (graph.tensor(a.shape, {"f": "f32", "i": "i64"}[a.dtype.kind]) for a in first)
    loss = ops.cross_entropy(module(x), y)
    return step_of_ours(graph, loss, (x, y), module.parameters(), threads, RATE, precision)


def _theirs(case: Case, start: Start, compiled: bool, precision: str) -> Side:
    module = _in_torch(case)
    module.load_state_dict(start)
    return step_of_torch(module, module, compiled, RATE, precision)


# ---- measuring


def measure(
    name: str, threads: int, steps: int, rounds: int, peers: Sequence[str] = SIDES[1:],
    precision: str = "f32",
) -> dict[str, Any]:  # fmt: skip
    """The figures of a case: losses of so many steps, then seconds of a step. Raises InputError."""
    import torch

    if unknown := [peer for peer in peers if peer not in SIDES[1:]]:
        raise InputError(f"no peer {unknown[0]!r} in training; there are {', '.join(SIDES[1:])}")
    if precision not in ("f32", "bf16"):
        raise InputError(f"training is timed in f32 and bf16, not in {precision}")
    torch.set_num_threads(threads)
    makers, data = _sides(name, threads, precision)
    made, compiling = {}, time.process_time()
    for side in (OURS, *peers):
        made[side] = makers[side]()
        if side == OURS:
            compiling = time.process_time() - compiling
    batches = list(itertools.islice(data, max(1, steps)))
    losses = {side: [step(batch) for batch in batches] for side, step in made.items()}
    taken = _taken(made, batches[0], rounds)
    return {
        "name": name, "cpu": cpu_name(), "threads": threads, "precision": precision,
        "rounds": rounds, "compile_processor_s": compiling, "losses": losses,
        "seconds": {side: list(np.median(times, 0)) for side, times in taken.items()},
        "ratios": {side: [vars(Spread.of(r)) for r in (taken[side] / taken[OURS]).T]
                   for side in peers},
        "peak_bytes": {side: _peak(name, side, threads, precision) for side in made},
    }  # fmt: skip


def _peak(name: str, side: str, threads: int, precision: str) -> int | None:
    """The most memory of a process that makes this side alone, code and all, and runs it."""
    order = [sys.executable, "-m", __name__, name, side, str(threads), precision]
    done = subprocess.run(order, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1]) or None


def _alone(name: str, side: str, threads: int, precision: str) -> int:
    import torch

    torch.set_num_threads(threads)
    makers, data = _sides(name, threads, precision)
    step = makers[side]()
    for batch in itertools.islice(data, WARM):
        step(batch)
    return process_peak() or 0


def _sides(name: str, threads: int, precision: str) -> tuple[dict[str, Any], Iterable[Batch]]:
    """(side -> a function that makes it, batches)."""
    if name == FINE_TUNING:
        from . import finetuning

        return finetuning.sides(threads, precision)
    case = CASES[name]
    start = _start(case)
    makers = {
        OURS: lambda: _ours(case, start, threads, precision),
        EAGER: lambda: _theirs(case, start, False, precision),
        COMPILED: lambda: _theirs(case, start, True, precision),
    }
    return makers, case.data()


def _taken(sides: Mapping[str, Side], batch: Batch, rounds: int) -> dict[str, np.ndarray]:
    """Of each side (rounds, 2): seconds of a step, and of the processors. Steps follow each other,
    as in training: the first of each round, which finds threads asleep and another side's data in
    the caches, is not counted."""
    taken: dict[str, list[np.ndarray]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in sorted(sides, reverse=bool(number % 2)):
            settle()
            sides[name](batch)
            start, steps = _clocks(), 0
            while steps == 0 or _clocks()[0] - start[0] < ROUND:
                sides[name](batch)
                steps += 1
            taken[name].append((_clocks() - start) / steps)
    return {name: np.array(times) for name, times in taken.items()}


def _clocks() -> np.ndarray:
    """Seconds on the wall, and of this process's processors."""
    return np.array([time.perf_counter(), time.process_time()])


def apart(found: Mapping[str, Any]) -> dict[str, float]:
    """How far losses are from eager PyTorch's, at most, relative; {} without it."""
    losses = {side: np.array(curve) for side, curve in found["losses"].items()}
    base = losses.pop(EAGER, None)
    return {} if base is None else {
        side: float(np.abs(curve / base - 1).max()) for side, curve in losses.items()
    }  # fmt: skip


def faults(found: Mapping[str, Any]) -> list[str]:
    """The sides whose losses are wrong."""
    bad = [side for side, curve in found["losses"].items() if not np.isfinite(curve).all()]
    far = apart(found) if found["precision"] == "f32" else {}
    return bad + [side for side, distance in far.items() if distance > APART]


def table(found: Mapping[str, Any]) -> str:
    """The figures for people."""
    curve = found["losses"][OURS]
    lines = [
        f"{found['name']}: {found['cpu']}, {found['threads']} threads, {found['precision']}; "
        f"compiled in {found['compile_processor_s']:.1f} s of processor time",
        f"loss {curve[0]:.4f} to {curve[-1]:.4f} in {len(curve)} steps",
        f"{'':<10}{'step ms':>10} {'x ours':<20}{'processor ms':>14} {'x ours':<20}",
    ]
    for side, seconds in found["seconds"].items():
        cells = found["ratios"].get(side, [])
        ratios = [f"{r['median']:.2f} ({r['low']:.2f} - {r['high']:.2f})" for r in cells]
        wall, busy = ratios or ("", "")
        row = f"{side:<10}{1e3 * seconds[0]:10.1f} {wall:<20}{1e3 * seconds[1]:14.1f} {busy:<20}"
        lines.append(row.rstrip())
    lines += [f"{side}: losses {d:.1e} from eager's, at most" for side, d in apart(found).items()]
    peaks = {side: peak for side, peak in found["peak_bytes"].items() if peak}
    lines += [f"{side}: {peak >> 20} MiB at most, in a process of its own"
              for side, peak in peaks.items()]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    name, side, threads, precision = sys.argv[1:]
    print(_alone(name, side, int(threads), precision))
