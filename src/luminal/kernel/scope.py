"""The rule of kernels as data: a value mentions no axis but its own (and run-time sizes)."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import VerifyError
from ..graph.index import Index
from .kernel import Kernel, Value, indices


def verify_scopes(kernel: Kernel) -> None:
    """Raises VerifyError where a value depends on an axis that it does not walk."""
    for value in kernel.values:
        allowed = {*value.points, *kernel.sizes}
        for expression, index in _indices(value):
            slots = {name for name, _ in getattr(expression, "slots", ())}
            foreign = index.names() - allowed - slots
            if foreign:
                raise VerifyError(
                    f"{kernel.name}: {value.name}[{' '.join(value.axes)}] mentions {index}, "
                    f"but walks no {', '.join(sorted(foreign))}"
                )


def _indices(value: Value) -> Iterator[tuple[object, Index]]:
    """Every index of a value, with the expression or store that holds it."""
    for expression in value.parts:
        for index in indices(expression):
            yield expression, index
    if value.store is not None:
        for index in (*value.store.index, *value.store.conditions):
            yield value.store, index
