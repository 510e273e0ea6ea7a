"""Two trees of this project side by side: may the new one take the place of the old?

    python benchmarks/gate.py OLD [NEW] [--kind ops|models|all|train] [--only WORD] [--model GGUF]

OLD and NEW are folders with a `src`, or commits; NEW is this tree if it is left out. Each tree has
a process of its own, in which it compiles the rows of `luminal bench` and checks them against
PyTorch; then both are timed in turns. A ratio is the old time over the new one: median of the
rounds, and quartiles. --model: a language model's prefill of 128 tokens, and a token. train: steps
of `luminal bench train`, of which it is seen only that losses fall; with a small --seconds one step
a round. The end is 0 where the geometric mean reaches --mean and no row lies below --least beyond
its quartiles.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
PROMPT, CONTEXT = 128, 512  # tokens
STEP = "step of "  # training
Run = Callable[[], object]


# ---- in the process of one tree


def serve() -> None:
    """Answers orders, a line of JSON each: a row to compile, or a time to run it for."""
    answers, run = os.fdopen(os.dup(1), "w"), None
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "seconds" in order:
                assert run is not None
                answer: dict[str, Any] = {"taken": taken(run, order["seconds"])}
            else:
                run = None  # what the last row held goes before the next is made
                run, answer = compiled(**order)
        except Exception as fault:  # one tree's fault is a row of the table
            answer = {"fault": f"{type(fault).__name__}: {fault}"[:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def taken(run: Run, seconds: float) -> float:
    """Seconds a call, over about so many seconds."""
    run()
    start, count = time.perf_counter(), 0
    while not count or time.perf_counter() - start < seconds:
        run()
        count += 1
    return (time.perf_counter() - start) / count


def compiled(name: str, threads: int, precision: str) -> tuple[Run, dict[str, Any]]:
    """A row, ready to run, and right."""
    if name.endswith((" prefill", " decode")):
        return language(*name.rsplit(" ", 1), threads)
    if name.startswith(STEP):
        return training(name.removeprefix(STEP), threads, precision)
    from luminal.bench import suite
    from luminal.bench.case import TOLERANCE, difference
    from luminal.bench.compare import Options, reference
    from luminal.bench.compare import compiled as ours

    work = suite.find(name).make()
    start = time.perf_counter()
    side = ours(work, Options(threads=threads, precision=precision))
    side.run()
    setup = time.perf_counter() - start
    error = float(difference(side.result(), reference(work, threads)))
    if not error <= TOLERANCE[precision]:
        raise ValueError(f"wrong result, off by {error:.1e}")
    return side.run, {"setup": setup}


def training(name: str, threads: int, precision: str) -> tuple[Run, dict[str, Any]]:
    """A step, if losses fall; `luminal bench train` compares them with PyTorch's."""
    from luminal.bench.training import OURS, _sides

    makers, data = _sides(name, threads, precision)
    step, batch = makers[OURS](), next(iter(data))
    losses = [float(step(batch)) for _ in range(3)]
    if not losses[-1] < losses[0]:
        raise ValueError(f"losses {losses}")
    return (lambda: step(batch)), {"losses": losses}


def language(model: str, part: str, threads: int) -> tuple[Run, dict[str, Any]]:
    """A prompt, or the token after one, of a language model."""
    from luminal.bench.language import Ours

    side = Ours(model, CONTEXT, threads)
    prompt = [*range(100, 100 + PROMPT)]
    logits = side.feed(prompt)
    token = [int(logits.argmax())]

    def prefill() -> None:
        side.forget()
        side.feed(prompt)

    def decode() -> None:
        side.llm.program.keep(PROMPT)
        side.feed(token)

    made = {"setup": side.load_seconds, "logits": logits[:8].tolist()}
    return (prefill if part == "prefill" else decode), made


# ---- both trees


