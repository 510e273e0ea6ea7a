"""Chains of thousands of operations: no stage depends on their length by calls of itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import luminal
from luminal import Graph, Tensor, ops

LENGTH = 1200
assert sys.getrecursionlimit() < LENGTH
Step = Callable[[Tensor, Tensor, int], Tensor]  # (value, input, number of the step)


def row(x: Tensor) -> Tensor:
    return x.graph.iota((4, 16), "i1")


CHAINS: dict[str, Step] = {
    "elementwise": lambda y, x, n: [y * 0.5, y + 0.25, y.maximum(-x)][n % 3],
    "with reductions": lambda y, x, n: y - y.mean(-1, keepdim=True) * 0.5 if n % 2 else y * 0.9,
    "sums": lambda y, x, n: y.sum(-1, keepdim=True) * 0.05 + x,
    "scans": lambda y, x, n: y.cumsum(n % 2) * 0.1,
    "parts": lambda y, x, n: ops.cat([y[:2] + 1.0, y[2:]], 0),
    "padding": lambda y, x, n: y[:, :15].pad([(0, 0), (1, 0)], 0.5),
    "both ways": lambda y, x, n: y + y.flip(1) * 0.1,
    "masks of positions": lambda y, x, n: ops.where(row(x) < n % 16, y + 1.0, y * 0.999),
}


def compare(graph: Graph, arrays: dict[str, np.ndarray], **options: object) -> None:
    """The one output, compiled and as the reference has it."""
    results = []
    for device, more in (("cpu", options), ("reference", {})):
        rt = graph.compile(device=device, **more)  # type: ignore[arg-type]
        for name, array in arrays.items():
            rt[name] = array
        rt.run()
        results.append(rt[rt.outputs[0]])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", CHAINS)
def test_a_long_chain(kind: str) -> None:
    graph = Graph()
    y = x = graph.tensor((4, 16), name="x")
    for n in range(LENGTH):
        y = CHAINS[kind](y, x, n)
    y.output()
    compare(graph, {"x": some(4, 16)})


def test_products() -> None:
    graph = Graph()
    y, w = graph.tensor((4, 16), name="x"), graph.parameter((16, 16), name="w")
    for _ in range(LENGTH):
        y = y @ w
    y.output()
    compare(graph, {"x": some(4, 16), "w": np.linalg.qr(some(16, 16))[0]})


def test_a_mask_of_many_conditions() -> None:
    graph = Graph()
    x = graph.tensor((4, 16), name="x")
    mask = row(x) < 100
    for n in range(LENGTH // 10):
        mask = mask & ~(row(x) * 3 > n + 12) if n % 2 else mask | (row(x) == n)
    ops.where(mask, x, -x).output()
    compare(graph, {"x": some(4, 16)})


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_a_weight_of_a_long_chain(precision: str) -> None:
    graph = Graph()
    x, w = graph.tensor((4, 16), name="x"), graph.parameter((16, 16), name="w")
    for n in range(LENGTH // 3):
        w = w * 0.5 + w * 0.5 if n % 2 else w + 0.0
    (x @ w).output()
    rt = graph.compile(precision=precision)
    rt["x"], rt["w"] = some(4, 16), np.eye(16, dtype=np.float32)
    rt.run()
    np.testing.assert_allclose(rt[rt.outputs[0]], some(4, 16), atol=0.02)


def test_a_long_chain_in_a_file(tmp_path: Path) -> None:
    graph = Graph()
    y = x = graph.tensor((4, 16), name="x")
    for n in range(LENGTH):
        y = CHAINS["elementwise"](y, x, n)
    y.output("y")
    rt = graph.compile()
    rt.save(tmp_path / "chain.luminal")
    loaded = luminal.load(tmp_path / "chain.luminal")
    for program in (rt, loaded):
        program["x"] = some(4, 16)
        program.run()
    np.testing.assert_array_equal(rt["y"], loaded["y"])
    assert graph.display().count("\n") >= LENGTH
