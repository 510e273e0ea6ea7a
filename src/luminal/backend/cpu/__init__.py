"""The CPU backend: LLVM IR text, compiled by llvmlite, run by persistent native workers.

As a module it is a `backend.contract.Backend`.
"""

from .jit import build, load
from .memory import empty
from .render import counter_bytes, render, workspace_bytes
from .target import cores, describe, host, named
from .workers import Table as table
from .workers import crew

target = host

__all__ = [
    "build",
    "cores",
    "counter_bytes",
    "crew",
    "describe",
    "empty",
    "host",
    "load",
    "named",
    "render",
    "table",
    "target",
    "workspace_bytes",
]
