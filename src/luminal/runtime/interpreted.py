"""The reference device: every node in NumPy, no kernels. The meaning, not a way to run models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..backend.reference import evaluate
from ..graph.node import Node
from ..graph.passes import Program
from ..search.compare import Difference
from .contract import Copying


class Interpreted(Copying):
    """The engine of device "reference" (see `executable.Engine`)."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._sources = [tensor.node for tensor in program.graph.sources]
        replaced = {state for state, _ in program.states}
        self.states = frozenset(n for n, node in enumerate(self._sources) if node in replaced)
        self._feeds: dict[Node, np.ndarray] = {}
        self._sizes: dict[str, int] = {}
        self._results: dict[Node, np.ndarray] = {}

    def set(self, port: int, array: np.ndarray) -> None:
        self._feeds[self._sources[port]] = array

    def bind(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)

    def run(self) -> None:
        program = self._program
        found = evaluate(program.graph, program.roots, self._feeds, self._sizes)
        self._results = {node: np.array(value) for node, value in found.items()}  # never an input
        for state, new in program.states:
            self._feeds[state] = self._results[new].copy()

    def check(self) -> list[Difference]:
        return []  # no kernels

    def time_calls(self, repeat: int) -> list[tuple[str, float]]:
        return []  # no kernels

    def output(self, number: int) -> np.ndarray:
        roots = self._program.roots
        array = self._results[roots[number]]
        return array.copy() if roots[number] in roots[:number] else array

    def state(self, port: int) -> np.ndarray:
        return self._feeds[self._sources[port]].copy()

    @property
    def peak_bytes(self) -> int:
        return sum(array.nbytes for array in self._results.values())
