"""Beside JAX (XLA) and tinygrad on one core: operations in paired rounds, results checked.

    taskset -c 0 python benchmarks/others.py [--rounds 9] [--only softmax] [--json rows.json]

A ratio is the peer's processor time over ours: medians and quartiles of rounds in which all run in
turns. A peer that is not installed, or cannot run an operation, is left out and named. tinygrad
compiles with clang, or (0.11 with LLVM=1) with LLVM's library. What comes first is an input, the
rest are weights (but of an attention), which only ours packs beforehand.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import luminal
from luminal import ops

Run = Callable[[], Any]
SCALE = 1 / math.sqrt(64)


# name: (shapes, in luminal, in jax.numpy and jax.nn, of tinygrad's tensors)
WORK: dict[str, tuple[tuple[tuple[int, ...], ...], Callable, Callable, Callable]] = {
    "gemm 128x2048x2048": (((128, 2048), (2048, 2048)), lambda a, b: a @ b,
                           lambda jax, a, b: a @ b, lambda a, b: a @ b),
    "gemm 1024x1024x1024": (((1024, 1024), (1024, 1024)), lambda a, b: a @ b,
                            lambda jax, a, b: a @ b, lambda a, b: a @ b),
    "gated gemm (SwiGLU) 128x1024x1024": (
        ((128, 1024), (1024, 1024), (1024, 1024)), lambda x, g, u: ops.silu(x @ g) * (x @ u),
        lambda jax, x, g, u: jax.nn.silu(x @ g) * (x @ u),
        lambda x, g, u: (x @ g).silu() * (x @ u)),
    "softmax 512x2048": (((512, 2048),), lambda x: ops.softmax(x, -1),
                         lambda jax, x: jax.nn.softmax(x, -1), lambda x: x.softmax(-1)),
    "layer norm 512x2048": (
        ((512, 2048),), lambda x: ops.layer_norm(x, (2048,)),
        lambda jax, x: jax.nn.standardize(x, -1, epsilon=1e-5), lambda x: x.layernorm()),
    "gelu 1024x1024": (((1024, 1024),), lambda x: ops.gelu(x, approximate="tanh"),
                       lambda jax, x: jax.nn.gelu(x), lambda x: x.gelu()),
    "attention 8x512x64": (
        ((8, 512, 64),) * 3, ops.scaled_dot_product_attention,
        lambda jax, q, k, v: jax.nn.softmax(q @ k.swapaxes(1, 2) * SCALE, -1) @ v,
        lambda q, k, v: q.scaled_dot_product_attention(k, v)),
    "conv 3x3 128, 28x28": (
        ((1, 128, 28, 28), (128, 128, 3, 3)), lambda x, w: ops.conv2d(x, w, padding=1),
        lambda jax, x, w: jax.lax.conv(x, w, (1, 1), "SAME"),
        lambda x, w: x.conv2d(w, padding=1)),
    "conv 3x3 depthwise 128, 56x56": (
        ((1, 128, 56, 56), (128, 1, 3, 3)), lambda x, w: ops.conv2d(x, w, padding=1, groups=128),
        lambda jax, x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                                       feature_group_count=128),
        lambda x, w: x.conv2d(w, padding=1, groups=128)),
    "sum of rows 4096x4096": (((4096, 4096),), lambda x: x.sum(-1),
                              lambda jax, x: x.sum(-1), lambda x: x.sum(-1)),
}  # fmt: skip


def ours(build: Callable, arrays: list[np.ndarray], weights: bool) -> Run:
    cx = luminal.Graph()
    inputs = [cx.parameter(array.shape).set(array) if weights and number else cx.tensor(array.shape)
              for number, array in enumerate(arrays)]  # fmt: skip
    build(*inputs).output()
    program = cx.compile(threads=1)
    given = arrays[:1] if weights else arrays
    return lambda: program(*given)


def of_jax(build: Callable, arrays: list[np.ndarray]) -> Run:
    import jax

    held = [jax.numpy.asarray(array) for array in arrays]
    made = jax.jit(lambda *inputs: build(jax, *inputs))
    return lambda: made(*held).block_until_ready()


def of_tinygrad(build: Callable, arrays: list[np.ndarray]) -> Run:
    from tinygrad import Tensor, TinyJit

    held = [Tensor(array).realize() for array in arrays]
    made = TinyJit(lambda *inputs: build(*inputs).realize())
    return lambda: made(*held).numpy()


PEERS = {"jax": of_jax, "tinygrad": of_tinygrad}


def measured(name: str, rounds: int) -> dict[str, Any]:
    shapes, mine, *theirs = WORK[name]
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(shape, dtype=np.float32) / 8 for shape in shapes]
    runs = {"ours": ours(mine, arrays, weights=not name.startswith("attention"))}
    expected = np.asarray(runs["ours"]())
    for (peer, prepare), build in zip(PEERS.items(), theirs):
        try:
            run = prepare(build, arrays)
            for _ in range(3):  # tinygrad records at the second call
                got = np.asarray(run())
        except (ImportError, RuntimeError, NotImplementedError, OSError) as error:
            print(f"  {peer}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
            continue
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3, err_msg=peer)
        runs[peer] = run
    times: dict[str, list[float]] = {who: [] for who in runs}
    for _ in range(rounds):
        for who, run in runs.items():
            run()
            start = time.process_time()
            for _ in range(3):
                run()
            times[who].append((time.process_time() - start) / 3)
    mine_s = np.array(times.pop("ours"))
    peers = {
        who: [round(float(q), 2) for q in np.quantile(np.array(t) / mine_s, (0.5, 0.25, 0.75))]
        for who, t in times.items()
    }
    return {"name": name, "ours_ms": round(float(np.median(mine_s)) * 1e3, 3), "peers": peers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="a word in the names of operations")
    parser.add_argument("--json", type=Path)
    wishes = parser.parse_args()
    rows = []
    for name in (name for name in WORK if wishes.only in name):
        rows.append(measured(name, wishes.rounds))
        print(json.dumps(rows[-1]), flush=True)
    if wishes.json:
        wishes.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
