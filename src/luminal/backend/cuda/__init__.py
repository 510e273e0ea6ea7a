"""CUDA: kernels as CUDA C++, run by a GPU or by the simulator."""

from __future__ import annotations

import functools

from ..contract import Accelerator


@functools.cache
def device(kind: str = "") -> Accelerator:
    """ "": the GPU of this machine; "sim": the simulator; "sm_90a", ...: kernels for such a GPU,
    compiled where none is. Raises DeviceError."""
    if kind == "sim":
        from .simulator import Simulator, compiler

        compiler()
        return Simulator()
    from .gpu import for_arch, present

    return for_arch(kind) if kind else present()
