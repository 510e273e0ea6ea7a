"""The CPU backend: LLVM IR text, compiled by llvmlite, run by persistent native workers.

As a module it is a `backend.contract.Backend`.
"""

from .jit import build, load
from .memory import empty, zeros
from .render import counter_bytes, render, workspace_bytes
from .target import describe, fingerprint, host, lacking, named, needs
from .workers import crew, table

target = host


def rates(threads: int) -> dict[str, float]:
    """What this machine can do at most, measured now (see `ceilings`)."""
    from .ceilings import measure

    return measure(threads)


__all__ = [
    "build",
    "counter_bytes",
    "crew",
    "describe",
    "empty",
    "fingerprint",
    "host",
    "lacking",
    "load",
    "named",
    "needs",
    "rates",
    "render",
    "table",
    "target",
    "workspace_bytes",
    "zeros",
]
