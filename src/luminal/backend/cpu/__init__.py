"""The CPU backend: LLVM IR text, compiled by llvmlite, run by persistent native workers.

As a module it is a `backend.contract.Backend`.
"""

from ..contract import Limits
from .jit import build, load
from .memory import empty, zeros
from .render import counter_bytes, render, workspace_bytes
from .target import describe, fingerprint, host, lacking, named, needs
from .workers import code, crew, table

target = host


def rates(threads: int) -> dict[str, float]:
    """What this machine can do at most, measured now (see `ceilings`)."""
    from .ceilings import measure

    return measure(threads)


def limits() -> Limits:
    """See `ceilings`."""
    from . import ceilings

    return ceilings


def prepare() -> None:
    """The code of the workers."""
    code()


__all__ = [
    "build",
    "counter_bytes",
    "crew",
    "describe",
    "empty",
    "fingerprint",
    "host",
    "lacking",
    "limits",
    "load",
    "named",
    "needs",
    "prepare",
    "rates",
    "render",
    "table",
    "target",
    "workspace_bytes",
    "zeros",
]
