"""States a chunk at a time, against one step after the other in NumPy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import luminal
from luminal.models.llm.mixers.chunks import CHUNK, decayed, delta, removing

SEQUENCES, GROUPS, HEADS, SIZE, NUMBERS = 2, 2, 3, 4, 5
EACH = GROUPS, HEADS


def mamba2(old: Any, a: Any, x: Any, b: Any, c: Any) -> tuple[Any, Any]:
    new = old * np.exp(a)[..., None, None] + x[..., None] * b[:, :, None, None]
    return new, (new * c[:, :, None, None]).sum(-1)


def delta_rule(old: Any, a: Any, q: Any, k: Any, v: Any, beta: Any) -> tuple[Any, Any]:
    kept = old * np.exp(a)[..., None, None]
    wrong = beta[..., None] * (v - np.einsum("sgk,sghkv->sghv", k, kept))
    new = kept + np.einsum("sgk,sghv->sghkv", k, wrong)
    return new, np.einsum("sgk,sghkv->sghv", q, new)


def rwkv7(old: Any, w: Any, r: Any, k: Any, v: Any, n: Any, p: Any) -> tuple[Any, Any]:
    gone = np.einsum("shk,shkv->shv", n, old)
    new = old * np.exp(w)[..., None] - p[..., None] * gone[..., None, :]
    new = new + k[..., None] * v[..., None, :]
    return new, np.einsum("shk,shkv->shv", r, new)


RULES: dict[str, tuple[Any, Any, tuple[int, ...], dict[str, tuple[int, ...]]]] = {
    "mamba2": (decayed, mamba2, (*EACH, SIZE, NUMBERS), {
        "a": EACH, "x": (*EACH, SIZE), "b": (GROUPS, NUMBERS), "c": (GROUPS, NUMBERS)}),
    "delta": (delta, delta_rule, (*EACH, NUMBERS, SIZE), {
        "a": EACH, "q": (GROUPS, NUMBERS), "k": (GROUPS, NUMBERS), "v": (*EACH, SIZE),
        "beta": EACH}),
    "rwkv7": (removing, rwkv7, (HEADS, NUMBERS, SIZE), {
        "w": (HEADS, NUMBERS), "r": (HEADS, NUMBERS), "k": (HEADS, NUMBERS), "v": (HEADS, SIZE),
        "n": (HEADS, NUMBERS), "p": (HEADS, NUMBERS)}),
}  # fmt: skip


def drawn(random: Any, count: int, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Decays from nearly none to all; keys of length 1, nearly the same from step to step."""
    values = {n: random.standard_normal((SEQUENCES, count, *s)) for n, s in shapes.items()}
    if "a" in values:
        values["a"] = -np.abs(values["a"]) * random.choice([0.01, 0.1, 40], values["a"].shape)
    if "w" in values:
        values["w"] = -0.606531 / (1 + np.exp(4 * values["w"]))
        rate = 1 / (1 + np.exp(-3 * values["p"]))
    if "beta" in values:
        values["beta"] = 1 / (1 + np.exp(-4 * values["beta"]))
    for name in {"k", "n"} & values.keys() if len(values) > 4 else ():
        values[name] = values[name] * 0.2 + values[name][:, :1]
        values[name] /= np.linalg.norm(values[name], axis=-1, keepdims=True)
    if "w" in values:
        values["p"] = values["n"] * rate
    return {name: np.float32(value) for name, value in values.items()}


@pytest.mark.parametrize("name", RULES)
def test_chunks_and_what_is_left_are_the_steps(name: str) -> None:
    """Fewer steps than a chunk, whole ones, and more; sequences of different lengths."""
    ours, theirs, shape, shapes = RULES[name]
    graph = luminal.Graph()
    steps = graph.dim("steps", 1, 64, hint=32)
    state = graph.tensor((SEQUENCES, *shape), name="state")
    given = [graph.tensor((SEQUENCES, steps, *each), name=n) for n, each in shapes.items()]
    real: Any = SimpleNamespace(real=graph.tensor((SEQUENCES, steps), "bool", "real"))
    last, ys = ours(real, state, *given)
    last.output("last")
    ys.output("ys")
    program = graph.compile(threads=1)
    for count in (1, CHUNK - 1, CHUNK, 2 * CHUNK + 5):
        random = np.random.default_rng(count)
        values = drawn(random, count, shapes)
        before = random.standard_normal((SEQUENCES, *shape), np.float32)
        tokens = np.arange(count) < np.array([[count], [max(1, count // 2)]])
        for key, value in {**values, "state": before, "real": tokens}.items():
            program[key] = value
        program.run()
        wanted, said = before.astype(np.float64), []
        for t in range(count):
            new, y = theirs(wanted, *(value[:, t] for value in values.values()))
            here = tokens[:, t].reshape(-1, *[1] * (new.ndim - 1))
            wanted = np.where(here, new, wanted)
            said.append(y)
        np.testing.assert_allclose(program["last"], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            program["ys"][tokens], np.stack(said, 1)[tokens], rtol=1e-4, atol=1e-4
        )
