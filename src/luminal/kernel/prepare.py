"""From a fused kernel to kernels that are ready for a schedule.

1. A value that is stored and also read is stored by a copy of itself.
2. Axes that everything walks together are merged (`merge`).
3. A long reduction with too little beside it for the threads is split in two kernels (`split`).
4. Bounds of axes are derived from masks and padding (`domains`).
"""

from __future__ import annotations

from dataclasses import replace

from .domains import derive_domains
from .kernel import Kernel, Read, Value
from .merge import merge_axes
from .split import split_reduction
from .target import Target


def prepare(kernel: Kernel, target: Target) -> list[Kernel]:
    """The kernels that compute this one, in order.

    A buffer may have lost dimensions (its bytes are the same, row-major), and buffers that only
    these kernels know stand between them: those whose names the original kernel lacks.
    """
    kernel = merge_axes(_stores_apart(kernel))
    return [derive_domains(k) for k in split_reduction(kernel, target)]


def _stores_apart(kernel: Kernel) -> Kernel:
    """Stored values that others read become a value and a stored copy of it."""
    values: list[Value] = []
    for v in kernel.values:
        if v.store is None or not any(v.name in u.reads() for u in kernel.values if u is not v):
            values.append(v)
            continue
        copy = Value(f"{v.name}.kept", v.axes, Read(v.name, v.dtype), v.dtype, store=v.store)
        values += [replace(v, store=None), copy]
    return replace(kernel, values=tuple(values))
