"""Derivatives, first and second, where parts of a smooth function have a kink or a pole, and where
PyTorch says what a derivative is that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from luminal import Graph, Tensor, ops, train
from luminal.backend.reference.graph import evaluate
from luminal.graph.dtype import bf16
from luminal.ops import bessel, gamma

PLACES = [0.0, 1e-9, -0.5, 1.0, 3.0, 20.0, -60.0]
POSITIVE = [1.0, 2.0, 3.0, 0.5, 20.0, 60.0]  # gamma of whole numbers: a pole of the other branch
NEGATIVE = [-0.3, -5.5, -20.5, -30.2]
ZEROS = [[2.0, 0, 3, 5], [0, 2, 0, 4], [0, 0, 0, 2], [2, 3, 4, 5]]
ROWS = [[1.0, 1, 1], [0, 0, 0], [2, 0, 2]]
Pair = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]


def both(function: Callable[..., Any], *values: Any) -> Pair:
    return function, function, values


LOSSES: dict[str, Pair] = {
    name: (getattr(ops, name), getattr(F, name), ([0.0, 0.5, 3.0, -2.0], [0.0, 1.0, 1.0, -2.0]))
    for name in ("binary_cross_entropy_with_logits", "smooth_l1_loss", "huber_loss")
}
TWICE: dict[str, Pair] = LOSSES | {
    "soft_margin_loss": (
        lambda x: ops.soft_margin_loss(x, x * 0.0 - 1.0),
        lambda x: F.soft_margin_loss(x, x.detach() * 0.0 - 1.0),
        (PLACES,),
    ),
    "softplus": (ops.softplus, F.softplus, (PLACES,)),
    "logsigmoid": (ops.logsigmoid, F.logsigmoid, (PLACES,)),
    "mish": (ops.mish, F.mish, (PLACES,)),
    "logaddexp": both(lambda x, y: x.logaddexp(y), [0.0, 1, 2], [0.0, 1, -3]),
    "logaddexp2": both(lambda x, y: x.logaddexp2(y), [0.0, 1, 2], [0.0, 1, -3]),
    "hypot": both(lambda x, y: x.hypot(y), [0.0, 2, 3, 0], [1.0, 2, -3, -4]),
    "xlogy": both(lambda x, y: x.xlogy(y), [0.0, 2, 3], [2.0, 1, 5]),
    "xlog1py": (ops.xlog1py, torch.special.xlog1py, ([0.0, 2, 3], [2.0, 1, 5])),
    "lgamma": both(lambda x: x.lgamma(), POSITIVE + NEGATIVE),
    "digamma": both(lambda x: x.digamma(), POSITIVE + NEGATIVE),
    "i0": (ops.i0, torch.i0, (PLACES[:-1],)),
    "erfinv": both(lambda x: x.erfinv(), [0.0, 1e-30, 0.3, -0.9]),
    "ndtri": (gamma.ndtri, torch.special.ndtri, ([0.5, 0.1, 0.9],)),
    "log_ndtr": (gamma.log_ndtr, torch.special.log_ndtr, ([0.0, 1.0, -2.0, 5.0],)),
    "norm": both(lambda x: x.norm(2, 1), ROWS[::2]),
    **{n: (getattr(ops, n), getattr(F, n), ([-2.0, 1, 1e3],)) for n in ("elu", "celu", "selu")},
    "running product": both(lambda x: x.cumprod(1), ZEROS),
    **{
        f"scattered product of {x} and {y}": (
            lambda x, y: x.scatter_reduce(0, x.graph.constant([0, 0, 1]), y, "prod"),
            lambda x, y: torch.stack([x[0] * y[0] * y[1], x[1] * y[2], x[2]]),
            (x, y),
        )
        for x, y in [([0.0, 2, 3], [4.0, 5, 0]), ([2.0, 0, 3], [0.0, 0, 0]), ([1.0, 2, 3],) * 2]
    },
}
ONCE: dict[str, Pair] = {
    "norm": both(lambda x: x.norm(2, 1), ROWS),
    "norm of cubes": both(lambda x: x.norm(3, 1), ROWS),
    "norm of roots": both(lambda x: x.norm(0.5, 1), ROWS),
    "std": both(lambda x: x.std(1), ROWS),
    "distances": (ops.cdist, torch.cdist, (ROWS, ROWS)),
    "normalize": (ops.normalize, F.normalize, (ROWS,)),
    "cosine": (ops.cosine_similarity, F.cosine_similarity, (ROWS, ROWS)),
    "erfcx": (gamma.erfcx, torch.special.erfcx, ([0.0, 1.0, -2.0, 60.0],)),
    "i1": (bessel.i1, torch.special.i1, (PLACES,)),
    "i1e": (bessel.i1e, torch.special.i1e, (PLACES,)),
    "cholesky": (ops.cholesky, torch.linalg.cholesky, ([[4.0, 2], [2, 5]],)),
    "windows of zeros": (
        lambda x: ops.lp_pool1d(x, 2.0, 2),
        lambda x: F.lp_pool1d(x, 2.0, 2),
        ([[0.0, 0, 1, -1], [0, 2, 0, 0]],),
    ),
    "equal ranks": (
        ops.margin_ranking_loss, F.margin_ranking_loss, ([1.0, 2.0], [1.0, 2.0], [1.0, -1.0])
    ),
    "hinge": (
        lambda x: ops.hinge_embedding_loss(x, x * 0.0 - 1.0),
        lambda x: F.hinge_embedding_loss(x, x.detach() * 0.0 - 1.0),
        ([1.0, 0.0, 2.0],),
    ),
    "cosines": (
        lambda x, y: ops.cosine_embedding_loss(x, y, x.graph.constant([1.0, -1.0, -1.0])),
        lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor([1.0, -1.0, -1.0])),
        (ROWS, ROWS[1:] + ROWS[:1]),
    ),
    "entr": (ops.entr, torch.special.entr, ([0.0, 0.5, 2.0],)),
}


def slope(y: Any, inputs: list[Any]) -> Any:
    if isinstance(y, Tensor):
        return train.backward((y + y * y).sum(), inputs)
    return torch.autograd.grad((y + y * y).sum(), inputs, create_graph=True)


@pytest.mark.parametrize("order, name", [(1, n) for n in [*ONCE, *TWICE]] + [(2, n) for n in TWICE])
def test_derivatives_are_those_of_pytorch(order: int, name: str) -> None:
    mine, theirs, values = (ONCE if order == 1 and name in ONCE else TWICE)[name]
    arrays = [np.array(v, np.float64) for v in values]
    graph = Graph()
    inputs = [graph.tensor(a.shape, "f64") for a in arrays]
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    found, wanted = slope(mine(*inputs), inputs), slope(theirs(*leaves), leaves)
    if order == 2:
        found, wanted = slope(found[0], inputs), slope(wanted[0], leaves)
    made = evaluate(graph, [g.node for g in found], dict(zip(inputs, arrays)))
    for g, other in zip(found, wanted):
        np.testing.assert_allclose(made[g.node], other.detach().numpy(), 1e-7, 1e-9)


def test_tangents_of_a_running_product_have_its_slopes() -> None:
    graph = Graph()
    x, v = graph.constant(np.array(ZEROS)), graph.constant(np.array(ZEROS)[::-1] + 1.0)
    y = x.cumprod(1)
    (tangent,), (gradient,) = train.jvp([y], [x], [v]), train.backward((y + y * y).sum(), [x])
    (behind,) = train.backward((tangent + 2.0 * y * tangent).sum(), [x])
    (ahead,) = train.jvp([gradient], [x], [v])
    np.testing.assert_allclose(ahead.numpy(), behind.numpy(), 1e-9, 1e-9)
    leaf = torch.tensor(ZEROS, dtype=torch.float64, requires_grad=True)
    (found,) = slope(leaf.cumprod(1), [leaf])
    (wanted,) = torch.autograd.grad((found * torch.tensor(v.numpy())).sum(), leaf)
    np.testing.assert_allclose(behind.numpy(), wanted, 1e-9, 1e-9)


def test_sinc_bends_at_0():
    graph = Graph()
    x = graph.tensor((3,), "f64")
    (bend,) = slope(train.backward(ops.sinc(x).sum(), [x])[0], [x])
    made = evaluate(graph, [bend.node], {x: np.array([0.0, 1e-9, -1e-9])})
    np.testing.assert_allclose(made[bend.node], -(np.pi**2) / 3)


def test_polygamma_far_below_0():
    graph, places = Graph(), np.array(NEGATIVE)
    x = graph.constant(places)
    for n in (1, 2, 3):
        wanted = torch.polygamma(n, torch.tensor(places)).numpy()
        np.testing.assert_allclose(ops.polygamma(n, x).numpy(), wanted, 1e-9)


def test_hard_choices_have_the_derivative_of_soft_ones():
    graph = Graph()
    x, weight = graph.constant([0.1, 0.7, 0.4]), graph.constant([1.0, 2.0, 4.0])
    hard, soft = (ops.gumbel_softmax(x, hard=h, seed=1, stream=0) * weight for h in (True, False))
    found, wanted = (train.backward(y.sum(), [x])[0].numpy() for y in (hard, soft))
    assert wanted.all() and np.array_equal(found, wanted)


def test_windows_beside_what_is_cut_or_padded_with_numbers():
    """The other factor is read within its own ends: not what was cut off, nor 0 for its padding."""
    x, w = np.arange(1.0, 7, dtype=np.float32), np.array([5, 7, np.inf], np.float32)

    def of(w, pad):
        cx = Graph()
        image, weight = cx.tensor((6,)), cx.tensor(w.shape)
        seen = image.pad([(1, 1)]).windows([0], [3], [1])
        y = (seen * pad(weight).unsqueeze(1)).sum(1)
        train.backward((y * y).sum(), [image])[0].output()
        return [cx.compile(device, cache=False)(x, w) for device in ("reference", "cpu")]

    def wanted(w):
        image = torch.tensor(x, requires_grad=True)
        y = (F.pad(image, (1, 1)).unfold(0, 3, 1) * w[:, None]).sum(1)
        return torch.autograd.grad((y * y).sum(), image)[0].numpy()

    filled = torch.tensor([3.0, 3, 5, 7, 3, 3])
    for found in of(w[:2], lambda w: w.pad([(2, 2)], 3.0)):
        np.testing.assert_allclose(found, wanted(filled), rtol=1e-6)
    long = np.append(np.ones(6, np.float32), w)
    for found in of(long, lambda w: w[:6]):
        np.testing.assert_allclose(found, wanted(torch.ones(6)), rtol=1e-6)


@pytest.mark.parametrize("shapes", [((64, 32), (32, 8)), ((2, 4, 9, 9), (3, 4, 3, 3))])
def test_gradients_of_bf16_are_rounded_once(shapes: Any) -> None:
    """Of products and convolutions: what they add up is exact."""
    operation = ops.matmul if len(shapes[0]) == 2 else ops.conv2d
    random, slopes = np.random.default_rng(0), []
    given = [random.standard_normal(shape).astype(bf16.numpy) for shape in shapes]
    for kind in ("bf16", "f64"):
        graph = Graph()
        x, w = (graph.tensor(shape, kind) for shape in shapes)
        y = operation(x, w)
        o = graph.constant(np.sin(np.arange(prod(map(int, y.shape)))).astype(bf16.numpy))
        loss = (y * o.reshape(*y.shape).cast(kind)).sum()
        nodes = [slope.node for slope in train.backward(loss, [x, w])]
        made = evaluate(graph, nodes, {t: a.astype(t.dtype.numpy) for t, a in zip((x, w), given)})
        slopes.append([made[node].astype(np.float64) for node in nodes])
    for mine, exact in zip(*slopes):
        np.testing.assert_allclose(mine, exact, rtol=2**-8, atol=1e-5)
