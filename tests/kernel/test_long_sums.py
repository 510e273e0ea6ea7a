"""Sums of very many floats: what a block adds up joins the rest when it is whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_default import SMALL, TARGETS, assert_right

import luminal
from luminal import ops
from luminal.graph.index import Index
from luminal.kernel.target import Target
from luminal.lowering import reduce
from luminal.scheduling import paths

Made = Callable[[luminal.Graph], luminal.Tensor]
SUMS: dict[str, tuple[Made, float]] = {
    "all of a vector": (lambda cx: cx.tensor((1 << 23,)).sum(), 0.1 * (1 << 23)),
    "columns": (lambda cx: cx.tensor((1 << 17, 8)).sum(0), 0.1 * (1 << 17)),
    "rows": (lambda cx: cx.tensor((3, 1 << 18)).sum(1), 0.1 * (1 << 18)),
    "the first and the last": (lambda cx: cx.tensor((1 << 15, 3, 37)).mean((0, 2)), 0.1),
    "a number of terms that nothing divides": (lambda cx: cx.tensor((1000003,)).sum(), 100000.3),
    "x.T @ y": (lambda cx: ops.matmul(cx.tensor((1 << 17, 16)).T, cx.tensor((1 << 17, 16))),
                0.01 * (1 << 17)),
    "x @ y.T": (lambda cx: ops.matmul(cx.tensor((5, 1 << 17)), cx.tensor((24, 1 << 17)).T),
                0.01 * (1 << 17)),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_long_sums_keep_their_digits(name: str) -> None:
    """Equal numbers, whose roundings all go one way: of 2^21 in a row 1.7% were lost."""
    make, want = SUMS[name]
    assert_close(make, {}, want)


def tall(cx: luminal.Graph, width: int) -> luminal.Tensor:
    return cx.tensor((cx.dim("s"), width))


OF_RUN_TIME: dict[str, tuple[Made, float]] = {
    "all of a vector": (lambda cx: cx.tensor((cx.dim("s"),)).sum(), 0.1),
    "columns": (lambda cx: tall(cx, 64).sum(0), 0.1),
    "x.T @ y": (lambda cx: ops.matmul(tall(cx, 16).T, tall(cx, 16)), 0.01),
}


@pytest.mark.parametrize("name", OF_RUN_TIME)
@pytest.mark.parametrize("size", [1, 3, 2047, 1 << 20])
def test_so_do_sums_of_run_time_sizes(name: str, size: int) -> None:
    """Columns of 2^20 numbers lost 1%."""
    make, each = OF_RUN_TIME[name]
    assert_close(make, {"s": size}, each * size)


def assert_close(make: Made, sizes: dict[str, int], want: float) -> None:
    cx = luminal.Graph()
    make(cx).output()
    rt = cx.compile(device="cpu", threads=1, cache=False, database=False)
    shapes = [[int(Index.of(n).evaluate(sizes)) for n in t.shape] for t in cx.inputs]
    given = [np.full(shape, 0.1, np.float32) for shape in shapes]
    np.testing.assert_allclose(rt(*given), want, rtol=5e-5)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", SMALL)
def test_blocks_of_any_sum_are_right(
    name: str, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce, "CHAIN", 2)
    monkeypatch.setattr(paths, "CHAIN", 2)
    kernel, sizes = SMALL[name]
    assert_right(kernel, sizes, target)
