"""An ONNX model of ours beside ONNX Runtime and OpenVINO, each called as its users call it."""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .compare import summary
from .machine import on_first_processor, pin_workers, settle
from .paired import Spread, interleaved

Feeds = Mapping[str, np.ndarray]
Run = Callable[[], Sequence[Any]]
OURS = "luminal"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Row:
    """One model. seconds, ratio (of a peer's time over ours, round by round) and error (largest
    difference over the largest value of an output) by side. first: seconds of our first run with
    its compilation. faults: of peers that cannot run it."""

    name: str
    first: float
    seconds: Mapping[str, Spread]
    ratio: Mapping[str, Spread]
    error: Mapping[str, float]
    faults: Mapping[str, str]


def _onnxruntime(file: Path, threads: int, feeds: Feeds) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(feeds))


def _openvino(file: Path, threads: int, feeds: Feeds) -> Run:
    """For latency, in f32 (its default is bf16 where the processor has it)."""
    # its telemetry forks this process for each conversion and reports to a server
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
               "INFERENCE_PRECISION_HINT": "f32"}  # fmt: skip
    model = openvino.Core().read_model(file)
    model.reshape({name: list(value.shape) for name, value in feeds.items()})
    request = openvino.compile_model(model, "CPU", options).create_infer_request()

    def run() -> list[np.ndarray]:
        found = request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        return list(found.values())

    return run


PEERS = {"onnxruntime": _onnxruntime, "openvino": _openvino}


def chosen(wanted: str | None) -> tuple[str, ...]:
    """The names in a list with commas, or all that are installed. Raises InputError."""
    if wanted is None:
        return tuple(name for name in PEERS if importlib.util.find_spec(name) is not None)
    names = tuple(name.strip() for name in wanted.split(",") if name.strip())
    for name in names:
        if name not in PEERS:
            raise InputError(f"no peer {name!r}; there are {', '.join(PEERS)}")
        if importlib.util.find_spec(name) is None:
            raise InputError(f"{name} is not installed")
    return names


def measure(
    name: str, file: Path, feeds: Feeds, threads: int, peers: Sequence[str], rounds: int = 15,
    seconds: float = 0.02, clock: str = "wall", precision: str = "f32",
) -> Row:  # fmt: skip
    """precision: ours. clock: "wall", or "cpu", the time of all of the process's threads: with one
    thread a side it holds beside other work on the machine. Raises as `luminal.onnx.load` and
    `Model.run`."""
    from ..frontend.onnx import load

    model = load(file, threads=threads, precision=precision)
    start = time.perf_counter()
    ours = model.run(feeds)
    first, error, faults = time.perf_counter() - start, {}, {}
    sides: dict[str, Run] = {OURS: lambda: model.run(feeds)}
    for peer in peers:
        try:
            run = PEERS[peer](file, threads, feeds)
            error[peer] = difference(ours, run())
            sides[peer] = run
        except Exception as fault:  # whatever a peer raises is its own fault
            faults[peer] = summary(fault)
    if clock == "wall":
        for run in sides.values():
            pin_workers(run, threads)
    settle()
    with on_first_processor():
        samples = interleaved(sides, rounds, seconds, CLOCKS[clock])
    ratio = {peer: Spread.of(samples[peer] / samples[OURS]) for peer in error}
    spread = {side: Spread.of(taken) for side, taken in samples.items()}
    return Row(name, first, spread, ratio, error, faults)


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest, over the largest value of each output that is numbers."""
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(mine, np.ndarray) and mine.dtype.kind in "fiub" and mine.size:
            a, b = mine.astype(np.float64), np.asarray(other).astype(np.float64)
            if a.shape != b.shape:
                return math.inf
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-12)))
    return worst


def table(rows: Sequence[Row]) -> str:
    """In Markdown, with the geometric means of the ratios."""
    peers = [peer for peer in PEERS if any(peer in {**r.ratio, **r.faults} for r in rows)]
    heads = ["model", "ours", *peers, *(f"{peer} / ours" for peer in peers)]
    lines = [heads, ["---"] * len(heads), *(_cells(row, peers) for row in rows)]
    for peer in peers:
        found = [row.ratio[peer].median for row in rows if peer in row.ratio]
        if len(found) > 1:
            least, mean = min(found), math.exp(sum(map(math.log, found)) / len(found))
            lines.append([f"geometric mean beside {peer}", *[""] * len(peers), "",
                          *(f"{mean:.2f} (least {least:.2f})" if p == peer else ""
                            for p in peers)])  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(row: Row, peers: Iterable[str]) -> list[str]:
    def time_of(side: str) -> str:
        return f"{row.seconds[side].median * 1e3:.3g} ms" if side in row.seconds else "cannot"

    def ratio_of(peer: str) -> str:
        if peer not in row.ratio:
            return ""
        spread = row.ratio[peer]
        return f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"

    return [row.name, time_of(OURS), *map(time_of, peers), *map(ratio_of, peers)]
