"""What is moved and repeated after it was computed: compiled, beside the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luminal import Graph, Tensor, ops


def run(make: Callable[[Graph], dict[str, np.ndarray]], device: str) -> dict[str, np.ndarray]:
    """The outputs of the graph for the arrays that `make` gives."""
    graph = Graph()
    arrays = make(graph)
    rt = graph.compile(device=device)
    for name, array in arrays.items():
        rt[name] = array
    rt.run()
    return {name: rt[name] for name in rt.outputs}


# ---- what a scatter has written, repeated: it cannot write along an axis of the output alone

REPEATED: list[Callable[[Tensor], list[Tensor]]] = [
    lambda x: [x.unsqueeze(1).expand(5, 2)],
    lambda x: [x.repeat_interleave(3, 0)],
    lambda x: [x.unsqueeze(0).expand(4, 5), x],
    lambda x: [x.unsqueeze(0).expand(4, 5), x * 2.0, x.flip(0)],
    lambda x: [x.unsqueeze(0).expand(0, 5)],
    lambda x: [x.cumsum(0).unsqueeze(1).expand(5, 2)],
    lambda x: [x[1:4].unsqueeze(1).expand(3, 2), x.unsqueeze(1).expand(5, 2).flip(0)],
    lambda x: [ops.sort(x, 0).values],
    lambda x: [x.flip(0) < x.roll(1, 0)],
]


@pytest.mark.parametrize("views", REPEATED)
def test_a_scatter_that_is_repeated(views: Callable[[Tensor], list[Tensor]]) -> None:
    def make(graph: Graph) -> dict[str, np.ndarray]:
        base, value = graph.tensor((5,), name="base"), graph.tensor((3,), name="value")
        at = graph.tensor((3,), "i64", name="at")
        for tensor in views(base._scatter(at, value, 0)):
            tensor.output()
        base, value = np.arange(5, dtype=np.float32), np.float32([7, 8, 9])
        return {"base": base, "value": value, "at": np.int64([4, 0, 4])}

    found, wanted = run(make, "cpu"), run(make, "reference")
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])


# ---- a part of a value along which it does not vary


@pytest.mark.parametrize("rows", [slice(0, 4), slice(0, 4, 3), 1])
def test_a_constant_part_of_what_varies(rows: slice | int) -> None:
    def make(graph: Graph) -> dict[str, np.ndarray]:
        i, j, k = (graph.iota((3, 4, 7), f"i{dim}") for dim in range(3))
        mask = ops.where(k - j < 2, ops.where(i == k, 1.0, 0.0), 0.0)
        rest = ops.softmax(mask, 0)[0, rows]
        end = [(0, 0)] * (rest.ndim - 1) + [(5, 0)]
        there = graph.iota(rest.shape, f"i{rest.ndim - 1}") > 4
        ops.where(there, (rest[..., 5:] + 1.0).pad(end), rest).output("y")
        return {}

    np.testing.assert_allclose(run(make, "cpu")["y"], run(make, "reference")["y"], 1e-6)


def test_an_empty_output_is_no_memory_of_others() -> None:
    """A value is repeated along no elements, and is what a scatter begins with."""

    def make(graph: Graph) -> dict[str, np.ndarray]:
        rows = graph.tensor((4,), "i64", "rows")
        ops.ones(graph, (0, 3)).output("empty")
        ones = ops.ones(graph, (4, 3))
        index = rows.unsqueeze(1).expand(4, 3)
        ops.scatter_add(ones, 0, index, ones).output("counts")
        return {"rows": np.array([0, 0, 1, 1])}

    counts = run(make, "cpu")["counts"]
    np.testing.assert_array_equal(counts, np.repeat([3, 3, 1, 1], 3).reshape(4, 3))


def test_a_product_of_unbounded_length_whose_result_is_turned() -> None:
    """Its tile may not hold all of an axis whose length nobody knows."""
    graph = Graph()
    graph.dim("s", 1)
    x, w, b = graph.tensor((2, 16, "s")), graph.parameter((8, 16)), graph.parameter((8,))
    y = (ops.linear(x.permute(0, 2, 1), w) + b).output()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n, np.float32) for n in ((2, 16, 37), (8, 16), (8,))]
    rt = graph.compile()
    rt[x], rt[w], rt[b] = arrays
    rt.run()
    wanted = np.einsum("nks,ck->nsc", arrays[0], arrays[1]) + arrays[2]
    np.testing.assert_allclose(rt[y], wanted, 1e-4, 1e-5)
