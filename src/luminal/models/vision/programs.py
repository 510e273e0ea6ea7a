"""Programs of nets whose pictures differ in size: one for each size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph import Graph, Tensor

MOST_PROGRAMS = 4  # sizes of pictures for which programs are kept


class BySize:
    """record: what a net makes of pixels (1, 3, height, width), and of whatever else is given with
    them. compiling: options of `Graph.compile`."""

    def __init__(
        self, record: Callable[..., Sequence[Tensor]], compiling: Mapping[str, Any]
    ) -> None:
        self._record, self._compiling = record, compiling
        self._programs: OrderedDict[tuple[Hashable, ...], Any] = OrderedDict()

    def __call__(self, pixels: np.ndarray, *more: Hashable) -> list[np.ndarray]:
        """What the net makes of pixels (3, height, width). more: what a program is recorded for
        beside their size."""
        program, into, outputs = self._program(pixels.shape, more)
        program[into] = pixels[None]
        program.run()
        return [np.array(program[tensor]) for tensor in outputs]

    def _program(
        self, shape: tuple[int, ...], more: tuple[Hashable, ...]
    ) -> tuple[Any, Tensor, list[Tensor]]:
        key = (shape, *more)
        if key in self._programs:
            self._programs.move_to_end(key)
            return self._programs[key]
        graph = Graph()
        pixels = graph.tensor((1, *shape), name="pixels")
        outputs = [tensor.output() for tensor in self._record(graph, pixels, *more)]
        made = self._programs[key] = graph.compile(**self._compiling), pixels, outputs
        if len(self._programs) > MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return made
