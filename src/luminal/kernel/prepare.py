"""From a fused kernel to kernels that are ready for a schedule.

1. Axes that everything walks together are merged (`merge`).
2. Bounds of axes are derived from masks and padding (`domains`).
3. A long reduction with too little beside it for the threads is split in two kernels (`split`).
"""

from __future__ import annotations

from .domains import derive_domains
from .kernel import Kernel
from .merge import merge_axes
from .split import split_reduction
from .target import Target


def prepare(kernel: Kernel, target: Target) -> list[Kernel]:
    """The kernels that compute this one, in order.

    A buffer may have lost dimensions (its bytes are the same, row-major), and buffers that only
    these kernels know stand between them: those whose names the original kernel lacks.
    """
    return [derive_domains(k) for k in split_reduction(merge_axes(kernel), target)]
