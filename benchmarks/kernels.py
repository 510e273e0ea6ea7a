"""Untuned kernels (default schedules, no search) beside PyTorch eager, paired in one run.

    python benchmarks/kernels.py [--threads 1 2] [--only WORD] [--rounds N]

Every case checks its result against PyTorch before it is timed. The last column is the ratio that
issue readers look at: peer time / our time, median of the rounds and quartiles; more than 1 is ours
faster. "mark" is what untuned kernels are expected to reach.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import luminal
from luminal import ops
from luminal.backend.cpu import ceilings
from luminal.bench.machine import cpu_name
from luminal.bench.paired import paired

RNG = np.random.default_rng(0)


@dataclass
class Case:
    """A graph, the arrays it is fed, and the same computation in PyTorch."""

    name: str
    build: Callable[..., luminal.Tensor]  # (graph, inputs...) -> output
    inputs: list[np.ndarray]
    peer: Callable[..., Any]
    mark: float
    constants: tuple[int, ...] = ()  # which inputs are known at compile time
    symbolic: bool = False  # the first dimension of input 0 is a run-time size
    tolerance: float = 1e-4
    want: Callable[..., np.ndarray] | None = None  # the right result, if the peer gives none


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def gemms() -> Iterator[Case]:
    shapes = ((128, 2048, 2048, False), (512, 2048, 8192, False), (100, 2048, 2048, True))
    for m, k, n, symbolic in shapes:
        yield Case(
            f"gemm {m}x{k}x{n}" + " run-time m" * symbolic,
            lambda cx, a, b: a.matmul(b.transpose(0, 1)),
            [normal(m, k), normal(n, k)],
            F.linear,
            1.0,
            constants=(1,),
            symbolic=symbolic,
        )


def rows() -> Iterator[Case]:
    x, weight, bias = normal(512, 2048), normal(2048), normal(2048)
    yield Case(
        "softmax 512x2048",
        lambda cx, a: ops.softmax(a, -1),
        [x],
        lambda a: torch.softmax(a, -1),
        1.3,
    )
    yield Case(
        "layer norm 512x2048",
        lambda cx, a, w, b: ops.layer_norm(a, (2048,), w, b),
        [x, weight, bias],
        lambda a, w, b: F.layer_norm(a, (2048,), w, b),
        1.3,
        constants=(1, 2),
    )

    def chain(a, exp, maximum):  # ten operations, the same in both libraries
        for i in range(3):
            a = maximum(a * 1.1 + 0.5, a * 0.3) - i
        return a * a

    yield Case(
        "elementwise chain 2048x2048",
        lambda cx, a: chain(a, ops.exp, ops.maximum),
        [normal(2048, 2048)],
        lambda a: chain(a, torch.exp, torch.maximum),
        2.0,
    )


def attentions() -> Iterator[Case]:
    q, k, v = normal(1, 8, 512, 64), normal(1, 8, 512, 64), normal(1, 8, 512, 64)
    for causal in (True, False):
        yield Case(
            "attention 8x512x64" + " causal" * causal,
            lambda cx, q, k, v, c=causal: ops.scaled_dot_product_attention(q, k, v, is_causal=c),
            [q, k, v],
            lambda q, k, v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
            1.3 if causal else 1.0,
        )


def convolutions() -> Iterator[Case]:
    shapes = (
        ("conv 3x3 64->64 56x56", 64, 64, 56, 3, 1, 1, 1, 1.0),
        ("conv 7x7 stride 2 3->64 224x224", 3, 64, 224, 7, 2, 3, 1, 1.0),
        ("depthwise 3x3 128 56x56", 128, 128, 56, 3, 1, 1, 128, 1.5),
        ("conv 1x1 256->64 56x56", 256, 64, 56, 1, 1, 0, 1, 1.0),
    )
    for name, c, o, size, kernel, stride, padding, groups, mark in shapes:
        options = dict(stride=stride, padding=padding, groups=groups)
        yield Case(
            name,
            lambda cx, x, w, b, options=options: ops.conv2d(x, w, b, **options),
            [normal(1, c, size, size), normal(o, c // groups, kernel, kernel), normal(o)],
            lambda x, w, b, options=options: F.conv2d(x, w, b, **options),
            mark,
            constants=(1, 2),
        )


def gemv() -> Iterator[Case]:
    """One vector: the weight passes once, so the peer is a plain read of as many bytes."""
    n, k = 8192, 8192
    x = normal(k)
    weights = {"int8": RNG.integers(-127, 128, (n, k), dtype=np.int8), "f32": normal(n // 4, k)}
    for kind, weight in weights.items():
        yield Case(
            f"gemv {kind} {len(weight)}x{k} (peer: a plain read)",
            lambda cx, w, x: (w.cast("f32") * x).sum(-1),
            [weight, x],
            plain_read(weight.nbytes),
            1.0,
            constants=(0,),
            want=lambda w, x: w.astype(np.float64) @ x,
        )


def plain_read(size: int) -> Callable[..., None]:
    """Reads `size` bytes with torch's number of threads."""
    readers: dict[int, Callable[[], None]] = {}

    def read(*_: torch.Tensor) -> None:
        threads = torch.get_num_threads()
        if threads not in readers:
            readers[threads] = ceilings.reader(size, threads)
        readers[threads]()

    return read


def all_cases() -> Iterator[Case]:
    yield from gemms()
    yield from rows()
    yield from attentions()
    yield from convolutions()
    yield from gemv()


def compiled(case: Case, threads: int) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    """(run, result) of our program for a case."""
    graph = luminal.Graph()
    tensors = []
    for i, array in enumerate(case.inputs):
        if i in case.constants:
            tensors.append(graph.constant(array))
        else:
            symbolic = case.symbolic and i == 0
            shape = ("s", *array.shape[1:]) if symbolic else array.shape
            tensors.append(graph.tensor(shape, dtype=str(array.dtype)))
    out = case.build(graph, *tensors).output()
    program = graph.compile(threads=threads, database=False)
    for i, array in enumerate(case.inputs):
        if i not in case.constants:
            program[tensors[i]] = array
    sizes = {"s": case.inputs[0].shape[0]} if case.symbolic else {}
    return (lambda: program.run(**sizes)), (lambda: program[out])


def measure(case: Case, threads: int, rounds: int) -> bool:
    """Check, time and print one case; True if it reaches its mark."""
    torch.set_num_threads(threads)
    run, result = compiled(case, threads)
    tensors = [torch.from_numpy(a) for a in case.inputs]
    run()
    want = case.want(*case.inputs) if case.want else case.peer(*tensors).numpy()
    error = float(np.abs(result() - want).max() / np.abs(want).max())
    if not error < case.tolerance:
        raise SystemExit(f"{case.name}: wrong result, relative error {error:.1e}")
    with torch.inference_mode():
        timed = paired(run, lambda: case.peer(*tensors), rounds)
    reached = timed.ratio >= case.mark
    verdict = "" if reached else "  below"
    print(f"{case.name:44} {threads} {timed}  mark {case.mark:.1f}{verdict}", flush=True)
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{cpu_name()}; torch {torch.__version__}; times in us, ratio = peer / ours")
    print(f"{'case':44} t {'ours':>10} {'peer':>10} {'ratio':>7} (quartiles)")
    for threads in options.threads:
        for case in all_cases():
            if options.only in case.name:
                measure(case, threads, options.rounds)


if __name__ == "__main__":
    main()
