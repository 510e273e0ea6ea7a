"""Runs of sizes that differ little share calls and places."""

from __future__ import annotations

import numpy as np
import pytest

import luminal
from luminal import ops
from luminal.runtime.binding import Bindings


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The sizes for which a binding is made."""
    found, make = list[dict[str, int]](), Bindings._make

    def counted(self, order, sizes, table, spare):
        found.append(dict(sizes))
        return make(self, order, sizes, table, spare)

    monkeypatch.setattr(Bindings, "_make", counted)
    return found


def program(threads: int) -> tuple[luminal.Executable, list[np.ndarray]]:
    """Three products behind each other, of any number of rows."""
    cx, rng = luminal.Graph(), np.random.default_rng(0)
    cx.dim("s", 0, 4096)
    x = cx.tensor(("s", 40))
    weights = [cx.parameter((40, 40)) for _ in range(3)]
    for w in weights:
        x = ops.tanh(x @ w)
    x.output()
    rt = cx.compile(threads=threads, cache=False)
    values = [rng.standard_normal((40, 40)).astype(np.float32) * 0.2 for _ in weights]
    for w, value in zip(weights, values):
        rt[w] = value
    return rt, values


@pytest.mark.parametrize("threads", [1, 2])
def test_one_binding_serves_sizes_that_fit(made, threads):
    rt, weights = program(threads)
    rng = np.random.default_rng(1)
    for rows in [*range(1, 120), *range(120, 0, -1), 700, 3, 4096, 1, 0, 5]:
        x = rng.standard_normal((rows, 40)).astype(np.float32)
        found = rt(x)
        for w in weights:
            x = np.tanh(x @ w)
        np.testing.assert_allclose(found, x, atol=2e-5)
    assert 2 <= len(made) <= 24


def test_little_is_left_over(made):
    """A long run's places are no places for a short one, nor do they stay in the way."""
    rt, _ = program(1)
    rt(np.zeros((8, 40), np.float32))
    small = rt.peak_bytes
    rt(np.zeros((4096, 40), np.float32))
    assert len(made) == 2 and rt.peak_bytes > small
    rt(np.zeros((8, 40), np.float32))
    assert len(made) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_whose_states_and_lengths_are_run_time_sizes(threads):
    """Where what a loop moves along its stacks depends on sizes, bindings do too."""
    cx = luminal.Graph()
    cx.dim("s", 0, 64), cx.dim("b", 1, 64)
    w, x = cx.tensor((8, 8)), cx.tensor(("s", "b", 8))
    start = ops.zeros(cx, ("b", 8))
    last, rows = ops.scan(lambda h, r: (ops.tanh(h @ w + r),) * 2, start, x, reverse=True)
    last.output(), rows.output()
    rt, rng = cx.compile(threads=threads, cache=False), np.random.default_rng(2)
    weights = rng.standard_normal((8, 8)).astype(np.float32) * 0.3
    for steps, batch in [(3, 2), (3, 3), (4, 3), (4, 2), (0, 5), (7, 40), (3, 2), (7, 39), (1, 1)]:
        given = rng.standard_normal((steps, batch, 8)).astype(np.float32)
        state, want = np.zeros((batch, 8), np.float32), np.zeros_like(given)
        for at in reversed(range(steps)):
            state = want[at] = np.tanh(state @ weights + given[at])
        found = rt(weights, given)
        np.testing.assert_allclose(found[0], state, atol=2e-5)
        np.testing.assert_allclose(found[1], want, atol=2e-5)
