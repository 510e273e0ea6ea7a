"""The reference device: every node in NumPy, no kernels. The meaning, not a way to run models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..graph.graph import Graph
from ..graph.node import Node
from ..graph.reference import run


class Interpreted:
    """The engine of device "reference" (see `executable.Engine`)."""

    def __init__(
        self,
        graph: Graph,
        ports: Sequence[Node],
        outputs: Sequence[Node],
        states: Sequence[tuple[int, Node]],
    ) -> None:
        """states: (port, the node whose value replaces it after each run)."""
        self._graph, self._ports, self._nodes = graph, tuple(ports), tuple(outputs)
        self._states = dict(states)
        self._feeds: dict[Node, np.ndarray] = {}
        self._sizes: dict[str, int] = {}
        self._results: dict[Node, np.ndarray] = {}

    def set(self, port: int, array: np.ndarray) -> None:
        self._feeds[self._ports[port]] = array

    def bind(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)

    def run(self) -> None:
        self._results = run(self._graph, self._feeds, self._sizes)
        for port, new in self._states.items():
            self._feeds[self._ports[port]] = self._results[new].copy()

    def output(self, number: int) -> np.ndarray:
        return self._results[self._nodes[number]]

    def state(self, port: int) -> np.ndarray | None:
        return self._feeds[self._ports[port]] if port in self._states else None

    @property
    def peak_bytes(self) -> int:
        return sum(array.nbytes for array in self._results.values())
