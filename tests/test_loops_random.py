"""Random programs with loops in loops: the compiler computes what the reference does."""

from __future__ import annotations

import random

import numpy as np
import pytest

import luminal
from luminal import ops

STEPS = (0, 1, 4)


class Programs:
    """One program of a seed. x: stacked slices, the other inputs are used around and in bodies."""

    def __init__(self, seed: int) -> None:
        self.draw, self.cx = random.Random(seed), luminal.Graph()
        self.cx.dim("s", 0, 9)
        self.width = self.draw.choice([1, 3, 8, 17])
        shapes = ("s", self.width), (self.width,), (self.width, self.width), (2, self.width)
        self.x, *self.pool = [self.cx.tensor(shape) for shape in shapes]
        for _ in range(2):
            self.pool.append(self.value(self.pool, 0))
            self.pool.append(self.loop(self.pool, 1))
        for tensor in dict.fromkeys(t for t in self.pool[-3:] if t.node.op != "input"):
            tensor.output()

    def value(self, pool, depth):
        any_of, vector = self.draw.choice(pool), self.vector(pool)
        row, square = self.pool[0], self.pool[1]
        makers = [
            lambda: ops.tanh(any_of * 0.5), lambda: vector * self.vector(pool),
            lambda: vector @ square * 0.1, lambda: ops.softmax(any_of, -1),
            lambda: ops.flip(vector, (0,)), lambda: ops.cumsum(vector, 0) * 0.1,
            lambda: ops.where(vector > 0, vector, row), lambda: ops.outer(vector, row) * 0.1,
            lambda: vector - any_of.reshape(-1, self.width).sum(0) * 0.1,
        ]  # fmt: skip
        if depth == 1 and self.draw.random() < 0.2:
            return self.loop(pool, 2)
        return self.draw.choice(makers)()

    def vector(self, pool):
        return self.draw.choice([t for t in pool if t.ndim == 1] or [self.pool[0]])

    def loop(self, pool, depth):
        draw = self.draw
        carried = tuple(draw.choice(pool) for _ in range(draw.randint(1, 3)))

        def step(carry, x):
            (*carry, count), x = carry, () if x is None else (x,)
            rows = ops.stack([x[0] if x else carry[0].reshape(-1)[: self.width], self.pool[0]], 0)
            picked = ops.index_select(rows, 0, (count % 2).reshape(1)).reshape(self.width)
            local = [*carry, *x, *draw.sample(pool, 2), picked]
            for _ in range(draw.randint(1, 4)):
                local.append(self.value(local, depth))
            fits = [[t for t in local if t.node.shape == old.node.shape] for old in carry]
            new = tuple(map(draw.choice, fits))
            return (*new, count + 3), (draw.choice(local), new[0])

        sliced, reverse = depth == 1 and draw.random() < 0.7, draw.random() < 0.5
        length = None if sliced else draw.randint(0, 4)
        given = self.x if sliced else None
        (*last, _), rows = ops.scan(step, (*carried, 1), given, length, reverse)
        return draw.choice([*last, *(row.sum(0) for row in rows)])


@pytest.mark.parametrize("seed", range(8))
def test_random_loops(seed):
    made = Programs(seed)
    native = made.cx.compile(threads=1 + seed % 2, cache=False)
    reference = made.cx.compile("reference", passes=[])
    rng = np.random.default_rng(seed)
    for steps in STEPS:
        shapes = [[size if isinstance(size, int) else steps for size in t.shape]
                  for t in made.cx.inputs]  # fmt: skip
        given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        found = [rt(*given) for rt in (native, reference)]
        mine, right = (f if isinstance(f, tuple) else (f,) for f in found)
        for a, b in zip(mine, right, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
