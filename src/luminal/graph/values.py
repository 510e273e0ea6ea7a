"""Arrays that users give: checked against dtype and shape, converted only without loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DimError, DTypeError, InputError
from .dtype import ALL, DType, dtype, f32
from .index import Index
from .infer import text
from .node import Node, Shape
from .space import Space

if TYPE_CHECKING:
    from .graph import Graph


def from_user(value: Any) -> tuple[np.ndarray, DType]:
    """A constant's own copy, and its dtype: Python floats are f32, Python ints i64."""
    given = _array(value)
    kind = f32 if given.dtype == np.float64 and not _is_array(value) else dtype(given.dtype)
    if _is_array(value) and isinstance(given, np.ndarray) and not given.flags.writeable:
        return given, kind
    copy = np.array(given, kind.numpy, order="C")
    copy.flags.writeable = False
    return copy, kind


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__")


def _array(value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"no array: {error}") from None
    if all(array.dtype != known.numpy for known in ALL):
        raise InputError(f"no array of numbers: {type(value).__name__} of {array.dtype}")
    return array


def convert(value: Any, wanted: DType, name: str) -> np.ndarray:
    """An array of the wanted dtype. Arrays convert where nothing can be lost, Python numbers where
    they are of the same kind and fit; anything else raises DTypeError."""
    array = _array(value)
    if array.dtype == wanted.numpy:
        return array
    if array.size == 0 and not _is_array(value):
        return array.astype(wanted.numpy)
    if np.can_cast(array.dtype, wanted.numpy, "safe"):
        return array.astype(wanted.numpy)
    if not _is_array(value) and _fits(array, wanted):
        with np.errstate(over="ignore"):
            return array.astype(wanted.numpy)
    raise DTypeError(
        f"{name} is {wanted}, the value is {array.dtype}: that would lose information; "
        "convert it explicitly (array.astype)"
    )


def _fits(array: np.ndarray, wanted: DType) -> bool:
    """Python numbers: ints and floats into floats, ints in range into integers."""
    if wanted.is_float:
        return array.dtype.kind in "biuf"
    if not wanted.is_integer or array.dtype.kind not in "biu":
        return False
    return bool(wanted.lowest <= array.min() and array.max() <= wanted.highest)


def checked(node: Node, value: Any, space: Space) -> np.ndarray:
    """The array for a source: right dtype, rank, constant sizes, and sizes inside their bounds.

    A flat Python list stands for a fixed shape of as many elements.
    """
    name = node.attribute.name
    array = convert(value, node.dtype, name)
    if isinstance(value, (list, tuple)) and array.ndim == 1:
        array = _unflatten(array, node.shape)
    if not _matches(node.shape, array.shape, space):
        raise InputError(f"{name} has shape {text(node.shape)}, the value has shape {array.shape}")
    return array


def _unflatten(array: np.ndarray, shape: Shape) -> np.ndarray:
    sizes = tuple(size.constant for size in shape)
    fixed = all(size.is_constant for size in shape)
    return array.reshape(sizes) if fixed and array.size == math.prod(sizes) else array


def _matches(shape: Shape, actual: tuple[int, ...], space: Space) -> bool:
    if len(shape) != len(actual):
        return False
    bounds = [space.bounds(size) for size in shape]
    return all(low <= n <= high for (low, high), n in zip(bounds, actual))


def solve_sizes(
    arrays: Mapping[Node, np.ndarray], given: Mapping[str, int], graph: Graph
) -> dict[str, int]:
    """The sizes of a run: those given, and those that a dimension of an input tells.

    A dimension tells a size where it is linear in one unknown size. Raises DimError where a size is
    unknown, missing, contradictory or outside its bounds, or where a requirement fails.
    """
    for name in given:
        if name not in graph.space.sizes:
            raise DimError(f"no size {name!r}; the sizes are {sorted(graph.space.sizes)}")
    sizes = {name: int(value) for name, value in given.items()}
    pending = [(n, d, a.shape[d]) for n, a in arrays.items() for d in range(a.ndim)]
    while True:
        found = [_solve(n.shape[d], actual, sizes) for n, d, actual in pending]
        new = {name: value for pair in found if pair for name, value in [pair]}
        if not new:
            break
        sizes.update(new)
    _check_sizes(sizes, pending, graph)
    return sizes


def _solve(size: Index, actual: int, known: Mapping[str, int]) -> tuple[str, int] | None:
    unknown = size.names() - known.keys()
    if len(unknown) != 1:
        return None
    (name,) = unknown
    rest = size.substitute({n: Index.of(v) for n, v in known.items()})
    factor = rest.coefficient(name)
    constant = rest - Index.of(name) * factor
    if not factor or not constant.is_constant or (actual - constant.constant) % factor:
        return None
    return name, (actual - constant.constant) // factor


def _check_sizes(
    sizes: dict[str, int], pending: Iterable[tuple[Node, int, int]], graph: Graph
) -> None:
    for name, (low, high) in graph.space.sizes.items():
        if name in sizes and not low <= sizes[name] <= high:
            raise DimError(f"size {name} = {sizes[name]} is outside its bounds {low} .. {high}")
    for node, dim, actual in pending:
        size = node.shape[dim]
        missing = size.names() - sizes.keys()
        if missing:
            raise DimError(f"size {sorted(missing)[0]} is not known: pass it to run")
        if size.evaluate(sizes) != actual:
            raise DimError(
                f"dimension {dim} of {node.attribute.name} is {actual}, "
                f"expected {size} = {size.evaluate(sizes)}"
            )
    check_requirements(graph, sizes)


def check_requirements(graph: Graph, sizes: Mapping[str, int]) -> None:
    """What views demand of the sizes of a run. Raises DimError."""
    for requirement in graph.requirements:
        names = requirement.index.names()
        if names <= sizes.keys() and requirement.index.evaluate(sizes) < 0:
            values = ", ".join(f"{n} = {sizes[n]}" for n in sorted(names))
            file, line = requirement.location
            raise DimError(f"{requirement.message}, with {values} (recorded at {file}:{line})")