class Tree:
    """The process of one tree."""

    def __init__(self, root: Path, cache: str) -> None:
        paths = [str(root / "src"), os.environ.get("PYTHONPATH", "")]
        there = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": cache}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=there, cwd=root
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"fault": "the process ended"}

    def taken(self, seconds: float) -> float:
        return float(self.ask(seconds=seconds)["taken"])


def source(tree: str, into: Path) -> Path:
    """The folder of a tree; a commit's is checked out."""
    if (Path(tree) / "src").is_dir():
        return Path(tree).resolve()
    command = ["git", "-C", str(HERE), "archive", tree, "src"]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    into.mkdir()
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive, check=True)
    return into


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is measured."""
    from luminal.bench import suite
    from luminal.bench.training import CASES

    for threads in options.threads:
        for model in options.model:
            for part in ("prefill", "decode"):
                yield dict(name=f"{Path(model).resolve()} {part}", threads=threads, precision="")
        for precision in options.precision if options.kind != "none" else []:
            if options.kind == "train":
                names = [STEP + name for name in CASES if options.only in name]
            else:
                names = [case.name for case in suite.select(options.kind, options.only)]
            for name in names:
                yield dict(name=name, threads=threads, precision=precision)


def measured(row: dict[str, Any], trees: list[Tree], rounds: int, seconds: float) -> Any:
    """Ratios of the rounds, or why there are none. What is wrong in both is no fault of the new."""
    faults = [tree.ask(**row).get("fault") for tree in trees]
    if faults[1] is None and faults[0] is not None:
        return f"old: {faults[0]}"
    if any(faults):
        return f"new: {faults[1]}" + f"; old: {faults[0]}" * (faults[0] is not None)
    taken = []
    for number in range(rounds):
        order = trees if number % 2 else trees[::-1]
        times = {id(tree): tree.taken(seconds) for tree in order}
        taken.append([times[id(tree)] for tree in trees])
    return np.array(taken)


def gate(options: argparse.Namespace, folder: Path) -> bool:
    """The table; whether the new tree may come."""
    from luminal.bench.machine import cpu_name

    trees = [Tree(source(tree, folder / f"tree{n}"), str(folder / f"cache{n}"))
             for n, tree in enumerate((options.old, options.new))]  # fmt: skip
    print(f"{cpu_name()}; times in us; ratio = old / new")
    print(f"{'row':44} {'precision':9} t {'old':>10} {'new':>10} {'ratio':>6} (quartiles)")
    ratios, right = [], True
    for row in rows(options):
        found = measured(row, trees, options.rounds, options.seconds)
        head = f"{row['name'][-44:]:44} {row['precision']:9} {row['threads']}"
        if isinstance(found, str):
            right &= not found.startswith("new") or "old:" in found
            print(head, found, flush=True)
            continue
        old, new = np.median(found, 0) * 1e6
        low, ratio, high = np.percentile(found[:, 0] / found[:, 1], [25, 50, 75])
        ratios.append(ratio)
        right &= bool(high >= options.least)
        slow = "  slower" if high < options.least else ""
        print(f"{head} {old:10.1f} {new:10.1f} {ratio:6.2f} ({low:.2f} - {high:.2f}){slow}",
              flush=True)  # fmt: skip
    for tree in trees:
        tree.process.kill()
        tree.process.wait()
    mean = math.exp(np.mean(np.log(ratios))) if ratios else math.nan
    print(f"geometric mean of {len(ratios)} rows: {mean:.3f}")
    return right and mean >= options.mean


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("old", nargs="?")
    parser.add_argument("new", nargs="?", default=str(HERE))
    parser.add_argument("--kind", choices=("ops", "models", "all", "train", "none"), default="all")
    parser.add_argument("--only", default="")
    parser.add_argument("--model", nargs="*", default=[])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--precision", nargs="*", default=["f32", "bf16", "int8"])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a side and round")
    parser.add_argument("--mean", type=float, default=1.0)
    parser.add_argument("--least", type=float, default=0.95)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.old is None:
        parser.error("which tree is the old one?")
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if gate(options, Path(folder)) else 1)


if __name__ == "__main__":
    main()
