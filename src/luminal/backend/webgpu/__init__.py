"""WebGPU: kernels as WGSL, run by whatever Vulkan, Metal or Direct3D offers."""

from .device import WebGPU, device

__all__ = ["WebGPU", "device"]
