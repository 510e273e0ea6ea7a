"""Random graphs: what the compiler makes of them is what the reference says."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luminal import Graph, Tensor, ops
from luminal.backend.reference import run

SIZES = {"s": 5, "t": 3}


class Maker:
    """Draws operations that fit what is there."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.graph = Graph()
        for name in SIZES:
            self.graph.dim(name, 1, 64)
        shapes = [(4, 6), ("s", 6), (3, 4, 6), ("t", "s", 6), (6,), (6, 5)]
        self.tensors = [self.graph.tensor(self.pick(shapes)) for _ in range(2)]
        self.tensors.append(self.graph.constant(np.float32([[0.5], [-2.0], [0.0], [3.0]])))

    def pick(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def step(self) -> None:
        """One more tensor, or nothing where it does not fit."""
        x = self.pick(self.tensors)
        made = getattr(self, self.pick(STEPS))(x)
        if made is not None and made.ndim <= 4:
            self.tensors.append(made)

    # ---- kinds of operations

    def unary(self, x: Tensor) -> Tensor:
        name = self.pick(["exp", "tanh", "relu", "abs", "neg", "sigmoid", "sin", "floor"])
        return getattr(x.clamp(-4.0, 4.0), name)()

    def binary(self, x: Tensor) -> Tensor | None:
        fitting = [y for y in self.tensors if _broadcasts(x, y)]
        y = self.pick(fitting)
        return self.pick([x + y, x * y, x - y, x.maximum(y), x.minimum(y), (x < y).where(x, y)])

    def reduction(self, x: Tensor) -> Tensor | None:
        if not x.ndim:
            return None
        dim = self.random.randrange(x.ndim)
        keep = self.pick([False, True])
        name = self.pick(["sum", "mean", "amax", "amin"])
        return getattr(x, name)(dim, keepdim=keep)

    def normalised(self, x: Tensor) -> Tensor | None:
        return self.pick([x.softmax(-1), x - x.mean(-1, keepdim=True)]) if x.ndim else None

    def running(self, x: Tensor) -> Tensor | None:
        return x.cumsum(self.random.randrange(x.ndim)) if x.ndim else None

    def permuted(self, x: Tensor) -> Tensor:
        return x.permute(*self.random.sample(range(x.ndim), x.ndim))

    def sliced(self, x: Tensor) -> Tensor | None:
        if not x.ndim or not isinstance(x.shape[0], int):
            return None
        keys = [slice(1, None), slice(None, None, 2), slice(None, None, -1), 0]
        return x[self.pick(keys)] if x.shape[0] > 1 else None

    def padded(self, x: Tensor) -> Tensor | None:
        if not x.ndim or not isinstance(x.shape[-1], int):
            return None
        return x.pad([(0, 0)] * (x.ndim - 1) + [(1, 2)], self.pick([0.0, -1.5]))

    def reshaped(self, x: Tensor) -> Tensor:
        if not x.ndim:
            return x.unsqueeze(0)
        made = [x.flatten(), x.unsqueeze(0)]
        if isinstance(x.shape[-1], int) and x.shape[-1] % 2 == 0:
            made.append(x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2))
        return self.pick(made)

    def flipped(self, x: Tensor) -> Tensor | None:
        return x.flip(x.ndim - 1) if x.ndim else None

    def joined(self, x: Tensor) -> Tensor | None:
        same = [y for y in self.tensors if y.node.shape == x.node.shape]
        return ops.cat([x, self.pick(same)], self.random.randrange(x.ndim)) if x.ndim else None

    def picked(self, x: Tensor) -> Tensor | None:
        if not x.ndim:
            return None
        index = self.graph.constant(np.array([2, -1, 0, 2]))
        big_enough = isinstance(x.shape[0], int) and x.shape[0] > 2
        return ops.index_select(x, 0, index) if big_enough else None

    def scattered(self, x: Tensor) -> Tensor | None:
        if not x.ndim or not isinstance(x.shape[0], int):
            return None
        index = self.graph.constant(np.array([1, 0, 1, 5])) * 0 + self.random.randrange(2)
        values = (x.sum(0, keepdim=True) * 0.5).expand(4, *x.shape[1:])
        return ops.index_add(x, 0, index, values) if x.shape[0] > 1 else None

    def narrowed(self, x: Tensor) -> Tensor:
        kind = self.pick(["f16", "bf16", "i32", "f64"])
        small = x.clamp(-100.0, 100.0).cast(kind)
        return self.pick([small, small + 1, small * small]).cast("f32")

    def triangle(self, x: Tensor) -> Tensor | None:
        return self.pick([ops.tril, ops.triu])(x) if x.ndim >= 2 else None

    def repeated(self, x: Tensor) -> Tensor:
        return self.pick([x.repeat(*[2] * x.ndim), x.roll(1, 0)]) if x.ndim else x

    def extreme(self, x: Tensor) -> Tensor | None:
        if not x.ndim:
            return None
        dim = self.random.randrange(x.ndim)
        return self.pick([x.argmax(dim).cast("f32"), ops.sort(x, dim).values])

    def layer(self, x: Tensor) -> Tensor | None:
        if not x.ndim or not isinstance(x.shape[-1], int):
            return None
        weights = np.arange(x.shape[-1] * 7, dtype=np.float32).reshape(-1, 7) / 50 - 0.3
        return (x @ self.graph.constant(weights) if x.ndim > 1 else x) + 0.5

    def product(self, x: Tensor) -> Tensor | None:
        return x @ x.transpose(-1, -2) if x.ndim >= 2 else None


STEPS = [
    "unary", "binary", "reduction", "normalised", "running", "permuted", "sliced", "padded",
    "reshaped", "flipped", "product", "joined", "picked", "scattered", "narrowed", "triangle",
    "repeated", "extreme", "layer",
]  # fmt: skip


def _broadcasts(x: Tensor, y: Tensor) -> bool:
    pairs = zip(reversed(x.shape), reversed(y.shape))
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def program(random: Random, most: int = 8) -> Graph:
    """A random graph with one or two outputs."""
    maker = Maker(random)
    for _ in range(random.randint(2, most)):
        maker.step()
    maker.tensors[-1].output()
    if random.random() < 0.5:
        maker.pick(maker.tensors).output()
    return maker.graph


def feeds(graph: Graph, seed: int) -> dict[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {t: tuple(int(size.evaluate(SIZES)) for size in t.node.shape) for t in graph.inputs}
    return {t: rng.standard_normal(shape).astype(np.float32) for t, shape in shapes.items()}


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_compiled_is_reference(random: Random, seed: int) -> None:
    check(program(random), seed)


@pytest.mark.parametrize("seed", range(40))
def test_larger_programs(seed: int) -> None:
    check(program(Random(seed), most=12), seed % 4)


def check(graph: Graph, seed: int) -> None:
    """Compile, run, compare."""
    rt = graph.compile(threads=1 + seed % 2)
    given_ = feeds(graph, seed)
    for tensor, array in given_.items():
        rt[tensor] = array
    implied = {name for t in given_ for size in t.node.shape for name in size.names()}
    rt.run(**{name: SIZES[name] for name in rt.sizes if name not in implied})
    expected = run(graph, {t.node: a for t, a in given_.items()}, SIZES)
    for tensor in graph.outputs:
        np.testing.assert_allclose(
            rt[tensor], expected[tensor.node], rtol=2e-4, atol=2e-4, err_msg=graph.display()
        )
