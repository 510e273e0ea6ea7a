"""Derivatives of the user's own."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import DTypeError, Graph, InputError, ShapeError, Unsupported, ops, train

X = np.array([0.4, 1.6, -2.7], np.float32)


def through(x):
    """Rounding with the derivative of the identity (arXiv 1308.3432)."""
    return train.custom(ops.round, x, pull=lambda g, y, x: [g], push=lambda t, y, x: t[0])


def test_a_rule_stands_in_place_of_that_of_the_parts() -> None:
    cx = Graph()
    x = cx.constant(X)
    y = through(x)
    np.testing.assert_array_equal(y.numpy(), np.round(X))
    np.testing.assert_array_equal(train.backward((y * y).sum(), [x])[0].numpy(), 2 * np.round(X))
    np.testing.assert_array_equal(train.jvp([y], [x], [x])[0].numpy(), X)
    plain = (ops.round(x) * x).sum()  # the same nodes without a rule
    np.testing.assert_array_equal(train.backward(plain, [x])[0].numpy(), np.round(X))
    stopped = (train.stop_gradient(y) * x).sum()
    np.testing.assert_array_equal(train.backward(stopped, [x])[0].numpy(), np.round(X))


def test_two_rules_of_one_function_stay_apart() -> None:
    cx = Graph()
    x = cx.constant(X)
    kept = train.checkpoint(lambda x: ops.sin(x) * 2.0, x)
    once, twice = (train.custom(ops.sin, x, pull=rule) for rule in (
        lambda g, y, x: [g], lambda g, y, x: [g * 2.0]))  # fmt: skip
    loss = (once + twice + ops.sin(x) + kept).sum()
    np.testing.assert_allclose(train.backward(loss, [x])[0].numpy(), 3 + 3 * np.cos(X), rtol=1e-6)


def test_rules_have_derivatives_and_work_in_scans_and_compiled_steps() -> None:
    cx = Graph()
    x, w = cx.tensor((3,), name="x"), cx.parameter((3,), name="w").set(X)
    square = train.custom(lambda a: a * a, w, pull=lambda g, y, a: [g * (a * a * a)])
    first = train.backward(square.sum(), [w])[0]
    second = train.backward(first.sum(), [w])[0].output()

    def step(total, row):
        return total + through(row * w), None

    total, _ = ops.scan(step, w * 0.0, ops.stack([x, x * 2.0]))
    loss = (total * x).sum()
    train.Step(loss, [w], train.SGD(1.0))
    rt = cx.compile(threads=1, cache=False)
    rt[x] = X
    rt.run()
    np.testing.assert_allclose(rt[second], 3 * X**2, rtol=1e-6)
    np.testing.assert_allclose(rt[loss], (np.round(X * X) + np.round(2 * X * X)) @ X, rtol=1e-6)
    np.testing.assert_allclose(rt[w], X - 3 * X * X, rtol=1e-5, atol=1e-6)


def test_what_is_refused() -> None:
    cx = Graph()
    x = cx.constant(X)

    def gradient(pull):
        return train.backward(train.custom(ops.sin, x, pull=pull).sum(), [x])

    for pull, error, message in [
        (lambda g, y, x: g, InputError, "a list of 1 gradients"),
        (lambda g, y, x: [g, g], InputError, "a list of 1 gradients"),
        (lambda g, y, x: [g.sum()], ShapeError, "pull gives the shape"),
        (lambda g, y, x: [g.cast("f64")], DTypeError, "pull gives f64 for f32"),
    ]:
        with pytest.raises(error, match=message):
            gradient(pull)
    with pytest.warns(UserWarning, match="does not reach the loss"):
        (zero,) = gradient(lambda g, y, x: [None])
    np.testing.assert_array_equal(zero.numpy(), np.zeros(3))
    with pytest.raises(InputError, match="at least one input"):
        train.custom(lambda: x, pull=lambda g, y: [])
    with pytest.raises(InputError, match="the result is bool"):
        train.custom(lambda x: x > 0.0, x, pull=lambda g, y, x: [g])
    with pytest.raises(Unsupported, match="needs push"):
        train.jvp([train.custom(ops.sin, x, pull=lambda g, y, x: [g])], [x], [x])
