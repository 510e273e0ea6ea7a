"""A concatenation whose parts earlier steps make is no step: they write into it.

    t0 = f(x); t1 = g(x); y[i] = (t0[i] if i < n) + (t1[i - n] if i >= n)
    -->  y[i] = f(x); y[i + n] = g(x)

Where the whole is rounded, each part is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from ..graph.index import Index
from ..graph.space import Space
from ..kernel.kernel import Apply, Constant, Expression, Guard, Kernel, Load, Read, Store, Value

if TYPE_CHECKING:
    from .lower_plan import Step

Box = Sequence[range]  # of the whole, a range for each dimension


@dataclass(frozen=True)
class Part:
    """A buffer that is read into the whole. order: for each dimension of the whole the part's."""

    buffer: str
    box: Box
    order: Sequence[int]
    conditions: Sequence[Index]

    def store(self, whole: str, store: Store) -> Store:
        """Where in the whole an element of the part comes to lie."""
        index = (store.index[n] + r.start for n, r in zip(self.order, self.box))
        return Store(whole, tuple(index))


def written_in_parts(steps: Sequence[Step]) -> list[Step]:
    """The steps without concatenations of what only they read."""
    found = list(steps)
    for step in steps:
        parts = _concatenated(step.kernel) if not step.constant else None
        if parts:
            makers = _makers(found, step, parts)
            if makers is not None:
                found = [makers.get(n, each) for n, each in enumerate(found) if each is not step]
    return found


# ---- what a concatenation is


def _concatenated(kernel: Kernel) -> list[Part] | None:
    """The parts of its one buffer, if each element of this is an element of one of them."""
    (value, *others), fixed = kernel.values, all(e.is_constant for e in kernel.axes.values())
    if others or value.reduction or not fixed or not _plain(value.store, value):
        return None
    try:
        parts = [_part(kernel, value, *found) for found in _loads(_uncast(value.body), ())]
    except ValueError:
        return None
    size = prod(int(extent) for extent in kernel.axes.values())
    apart = all(_apart(p.box, q.box) for p, q in combinations(parts, 2))
    whole = len(parts) > 1 and sum(prod(map(len, p.box)) for p in parts) == size
    right = all(_holds(kernel, value, p) for p in parts)
    different = len({p.buffer for p in parts}) == len(parts)
    return parts if apart and whole and right and different else None


def _uncast(e: Expression) -> Expression:
    """What is rounded to the dtype of the whole, as each of its parts may be."""
    return e.args[0] if isinstance(e, Apply) and e.op == "cast" else e


def _plain(store: Store | None, value: Value) -> bool:
    """Every element of the buffer is set, each by a point of its own."""
    axes = {Index.of(a) for a in value.axes}
    each = store is not None and len(store.index) == len(axes) and set(store.index) == axes
    return store is not None and store.mode == "set" and not store.slots and each


def _loads(e: Expression, conditions: tuple[Index, ...]) -> Iterator[tuple[Load, Sequence[Index]]]:
    """What is added up or chosen from, and where. Where a part is looked at it is there, so that
    all others, whose ranges are apart, are not: of what is added up they are 0. Raises ValueError
    for anything else."""
    if isinstance(e, Load) and not e.slots:
        yield e, conditions
    elif isinstance(e, Guard):
        yield from _loads(e.body, (*conditions, *e.conditions))
        if not _zero(e.other):
            yield from _loads(e.other, conditions)
    elif isinstance(e, Apply) and e.op == "add" and all(map(_padded, e.args)):
        for arg in e.args:
            yield from _loads(arg, conditions)
    else:
        raise ValueError(e)


def _padded(e: Expression) -> bool:
    """It is 0 where no part of it lies."""
    if isinstance(e, Apply):
        return e.op == "add" and all(map(_padded, e.args))
    return isinstance(e, Guard) and (_zero(e.other) or _padded(e.other))


def _zero(e: Expression) -> bool:
    return isinstance(e, Constant) and e.value == 0


def _part(kernel: Kernel, value: Value, load: Load, conditions: Sequence[Index]) -> Part:
    """Raises ValueError where it is no box of the whole, or empty."""
    assert value.store is not None
    shape, order, box = kernel.buffer(load.buffer).shape, [], []
    for here in value.store.index:
        (n,) = [n for n, index in enumerate(load.index) if (index - here).is_constant]
        start = -(load.index[n] - here).constant
        order.append(n)
        box.append(range(start, start + int(shape[n])))
    if sorted(order) != [*range(len(shape))] or not all(box):
        raise ValueError(load)
    return Part(load.buffer, box, order, conditions)


def _apart(p: Box, q: Box) -> bool:
    return any(a.stop <= b.start or b.stop <= a.start for a, b in zip(p, q))


def _holds(kernel: Kernel, value: Value, part: Part) -> bool:
    """The box lies in the whole, and all conditions hold in it."""
    assert value.store is not None
    axes = [next(iter(index.names())) for index in value.store.index]
    space = Space({}, {a: len(r) for a, r in zip(axes, part.box)})
    here = {a: Index.of(a) + r.start for a, r in zip(axes, part.box)}
    inside = all(space.inside(here[a], kernel.axes[a]) for a in axes)
    return inside and all(space.nonnegative(c.substitute(here)) for c in part.conditions)


# ---- those that make its parts


def _makers(steps: Sequence[Step], whole: Step, parts: Sequence[Part]) -> Mapping[int, Step] | None:
    """The steps before, by number, that write their parts into the whole; None where anything else
    knows a part, or the whole is touched before."""
    (target,) = whole.kernel.outputs
    found: dict[int, Step] = {}
    earlier = steps[: steps.index(whole)]
    if any(whole.arguments[target] in each.arguments.values() for each in earlier):
        return None
    for part in parts:
        ref = whole.arguments[part.buffer]
        users = [n for n, each in enumerate(steps) if ref in each.arguments.values()]
        if ref.kind != "temporary" or len(users) != 2 or steps[users[1]] is not whole:
            return None
        made = _into(found.get(users[0], steps[users[0]]), whole, part)
        if made is None:
            return None
        found[users[0]] = made
    return found


def _into(maker: Step, whole: Step, part: Part) -> Step | None:
    """A step that writes a part where it belongs."""
    kernel, ref = maker.kernel, whole.arguments[part.buffer]
    (old,) = [name for name, each in maker.arguments.items() if each == ref]
    (target,) = whole.kernel.outputs
    writers = [v for v in kernel.values if v.store and v.store.buffer == old]
    if maker.constant or len(writers) != 1 or any(e.buffer == old for v in kernel.values
                                                  for e in v.loads):  # fmt: skip
        return None
    (writer,), store = writers, writers[0].store
    buffer = whole.kernel.buffer(target)
    if not _plain(store, writer):
        return None
    assert store is not None
    written = part.store(target, store)
    changed = [replace(writer, store=written)]
    if writer.dtype is not buffer.dtype:
        body = Apply("cast", (Read(writer.name, writer.dtype),), buffer.dtype)
        rounded = Value(f"{writer.name}_{target}", writer.axes, body, buffer.dtype, store=written)
        changed = [replace(writer, store=None), rounded]
    values = tuple(each for v in kernel.values for each in (changed if v is writer else [v]))
    buffers = (*(b for b in kernel.buffers if b.name not in (old, target)), buffer)
    arguments = {name: each for name, each in maker.arguments.items() if name != old}
    arguments[target] = whole.arguments[target]
    return replace(
        maker, kernel=replace(kernel, buffers=buffers, values=values), arguments=arguments
    )
