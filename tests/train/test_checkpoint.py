"""What is computed again for its derivative: the same gradients, less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal import Graph, InputError, Tensor, nn, ops, train
from luminal.backend.reference.graph import evaluate


def gradients(kept: bool, random: np.random.Generator) -> list[np.ndarray]:
    """Of a function of two inputs that also uses a parameter, a computed value and a view."""
    graph = Graph()
    x, k = graph.tensor((3, 4), "f64"), graph.tensor((3, 4), "f64")
    w, v = graph.parameter((4, 4), "f64"), graph.tensor((4, 3), "f64")
    outer, turned = ops.sin(x @ w), v.T

    def function(a: Tensor, b: Tensor) -> Tensor:
        return ops.softmax(ops.tanh(a @ w) * outer + b * turned, -1) * outer

    y = function(outer, k) if kept else train.checkpoint(function, outer, k)
    first = train.backward((y * y.cos()).sum(), [x, k, w, v])
    second = train.backward(sum((g * g).sum() for g in first), [x, k, w, v])
    (tangent,) = train.jvp([y], [x, w], [x, w])
    feeds = {t: random.standard_normal([int(n) for n in t.shape]) for t in (x, k, w, v)}
    wanted = [t.node for t in (*first, *second, tangent)]
    made = evaluate(graph, wanted, feeds)
    return [made[node] for node in wanted]


def test_gradients_of_what_is_computed_again_are_those_of_what_is_kept():
    kept, again = (gradients(kept, np.random.default_rng(0)) for kept in (True, False))
    for a, b in zip(kept, again):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("number", [0, 1])
def test_gradients_of_results_of_a_loop(number):
    def derivatives(kept: bool) -> list[np.ndarray]:
        graph = Graph()
        x = graph.constant(np.linspace(-1, 1, 6).reshape(3, 2).astype("f4"))
        w = graph.constant(0.7)

        def function(a: Tensor) -> Tensor:
            return ops.scan(lambda c, row: (ops.tanh(c + row * w),) * 2, a[0], a)[number]

        h = x * w
        y = function(h) if kept else train.checkpoint(function, h)
        made = [*train.backward((h + y).square().sum(), [x, w]), *train.jvp([y], [w], [w])]
        return [t.numpy() for t in made]

    for a, b in zip(derivatives(True), derivatives(False)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def heads(x: Tensor, seen: Tensor) -> Tensor:
    v = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return ops.scaled_dot_product_attention(v, v, v, seen)


def pooled(x: Tensor, seen: Tensor) -> Tensor:
    return ops.adaptive_max_pool1d(x.transpose(1, 2), 2)


@pytest.mark.parametrize("function", [heads, pooled])
def test_special_derivatives_stand_where_views_are_given(function):
    """Of rows that a mask leaves nothing to see, and of ties: of an input, of what was computed,
    and of what is computed again."""
    found = []
    for way in ("input", "hidden", "again"):
        graph = Graph()
        x, seen = graph.tensor((2, 6, 8)), graph.tensor((2, 1, 1, 6), "bool")
        given = x if way == "input" else x * 1.0
        y = train.checkpoint(function, given, seen) if way == "again" else function(given, seen)
        (gradient,) = train.backward((y * y.cos()).sum(), [given])
        rows = np.repeat(np.random.default_rng(0).standard_normal((2, 3, 8)), 2, 1)
        feeds = {x: rows.astype(np.float32), seen: np.array([1, 0], bool).repeat(6)}
        feeds[seen] = feeds[seen].reshape(2, 1, 1, 6)
        found.append(evaluate(graph, [gradient.node], feeds)[gradient.node])
    assert np.isfinite(found[0]).all() and found[0].any()
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], rtol=1e-6, atol=1e-7)


def peak(wrapped: bool, layers: int = 6) -> tuple[float, Any]:
    graph, random = Graph(), np.random.default_rng(0)
    x = graph.tensor((512, 32))
    weights = [graph.parameter((32, 256)) for _ in range(layers)]
    for w in weights:
        w.set(random.standard_normal((32, 256), dtype=np.float32) * 0.1)

        def layer(t: Tensor, w: Tensor = w) -> Tensor:
            return t + ops.softmax(ops.tanh(t @ w), -1) @ w.T

        x = train.checkpoint(layer, x) if wrapped else layer(x)
    loss = (x * x).mean()
    train.Step(loss, weights, train.SGD(0.1))
    rt = graph.compile(threads=1)
    rt["input0"] = random.standard_normal((512, 32), dtype=np.float32)
    losses = []
    for _ in range(3):
        rt.run()
        losses.append(float(rt[loss]))
    return rt.peak_bytes, losses


def test_a_step_holds_less_and_makes_the_same_losses():
    (kept, losses), (again, same) = peak(False), peak(True)
    np.testing.assert_allclose(losses, same, rtol=1e-5)
    assert again < 0.6 * kept


def test_attention_keeps_no_weights_for_its_gradient():
    """Twice the layers hold queries, keys and values twice, not weights of (queries, keys)."""

    def peak(layers: int) -> int:
        graph, x = Graph(), None
        x = source = graph.tensor((1, 1, 512, 8))
        scale = graph.parameter((8,)).set(np.ones(8, np.float32))
        for _ in range(layers):
            x = ops.scaled_dot_product_attention(x * scale, x, x, is_causal=True)
        train.Step(x.sum(), [scale], train.SGD(0.1))
        rt = graph.compile(threads=1)
        rt[source] = np.ones((1, 1, 512, 8), np.float32)
        rt.run()
        return rt.peak_bytes

    assert peak(6) - peak(3) < 512 * 512 * 4


def test_what_is_no_float_cannot_be_computed_again():
    x = Graph().tensor((3,), "i64")
    with pytest.raises(InputError, match="tensor of floats"):
        train.checkpoint(lambda t: t + 1, x)


def test_stopped_gradients_stay_stopped():
    x = Graph().tensor((3,), "f64")
    y = train.checkpoint(lambda t: train.stop_gradient(train.stop_gradient(t)) * t, x)
    (g,) = train.backward(y.sum(), [x])
    made = evaluate(x.graph, [g.node], {x: np.arange(3.0)})
    np.testing.assert_array_equal(made[g.node], np.arange(3.0))


def test_noise_is_drawn_once_and_a_mode_is_that_of_the_recording() -> None:
    graph = Graph()
    x, layer = graph.parameter((64,), "f64").set(np.ones(64)), nn.Dropout(0.5)
    layer.train()
    y = train.checkpoint(lambda t: layer(ops.exp(t)) * ops.sin(t), x).output()
    layer.eval()
    slope = train.backward(y.sum(), [x])[0].output()
    rt = graph.compile(device="reference")
    rt.run()
    kept = rt[y] != 0
    assert 0 < kept.sum() < 64
    np.testing.assert_array_equal(rt[slope] != 0, kept)


def test_what_does_not_depend_on_the_inputs_is_no_part() -> None:
    graph = Graph()
    x, w = (graph.tensor((3,), "f64") for _ in range(2))
    y = train.checkpoint(lambda t: ops.exp(w), x)
    (g,) = train.backward(y.sum(), [w])
    made = evaluate(graph, [g.node], {w: np.arange(3.0)})
    np.testing.assert_allclose(made[g.node], np.exp(np.arange(3.0)))


def test_a_rule_of_the_user_stands_where_a_part_of_it_is_used_too() -> None:
    x = Graph().tensor((3,), "f64")
    part = ops.sin(x)
    y = train.custom(ops.sin, x, pull=lambda g, y, x: [g * 5.0]) + part
    of_part, of_x = train.backward(y.sum(), [part, x])
    made = evaluate(x.graph, [of_part.node, of_x.node], {x: np.zeros(3)})
    assert made[of_part.node].tolist() == [1.0] * 3
    assert made[of_x.node].tolist() == [6.0] * 3
