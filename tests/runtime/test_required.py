"""What a program was made for is checked where only a requirement mentions a size."""

import numpy as np
import pytest

import luminal
from luminal.backend import reference
from luminal.errors import DimError


def test_a_requirement_on_a_size_that_nothing_else_reads():
    graph = luminal.Graph()
    n = graph.dim("n", 1, 9)
    x, mask = graph.tensor(2, name="x"), graph.tensor(n, name="mask")
    graph.require(n - 4, "made for n >= 4")
    (x + x).output("y")
    program = graph.compile(threads=1)
    for size in (5, 3):
        feeds = {x: np.ones(2, np.float32), mask: np.ones(size, np.float32)}
        program[x], program[mask] = feeds[x], feeds[mask]
        for run in (program.run, lambda feeds=feeds: reference.run(graph, feeds)):
            if size == 5:
                run()
            else:
                with pytest.raises(DimError, match="made for n >= 4"):
                    run()
