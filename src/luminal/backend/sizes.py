"""The run-time sizes of a run: those that are given and those that its inputs tell, and whether all
that was recorded holds for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import DimError, InputError
from ..graph.graph import Requirement
from ..graph.node import Shape
from ..graph.space import Range
from ..graph.values import mismatch


def settle_sizes(
    bounds: Mapping[str, Range],
    given: Mapping[str, int],
    implied: Iterable[tuple[str, Mapping[str, int]]],
) -> dict[str, int]:
    """All run-time sizes of a run: those given and those that the inputs tell.

    bounds: every size of the program. implied: (input's name, sizes implied). Raises DimError.
    """
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for name, value in given.items():
        if name not in bounds:
            known = ", ".join(bounds) or "none"
            raise DimError(f"no size is called '{name}'; the sizes of this program: {known}")
        sizes[name], origin[name] = _whole(name, value), "given to run()"
    for source, found in implied:
        for name, value in found.items():
            if sizes.setdefault(name, value) != value:
                raise DimError(
                    f"{name} = {sizes[name]} ({origin[name]}), but input '{source}' has {value}"
                )
            origin.setdefault(name, f"from input '{source}'")
    for name, (low, high) in bounds.items():
        if name not in sizes:
            raise DimError(
                f"size '{name}' is not known: set an input that has it, or run({name}=...)"
            )
        if not low <= sizes[name] <= high:
            top = "any" if math.isinf(high) else int(high)
            raise DimError(
                f"{name} = {sizes[name]} ({origin[name]}) is outside its bounds {int(low)} .. {top}"
            )
    return {name: sizes[name] for name in bounds}


def _whole(name: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise DimError(f"size '{name}' must be an integer, not {value!r}")
    return int(value)


def check_shape(name: str, shape: Shape, actual: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    """An array has this shape at these sizes; raises InputError."""
    wanted = tuple(dim.evaluate(sizes) for dim in shape)
    if wanted != actual:
        reason = f"which is {wanted} for {', '.join(f'{n} = {v}' for n, v in sizes.items())}"
        raise InputError(mismatch(name, shape, actual, reason))


def check_requirements(requirements: Iterable[Requirement], sizes: Mapping[str, int]) -> None:
    """The shapes that were recorded hold for these sizes; raises DimError."""
    for requirement in requirements:
        if requirement.index.evaluate(sizes) < 0:
            given = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            file, line = requirement.location
            raise DimError(f"{requirement.message}, but {given}\n  at {file}:{line}")
