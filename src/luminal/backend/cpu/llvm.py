"""LLVM, loaded when something is compiled: a process that finds all it runs compiled needs none of
it, and has 60 MiB less."""

from __future__ import annotations

import functools
from typing import Any

from ... import forks


@functools.cache
def llvm() -> Any:
    """llvmlite's bindings, ready to generate code for every processor that LLVM knows."""
    import llvmlite.binding as bindings

    bindings.initialize_all_targets()
    bindings.initialize_all_asmprinters()
    bindings.initialize_native_asmparser()
    forks.guard(bindings.ffi.lib._lock, "_lock", forks.INNER)
    return bindings
