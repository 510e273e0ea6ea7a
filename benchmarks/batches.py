"""Decoding of several replies at once, beside llama.cpp: `llama-batched-bench` in turns with ours.

    python benchmarks/batches.py MODEL.gguf --bench build/bin/llama-batched-bench --batch 4

One thread and processor time on both sides, since threads that wait for each other spin. A step is
the difference between a long and a short run over the steps between them, so that prompts, loading
and first runs cancel out. Ours has the engine of `luminal serve` with its sampling; theirs takes
random tokens.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import time
from pathlib import Path

import numpy as np

from luminal.models.llm import Engine, Wishes


def ours(engine: Engine, batch: int, prompt: int, count: int, random: np.random.Generator) -> float:
    """Seconds of the processor for so many tokens after each of the prompts."""
    most = min(1000, engine.config.vocabulary)
    prompts = random.integers(most // 2, most, (batch, prompt)).tolist()
    started = time.process_time()
    engine.complete(prompts, Wishes(limit=count))
    return time.process_time() - started


def theirs(options: argparse.Namespace, count: int) -> float:
    """As `ours`, of a process that also loads the model."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    context = options.batch * (options.prompt + options.long) + 256
    subprocess.run(
        [options.bench, "-m", options.model, "-c", str(context), "-npp", str(options.prompt),
         "-ntg", str(count), "-npl", str(options.batch), "-t", "1", "-tb", "1", "-fa", "on"],
        check=True, capture_output=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--bench", type=Path, required=True, help="llama-batched-bench")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt")
    parser.add_argument("--long", type=int, default=64, help="tokens made in a long run")
    parser.add_argument("--short", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    steps, random = options.long - options.short, np.random.default_rng(0)
    context = options.prompt + options.long + 16
    engine = Engine.load(
        options.model, threads=1, context=context, batch=max(2, options.batch),
        cache=context * options.batch,
    )  # fmt: skip
    ours(engine, options.batch, options.prompt, 4, random)
    ratios = []
    for _ in range(options.rounds):
        counts = (options.long, options.short)
        long, short = (
            ours(engine, options.batch, options.prompt, count, random) for count in counts
        )
        mine = (long - short) / steps
        other = (theirs(options, counts[0]) - theirs(options, counts[1])) / steps
        ratios.append(other / mine)
        print(f"{1e3 * mine:.1f} ms a step, llama.cpp {1e3 * other:.1f}", flush=True)
    print(f"batch {options.batch}: llama.cpp takes {np.median(ratios):.2f} times as long")
    engine.close(0)


if __name__ == "__main__":
    main()
