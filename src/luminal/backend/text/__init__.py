"""Loop programs as C-like text: one renderer, a table of dialects."""

from .dialect import CUDA, HIP, METAL, OPENCL, C, Dialect
from .render import render, workspace_bytes

__all__ = ["CUDA", "HIP", "METAL", "OPENCL", "C", "Dialect", "render", "workspace_bytes"]
