"""Loop programs as C-like text: one renderer, a table of dialects."""

from .dialect import CUDA, HIP, METAL, OPENCL, C, Dialect
from .joined import joined_shared_bytes, may_join, meeting, parties, render_joined
from .launch import computed, group_target, shared_out, sizes_of, units, value
from .render import WORKERS, kernel_name, render, shared_bytes, workspace_bytes

__all__ = [
    "CUDA", "HIP", "METAL", "OPENCL", "WORKERS", "C", "Dialect", "computed", "group_target",
    "joined_shared_bytes", "kernel_name", "may_join", "meeting", "parties", "render",
    "render_joined", "shared_bytes", "shared_out", "sizes_of", "units", "value",
    "workspace_bytes",
]  # fmt: skip
