"""What takes the place of a kernel that no schedule of ours can walk: two kernels, with what the
second needs of the first in memory between them; for one stream the same in several passes.

The last resort. A plan prices how values fuse, not whether our frames have loops for all of them
together; a kernel of one value always has. `explain()` says where a kernel was divided.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from ..graph.index import Index
from ..kernel.kernel import Buffer, Expression, Kernel, Load, Read, Rewriter, Store, Value
from ..kernel.work import usual_sizes
from .split import trimmed


def divided(kernel: Kernel) -> tuple[Kernel, ...]:
    """What runs in place of a kernel; nothing where it is one value."""
    return _halves(kernel) or _passes(kernel)


def _halves(kernel: Kernel) -> tuple[Kernel, ...]:
    """Two kernels, cut where fewest elements pass from one to the other."""
    values = kernel.values
    sizes = usual_sizes(kernel)

    def passing(at: int) -> int:
        return sum(
            prod(int(kernel.axes[a].evaluate(sizes)) for a in v.axes) for v in _read(values, at)
        )

    ends = max((n for n, v in enumerate(values) if not _is_copy(v)), default=0)
    places = [at for at in range(1, ends + 1) if _separable(values, at)]
    if not places:
        return ()
    at = min(places, key=lambda at: (passing(at), abs(2 * at - len(values))))
    loads: dict[str, Load] = {}
    buffers: list[Buffer] = []
    copies: list[Value] = []
    for v in _read(values, at):
        name, index = f"kept{kernel.name}_{v.name}", tuple(map(Index.of, v.axes))
        buffers.append(Buffer(name, v.dtype, tuple(kernel.axes[a] for a in v.axes)))
        loads[v.name] = Load(name, index, v.dtype)
        copies.append(_stored(v, Store(name, index)))
    first = replace(kernel, values=(*values[:at], *copies))
    second = replace(kernel, values=_reading(values[at:], loads))
    parts = (replace(part, buffers=(*kernel.buffers, *buffers)) for part in (first, second))
    one, two = map(trimmed, parts)
    return replace(one, name=f"{kernel.name}_first"), two


def _passes(kernel: Kernel) -> tuple[Kernel, ...]:
    """A stream as passes: what looked at a maximum so far waits for its end; no sum is rescaled."""
    if not any(map(_beside, kernel.values)):
        return ()
    plain = Rewriter(lambda e: replace(e, so_far=False) if isinstance(e, Read) else e)
    values = [_without_rescale(plain.value(v)) for v in kernel.values]
    # what stood in front of a maximum, for the rescaling only, is read by nobody now
    for n in range(len(values) - 1, -1, -1):
        wanted = {name for v in values[n + 1 :] for name in v.reads()}
        if values[n].store is None and values[n].name not in wanted:
            del values[n]
    return (replace(kernel, values=tuple(values)),)


def _without_rescale(v: Value) -> Value:
    return replace(v, reduction=replace(v.reduction, rescale=None)) if v.reduction else v


def _separable(values: Sequence[Value], at: int) -> bool:
    """A stream, whose values look at each other while it runs, lies on one side."""
    before = {v.name for v in values[:at]}
    return all((name in before) == (v.name in before) for v in values for name in _beside(v))


def _beside(v: Value) -> Collection[str]:
    rescale = v.reduction.rescale if v.reduction else None
    return v.reads(so_far=True) | ({rescale.value} if rescale else set())


def _read(values: Sequence[Value], at: int) -> list[Value]:
    """The values before a place that those behind it read."""
    wanted = frozenset[str]().union(*(v.reads() for v in values[at:]))
    return [v for v in values[:at] if v.name in wanted]


def _is_copy(v: Value) -> bool:
    return isinstance(v.body, Read) and not v.body.so_far and v.reduction is None


def _stored(v: Value, store: Store) -> Value:
    domain = {a: ends for a, ends in v.domain.items() if a in v.axes}
    return Value(f"{v.name}_kept", v.axes, Read(v.name, v.dtype), v.dtype, None, store, domain)


def _reading(values: Sequence[Value], loads: dict[str, Load]) -> tuple[Value, ...]:
    def change(e: Expression) -> Expression:
        return loads.get(e.value, e) if isinstance(e, Read) else e

    rewriter = Rewriter(change)
    return tuple(map(rewriter.value, values))
