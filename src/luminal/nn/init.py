"""Starting values of parameters, as PyTorch draws them, from one seeded generator a graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
    """Inside, parameters start as zeros, at no cost: for models whose weights are loaded."""
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


def _parameter(graph: Graph, values: np.ndarray, dtype: Any) -> Tensor:
    kind = dtype_of(dtype)
    parameter = graph.parameter(values.shape, kind)
    return parameter.set(values.astype(kind.numpy, copy=False))


def filled(graph: Graph, shape: Sequence[int], value: float, dtype: Any = "f32") -> Tensor:
    """A parameter of one value."""
    if value == 0:
        return _parameter(graph, np.zeros(tuple(shape), dtype_of(dtype).numpy), dtype)
    return _parameter(graph, np.full(tuple(shape), value, np.float32), dtype)


def uniform(graph: Graph, shape: Sequence[int], bound: float, dtype: Any = "f32") -> Tensor:
    """A parameter uniform in -bound .. bound."""
    if _skip:
        return filled(graph, shape, 0, dtype)
    unit = _generator(graph).random(tuple(shape), np.float32)
    return _parameter(graph, (unit * 2 - 1) * np.float32(bound), dtype)


def normal(graph: Graph, shape: Sequence[int], std: float, dtype: Any = "f32") -> Tensor:
    """A parameter drawn from the normal distribution."""
    if _skip:
        return filled(graph, shape, 0, dtype)
    values = _generator(graph).standard_normal(tuple(shape), np.float32)
    return _parameter(graph, values * np.float32(std), dtype)


def fan_in_uniform(graph: Graph, shape: Sequence[int], fan_in: int, dtype: Any = "f32") -> Tensor:
    """Uniform in +- 1 / sqrt(fan in): what PyTorch gives linear layers and convolutions."""
    return uniform(graph, shape, 1 / math.sqrt(fan_in) if fan_in else 0.0, dtype)
