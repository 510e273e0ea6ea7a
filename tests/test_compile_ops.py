"""Every operation beside PyTorch's, compiled: the cases of `ops/cases.py` through the compiler."""

from __future__ import annotations

import numpy as np
import pytest
from ops.all_cases import CASES, Case, run_case

from luminal.graph import Graph, Tensor


def compiled(graph: Graph, output: Tensor, feeds: dict[Tensor, np.ndarray]) -> np.ndarray:
    graph.outputs.clear()
    output.output()
    rt = graph.compile(threads=2)
    for tensor, array in feeds.items():
        rt[tensor] = array
    rt.run()
    return rt[output]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    run_case(case, compiled)
