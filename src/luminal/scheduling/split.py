"""Two kernels for a long reduction whose kept axes cannot occupy the threads.

acc[m] = sum_k f(m, k)  -->  part[p, m] = sum_k f(m, p size + k); acc[m] = sum_p part[p, m]

The second kernel goes on with the rest (the epilogue). Only where a second launch is worth it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ..graph.index import Index
from ..kernel.kernel import Buffer, Kernel, Load, Store, Value
from ..kernel.merge import rewrite
from ..kernel.target import Target
from .decisions import Decisions
from .facts import Facts

LEAST_WORK = 1 << 18  # points below which one thread is faster than a second kernel
LEAST_PART = 256  # points of the reduced axis in a part
UNITS = 2  # wanted parallel units a thread
LONG = 4  # times the kept elements: a search may split a reduction of so many points, too
ELEMENTS = 4096  # kept elements from which there is enough to share out anyway
PART = "part"  # how axes and buffers of this module are called


def split_reduction(kernel: Kernel, target: Target, decisions: Decisions) -> list[Kernel]:
    """The kernel, or the two that take its place. Raises Illegal for a number of parts that is no
    option."""
    if target.threads == 1:
        return [kernel]
    facts = Facts(kernel, target)
    for v in kernel.values:
        axis = _long_axis(kernel, v, facts)
        if axis is not None:
            parts = _parts(v, axis, facts, decisions)
            return list(_split(kernel, v, axis, parts)) if parts > 1 else [kernel]
    return [kernel]


def _parts(v: Value, axis: str, facts: Facts, decisions: Decisions) -> int:
    """A number of parts that divides the axis; by default one where the kept axes occupy the
    threads: each row that lies side by side is a unit, else some vectors are."""
    size, threads = facts.size[axis], facts.target.threads
    most = min(size // LEAST_PART, 4 * UNITS * threads)
    exact = [n for n in range(most, threads - 1, -1) if size % n == 0]
    kept = prod(facts.size[a] for a in v.axes)
    rows = any(x.axes & {*v.axes} and x.stride(a) == 1 and not x.packable
               for x in facts.accesses(v) for a in v.over)  # fmt: skip
    few = -(-kept // (1 if rows else 4 * facts.lanes)) < UNITS * threads
    if not few and size < LONG * kept:
        return 1
    some = {*exact[:1], *exact[-1:], *exact[len(exact) // 2 : len(exact) // 2 + 1]}
    return decisions.number("parts", exact[0] if few and exact else 1, [*sorted(some), 1])


def _long_axis(kernel: Kernel, v: Value, facts: Facts) -> str | None:
    """A reduced axis of constant size that holds nearly all the work of a first reduction."""
    reduction = v.reduction
    if reduction is None or reduction.scan or reduction.rescale or v.domain:
        return None
    readers = sum(v.name in u.reads() for u in kernel.values)
    alone = kernel.values[0] is v and readers == (0 if v.store else 1)
    running = any(u.reduction and set(u.over) & set(v.over) for u in kernel.values if u is not v)
    kept = prod(facts.size[a] for a in v.axes)
    if not alone or running or kept >= ELEMENTS or facts.points(v) < LEAST_WORK:
        return None
    heavy = facts.points(v) >= sum(facts.points(u) for u in kernel.values) / 2
    if not heavy:
        return None
    fixed = [a for a in v.over if facts.static[a]]
    return max(fixed, key=lambda a: facts.size[a], default=None)


def _split(kernel: Kernel, v: Value, axis: str, parts: int) -> Iterator[Kernel]:
    assert v.reduction is not None
    part, name = f"{PART}_{axis}", f"{kernel.name}_{v.name}_{PART}"
    size = int(kernel.axes[axis]) // parts
    place = {axis: Index.of(part) * size + axis}

    def moved(i: Index) -> Index:
        return i.substitute(place)

    alone = replace(kernel, values=(v,))
    (inside,) = rewrite(alone, moved, lambda _, indices: tuple(map(moved, indices))).values
    shape = (Index.of(parts), *(kernel.axes[a] for a in v.axes))
    buffer = Buffer(name, v.dtype, shape)
    index = tuple(map(Index.of, (part, *v.axes)))
    first = replace(
        v, axes=(part, *v.axes), body=inside.body,
        reduction=replace(v.reduction, start=None), store=Store(name, index),
    )  # fmt: skip
    yield trimmed(replace(
        kernel, name=f"{kernel.name}_parts", buffers=(*kernel.buffers, buffer),
        axes={part: Index.of(parts), **kernel.axes, axis: Index.of(size)}, values=(first,),
    ))  # fmt: skip
    body = Load(name, index, v.dtype)
    second = replace(v, body=body, reduction=replace(v.reduction, over=(part,)))
    yield trimmed(replace(
        kernel, buffers=(buffer, *kernel.buffers), axes={**kernel.axes, part: Index.of(parts)},
        values=(second, *kernel.values[1:]),
    ))  # fmt: skip


def trimmed(kernel: Kernel) -> Kernel:
    """Without buffers and axes that nothing mentions."""
    used = {v.store.buffer for v in kernel.values if v.store}
    used |= {e.buffer for v in kernel.values for e in v.loads}
    axes = {a for v in kernel.values for a in v.points}
    return replace(
        kernel,
        buffers=tuple(b for b in kernel.buffers if b.name in used),
        axes={a: n for a, n in kernel.axes.items() if a in axes},
    )
