"""Several kernels on a GPU where one would leave most of its threads without work: a sum of few
rows beside what is made of each of their elements, or in each unit of a product again.

A unit of work has the axes that all its values share; what a value has besides is walked by the
threads of that unit alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from ..errors import Illegal
from ..kernel.kernel import Kernel, Value
from ..kernel.target import Target
from ..kernel.work import work
from .default import drafted
from .divide import apart
from .estimate import estimate, kept_bytes

GAIN = 0.8  # of the time of one kernel, at most
LEAST_LAUNCHES = 3  # that a kernel takes as long as, before others in its place are looked at


def threads_apart(kernel: Kernel, target: Target) -> list[Kernel]:
    """The kernels that take the place of a prepared one; a stream stays whole."""
    if len(kernel.values) == 1 or any(v.beside for v in kernel.values):
        return [kernel]
    whole = _seconds(kernel, target)
    if whole < LEAST_LAUNCHES * target.launch:
        return [kernel]
    best, found = GAIN * whole, tuple[Kernel, ...]((kernel,))
    for halves in _ways(kernel):
        seconds = sum(_seconds(half, target) for half in halves)
        if seconds < best:
            best, found = seconds, halves
    if found == (kernel,):
        return [kernel]
    return [part for half in found for part in threads_apart(half, target)]


def _ways(kernel: Kernel) -> Iterator[tuple[Kernel, Kernel]]:
    """A sum with what it needs, and the others: these make again what is made of each element."""
    for v in kernel.values:
        first = _needed({v.name}, kernel.values)
        rest = [u for u in kernel.values if u not in first and (u.store or u.reduction)]
        if v.reduction is None or any(u.scans for u in first) or not any(u.store for u in rest):
            continue
        sums = [u for u in first if u.reduction]
        rest = _needed({u.name for u in rest}, [u for u in kernel.values if u not in sums])
        read = {name for u in rest for name in u.reads()}
        yield apart(kernel, first, rest, [u for u in sums if u.name in read], direct=True)


def _needed(names: set[str], among: Sequence[Value]) -> list[Value]:
    """These values and all that they read, in order."""
    found = set(names)
    for v in among[::-1]:
        found |= v.reads() if v.name in found else set()
    return [v for v in among if v.name in found]


def _seconds(kernel: Kernel, target: Target) -> float:
    """Infinitely many where there is no schedule."""
    try:
        draft = drafted(kernel, target)
    except Illegal:
        return inf
    if kept_bytes(draft) > target.shared:
        return inf
    return target.launch + max(estimate(draft), work(kernel).bytes / target.bandwidth)
