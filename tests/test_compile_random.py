"""Random graphs: what the compiler makes of them is what the reference says."""

from __future__ import annotations

from random import Random

import pytest
from random_graphs import check, check_with_limits, program


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int) -> None:
    check(program(Random(seed), most=12), seed % 4)


@pytest.mark.parametrize("seed", range(200, 212))
def test_random_graphs_with_other_limits(seed: int) -> None:
    check_with_limits(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_random_graphs(block: int) -> None:
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        check(program(Random(seed), most=12), seed % 4)
