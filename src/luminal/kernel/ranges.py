"""Ranges of run-time sizes: one row of a matrix product wants another program than a hundred.

    tokens in 1 .. 512, usually 1 or 512  -->  2 .. 512, usually 512, and 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeAlias

from ..graph.space import Range
from .kernel import Kernel

Ranges: TypeAlias = tuple[tuple[str, int, int], ...]  # (size, least, most)
Hints: TypeAlias = Mapping[str, int]  # usual values of sizes


def ranges_of(
    sizes: Mapping[str, Range], usual: Mapping[str, Sequence[int]]
) -> Sequence[tuple[Ranges, Hints]]:
    """Ranges that cover the sizes, each with its usual values, largest first.

    usual: sizes -> usual values, ascending. Each serves the sizes up to it, the last one all
    beyond. A size that has one usual value, or none, is in no range.
    """
    choices = []
    for name in sorted(sizes):
        low, high = sizes[name]
        values = [value for value in usual.get(name, ()) if low <= value <= high]
        starts = [int(low), *(value + 1 for value in values[:-1])]
        ends = [*values[:-1], high]
        if len(values) > 1:
            choices.append([(name, s, int(e), v) for s, e, v in zip(starts, ends, values)])
    return [
        (tuple((n, low, high) for n, low, high, _ in chosen), {n: v for n, _, _, v in chosen})
        for chosen in product(*choices)
    ][::-1]


def narrowed(kernel: Kernel, ranges: Ranges, hints: Hints) -> Kernel:
    """The kernel for these ranges of the sizes that it has."""
    sizes = {name: (low, high) for name, low, high in ranges if name in kernel.sizes}
    usual = {name: hints[name] for name in sizes}
    return replace(kernel, sizes={**kernel.sizes, **sizes}, hints={**kernel.hints, **usual})


def kernels_by_range(
    kernel: Kernel, usual: Mapping[str, Sequence[int]]
) -> list[tuple[Ranges, Kernel]]:
    """The kernel for each range of its sizes, largest first; not where it does nothing, if it
    does something elsewhere."""
    found = ranges_of(kernel.sizes, usual)
    made = [(ranges, narrowed(kernel, ranges, hints)) for ranges, hints in found]
    return [(ranges, each) for ranges, each in made if not idle(each) or idle(kernel)]


def idle(kernel: Kernel) -> bool:
    """Whether it is known to store nothing: not at any of its sizes."""
    space = kernel.space()
    stored = (value.axes for value in kernel.values if value.store)
    return all(any(space.bounds(kernel.axes[axis])[1] <= 0 for axis in axes) for axes in stored)
