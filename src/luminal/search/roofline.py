"""What bounds a kernel: the machine's ceilings."""

from __future__ import annotations

from collections.abc import Mapping

from ..kernel.kernel import Kernel
from ..kernel.target import Target
from ..kernel.work import work

BALANCE = 8  # operations a byte: kernels with fewer are bound by memory


def streams(kernel: Kernel, target: Target, sizes: Mapping[str, int] | None = None) -> bool:
    """Memory feeds the kernel, and no cache: it computes little and its buffers are large."""
    done = work(kernel, sizes)
    return done.flops <= BALANCE * done.bytes and done.bytes > target.l2 // 2


def roofline(
    kernel: Kernel, target: Target, rates: Mapping[str, float], warm: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> float:  # fmt: skip
    """The least seconds of one call. rates: Giga-operations a second of instructions, and GB/s of
    "read" and "cache". warm: what fits the last cache is there. sizes: None: the usual ones."""
    done = work(kernel, sizes)
    instructions = {name: rate for name, rate in rates.items() if name not in ("read", "cache")}
    narrow = any(b.dtype.bytes < 4 for b in kernel.buffers)
    peak = max(instructions.values()) if narrow else instructions["fma"]
    compute = done.flops / (1e9 * peak)
    if not streams(kernel, target, sizes):
        return compute
    source = "cache" if warm and done.bytes < target.l3 else "read"
    return max(compute, done.bytes / (1e9 * rates[source]))
