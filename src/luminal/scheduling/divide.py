"""Two kernels in the place of one, with what the second needs of the first in memory between them;
and what takes the place of a kernel that no schedule of ours can walk.

The last resort. A plan prices how values fuse, not whether our frames have loops for all of them
together; a kernel of one value always has. `explain()` says where a kernel was divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import prod

from ..graph.index import Index
from ..kernel.domains import derive_domains
from ..kernel.kernel import Buffer, Expression, Kernel, Load, Read, Rewriter, Store, Value
from ..kernel.schedule import Loop, Schedule
from ..kernel.target import Target
from ..kernel.work import usual_sizes
from ..lowering.legal import problems


def apart(
    kernel: Kernel, first: Sequence[Value], second: Iterable[Value], passed: Iterable[Value],
    direct: bool = False,
) -> tuple[Kernel, Kernel]:  # fmt: skip
    """Kernels of these values: those of `passed`, which the first makes and the second reads, go
    through buffers of their own, sums without a copy if `direct`. `kernel`: whose buffers and axes
    they have."""
    loads: dict[str, Load] = {}
    made = {v.name: v for v in first}
    read = {name for v in first for name in v.reads() - {v.name}}
    buffers = list(kernel.buffers)
    for v in passed:
        name, index = f"kept{kernel.name}_{v.name}", tuple(map(Index.of, v.axes))
        buffers.append(Buffer(name, v.dtype, tuple(kernel.axes[a] for a in v.axes)))
        loads[v.name] = Load(name, index, v.dtype)
        if direct and v.reduction and v.name not in read and not v.beside:
            made[v.name] = replace(v, store=Store(name, index))
        else:
            made[name] = v.copied(Store(name, index))

    def loaded(e: Expression) -> Expression:
        return loads.get(e.value, e) if isinstance(e, Read) else e

    whole, reading = replace(kernel, buffers=tuple(buffers)), Rewriter(loaded)
    one = trimmed(replace(whole, name=f"{kernel.name}_first", values=tuple(made.values())))
    if any(a in v.domain for v in passed for a in v.axes):
        one = _stored_whole(one)
    return one, trimmed(replace(whole, values=tuple(map(reading.value, second))))


def _stored_whole(kernel: Kernel) -> Kernel:
    """Values reach as far as their stores do: who reads memory may read what a mask excludes."""
    ends = [{a: v.domain[a] for a in v.over if a in v.domain} for v in kernel.values]
    values = (replace(v, domain=each) for v, each in zip(kernel.values, ends))
    return derive_domains(replace(kernel, values=tuple(values)))


def stores_apart(kernel: Kernel, those: Callable[[Value], bool]) -> Kernel:
    """The kernel with a value and a stored copy of it in the place of each of those."""
    parts = (v.apart if v.store and those(v) else (v,) for v in kernel.values)
    return replace(kernel, values=tuple(chain.from_iterable(parts)))


def trimmed(kernel: Kernel) -> Kernel:
    """Without values, buffers and axes that nothing needs."""
    values = kernel.needed([v.name for v in kernel.values if v.store])
    used = {e.buffer for v in values for e in (*v.loads, v.store) if e}
    axes = {a for v in values for a in v.points}
    return replace(
        kernel,
        buffers=tuple(b for b in kernel.buffers if b.name in used),
        axes={a: n for a, n in kernel.axes.items() if a in axes},
        values=tuple(values),
    )


# ---- where no schedule is found


def divided(kernel: Kernel) -> tuple[Kernel, ...]:
    """What runs in place of a kernel: two, or one in several passes; nothing for one value."""
    return _halves(kernel) or _passes(kernel)


def _halves(kernel: Kernel) -> tuple[Kernel, ...]:
    """Two kernels, cut where fewest elements pass from one to the other."""
    values, sizes = kernel.values, usual_sizes(kernel)

    def passing(at: int) -> int:
        return sum(
            prod(int(kernel.axes[a].evaluate(sizes)) for a in v.axes) for v in _read(values, at)
        )

    ends = max((n for n, v in enumerate(values) if not _is_copy(v)), default=0)
    places = [at for at in range(1, ends + 1) if _separable(values, at)]
    if not places:
        return ()
    at = min(places, key=lambda at: (passing(at), abs(2 * at - len(values))))
    return apart(kernel, values[:at], values[at:], _read(values, at))


def _passes(kernel: Kernel) -> tuple[Kernel, ...]:
    """A stream as passes: what looked at a maximum so far waits for its end; no sum is rescaled, so
    that nobody reads now what stood in front of a maximum for that only."""
    if not any(v.beside for v in kernel.values):
        return ()
    plain = Rewriter(lambda e: replace(e, so_far=False) if isinstance(e, Read) else e)
    values = (_without_rescale(plain.value(v)) for v in kernel.values)
    return (trimmed(replace(kernel, values=tuple(values))),)


def _without_rescale(v: Value) -> Value:
    return replace(v, reduction=replace(v.reduction, rescale=None)) if v.reduction else v


def _separable(values: Sequence[Value], at: int) -> bool:
    """A stream, whose values look at each other while it runs, lies on one side."""
    before = {v.name for v in values[:at]}
    return all((name in before) == (v.name in before) for v in values for name in v.beside)


def _read(values: Sequence[Value], at: int) -> list[Value]:
    """The values before a place that those behind it read."""
    wanted = frozenset[str]().union(*(v.reads() for v in values[at:]))
    return [v for v in values[:at] if v.name in wanted]


def _is_copy(v: Value) -> bool:
    return isinstance(v.body, Read) and not v.body.so_far and v.reduction is None


def plain_schedule(kernel: Kernel, target: Target) -> Schedule:
    """Each value at one point after another, the outermost axis shared out where that is legal, or
    on a GPU as many as may be. For a kernel that cannot be divided: one value, and copies of it."""
    order: dict[str, None] = {}
    for value in kernel.values:  # a scan goes on along the last of its axes
        over = value.over
        order.update(dict.fromkeys([*(a for a in value.axes if a not in over), *over]))
    for shared in range(len(order) if target.group > 1 else 1, -1, -1):
        loops = [Loop(a, 1, "parallel" if n < shared else "serial") for n, a in enumerate(order)]
        paths = {v.name: tuple(x for x in loops if x.axis in v.points) for v in kernel.values}
        schedule = Schedule(paths, {b.name: b.layout for b in kernel.buffers if b.layout})
        if not any(problems(kernel, schedule)):
            break
    return schedule
