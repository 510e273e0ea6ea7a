"""A kernel for each range of its run-time sizes: one row of a matrix product wants another schedule
than a hundred.

    tokens in 1 .. 512, usually 1 or 128  -->  the kernel for 2 .. 512, and the kernel for 1

The largest comes first: it computes most with every constant that it loads, so it decides how they
lie, and the others, which memory feeds, walk its panels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeAlias

from ..kernel.canonical import canonical
from ..kernel.kernel import Buffer, Kernel
from ..kernel.schedule import Layout, Schedule
from ..kernel.target import Target
from .default import default_schedule

Ranges: TypeAlias = tuple[tuple[str, int, int], ...]  # (size, least, most)


def kernels_by_range(
    kernel: Kernel, usual: Mapping[str, Sequence[int]]
) -> list[tuple[Ranges, Kernel]]:
    """The kernel for each range of its sizes, largest first.

    usual: sizes -> usual values, ascending. Each serves the sizes up to it, the last one all
    beyond. A range of one value only makes its size a number.
    """
    choices = []
    for name in sorted(kernel.sizes):
        values = usual.get(name, ())
        low, high = kernel.sizes[name]
        starts = [int(low), *(value + 1 for value in values[:-1])]
        ends = [*values[:-1], high]
        if len(values) > 1:
            choices.append([(name, s, int(e), v) for s, e, v in zip(starts, ends, values)])
    return [_narrowed(kernel, chosen) for chosen in product(*choices)][::-1]


def _narrowed(kernel: Kernel, chosen: Sequence[tuple[str, int, int, int]]) -> tuple[Ranges, Kernel]:
    sizes = {**kernel.sizes, **{name: (low, high) for name, low, high, _ in chosen}}
    hints = {**kernel.hints, **{name: value for name, _, _, value in chosen}}
    ranges = tuple((name, low, high) for name, low, high, _ in chosen)
    return ranges, replace(kernel, sizes=sizes, hints=hints)


@dataclass
class Settled:
    """How the constants of a kernel lie, once one of its ranges has decided it."""

    layouts: dict[Buffer, Layout] = field(default_factory=dict)

    def on(self, kernel: Kernel) -> Kernel:
        """A prepared kernel that keeps to the layouts."""
        buffers = (replace(b, layout=self.layouts.get(b)) for b in kernel.buffers)
        return replace(kernel, buffers=tuple(buffers))

    def keep(self, kernel: Kernel, schedule: Schedule) -> None:
        """Settle what the schedule has decided; () is row-major."""
        for buffer in kernel.buffers:
            if buffer.constant:
                self.layouts.setdefault(buffer, schedule.layouts.get(buffer.name, ()))


def prepared_by_range(
    kernel: Kernel,
    usual: Mapping[str, Sequence[int]],
    target: Target,
    prepare: Callable[[Kernel], Sequence[Kernel]],
) -> list[Kernel]:
    """The prepared kernels of all ranges, with constants as the first lays them out."""
    settled, found = Settled(), []
    for _, each in kernels_by_range(canonical(kernel)[0], usual):
        for part in prepare(canonical(each)[0]):
            found.append(settled.on(part))
            settled.keep(part, default_schedule(found[-1], target)[1])
    return found
