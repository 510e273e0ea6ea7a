"""A language model on the bench: prefill and decoding, beside llama.cpp on the same file.

Each round times every side once, prompt and reply, in turns; figures are medians of the rounds.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..backend import devices
from ..backend.contract import Accelerator
from ..errors import InputError
from ..models.llm import LLM
from .gpu_timed import copied
from .machine import Elsewhere, measured, process_peak
from .paired import Spread

BUSY = 0.1  # share of the processors from which others are named
GIB = 1 << 30
FIRST_ID = 3  # of the random prompt: smaller ids begin, end and pad


class Side(Protocol):
    """A program that runs the model. load_seconds: until it was ready for a prompt."""

    load_seconds: float

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits (vocabulary,) after these tokens, which follow those fed before."""

    def forget(self) -> None:
        """All that was fed."""


class Ours:
    def __init__(self, model: str, context: int, threads: int, **options: Any) -> None:
        start = time.perf_counter()
        self.llm = LLM(model, context=context, threads=threads, **options)
        self.load_seconds = time.perf_counter() - start

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        return self.llm.program.feed(tokens)[0]

    def forget(self) -> None:
        self.llm.program.keep(0)


class LlamaCpp:
    def __init__(self, model: str, context: int, threads: int, layers: int) -> None:
        """layers: how many are on a GPU, where it was built for one; -1: all."""
        library = importlib.import_module("llama_cpp")
        start = time.perf_counter()
        self.llama = library.Llama(
            model, n_ctx=context, n_batch=512, n_threads=threads, n_threads_batch=threads,
            n_gpu_layers=layers, verbose=False,
        )  # fmt: skip
        self.load_seconds = time.perf_counter() - start

    @staticmethod
    def missing(model: str) -> str | None:
        """Why it cannot take part."""
        if importlib.util.find_spec("llama_cpp") is None:
            return "llama-cpp-python is not installed"
        return None if Path(model).suffix == ".gguf" else "it reads GGUF files only"

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        self.llama.eval(list(tokens))
        return np.ctypeslib.as_array(
            self.llama._ctx.get_logits(), (self.llama.n_vocab(),)
        )  # of the last token

    def forget(self) -> None:
        self.llama.reset()


@dataclass(frozen=True)
class Figures:
    """Of one side. gb_per_s: weights and cache that a step of decoding must read, over its time;
    share: of what a plain read of memory reaches."""

    load_s: float
    time_to_first_token_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    gb_per_s: float
    share_of_read: float


@dataclass(frozen=True)
class Run:
    """Seconds of one round."""

    prefill: float
    steps: float  # the median step of decoding


