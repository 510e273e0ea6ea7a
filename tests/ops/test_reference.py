"""Every case through the reference interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from luminal.backend.reference import evaluate
from luminal.graph import Graph, Tensor

from .all_cases import CASES, Case, run_case


def reference(
    graph: Graph, outputs: Sequence[Tensor], feeds: dict[Tensor, np.ndarray]
) -> list[np.ndarray]:
    found = evaluate(graph, [output.node for output in outputs], feeds)
    return [found[output.node] for output in outputs]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    run_case(case, reference)


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
