"""No program is refused for its size: what is too long is divided, then walked point by point."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from random_graphs import check

from luminal import Graph, Tensor, ops
from luminal.lowering import builder


def attention(graph: Graph) -> Tensor:
    q, k, v = (graph.tensor(("s", 6)) for _ in "qkv")
    return ops.softmax(q @ k.transpose(-1, -2), -1) @ v


def convolution(graph: Graph) -> Tensor:
    x, w = graph.tensor((2, 3, 7, 6)), graph.tensor((4, 3, 3, 3))
    return ops.conv2d(x, w, stride=2, padding=1).relu()


def table(graph: Graph) -> Tensor:
    x, at = graph.tensor((9, 4)), graph.tensor(("s",), "i64")
    rows = ops.index_select(x.sin(), 0, at)
    return ops.index_add(x.cumsum(0), 0, at * 0 + 2, rows) / (1.0 + x.exp().sum(1, keepdim=True))


def ranks(graph: Graph) -> Tensor:
    return ops.sort(graph.tensor(("s", 6)).flatten(), 0, descending=True).values


FEW = [(attention, 90), (convolution, 90), (table, 50), (ranks, 90)]


@pytest.mark.parametrize("make, room", FEW)
def test_with_room_for_few_values(
    make: Callable[[Graph], Tensor], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of one value that the default's frames still make too long, among them."""
    monkeypatch.setattr(builder, "LARGEST_PROGRAM", room)
    graph = Graph()
    graph.dim("s", 1, 64)
    make(graph).output()
    check(graph, 1)
    report = graph.compile(threads=2).explain()
    assert "one point after another" in report and "part of a kernel" in report


def test_positions_of_runtime_sizes_are_not_written_out() -> None:
    """Ranks of 6 s elements: whether i < j depends on four axes, two of them of any size."""
    graph = Graph()
    graph.dim("s", 1, 64)
    inside = graph.iota(("s", 6), "i0 + 3 * i1 - 2") > 0
    numbers = ops.where(inside, graph.literal(0.0), graph.literal(-1.0))
    ops.sort(numbers.flatten(), 0).values.output()
    check(graph, 2)


def long(x: Tensor, length: int) -> Tensor:
    for n in range(length):
        x = (x * 0.9 + 0.1 * n).sin()
    return x


def test_a_long_expression_in_a_window() -> None:
    graph = Graph()
    x, y = graph.tensor((40, 7, 5)), graph.tensor((33, 5))
    long(x.unsqueeze(1) * y.unsqueeze(1), 20).sum((-1, -2)).output()
    check(graph, 1)


@pytest.mark.parametrize("parts", [3, 66])
def test_a_concatenation_of_many_axes(parts: int) -> None:
    graph = Graph()
    made = [graph.tensor((3, n % 3 + 2)) * float(n) for n in range(parts)]
    ops.cat(made, 1).output()
    check(graph, 0)