def measure(
    model: str, prompt: int = 512, tokens: int = 32, threads: int = 1, rounds: int = 3,
    peers: bool = True, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """All figures of a model, ready for JSON. options: of `LLM`. Raises InputError and what loading
    raises."""
    if min(prompt, tokens, rounds) < 1:
        raise InputError("prompt, tokens and rounds are 1 or more")
    context = prompt + tokens
    sides: dict[str, Side] = {"luminal": Ours(model, context, threads, **options)}
    llm = sides["luminal"].llm  # type: ignore[attr-defined]
    ids = np.random.default_rng(0).integers(FIRST_ID, llm.config.vocabulary, prompt).tolist()
    _run(sides["luminal"], ids, 2)
    memory = {"held_bytes": llm.program.peak_bytes, "process_peak_bytes": process_peak()}
    device = devices.find(devices.resolved(options.get("device", "auto")))
    gpu = device if isinstance(device, Accelerator) else None
    reason = LlamaCpp.missing(model) if peers else "not asked for"
    if reason is None:
        sides["llama.cpp"] = LlamaCpp(model, context, threads, -1 if gpu else 0)
    machine, elsewhere = measured(threads), Elsewhere()
    bandwidth = 1e9 * copied(gpu, GIB)["GB/s"] if gpu else machine.bandwidth
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    for side in sides.values():
        _run(side, ids, 2)  # warm
    for _ in range(rounds):
        for name, side in sides.items():
            runs[name].append(_run(side, ids, tokens))
    read = llm.program.step_bytes(prompt + tokens // 2)
    return {
        "model": model, "cpu": machine.cpu, "threads": threads, "prompt": prompt, "tokens": tokens,
        "rounds": rounds, "options": options, "step_bytes": read,
        "read_gb_per_s": bandwidth / 1e9, "busy_elsewhere": elsewhere.share(),
        "without_llama_cpp": reason, **memory,
        **asdict(_figures(sides["luminal"], runs["luminal"], prompt, read, bandwidth)),
        "peers": {
            name: asdict(_figures(side, runs[name], prompt, read, bandwidth))
            for name, side in sides.items() if name != "luminal"
        },
        "ratios": {
            name: {kind: asdict(_ratio(runs[name], runs["luminal"], kind))
                   for kind in ("prefill", "steps")}
            for name in sides if name != "luminal"
        },
    }  # fmt: skip


def _run(side: Side, ids: Sequence[int], tokens: int) -> Run:
    side.forget()
    gc.collect()
    start = time.perf_counter()
    token = int(side.feed(ids).argmax())
    prefill = time.perf_counter() - start
    steps = []
    for _ in range(tokens - 1):
        start = time.perf_counter()
        token = int(side.feed([token]).argmax())
        steps.append(time.perf_counter() - start)
    return Run(prefill, float(np.median(steps)) if steps else prefill)


def _figures(side: Side, runs: Sequence[Run], prompt: int, read: int, bandwidth: float) -> Figures:
    prefill = float(np.median([run.prefill for run in runs]))
    step = float(np.median([run.steps for run in runs]))
    speed = read / step
    return Figures(
        side.load_seconds, prefill, prompt / prefill, 1 / step, speed / 1e9, speed / bandwidth
    )


def _ratio(theirs: Sequence[Run], ours: Sequence[Run], kind: str) -> Spread:
    """How many times as fast as they we are, round by round."""
    pairs = zip(theirs, ours, strict=True)
    return Spread.of(np.array([getattr(t, kind) / getattr(o, kind) for t, o in pairs]))


def table(found: dict[str, Any]) -> str:
    """The figures for people."""
    head = (
        f"{found['cpu']}, {found['threads']} threads, {found['prompt']} + {found['tokens']} tokens"
    )
    lines = [f"{head}, read {found['read_gb_per_s']:.1f} GB/s, median of {found['rounds']}"]
    lines.append(f"{'':<12}{'load s':>8}{'first s':>9}{'prefill/s':>11}{'decode/s':>10}{'GB/s':>7}")
    for name, side in {"luminal": found, **found["peers"]}.items():
        lines.append(
            f"{name:<12}{side['load_s']:8.2f}{side['time_to_first_token_s']:9.2f}"
            f"{side['prefill_tokens_per_s']:11.1f}{side['decode_tokens_per_s']:10.1f}"
            f"{side['gb_per_s']:7.1f}  ({100 * side['share_of_read']:.0f}% of a read)"
        )
    for name, kinds in found["ratios"].items():
        for kind, title in (("prefill", "prefill"), ("steps", "decode")):
            ratio = Spread(**kinds[kind])
            spread = f"{ratio.median:.2f} ({ratio.low:.2f} - {ratio.high:.2f})"
            lines.append(f"{title}: {spread} times as fast as {name}")
    if found["process_peak_bytes"] is not None:
        held, most = found["held_bytes"], found["process_peak_bytes"]
        lines.append(
            f"memory: {held >> 20} MiB of weights, cache and arena; {most >> 20} MiB in all at "
            f"most ({most / held:.2f} times)"
        )
    if found["without_llama_cpp"]:
        lines.append(f"without llama.cpp: {found['without_llama_cpp']}")
    busy = found["busy_elsewhere"] or 0.0
    if busy > BUSY:
        lines.append(f"other programs used {100 * busy:.0f}% of the processors")
    return "\n".join(lines)
