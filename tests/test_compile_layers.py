"""Small networks of random layers: whatever follows whatever, they compile and are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luminal import Graph, Tensor, ops

WIDTHS = (4, 8, 12, 16, 24, 48, 100)
ROWS = (1, 2, 3, 4, 7, 8, 16, 33)
ACTIVATIONS = (ops.relu, ops.tanh, ops.gelu, ops.silu, ops.hardswish, ops.sigmoid)


class Layers:
    """Layers with weights drawn from one generator."""

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        self.graph, self.rng = graph, rng
        self.made: dict[str, Callable[[Tensor], Tensor]] = {
            "linear": self.linear,
            "activation": lambda x: ACTIVATIONS[rng.integers(len(ACTIVATIONS))](x),
            "layer norm": lambda x: ops.layer_norm(x, x.shape[-1:], *self.pair(x)),
            "rms norm": lambda x: ops.rms_norm(x, x.shape[-1:], self.weight(int(x.shape[-1]))),
            "softmax": lambda x: ops.softmax(x, -1),
            "gate": lambda x: ops.silu(self.square(x)) * self.square(x),
            "centred": lambda x: x - ops.mean(x, -1, keepdim=True),
            "attention": self.attention,
        }

    def weight(self, *shape: int) -> Tensor:
        return self.graph.constant(self.rng.standard_normal(shape, np.float32) * np.float32(0.3))

    def pair(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.weight(int(x.shape[-1])), self.weight(int(x.shape[-1]))

    def linear(self, x: Tensor) -> Tensor:
        out = int(self.rng.choice(WIDTHS))
        bias = self.weight(out) if self.rng.random() < 0.5 else None
        return ops.linear(x, self.weight(out, int(x.shape[-1])), bias)

    def square(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight(int(x.shape[-1]), int(x.shape[-1])))

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (self.square(x) for _ in range(3))
        scores = q.matmul(k.permute((1, 0))) * int(x.shape[-1]) ** -0.5
        return ops.softmax(scores, -1).matmul(v)


def both(graph: Graph, result: Tensor, inputs: dict[Tensor, np.ndarray], **sizes: int) -> None:
    """Compiled for the CPU and for the reference, the results agree."""
    found = []
    for device in ("cpu", "reference"):
        program = graph.compile(device=device, threads=1)
        for tensor, array in inputs.items():
            program[tensor] = array
        program.run(**sizes)
        found.append(program[result].copy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4 * np.abs(found[1]).max())


def follow(names: list[str] | None, seed: int) -> None:
    """Compile such layers (random ones without names) with random residuals, and compare."""
    rng = np.random.default_rng(seed)
    graph = Graph()
    rows, width, runtime = int(rng.choice(ROWS)), int(rng.choice(WIDTHS)), rng.random() < 0.25
    if runtime:
        graph.dim("s", 1, 64)
    x = graph.tensor(("s" if runtime else rows, width))
    layers, before = Layers(graph, rng), [x]
    names = names or [str(n) for n in rng.choice(list(layers.made), rng.integers(2, 7))]
    for name in names:
        made = layers.made[name](before[-1])
        alike = [value for value in before if value.shape == made.shape]
        if alike and rng.random() < 0.3:
            made = made + alike[rng.integers(len(alike))]
        before.append(made)
    result = before[-1].output()
    array = rng.standard_normal((rows, width), np.float32)
    both(graph, result, {x: array}, **({"s": rows} if runtime else {}))


@pytest.mark.parametrize("seed", range(40))
def test_random_layers(seed: int) -> None:
    follow(None, seed)


@pytest.mark.parametrize(
    "names",
    [
        ["softmax", "rms norm"],  # squares of weights need the maximum's end
        ["softmax", "rms norm", "linear"],
        ["activation", "softmax", "rms norm", "centred", "linear", "centred"],
        ["linear", "linear", "attention", "layer norm", "softmax", "linear"],  # two streams
    ],
)
@pytest.mark.parametrize("seed", [64, 121])
def test_streams_and_what_needs_their_end(names: list[str], seed: int) -> None:
    follow(names, seed)


def test_results_of_one_stream_are_walked_by_the_next() -> None:
    """Attention over one feature: nothing is a product, so two of them are one kernel."""
    rng, graph = np.random.default_rng(0), Graph()
    x = graph.tensor((14, 1))
    layers = Layers(graph, rng)
    result = ops.linear(layers.attention(layers.attention(x)), layers.weight(16, 1)).output()
    both(graph, result, {x: rng.standard_normal((14, 1), np.float32)})


@pytest.mark.parametrize("positions", [2, 3])
def test_causal_attention_over_few_positions(positions: int) -> None:
    rng, graph = np.random.default_rng(0), Graph()
    shape = (2, 2, positions, 3)
    inputs = {graph.tensor(shape): rng.standard_normal(shape, np.float32) for _ in range(3)}
    result = ops.scaled_dot_product_attention(*inputs, is_causal=True).output()
    both(graph, result, inputs)


@pytest.mark.parametrize("layers", [4, 8])
def test_attention_right_after_attention(layers: int) -> None:
    """Eight are cut within an attention: a kernel has the end of one stream, and whole others."""
    rng, graph = np.random.default_rng(0), Graph()
    x = query = graph.tensor((2, 4, 16))
    inputs = {query: rng.standard_normal((2, 4, 16), np.float32)}
    for _ in range(layers):
        keys, values = graph.tensor((2, 24, 16)), graph.tensor((2, 24, 16))
        for cache in (keys, values):
            inputs[cache] = rng.standard_normal((2, 24, 16), np.float32)
        x = ops.softmax(x.matmul(keys.mT) * 0.25, -1).matmul(values)
    both(graph, x.output(), inputs)


def test_what_a_stream_needs_and_does_not_walk_stands_before_it() -> None:
    rng, graph = np.random.default_rng(0), Graph()
    x = graph.tensor((3, 5, 32))
    layers = Layers(graph, rng)
    q, k, v = (layers.square(x) for _ in range(3))
    weights = ops.softmax(q.matmul(k.mT) * 0.25, -1)
    both(
        graph,
        ops.flip(weights.matmul(v), -1).output(),
        {x: rng.standard_normal((3, 5, 32), np.float32)},
    )


def test_a_kernel_that_no_schedule_walks_is_divided() -> None:
    """A scan along the axis of a softmax before it."""
    rng, graph = np.random.default_rng(0), Graph()
    x = graph.tensor((2, 9, 8))
    layers = Layers(graph, rng)
    y = ops.conv1d(ops.softmax(x, 0), layers.weight(7, 9, 1), layers.weight(7))
    result = layers.linear(ops.cummax(y, 0).values).output()
    assert "part of a kernel: v7: the loop a2/" in graph.compile().explain()
    both(graph, result, {x: rng.standard_normal((2, 9, 8), np.float32)})
