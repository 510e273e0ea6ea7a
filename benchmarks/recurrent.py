"""An LSTM of any length against PyTorch: eager, and compiled by inductor for one length.

    python benchmarks/recurrent.py [--steps 128] [--batch 1] [--threads 2] [--rounds 9]

Prints how long compiling took, how far the results are apart, and interleaved medians. PyTorch's
threads spin for 4 to 11 ms after a call: what is timed next waits for them first.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import luminal
from luminal import nn
from luminal.bench.paired import interleaved

WIDTH, LAYERS = 256, 2


def compiled(right: torch.nn.LSTM, threads: int) -> tuple[luminal.Executable, float]:
    """Our program for all lengths, and the seconds that it took to compile."""
    cx = luminal.Graph()
    module = nn.LSTM(cx, WIDTH, WIDTH, LAYERS)
    module.load_state_dict({k: v.numpy() for k, v in right.state_dict().items()})
    outputs, states = module.eval()(cx.tensor(("steps", "batch", WIDTH), name="x"))
    for tensor in (outputs, *states):
        tensor.output()
    start = time.process_time()
    return cx.compile(threads=threads, cache=False), time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("steps", 128), ("batch", 1), ("threads", 2), ("rounds", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(given.threads)
    torch._dynamo.config.allow_rnn = True
    right = torch.nn.LSTM(WIDTH, WIDTH, LAYERS).eval()
    rt, seconds = compiled(right, given.threads)
    print(f"compiled in {seconds:.2f} s of CPU time, {len(rt.kernels)} kernels, any length")
    inductor = torch.compile(right)
    with torch.no_grad():
        x = torch.randn(given.steps, given.batch, WIDTH)
        want, _ = right(x)
        apart = float(np.abs(rt(x.numpy())[0] - want.numpy()).max())
        inductor(x)
        runs = {"eager": lambda: right(x), "inductor": lambda: inductor(x), "luminal": rt.run}
        times = {n: float(np.median(t)) for n, t in interleaved(runs, given.rounds).items()}
    ours = times["luminal"]
    print(f"{given.steps} steps of {given.batch} rows: largest difference {apart:.1e}")
    for name, found in times.items():
        print(f"  {name:<9} {1e3 * found:8.2f} ms   {found / ours:.2f} x ours")


if __name__ == "__main__":
    main()
