"""Losses of `train` and their gradients are their formulas' in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from luminal import Graph, InputError, ops, train
from luminal.backend.reference.graph import evaluate
from luminal.graph.order import reachable

X = np.random.default_rng(0).standard_normal((10, 6))
Y = np.random.default_rng(1).standard_normal((10, 6))
CLASSES = np.array([0, 3, -100, 5, 1, 1, 9, -100, 2, 0])
BYTES = np.array([156], np.uint8)  # -100 in 8 bits
BITS = (Y > 0).astype(np.float64)


def focal(x: Any, alpha: float, gamma: float) -> Any:
    t, p = torch.tensor(BITS), x.sigmoid()
    each = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    each = each * (1 - torch.where(t == 1, p, 1 - p)) ** gamma
    return (each * torch.where(t == 1, alpha, 1 - alpha) if alpha >= 0 else each).mean()


def clip(x: Any, y: Any) -> Any:
    scores = F.normalize(x) @ F.normalize(y).T / 0.2
    own = torch.arange(len(x))
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


def many(x: Any, y: Any) -> Any:
    """Logits of 3,600 classes."""
    return (x.reshape(60, 1) * y.reshape(1, 60)).reshape(1, 3600)


def dice(x: Any) -> Any:
    p, t = x.sigmoid(), torch.tensor(BITS)
    return (1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "variances below the least": (
        lambda x, y: ops.gaussian_nll_loss(x, y, y.square(), eps=0.5),
        lambda x, y: F.gaussian_nll_loss(x, y, y.square(), eps=0.5),
    ),
    "chunked": (
        lambda x, y: train.linear_cross_entropy(x, y, x.graph.constant(CLASSES), chunks=3),
        lambda x, y: F.cross_entropy(x @ y.T, torch.tensor(CLASSES)),
    ),
    "chunked, with all options": (
        lambda x, y: train.linear_cross_entropy(
            x, y, x.graph.constant(CLASSES), bias=y.sum(1), label_smoothing=0.2,
            class_weight=train.stop_gradient(y[:, 0].square()),
        ),
        lambda x, y: F.cross_entropy(
            F.linear(x, y, y.sum(1)), torch.tensor(CLASSES), y[:, 0].detach().square(),
            label_smoothing=0.2,
        ),
    ),
    "chunked, a sum": (
        lambda x, y: train.linear_cross_entropy(
            x, y, x.graph.constant(CLASSES), chunks=1, label_smoothing=1.0, reduction="sum"
        ),
        lambda x, y: F.cross_entropy(
            x @ y.T, torch.tensor(CLASSES), label_smoothing=1.0, reduction="sum"
        ),
    ),
    "focal": (
        lambda x, y: train.focal_loss(x, x.graph.constant(BITS)),
        lambda x, y: focal(x, 0.25, 2.0),
    ),
    "focal of all": (
        lambda x, y: train.focal_loss(x, x.graph.constant(BITS), alpha=-1, gamma=1.5),
        lambda x, y: focal(x, -1, 1.5),
    ),
    "dice": (
        lambda x, y: train.dice_loss(x.sigmoid(), x.graph.constant(BITS)),
        lambda x, y: dice(x),
    ),
    "huber of infinities": (
        lambda x, y: ops.huber_loss(y, x * np.inf) + ops.smooth_l1_loss(y, x * np.inf),
        lambda x, y: F.huber_loss(y, x * np.inf) + F.smooth_l1_loss(y, x * np.inf),
    ),
    "classes in bytes": (
        lambda x, y: ops.cross_entropy(many(x, y), x.graph.constant(BYTES)),
        lambda x, y: F.cross_entropy(many(x, y), torch.tensor(BYTES)),
    ),
    "contrastive": (lambda x, y: train.contrastive_loss(x, y, 0.2), clip),
    "contrastive, of zeros": (
        lambda x, y: train.contrastive_loss(ops.relu(x - 2.2), y, 0.2),
        lambda x, y: clip((x - 2.2).relu(), y),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:.*does not reach the loss")
def test_losses_and_gradients(name: str) -> None:
    mine, theirs = CASES[name]
    graph = Graph()
    x, y = graph.tensor(X.shape, "f64"), graph.tensor(Y.shape, "f64")
    loss = mine(x, y)
    wanted = [t.node for t in (loss, *train.backward(loss, [x, y]))]
    made = evaluate(graph, wanted, {x: X, y: Y})
    leaves = [torch.tensor(a, requires_grad=True) for a in (X, Y)]
    expected = theirs(*leaves)
    expected.backward()
    np.testing.assert_allclose(made[wanted[0]], expected.item(), rtol=1e-9)
    for node, leaf in zip(wanted[1:], leaves):
        slope = np.zeros(X.shape) if leaf.grad is None else leaf.grad.numpy()
        np.testing.assert_allclose(made[node], slope, rtol=1e-8, atol=1e-10)


def test_no_logits_of_all_tokens_are_made() -> None:
    graph = Graph()
    x, w = graph.tensor((64, 4)), graph.parameter((1000, 4))
    loss = train.linear_cross_entropy(x, w, graph.tensor((64,), "i64"), chunks=4)
    nodes = reachable([g.node for g in train.backward(loss, [x, w])])
    rows = {int(n.shape[0]) for n in nodes if len(n.shape) == 2 and int(n.shape[1]) == 1000}
    assert rows and max(rows) == 16


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_as_many_tokens_as_a_run_has(weighted: bool) -> None:
    graph = Graph()
    x, target = graph.tensor(("n", 6)), graph.tensor(("n",), "i64")
    w = graph.constant(Y.astype(np.float32))
    each = np.linspace(0.5, 2.0, len(Y), dtype=np.float32)
    weights = {"class_weight": graph.constant(each)} if weighted else {}
    loss = train.linear_cross_entropy(x, w, target, chunks=4, **weights).output()
    slope = train.backward(loss, [x])[0].output()
    rt = graph.compile(threads=1)
    for n in (10, 3):
        leaf = torch.tensor(X[:n].astype(np.float32), requires_grad=True)
        scores, classes = leaf @ torch.tensor(Y).float().T, torch.tensor(CLASSES[:n])
        expected = F.cross_entropy(scores, classes, torch.tensor(each) if weighted else None)
        expected.backward()
        rt[x], rt[target] = leaf.detach().numpy(), CLASSES[:n]
        rt.run()
        np.testing.assert_allclose(rt[loss], expected.item(), 1e-5)
        np.testing.assert_allclose(rt[slope], leaf.grad, 1e-4, 1e-6)


def test_parts_of_f16_add_up_beyond_f16() -> None:
    graph = Graph()
    x, w = graph.tensor((200, 2), "f16"), graph.constant(np.eye(2, dtype=np.float16))
    loss = train.linear_cross_entropy(x, w, graph.constant(np.zeros(200, np.int64)), chunks=2)
    made = evaluate(graph, [loss.node], {x: np.float16([[0.0, 1000.0]] * 200)})
    assert loss.dtype.name == "f16" and made[loss.node] == 1000.0


def test_what_is_refused() -> None:
    x = Graph().tensor((4, 4))
    with pytest.raises(InputError, match="5 parts"):
        train.linear_cross_entropy(x, x, x.graph.tensor((4,), "i64"), chunks=5)
    for options, message in (({"reduction": "none"}, "'sum'"), ({"label_smoothing": 2}, "0 .. 1")):
        with pytest.raises(InputError, match=message):
            train.linear_cross_entropy(x, x, x.graph.tensor((4,), "i64"), chunks=1, **options)
    with pytest.raises(InputError, match="reduction"):
        train.focal_loss(x, x, reduction="all")


@pytest.mark.parametrize("shape", [("s", 6), ()])
def test_a_mean_over_batches_of_any_size(shape: tuple[Any, ...]) -> None:
    graph = Graph()
    x, y = graph.tensor(shape), graph.tensor(shape)
    loss = ops.kl_div(x, y, reduction="batchmean").output()
    rt = graph.compile()
    x_now, y_now = (np.float32(a if shape else a[0, 0]) for a in (X, abs(Y)))
    rt[x], rt[y] = x_now, y_now
    rt.run()
    expected = F.kl_div(torch.tensor(x_now), torch.tensor(y_now), reduction="batchmean")
    np.testing.assert_allclose(rt[loss], expected, 1e-5)


def test_targets_that_are_no_probabilities() -> None:
    graph = Graph()
    found = ops.kl_div(graph.constant(X), graph.constant(Y), reduction="none").numpy()
    expected = F.kl_div(torch.tensor(X), torch.tensor(Y), reduction="none")
    np.testing.assert_allclose(found, expected, 1e-5)


@pytest.mark.parametrize("size", [0, 2])
def test_ctc_of_a_recording_without_a_frame(size: int) -> None:
    scores, targets = Y.reshape(5, 2, 6), np.array([[1, 1], [2, 3]])
    graph = Graph()
    x = graph.tensor(scores.shape, "f64")
    found = ops.ctc_loss(x, graph.constant(targets), (0, 5), (size, 2), reduction="none")
    theirs = map(torch.tensor, (scores, targets, (0, 5), (size, 2)))
    expected = F.ctc_loss(*theirs, reduction="none")
    np.testing.assert_allclose(evaluate(graph, [found.node], {x: scores})[found.node], expected)
