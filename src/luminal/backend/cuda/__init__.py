"""CUDA: kernels as CUDA C++, run by a GPU or by the simulator."""

from __future__ import annotations

import functools

from ...errors import DeviceError
from ..contract import Accelerator


@functools.cache
def device(option: str = "") -> Accelerator:
    """ "sim": the simulator. Raises DeviceError."""
    if option == "sim":
        from .simulator import Simulator

        return Simulator()
    raise DeviceError(f'there is no device "cuda:{option}"; there is "cuda:sim"')
