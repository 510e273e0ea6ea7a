"""However a softmax is written, attention keeps no matrix of scores and a row is one kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from plan_nets import expected, region_of, run_plan

from luminal import Graph, Tensor, ops
from luminal.graph.dtype import bf16, boolean, i64
from luminal.graph.passes import program_of, run_passes
from luminal.precision import default_passes
from luminal.rewrite.normalise import normalise
from luminal.rewrite.optimise import optimise
from luminal.rewrite.plan import Plan
from luminal.rewrite.regions import regions

HEADS, LENGTH, WIDTH = 4, 1024, 64
INF = float("inf")


def top(s: Tensor) -> Tensor:
    return s.amax(-1, keepdim=True)


def low(s: Tensor) -> Tensor:
    return s.amin(-1, keepdim=True)


def total(e: Tensor) -> Tensor:
    return e.sum(-1, keepdim=True)


def shares(e: Tensor) -> Tensor:
    return e / total(e)


def finite_top(s: Tensor) -> Tensor:
    """As PyTorch's and JAX's decompositions shift."""
    return ops.where(ops.isinf(top(s)), 0.0, top(s))


def log_sum(s: Tensor, shift: Tensor) -> Tensor:
    return shift + total((s - shift).exp()).log()


Weights = dict[str, Callable[[Tensor], Tensor]]

MAXIMUM: Weights = {  # less the maximum itself, in one spelling or another
    "softmax": lambda s: s.softmax(-1),
    "exp(s - m)": lambda s: shares((s - top(s)).exp()),
    "exp(-m + s)": lambda s: shares((-top(s) + s).exp()),
    "exp(-(m - s))": lambda s: shares((-(top(s) - s)).exp()),
    "exp((s - m) / 2)": lambda s: shares(((s - top(s)) / 2.0).exp()),
    "exp(s 0.3 - max(s 0.3))": lambda s: shares((s * 0.3 - top(s * 0.3)).exp()),
    "2 ** (s - m)": lambda s: shares(2.0 ** (s - top(s))),
    "softmin": lambda s: (-s).softmax(-1),
    "exp(min - s)": lambda s: shares((low(s) - s).exp()),
    "exp((min - s) / 2)": lambda s: shares(((low(s) - s) / 2.0).exp()),
    "exp(log_softmax)": lambda s: ops.log_softmax(s, -1).exp(),
    "exp(s - logsumexp)": lambda s: (s - ops.logsumexp(s, -1, True)).exp(),
    "exp(s - (m + log sum))": lambda s: (s - log_sum(s, top(s))).exp(),
    "exp((s - m) - log sum)": lambda s: ((s - top(s)) - total((s - top(s)).exp()).log()).exp(),
    "e / (sum + eps)": lambda s: (s - top(s)).exp() / (total((s - top(s)).exp()) + 1e-9),
    "times the reciprocal": lambda s: (s - top(s)).exp() * total((s - top(s)).exp()) ** -1,
}
SHIFTED: Weights = {  # less something else
    "exp(s 0.3 - m 0.3)": lambda s: shares((s * 0.3 - top(s) * 0.3).exp()),
    "exp(s / 2 - m / 2)": lambda s: shares((s / 2.0 - top(s) / 2.0).exp()),
    "exp(-(s - min))": lambda s: shares((-(s - low(s))).exp()),
    "exp(s - finite m)": lambda s: shares((s - finite_top(s)).exp()),
    "exp(s - max of all)": lambda s: shares((s - s.amax((-1, -2), keepdim=True)).exp()),
    "exp(s - mean)": lambda s: shares((s - s.mean(-1, keepdim=True)).exp()),
    "exp(s - 5)": lambda s: shares((s - 5.0).exp()),
    "exp(s - finite logsumexp)": lambda s: (s - log_sum(s, finite_top(s))).exp(),
    "times the reciprocal, shifted": lambda s: (s - 5.0).exp() * total((s - 5.0).exp()) ** -1,
}
PLAIN: Weights = {
    "exp(s)": lambda s: shares(s.exp()),
    "exp(s - log sum exp(s))": lambda s: (s - total(s.exp()).log()).exp(),
}
WEIGHTS = MAXIMUM | SHIFTED | PLAIN
POWERS: Weights = {  # divided after the product
    "exp(s - m)": lambda s: (s - top(s)).exp(),
    "exp(s - finite m)": lambda s: (s - finite_top(s)).exp(),
    "exp(s)": lambda s: s.exp(),
}


def causal(s: Tensor) -> Tensor:
    n = ops.arange(s.graph, s.shape[-1])
    return n.reshape((-1, 1)) >= n.reshape((1, -1))


def flipped(x: Tensor) -> Tensor:
    return x.transpose(-1, -2)


ATTENTION: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "scaled before": lambda q, k, v: ((q * 0.125) @ flipped(k)).softmax(-1) @ v,
    "scaled after": lambda q, k, v: (q @ flipped(k) / 8.0).softmax(-1) @ v,
    "scaled inside": lambda q, k, v: shares(
        ((q @ flipped(k) - top(q @ flipped(k))) * 0.125).exp()) @ v,
    "operands transposed": lambda q, k, v: flipped(flipped(v) @ (k @ flipped(q)).softmax(-2)),
    "masked by where": lambda q, k, v: ops.where(
        causal(q @ flipped(k)), q @ flipped(k), -INF).softmax(-1) @ v,
    "masked by a sum": lambda q, k, v: (
        q @ flipped(k) + ops.where(causal(q @ flipped(k)), 0.0, -INF)).softmax(-1) @ v,
    "masked by an input": lambda q, k, v: ops.where(
        q.graph.tensor((LENGTH, LENGTH), boolean), q @ flipped(k), -INF).softmax(-1) @ v,
    "weights dropped": lambda q, k, v: (
        (q @ flipped(k)).softmax(-1) * q.graph.tensor((LENGTH, LENGTH))) @ v,
    **{name: lambda q, k, v, w=w: w(q @ flipped(k) * 0.125) @ v for name, w in WEIGHTS.items()},
    **{f"{name}, divided at the end": lambda q, k, v, w=w: (
        (w(q @ flipped(k)) @ v) / total(w(q @ flipped(k)))) for name, w in POWERS.items()},
    "times the reciprocal at the end": lambda q, k, v: (
        ((q @ flipped(k)).exp() @ v) * total((q @ flipped(k)).exp()) ** -1),
}  # fmt: skip


def plans_of(graph: Graph) -> list[Plan]:
    return [optimise(r) for r in regions(normalise(graph.space, [t.node for t in graph.outputs]))]


def kernels(graph: Graph) -> int:
    return sum(len(plan.pieces) for plan in plans_of(graph))


@pytest.mark.parametrize("spelling", ATTENTION)
def test_attention_is_one_kernel(spelling):
    graph = Graph()
    ATTENTION[spelling](*(graph.tensor((HEADS, LENGTH, WIDTH)) for _ in range(3))).output()
    assert kernels(graph) == 1


@pytest.mark.parametrize("spelling", ATTENTION)
def test_weights_are_not_rounded_before_they_weigh(spelling):
    """A cast between exponentials and their products would store them all."""
    graph = Graph()
    ATTENTION[spelling](*(graph.tensor((HEADS, LENGTH, WIDTH)) for _ in range(3))).output()
    program = run_passes(program_of(graph), default_passes("bf16"))
    rounded = [n for n in program.nodes() if n.op == "cast" and n.dtype is bf16]
    assert rounded and all(n.shape[-1] != n.shape[-2] for n in rounded)


@pytest.mark.parametrize("spelling", WEIGHTS)
def test_a_row_is_one_kernel(spelling):
    graph = Graph()
    WEIGHTS[spelling](graph.tensor((512, 2048))).output()
    assert kernels(graph) == 1


def labels(x: Tensor) -> Tensor:
    return x.graph.tensor((x.shape[0], 1), i64)


ROWS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "logsumexp": (1, lambda x: ops.logsumexp(x, -1)),
    "log_softmax": (1, lambda x: x - ops.logsumexp(x, -1, True)),
    "log(softmax)": (1, lambda x: x.softmax(-1).log()),
    "loss of a row": (1, lambda x: ops.logsumexp(x, -1, True) - x.gather(1, labels(x))),
    "cross entropy": (2, lambda x: ops.cross_entropy(x, labels(x).reshape((-1,)))),
    "entropy": (1, lambda x: -(x.softmax(-1) * ops.log_softmax(x, -1)).sum(-1)),
    "layer norm": (1, lambda x: ops.layer_norm(x, (2048,))),
    "variance": (1, lambda x: (x - x.mean(-1, True)).square().mean(-1)),
}


@pytest.mark.parametrize("row", ROWS)
def test_kernels_of_statistics_of_rows(row):
    graph = Graph()
    count, found = ROWS[row]
    found(graph.tensor((512, 2048))).output()
    assert kernels(graph) == count  # a mean over all rows is one of its own


SIZE = 6
HUGE = float(np.finfo(np.float32).max)


def hostile() -> np.ndarray:
    """Scores: ordinary, equal, far from zero, near the largest number, far apart."""
    scores = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    scores[1] = 3.0
    scores[2] += 1e4
    scores[3] = -HUGE / 2
    scores[4] = [HUGE / 2, 0, -HUGE / 2, 1, 2, 3]
    scores[5] = [88, -100, 20, 60, 0, 88]
    return scores


@pytest.mark.parametrize("masked", [0.0, -INF, -HUGE])
@pytest.mark.parametrize("spelling", WEIGHTS)
def test_what_is_finite_stays_finite(spelling, masked):
    """Weighted sums as written and as planned: whole rows and single scores masked, also a row by
    one number beside its scores."""
    graph, random = Graph(), np.random.default_rng(1)
    hidden, row = np.zeros((SIZE, SIZE), np.float32), np.zeros((SIZE, 1), np.float32)
    hidden[0], hidden[1, 2:], hidden[5, :2], row[1] = masked, masked, masked, masked
    given = {
        graph.tensor(array.shape): array for array in (
            hostile(), np.eye(SIZE, dtype=np.float32), hidden, row,
            random.standard_normal((SIZE, SIZE)).astype(np.float32))
    }  # fmt: skip
    q, k, mask, rows, v = given
    scores = q @ k if spelling in PLAIN else q @ k + mask + rows
    out = (WEIGHTS[spelling](scores) @ v).node
    case, numbers = region_of(graph, [out]), normalise(graph.space, [out]).sources
    arrays = {numbers[x.node]: np.squeeze(a) for x, a in given.items() if x.node in numbers}
    with np.errstate(all="ignore"):
        (found,), (wanted,) = run_plan(optimise(case.region), case, arrays), expected(case, arrays)
    finite = np.isfinite(wanted)
    assert np.isfinite(found[finite]).all()
    if spelling in MAXIMUM and "log" not in spelling:  # where m is huge, m + log sum is m
        np.testing.assert_allclose(found[finite], wanted[finite], 1e-3, 1e-4)
