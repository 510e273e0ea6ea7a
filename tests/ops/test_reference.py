"""Every case through the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.backend.reference import evaluate
from luminal.graph import Graph, Tensor

from .all_cases import CASES, Case, run_case


def reference(graph: Graph, output: Tensor, feeds: dict[Tensor, np.ndarray]) -> np.ndarray:
    return evaluate(graph, [output.node], feeds)[output.node]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    run_case(case, reference)


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
