"""The schedule that every kernel of one value has: its loops one by one, nothing written out.

The last resort, where the default's frames give no legal schedule, or a program that is too long.
"""

from __future__ import annotations

from ..kernel.kernel import Kernel
from ..kernel.schedule import Loop, Schedule
from ..lowering.legal import problems


def plain_schedule(kernel: Kernel) -> Schedule:
    """Each value at one point after another, the outermost axis shared out where that is legal.
    For a kernel that cannot be divided: one value, and copies of it."""
    order: dict[str, None] = {}
    for value in kernel.values:  # a scan goes on along the last of its axes
        over = value.over
        order.update(dict.fromkeys([*(a for a in value.axes if a not in over), *over]))
    for kind in ("parallel", "serial"):
        loops = [Loop(a, 1, kind if n == 0 else "serial") for n, a in enumerate(order)]
        paths = {v.name: tuple(x for x in loops if x.axis in v.points) for v in kernel.values}
        schedule = Schedule(paths, {b.name: b.layout for b in kernel.buffers if b.layout})
        if not any(problems(kernel, schedule)):
            break
    return schedule
