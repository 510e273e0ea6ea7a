"""Programs of nets whose pictures differ in size: one for each size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph import Graph, Tensor

MOST_PROGRAMS = 4  # sizes of pictures for which programs are kept


class BySize:
    """record: what a net makes of pixels (1, 3, height, width). compiling: options of
    `Graph.compile`."""

    def __init__(
        self, record: Callable[[Graph, Tensor], Sequence[Tensor]], compiling: Mapping[str, Any]
    ) -> None:
        self._record, self._compiling = record, compiling
        self._programs: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    def __call__(self, pixels: np.ndarray) -> list[np.ndarray]:
        """What the net makes of pixels (3, height, width)."""
        program, into, outputs = self._program(pixels.shape)
        program[into] = pixels[None]
        program.run()
        return [np.array(program[tensor]) for tensor in outputs]

    def _program(self, shape: tuple[int, ...]) -> tuple[Any, Tensor, list[Tensor]]:
        if shape in self._programs:
            self._programs.move_to_end(shape)
            return self._programs[shape]
        graph = Graph()
        pixels = graph.tensor((1, *shape), name="pixels")
        outputs = [tensor.output() for tensor in self._record(graph, pixels)]
        made = self._programs[shape] = graph.compile(**self._compiling), pixels, outputs
        if len(self._programs) > MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return made
