"""Random graphs of differentiable steps: gradients and tangents agree with differences of f64."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from luminal import Graph, Tensor, ops, train
from luminal.backend.reference.graph import evaluate

SIZES = {"s": 5, "t": 3}
SHAPES: list[tuple[Any, ...]] = [(4, 6), ("s", 6), (3, 4, 2), ("t", "s"), (6,), (6, 5), (2, 1, 3)]
Step = Callable[[Random, Tensor, list[Tensor]], Tensor | None]
STEPS: list[Step] = [
    lambda r, x, known: getattr(x, r.choice(["tanh", "sin", "sigmoid", "neg", "relu", "abs"]))(),
    lambda r, x, known: r.choice([x * 0.7 + 0.2, (x * x + 0.3).sqrt(), 1.0 / (x * x + 0.5)]),
    lambda r, x, known: combined(r, x, partner(r, x, known)),
    lambda r, x, known: combined(r, x, partner(r, x, known)),
    lambda r, x, known: getattr(x, r.choice(["sum", "amax", "mean", "amin"]))(
        dim(r, x), keepdim=r.random() < 0.5
    ),
    lambda r, x, known: x.tanh().prod(dim(r, x)),
    lambda r, x, known: x.softmax(dim(r, x)),
    lambda r, x, known: r.choice([x.cumsum, x.tanh().cumprod])(dim(r, x)),
    lambda r, x, known: x.cummax(dim(r, x)).values,
    lambda r, x, known: x.permute(*r.sample(range(x.ndim), x.ndim)),
    lambda r, x, known: x.flip(dim(r, x)),
    lambda r, x, known: x.flatten() if r.random() < 0.5 else x.unsqueeze(0),
    lambda r, x, known: x.roll(1, dim(r, x)),
    lambda r, x, known: x.pad([(0, 0)] * (x.ndim - 1) + [(1, 2)], 0.5),
    lambda r, x, known: x.repeat(*[2] * x.ndim) if x.ndim < 3 else None,
    lambda r, x, known: sliced(r, x),
    lambda r, x, known: split(x),
    lambda r, x, known: x.unfold(0, 3, r.choice([1, 2])) if long(x) else None,
    lambda r, x, known: ops.cat([x, x.sin()], dim(r, x)),
    lambda r, x, known: x @ x.transpose(-1, -2) if x.ndim >= 2 else None,
    lambda r, x, known: ops.index_select(x, 0, indices(r, x)) if long(x) else None,
    lambda r, x, known: scattered(r, x) if long(x) else None,
    lambda r, x, known: ops.tril(x) if x.ndim >= 2 else None,
]


def dim(r: Random, x: Tensor) -> int:
    return r.randrange(x.ndim)


def long(x: Tensor) -> bool:
    return isinstance(x.shape[0], int) and x.shape[0] >= 3


def partner(r: Random, x: Tensor, known: list[Tensor]) -> Tensor:
    def fits(y: Tensor) -> bool:
        pairs = zip(reversed(x.shape), reversed(y.shape))
        return y.ndim <= x.ndim and all(a == b or b == 1 for a, b in pairs)

    return r.choice([y for y in known if fits(y)])


def combined(r: Random, x: Tensor, y: Tensor) -> Tensor:
    return r.choice([x + y, x * y, x - y, x.maximum(y), x.minimum(y), ops.where(x < y, x, y * 2.0)])


def sliced(r: Random, x: Tensor) -> Tensor | None:
    if not isinstance(x.shape[0], int) or x.shape[0] < 2:
        return None
    return x[r.choice([slice(1, None), slice(None, None, 2), slice(None, None, -1), 0])]


def split(x: Tensor) -> Tensor | None:
    size = x.shape[-1]
    return x.unflatten(-1, (size // 2, 2)) if isinstance(size, int) and size % 2 == 0 else None


def indices(r: Random, x: Tensor) -> Tensor:
    return x.graph.constant(np.array([r.randrange(3) for _ in range(4)]))


def scattered(r: Random, x: Tensor) -> Tensor:
    values = (x.sum(0, keepdim=True) * 0.5).expand(4, *x.shape[1:])
    return ops.index_add(x, 0, indices(r, x), values)


def program(r: Random) -> tuple[Graph, list[Tensor], Tensor]:
    graph = Graph()
    for name in SIZES:
        graph.dim(name, 1, 64)
    inputs = [graph.tensor(r.choice(SHAPES), "f64") for _ in range(2)]
    known = list(inputs)
    for _ in range(r.randint(3, 9)):
        x = r.choice(known[-2:] + known)
        made = r.choice(STEPS)(r, x, known) if x.ndim else None
        if made is not None and made.ndim <= 4:
            known.append(made)
    return graph, inputs, ops.tanh(known[-1] * 0.3)


def values(graph: Graph, wanted: list[Tensor], feeds: dict[Tensor, np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        made = evaluate(graph, [t.node for t in wanted], feeds, SIZES)
    return [made[t.node] for t in wanted]


def check(seed: int) -> None:
    graph, inputs, y = program(Random(seed))
    random, step = np.random.default_rng(seed), 1e-6
    along = [graph.tensor(x.shape, "f64") for x in inputs]
    weight = graph.tensor(y.shape, "f64")
    gradients = train.vjp([y], [weight], inputs)
    (tangent,) = train.jvp([y], inputs, along)
    squares = [(g * g).sum() for g in gradients]
    again = train.vjp(squares, [g.graph.literal(1.0, "f64") for g in squares], inputs)
    (curve,) = train.jvp([squares[0] + squares[1]], inputs, along)

    def draw(like: Tensor) -> np.ndarray:
        return random.standard_normal([int(n.evaluate(SIZES)) for n in like.node.shape])

    feeds = {t: draw(t) for t in (*inputs, *along, weight)}
    moved = [
        feeds | {x: feeds[x] + sign * feeds[v] for x, v in zip(inputs, along)}
        for sign in (step, -step)
    ]
    wanted = [tangent, curve, *gradients, *again]
    (forward, bend, g0, g1, h0, h1) = values(graph, wanted, feeds)
    ahead, behind = (values(graph, [y, *squares], feed) for feed in moved)
    slope = (ahead[0] - behind[0]) / (2 * step)
    np.testing.assert_allclose(forward, slope, 1e-4, 1e-6 * (1 + abs(slope).max()))
    v0, v1 = (feeds[v] for v in along)
    pulled, pushed = (g0 * v0).sum() + (g1 * v1).sum(), (feeds[weight] * forward).sum()
    np.testing.assert_allclose(pulled, pushed, 1e-8, 1e-10)
    second = (sum(ahead[1:]) - sum(behind[1:])) / (2 * step)
    np.testing.assert_allclose(bend, second, 1e-3, 1e-5 * (1 + abs(second)))
    np.testing.assert_allclose((h0 * v0).sum() + (h1 * v1).sum(), bend, 1e-6, 1e-8)


@pytest.mark.parametrize("block", range(8))
def test_random_graphs(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        check(seed)
