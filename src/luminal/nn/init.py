"""Starting values of parameters, as PyTorch draws them, from one seeded generator a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..graph.dtype import dtype as dtype_of
from ..graph.graph import Graph
from ..graph.tensor import Tensor

_generators: WeakKeyDictionary[Graph, np.random.Generator] = WeakKeyDictionary()
_skip = False


def seed(graph: Graph, value: int) -> None:
    """Restart the generator of a graph: parameters made after this follow from the seed."""
    _generators[graph] = np.random.default_rng(value)


@contextmanager
def uninitialised() -> Iterator[None]:
    """Inside, parameters have no values and no memory: for models whose weights are loaded.

    >>> with nn.uninitialised(): layer = nn.Linear(cx, 4, 3)
    ...
    >>> layer.weight.shape
    (3, 4)
    """
    global _skip
    before, _skip = _skip, True
    try:
        yield
    finally:
        _skip = before


def _generator(graph: Graph) -> np.random.Generator:
    if graph not in _generators:
        seed(graph, 0)
    return _generators[graph]


def _parameter(
    graph: Graph, shape: Sequence[int], dtype: Any, make: Callable[[tuple[int, ...]], np.ndarray]
) -> Tensor:
    kind = dtype_of(dtype)
    parameter = graph.parameter(tuple(shape), kind)
    return parameter if _skip else parameter.set(make(tuple(shape)).astype(kind.numpy, copy=False))


def filled(graph: Graph, shape: Sequence[int], value: float, dtype: Any = "f32") -> Tensor:
    """A parameter of one value."""
    return _parameter(graph, shape, dtype, lambda shape: np.full(shape, value, np.float32))


def uniform(graph: Graph, shape: Sequence[int], bound: float, dtype: Any = "f32") -> Tensor:
    """A parameter uniform in -bound .. bound."""
    return _parameter(graph, shape, dtype, lambda shape: _uniform(graph, shape, bound))


def _uniform(graph: Graph, shape: tuple[int, ...], bound: float) -> np.ndarray:
    return (_generator(graph).random(shape, np.float32) * 2 - 1) * np.float32(bound)


def redraw(matrix: Tensor) -> None:
    """Values anew where there are some: uniform in +- sqrt(6 / (fan in + fan out)) (Glorot)."""
    graph, shape = matrix.graph, tuple(map(int, matrix.shape))
    if matrix.node in graph.values:
        bound = math.sqrt(6 / (sum(shape[:2]) * math.prod(shape[2:])))
        drawn = _uniform(graph, shape, bound)
        matrix.set(drawn.astype(matrix.dtype.numpy, copy=False))


def normal(graph: Graph, shape: Sequence[int], std: float, dtype: Any = "f32") -> Tensor:
    """A parameter drawn from the normal distribution."""

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        return _generator(graph).standard_normal(shape, np.float32) * np.float32(std)

    return _parameter(graph, shape, dtype, draw)


def fan_in_uniform(graph: Graph, shape: Sequence[int], fan_in: int, dtype: Any = "f32") -> Tensor:
    """Uniform in +- 1 / sqrt(fan in): what PyTorch gives linear layers and convolutions."""
    return uniform(graph, shape, 1 / math.sqrt(fan_in) if fan_in else 0.0, dtype)
