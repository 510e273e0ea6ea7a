"""What is moved and repeated after it was computed: compiled, beside the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luminal import Graph, Tensor


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
]


@pytest.mark.parametrize("views", REPEATED)
def test_a_scatter_that_is_repeated(views: Callable[[Tensor], list[Tensor]]) -> None:
    def make(graph: Graph) -> dict[str, np.ndarray]:
        base, value = graph.tensor((5,), name="base"), graph.tensor((3,), name="value")
        at = graph.tensor((3,), "i64", name="at")
        for tensor in views(base.scatter_node(at, value, 0)):
            tensor.output()
        base, value = np.arange(5, dtype=np.float32), np.float32([7, 8, 9])
        return {"base": base, "value": value, "at": np.int64([4, 0, 4])}

    found, wanted = run(make, "cpu"), run(make, "reference")
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])
