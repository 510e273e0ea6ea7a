"""Every operation beside PyTorch's, compiled: the cases of `ops/cases.py` through the compiler."""

from __future__ import annotations

import pytest
from backend.test_text import on
from ops.all_cases import CASES, Case, run_case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    run_case(case, on("cpu"))
