"""The rule of kernels as data: a value mentions no axis but its own (and run-time sizes)."""

from __future__ import annotations

from ..errors import VerifyError
from .kernel import Kernel


def verify_scopes(kernel: Kernel) -> None:
    """Raises VerifyError where a value depends on an axis that it does not walk."""
    for value in kernel.values:
        slots = {name for load in value.loads for name, _ in load.slots}
        slots |= {name for name, _ in value.store.slots} if value.store else set()
        allowed = {*value.points, *kernel.sizes, *slots}
        for index in value.indices:
            foreign = index.names() - allowed
            if foreign:
                raise VerifyError(
                    f"{kernel.name}: {value.name}[{' '.join(value.axes)}] mentions {index}, "
                    f"but walks no {', '.join(sorted(foreign))}"
                )
