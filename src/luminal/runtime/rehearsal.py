"""A run on made-up inputs: to time a program, and to look at it, without its user's data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import InputError
from ..graph.dtype import DType
from ..kernel.work import usual_sizes
from .executable import Executable


def rehearse(program: Executable, sizes: Mapping[str, int]) -> None:
    """Run with made-up values of inputs and parameters that have none: normal floats, zeros of
    whole numbers, which index safely, and True. sizes: others are what kernels take for usual.
    Raises InputError, DimError."""
    seen = program.inspected()
    if seen is None:
        raise InputError("the reference has no kernels to look at")
    if unknown := sizes.keys() - program.sizes.keys():
        raise InputError(f"no size {sorted(unknown)[0]!r}; there are {', '.join(program.sizes)}")
    usual: dict[str, int] = {}
    for made in program.kernels:
        usual |= usual_sizes(made.kernel)
    known = {name: int(min(max(usual.get(name, low), low), high))
             for name, (low, high) in program.sizes.items()} | dict(sizes)  # fmt: skip
    rng = np.random.default_rng(0)
    for number, place in enumerate(seen.plan.ports):
        if place is not None and number in program.missing:
            memory = seen.plan.memories[place]
            shape = tuple(int(size.evaluate(known)) for size in memory.shape)
            program.preset(number, _values(memory.dtype, shape, rng))
    program.run(**known)


def _values(kind: DType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if kind.is_float:
        return rng.standard_normal(shape, np.float32).astype(kind.numpy)
    return np.full(shape, kind.name == "bool", kind.numpy)
