"""Where the time of a run goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import luminal
from luminal.backend.cpu.target import named
from luminal.search.profile import profile


@dataclass
class Timed:
    """A program whose calls take a second each."""

    program: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def time_kernels(self, repeat: int = 20) -> list[tuple[str, float]]:
        return [(kernel.name, 1.0) for kernel in self.program.kernels]


@pytest.mark.parametrize("size", [16, 256])
def test_rates_are_those_of_the_sizes_that_were_run(size: int) -> None:
    graph = luminal.Graph()
    graph.dim("s", 1, 512, hint=128)
    x, w = graph.tensor(("s", 256)), graph.tensor((256, 512))
    x.matmul(w).output()
    program = graph.compile(threads=1, database=False)
    program[x], program[w] = np.ones((size, 256), "f"), np.ones((256, 512), "f")
    program.run()
    assert program.run_sizes == {"s": size}
    flops = 2 * size * 256 * 512
    rates = {"fma": flops / 1e9, "read": 1e9, "cache": 1e9}  # so that a second is the least
    (line,) = profile(Timed(program), named("avx2"), rates).splitlines()[1:-1]
    assert line.endswith(" 100%")


def test_kernels_that_had_nothing_to_do_are_left_out() -> None:
    class Idle(Timed):
        def time_kernels(self, repeat: int = 20) -> list[tuple[str, float]]:
            return [(kernel.name, 0.0) for kernel in self.program.kernels]

    graph = luminal.Graph()
    graph.tensor((3, 4), name="x").sum(-1).output()
    program = graph.compile(threads=1, database=False)
    program["x"] = np.ones((3, 4), "f")
    program.run()
    rates = {"fma": 1e9, "read": 1e9, "cache": 1e9}
    assert len(profile(Idle(program), named("avx512"), rates).splitlines()) == 2
