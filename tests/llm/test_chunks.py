"""States of Mamba 2 a chunk at a time, against one step after the other in NumPy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import luminal
from luminal.models.llm.mixers.chunks import CHUNK, decayed

SEQUENCES, GROUPS, HEADS, SIZE, NUMBERS = 2, 2, 3, 4, 5


def one_by_one(state: Any, real: Any, a: Any, x: Any, b: Any, c: Any) -> tuple[Any, Any]:
    state, ys = state.astype(np.float64), []
    for t in range(a.shape[1]):
        new = state * np.exp(a[:, t])[..., None, None]
        new = new + x[:, t][..., None] * b[:, t][:, :, None, None]
        state = np.where(real[:, t][:, None, None, None, None], new, state)
        ys.append((state * c[:, t][:, :, None, None]).sum(-1))
    return state, np.stack(ys, 1)


def test_chunks_and_what_is_left_are_the_steps() -> None:
    """Fewer steps than a chunk, whole ones, and more; sequences of different lengths."""
    graph = luminal.Graph()
    steps, each = graph.dim("steps", 1, 64, hint=32), (GROUPS, HEADS)
    shapes = {"a": each, "x": (*each, SIZE), "b": (GROUPS, NUMBERS), "c": (GROUPS, NUMBERS)}
    state = graph.tensor((SEQUENCES, *each, SIZE, NUMBERS), name="state")
    given = [graph.tensor((SEQUENCES, steps, *shape), name=n) for n, shape in shapes.items()]
    real: Any = SimpleNamespace(real=graph.tensor((SEQUENCES, steps), "bool", "real"))
    last, ys = decayed(real, state, *given)
    last.output("last")
    ys.output("ys")
    program = graph.compile(threads=1)
    for count in (1, CHUNK - 1, CHUNK, 2 * CHUNK + 5):
        random = np.random.default_rng(count)
        values = {n: random.standard_normal((SEQUENCES, count, *s), np.float32)
                  for n, s in shapes.items()}  # fmt: skip
        values["a"] = -np.abs(values["a"]) * random.choice([0.1, 40], values["a"].shape)
        values = {n: np.float32(v) for n, v in values.items()}
        before = random.standard_normal((SEQUENCES, *each, SIZE, NUMBERS), np.float32)
        tokens = np.arange(count) < np.array([[count], [max(1, count // 2)]])
        for name, value in {**values, "state": before, "real": tokens}.items():
            program[name] = value
        program.run()
        state_wanted, wanted = one_by_one(before, tokens, *values.values())
        np.testing.assert_allclose(program["last"], state_wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(program["ys"][tokens], wanted[tokens], rtol=1e-4, atol=1e-4)
