"""Twenty steps of every optimizer, schedule and way of clipping are those of PyTorch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from luminal import DTypeError, Graph, InputError, ShapeError, ops, train
from luminal.backend.reference.graph import evaluate

STEPS = 20
OPTIMIZERS: dict[str, tuple[train.Optimizer, Callable[[Any], Any]]] = {
    "sgd": (train.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "sgd decay": (
        train.SGD(0.1, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.1),
    ),
    "momentum": (train.SGD(0.1, 0.9), lambda p: torch.optim.SGD(p, 0.1, 0.9)),
    "nesterov": (
        train.SGD(0.1, 0.9, 0.01, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": (train.Adam(0.05), lambda p: torch.optim.Adam(p, 0.05)),
    "adam decay": (
        train.Adam(0.05, (0.8, 0.95), 1e-6, 0.1),
        lambda p: torch.optim.Adam(p, 0.05, (0.8, 0.95), 1e-6, 0.1),
    ),
    "adamw": (train.AdamW(0.05), lambda p: torch.optim.AdamW(p, 0.05)),
    "rmsprop": (train.RMSprop(0.01), lambda p: torch.optim.RMSprop(p, 0.01)),
    "rmsprop momentum": (
        train.RMSprop(0.01, 0.9, 1e-6, 0.1, 0.9),
        lambda p: torch.optim.RMSprop(p, 0.01, 0.9, 1e-6, 0.1, 0.9),
    ),
}
T = torch.optim.lr_scheduler
SCHEDULES: dict[str, tuple[train.Schedule, Callable[[Any], Any]]] = {
    "constant": (train.constant(0.1), lambda o: T.LambdaLR(o, lambda _: 1.0)),
    "linear": (train.linear(0.1, 0.01, 10), lambda o: T.LinearLR(o, 1.0, 0.1, 10)),
    "cosine": (train.cosine(0.1, 19, 0.02), lambda o: T.CosineAnnealingLR(o, 19, 0.02)),
    "one cycle": (
        train.one_cycle(0.1, 20),
        lambda o: T.OneCycleLR(o, 0.1, 20, cycle_momentum=False),
    ),
    "warm up of a number": (
        train.warm_up(0.1, 5),
        lambda o: T.LambdaLR(o, lambda t: min((t + 1) / 5, 1.0)),
    ),
    "warm up": (
        train.warm_up(train.cosine(0.1, 15), 5),
        lambda o: T.LambdaLR(
            o,
            lambda t: (t + 1) / 5 if t < 5 else (1 + np.cos(np.pi * min(1, (t - 5) / 15))) / 2,
        ),
    ),
}
CLIPS: dict[str, tuple[train.Step | Any, Callable[[Any], Any]]] = {
    "none": (None, lambda p: None),
    "norm": (train.clip_norm(0.7), lambda p: torch.nn.utils.clip_grad_norm_(p, 0.7)),
    "value": (train.clip_value(0.3), lambda p: torch.nn.utils.clip_grad_value_(p, 0.3)),
}


class Problem:
    """A small network on data of its own for each step, here and in PyTorch."""

    def __init__(self, kind: str = "f32") -> None:
        random = np.random.default_rng(0)
        dtype = np.float64 if kind == "f64" else np.float32
        self.batches = [
            (random.standard_normal((6, 4)).astype(dtype), random.integers(0, 3, 6))
            for _ in range(STEPS)
        ]
        self.start = [random.standard_normal(s).astype(dtype) for s in ((4, 5), (5,), (5, 3))]
        self.graph = graph = Graph()
        self.x, self.y = graph.tensor((6, 4), kind), graph.tensor((6,), "i64")
        self.weights = [graph.parameter(a.shape, kind).set(a) for a in self.start]
        a, b, c = self.weights
        self.loss = ops.cross_entropy(ops.tanh(self.x @ a + b) @ c, self.y)

    def here(self, optimizer: Any, clip: Any = None, device: str = "reference") -> Any:
        """Losses and the last weights."""
        train.Step(self.loss, self.weights, optimizer, clip)
        rt, losses = self.graph.compile(device=device), []
        for x, y in self.batches:
            rt[self.x], rt[self.y] = x, y
            rt.run()
            losses.append(rt[self.loss].item())
        return losses, [rt[w] for w in self.weights]

    def there(self, make: Any, schedule: Any = None, clip: Any = lambda p: None) -> Any:
        weights = [torch.tensor(w, requires_grad=True) for w in self.start]
        a, b, c = weights
        optimizer, losses = make(weights), []
        scheduler = schedule and schedule(optimizer)
        for x, y in self.batches:
            optimizer.zero_grad()
            logits = torch.tanh(torch.tensor(x) @ a + b) @ c
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(y))
            loss.backward()
            clip(weights)
            optimizer.step()
            if scheduler:
                scheduler.step()
            losses.append(loss.item())
        return losses, [w.detach().numpy() for w in weights]


def close(mine: Any, theirs: Any, tolerance: float) -> None:
    np.testing.assert_allclose(mine[0], theirs[0], rtol=tolerance)
    for a, b in zip(mine[1], theirs[1]):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    mine, theirs = OPTIMIZERS[name]
    close(Problem("f64").here(mine), Problem("f64").there(theirs), 1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    mine, theirs = SCHEDULES[name]
    torch_sgd = lambda p: torch.optim.SGD(p, 0.1)  # noqa: E731
    close(Problem("f64").here(train.SGD(mine)), Problem("f64").there(torch_sgd, theirs), 1e-9)


def test_a_schedule_may_be_a_number() -> None:
    numbers = [Problem("f64").here(train.SGD(lr)) for lr in (0.1, lambda step: 0.1)]
    close(*numbers, 0.0)


@pytest.mark.parametrize("name", CLIPS)
def test_clipping(name: str) -> None:
    mine, theirs = CLIPS[name]
    torch_sgd = lambda p: torch.optim.SGD(p, 1.0)  # noqa: E731
    there = Problem("f64").there(torch_sgd, clip=theirs)
    close(Problem("f64").here(train.SGD(1.0), mine), there, 1e-9)


@pytest.mark.parametrize("name", ["momentum", "adamw", "rmsprop momentum"])
def test_compiled_steps(name: str) -> None:
    mine, theirs = OPTIMIZERS[name]
    found = Problem().here(mine, train.clip_norm(1.0), "cpu")
    there = Problem().there(theirs, clip=lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0))
    close(found, there, 5e-5)


def test_lion():
    start, slope = np.float64([1.0, -2.0, 0.5]), np.float64([0.3, -0.1, 0.0])
    p, m = start.copy(), np.zeros(3)
    graph = Graph()
    w, g = graph.parameter((3,), "f64").set(start), graph.tensor((3,), "f64")
    train.Step((w * g).sum(), [w], train.Lion(0.01, (0.9, 0.95), 0.1))
    rt = graph.compile(device="reference")
    for number in range(STEPS):
        rt[g] = slope * np.cos(number)
        rt.run()
        p = p * (1 - 0.01 * 0.1) - 0.01 * np.sign(0.9 * m + 0.1 * slope * np.cos(number))
        m = 0.95 * m + 0.05 * slope * np.cos(number)
        np.testing.assert_allclose(rt[w], p, rtol=1e-12)


def test_an_optimizer_for_each_parameter_and_half_precision():
    graph = Graph()
    start = np.linspace(-1, 1, 4, dtype=np.float32)
    a = graph.parameter((4,), "bf16").set(start.astype("bfloat16"))
    b = graph.parameter((4,)).set(start)
    chosen = {a: train.SGD(0.5, 0.9), b: train.Adam(0.1)}
    step = train.Step((a.cast("f32") * b).sum(), [a, b], chosen.__getitem__)
    rt = graph.compile(device="reference")
    rt.run()
    wide = start.astype("bfloat16").astype(np.float32)
    np.testing.assert_array_equal(rt[a], (wide - 0.5 * wide).astype("bfloat16"))
    assert set(step.slots) == {"parameter0.momentum", "parameter1.mean", "parameter1.square"}
    assert rt[step.count] == 1 and step.slots["parameter0.momentum"].dtype.name == "f32"


@pytest.mark.filterwarnings("ignore:.*does not reach the loss")
def test_what_does_not_reach_the_loss_does_not_decay() -> None:
    graph = Graph()
    w, still = (graph.parameter(2, name=name).set([1.0, 2.0]) for name in ("w", "still"))
    step = train.Step(w.sum(), [w, still], train.AdamW(0.1, weight_decay=0.5), ema=0.5)
    rt = graph.compile(device="reference")
    rt.run()
    assert rt[still].tolist() == rt[step.averages[still]].tolist() == [1.0, 2.0]
    assert "still.mean" not in step.slots


def test_what_is_not_trained():
    graph = Graph()
    w, n = graph.parameter((3,)), graph.parameter((3,), "i64")
    sized, fixed = graph.parameter(("s",)), graph.constant([1.0])
    loss = (w * w).sum()
    for parameters, error, message in [
        ([], InputError, "at least one parameter"),
        ([w, w], InputError, "named twice"),
        ([w * 2.0], InputError, "only inputs and parameters"),
        ([fixed], InputError, "only inputs and parameters"),
        ([n], DTypeError, "parameter1 is i64"),
        ([sized], ShapeError, r"shape \(s,\)"),
    ]:
        with pytest.raises(error, match=message):
            train.Step(loss, parameters, train.SGD())
    with pytest.raises(DTypeError, match="indices must be integers, got f32"):
        ops.embedding(graph.tensor((2,)), w)
    with pytest.raises(InputError, match="warm_up: steps is 0"):
        train.warm_up(0.1, 0)
    with pytest.raises(InputError, match="leaves no step"):
        train.one_cycle(0.1, 2)
    assert not graph.states and evaluate(graph, [loss.node], {w: np.ones(3, np.float32)})


@pytest.mark.parametrize("numbers", [
    {"lr": -1.0}, {"lr": math.nan}, {"lr": "0.1"}, {"weight_decay": -1.0}, {"eps": -1.0},
    {"eps": (-1.0, 1e-3)}, {"momentum": -1.0}, {"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)},
    {"betas": (0.9,)}, {"betas": 0.9}, {"betas": (0.9, 0.9, 0.9)}, {"eps": (1e-30,)},
    {"alpha": -1.0}, {"alpha": 1.0}, {"beta2_decay": 1.0}, {"d": 0.5}, {"steps": -1},
    {"steps": 2.5}, {"eps": (None, None)}, {"weight_decay": None}, {"momentum": True},
    {"lr": None}, {"lr": (0.1,)},
], ids=str)  # fmt: skip
def test_numbers_that_make_no_sense(numbers: dict[str, Any]) -> None:
    kinds = (train.SGD, train.Adam, train.AdamW, train.Lion, train.RMSprop, train.Adafactor,
             train.Muon)  # fmt: skip
    (name,) = numbers
    taken = [kind for kind in kinds if name in {field.name for field in dataclasses.fields(kind)}]
    assert taken
    for kind in taken:
        if name == "eps" and isinstance(kind().eps, tuple) != isinstance(numbers[name], tuple):
            continue
        with pytest.raises(InputError, match=f"{kind.__name__}: {name} is"):
            kind(**numbers)


def test_other_numbers_that_make_no_sense() -> None:
    graph = Graph()
    w = graph.parameter((2,)).set(np.ones(2, np.float32))
    for made, message in [
        (lambda: train.SGD(nesterov=True), "nesterov needs a momentum"),
        (lambda: train.clip_norm(-1.0), "clip_norm is -1.0"),
        (lambda: train.clip_norm(math.inf), "clip_norm is inf: .* less than inf"),
        (lambda: train.Step((w * w).sum(), [w], lambda p: None), "None is no optimizer"),
        (lambda: train.clip_value(math.nan), "clip_value is nan"),
        (lambda: train.cosine(-1.0, 10), "cosine: rate is -1.0"),
        (lambda: train.cosine(1.0, 2.5), "cosine: steps is 2.5: .* whole"),
        (lambda: train.cosine(1.0, "a"), "cosine: steps is 'a'"),
        (lambda: train.linear(1.0, None, 5), "linear: last is None"),
        (lambda: train.warm_up("0.1", 5), "warm_up: schedule is '0.1'"),
        (lambda: train.constant(-1.0), "rate is -1.0"),
        (lambda: train.one_cycle(1.0, 11, first=-1.0), "one_cycle: first is -1.0"),
        (lambda: train.one_cycle(1.0, 11, rise="a"), "one_cycle: rise is 'a'"),
        (lambda: train.LossScale(backoff=2.0), "backoff is 2.0"),
        (lambda: train.LossScale(interval=1.5), "interval is 1.5: .* whole"),
        (lambda: train.Step((w * w).sum(), [w], train.SGD(), ema=1.5), "ema is 1.5"),
        (lambda: train.Step((w * w).sum(), [w], train.SGD(), memory=-1), "memory is -1"),
        (lambda: train.Step((w * w).sum(), [w], train.SGD(), memory="x"), "memory is 'x'"),
        (lambda: train.Step((w * w).sum(), [w], train.SGD(), accumulate="x"), "not of x"),
        (lambda: train.Step((w * w).sum(), ["w"], train.SGD()), "parameters: 'w' is no tensor"),
    ]:
        with pytest.raises(InputError, match=message):
            made()
    assert not graph.states
