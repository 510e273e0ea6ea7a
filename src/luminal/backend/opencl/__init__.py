"""OpenCL devices: kernels as OpenCL C, work-items over the units of the parallel loop."""

from .device import OpenCL, device

__all__ = ["OpenCL", "device"]
