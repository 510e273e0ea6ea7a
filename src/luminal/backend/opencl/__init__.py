"""OpenCL devices: kernels as OpenCL C, a work-group for each unit of the parallel loop."""

from .device import OpenCL, device

__all__ = ["OpenCL", "device"]
