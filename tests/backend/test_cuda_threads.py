"""Kernels that would leave the threads of a GPU without work, had they the loops of a CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luminal import ops
from luminal.backend import devices
from luminal.backend.cuda import simulator
from luminal.backend.cuda.simulator import Simulator, found_compiler
from luminal.backend.loops import loop_program
from luminal.graph import Graph
from luminal.graph.tensor import Tensor

Made = Callable[[Graph, int, int], Tensor]


def convolution(graph: Graph, size: int, channels: int) -> Tensor:
    x, w = graph.tensor((1, channels, size, size)), graph.tensor((channels, channels, 3, 3))
    return ops.conv2d(x, w, padding=1)


def enlarged(graph: Graph, size: int, channels: int) -> Tensor:
    x, w = graph.tensor((1, channels, size // 2, size // 2)), graph.tensor((8, channels, 3, 3))
    larger = x.reshape(1, channels, size // 2, 1, size // 2, 1).expand(-1, -1, -1, 2, -1, 2)
    return ops.conv2d(larger.reshape(1, channels, size, size), w, padding=1)


def normalised(graph: Graph, size: int, channels: int) -> Tensor:
    x = graph.tensor((size * size, 8, channels // 8))
    apart = x - x.mean((0, 2), keepdim=True)
    return (apart * ((apart * apart).mean((0, 2), keepdim=True) + 1e-5).rsqrt()).silu()


def with_times(graph: Graph, size: int, channels: int) -> Tensor:
    """A convolution, and what is added to each channel: a sum that its rows would make again."""
    times, w = graph.tensor((1, 4 * channels)), graph.tensor((channels, 4 * channels))
    return convolution(graph, size, channels) + ops.linear(times, w).reshape(1, channels, 1, 1)


def attention(graph: Graph, size: int, channels: int) -> Tensor:
    """Heads are the last axis: scores are not multiplied as matrices."""
    shape = (size * size, channels // 8, 8)
    q, k, v = (graph.tensor(shape).permute(2, 0, 1) for _ in range(3))
    return ops.scaled_dot_product_attention(q, k, v).permute(1, 0, 2)


def product(graph: Graph, size: int, channels: int) -> Tensor:
    """Both factors lie side by side along the sum, as in the gradient of a linear layer's input."""
    x, w = graph.tensor((16 * size, 24 * channels)), graph.tensor((16 * size, 24 * channels))
    return x @ w.transpose(0, 1)


MADE: list[Made] = [convolution, enlarged, normalised, with_times, attention, product]


@pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("made", MADE)
def test_numbers(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "MULTIPROCESSORS", 64)
    devices.register("cuda races", lambda: Simulator(races=True))
    found = []
    for device in ("cuda races", "reference"):
        graph, random = Graph(), np.random.default_rng(0)
        y = made(graph, 12, 32).output()
        rt = graph.compile(device, cache=False)
        for source in graph.sources:
            rt[source] = random.standard_normal([int(n) for n in source.shape], np.float32)
        rt.run()
        found.append(rt[y])
    np.testing.assert_allclose(*found, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("made, most", [
    (convolution, 400), (enlarged, 200), (normalised, 40), (with_times, 400), (attention, 4000),
    (product, 1000),
])  # fmt: skip
def test_threads_have_work(made: Made, most: float) -> None:
    """Microseconds on an H100, as they are counted."""
    graph, device = Graph(), devices.find("cuda:sm_90a")
    made(graph, 64, 320).output()
    rt, total = graph.compile("cuda:sm_90a", cache=False), 0.0
    for kernel in rt.kernels:
        program = loop_program(kernel.kernel, kernel.schedule, device.target(1))
        total += device.modelled(kernel.kernel, program, {}).seconds
    assert 1e6 * total < most


def test_panels_of_constants_fit_a_warp() -> None:
    """One row reads what many have laid out."""
    graph = Graph()
    x, w = graph.tensor((96, 512)), graph.constant(np.zeros((4096, 512), np.float32))
    ops.linear(x, w).output()
    rt = graph.compile("cuda:sm_90a", precision="bf16", cache=False)
    steps = {step for made in rt.kernels for digits in made.schedule.layouts.values()
             for _, step in digits}  # fmt: skip
    assert max(steps) > 1 and not any(step & step - 1 for step in steps)
