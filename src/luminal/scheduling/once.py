"""Operands that all units of work would lay out again are made once, before: one more kernel.

    acc[m, n] = sum_k a[m, k] f(b)[k, n]  -->  op[n, k] = f(b)[k, n]; acc = sum_k a[m, k] op[n, k]

The reader may choose how `op` lies, as it may for a constant: its schedule decides, and the kernel
before writes that layout (`laid_out`). Constants are packed when they are set, so this is for what
changes between calls: weights that are trained, activations, and the windows of an image, written
out or left in a copy of the image with its padding, which needs no conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import inf, prod
from typing import TypeAlias

from ..graph.index import Index
from ..kernel.domains import derive_domains
from ..kernel.kernel import (
    Apply,
    Buffer,
    Constant,
    Expression,
    Guard,
    Kernel,
    Load,
    Read,
    Rewriter,
    Store,
    Value,
    indices,
    walk,
)
from ..kernel.merge import merge_axes
from .divide import trimmed

NAME = "once"  # how the buffers of this module are called

# axes of the kernel that makes an operand, its elements there, where the reader finds them, and the
# conditions under which it does
Made: TypeAlias = tuple[Mapping[str, Index], Expression, tuple[Index, ...], tuple[Index, ...]]
Form: TypeAlias = Callable[[Kernel, Expression, str], Made | None]


def operands_before(
    kernel: Kernel, value: Value, together: Sequence[str] = (), rows: Sequence[str] = ()
) -> Iterator[list[Kernel]]:
    """Kernels in the place of one: some that make operands of a product, and the one that reads
    them, last. What they write are buffers that it has as constants: of a free layout. together:
    reduced axes whose neighbours would serve an instruction if they lay side by side. rows: axes
    whose neighbours in an image would be on one line."""
    free = [n for n, side in enumerate(value.factors) if _movable(kernel, side)]
    some = [sides for count in (1, 2) for sides in combinations(free, count)]
    yield from filter(None, (_apart(kernel, value, sides, None) for sides in some))
    forms = [partial(_padded, last=last) for last in ("", *together)]
    forms += [partial(_turned, last=last, over=value.over) for last in rows]
    yield from filter(None, (_apart(kernel, value, some[-1], form) for form in forms if some))


def movable(kernel: Kernel, value: Value) -> bool:
    """A product has operands that could be made before."""
    return any(_movable(kernel, side) for side in value.factors)


def _movable(kernel: Kernel, side: Expression) -> bool:
    """It depends on what changes between calls, and on nothing that is made for this kernel."""
    loads = [e for e in walk(side) if isinstance(e, Load)]
    alone = not any(isinstance(e, Read) or (isinstance(e, Load) and e.slots) for e in walk(side))
    given = (b for b in map(kernel.buffer, (e.buffer for e in loads)) if not b.constant)
    return alone and any(not b.name.startswith(NAME) for b in given)


def _apart(kernel: Kernel, value: Value, sides: Sequence[int], form: Form | None) -> list[Kernel]:
    """A kernel for each of the operands, and the one that reads them. form: windows are not spelled
    out, but what they look at is copied so; nothing where none of them are windows."""
    args, buffers, makers = list(value.factors), list(kernel.buffers), list[Kernel]()
    for n in sides:
        body, name = _narrow(args[n]), f"{NAME}{kernel.name}_{value.name}_{'ab'[n]}"
        windows = form(kernel, body, name) if form else None
        spelled = _spelled(kernel, value, body)
        if windows and not _fewer(windows, spelled):
            windows = None
        axes, copied, index, left = windows or spelled
        made = Buffer(name, body.dtype, tuple(axes.values()), constant=windows is None)
        buffers.append(made)
        store = Store(name, tuple(map(Index.of, axes)))
        copy = Value(name, tuple(axes), copied, body.dtype, store=store)
        both = (*kernel.buffers, replace(made, constant=False))
        maker = replace(kernel, axes={**kernel.axes, **axes}, buffers=both, values=(copy,))
        makers.append(trimmed(maker) if windows is None else merge_axes(trimmed(maker)))
        load: Expression = Load(name, index, body.dtype)
        load = Guard(left, load, Constant(0, body.dtype)) if left else load
        args[n] = load if body is args[n] else Apply("cast", (load,), args[n].dtype)
    if form and all(b.constant for b in buffers[len(kernel.buffers) :]):
        return []
    reads = replace(value, body=Apply("mul", tuple(args), value.body.dtype), domain={})
    values = tuple(reads if v is value else v for v in kernel.values)
    reader = trimmed(replace(kernel, buffers=tuple(buffers), values=values))
    return [*makers, _unasked(derive_domains(merge_axes(reader)))]


def _spelled(kernel: Kernel, value: Value, body: Expression) -> Made:
    """An element of its own for each point at which the operand varies."""
    named = {name for e in walk(body) for index in indices(e) for name in index.names()}
    axes = {a: kernel.axes[a] for a in value.points if a in named}
    return axes, body, tuple(map(Index.of, axes)), _asked(kernel, body)


def _padded(kernel: Kernel, body: Expression, name: str, last: str) -> Made | None:
    """An image with its padding, if the operand is windows of such a one, or of what is made of
    each of its elements, and nothing else; its last dimension the one that the axis `last` walks.
    Which taps of a window there are, as of strides backwards, the reader asks."""
    guards = [e for e in walk(body) if isinstance(e, Guard)]
    if len(guards) > 1 or not (guards or last) or any(isinstance(e, Read) for e in walk(body)):
        return None
    ended = guards[0] if guards else Guard((), body, Constant(0, body.dtype))
    if any(isinstance(e, Load) or any(indices(e)) for e in walk(ended.other)):
        return None  # where the image ends, another one begins
    load = _only_load(e for e in walk(body) if e is not ended)
    if load is None or load not in walk(ended.body):
        return None
    space, ends = kernel.space(), _ends(kernel, load)
    inside = {c for both in ends for c in both}
    bounds = [space.bounds(i) for i in load.index]
    left = _asked(kernel, body)
    known = all(abs(b) < inf for two in bounds for b in two)
    if not (known and inside.union(left).issuperset(ended.conditions)):
        return None
    axes = {f"{name}_{d}": Index.of(int(high - low) + 1) for d, (low, high) in enumerate(bounds)}
    here = tuple(Index.of(a) + int(low) for a, (low, _) in zip(axes, bounds))
    there = replace(load, index=here)
    conditions = tuple(
        c for new, old in zip(_ends(kernel, there), ends)
        for c, end in zip(new, old) if end in ended.conditions
    )  # fmt: skip
    moved = Rewriter(lambda e: there if e == load else e)
    inner = moved.expression(ended.body)
    inner = Guard(conditions, inner, ended.other) if conditions else inner
    copied = Rewriter(lambda e: inner if e == ended else e).expression(body) if guards else inner
    index = tuple(i - int(low) for i, (low, _) in zip(load.index, bounds))
    if not last:
        return axes, copied, index, left
    if Index.of(last) not in index[:-1]:
        return None
    order = sorted(range(len(index)), key=lambda d: index[d] == Index.of(last))
    names = list(axes)
    turned = {names[d]: axes[names[d]] for d in order}
    return turned, copied, tuple(index[d] for d in order), left


def _turned(
    kernel: Kernel, body: Expression, name: str, last: str, over: Sequence[str]
) -> Made | None:
    """An image, if the operand is windows of such a one or of what is made of each of its elements,
    and the taps of these are summed up: its last dimension the one that the axis `last` walks. What
    is padding the reader asks, and need not multiply."""
    ended = body if isinstance(body, Guard) else Guard((), body, Constant(0, body.dtype))
    load = _only_load(walk(ended.body))
    zero = isinstance(ended.other, Constant) and ended.other.value == 0
    if load is None or not zero:
        return None
    windows = [len(i.names()) > 1 for i in load.index]  # they are walked outside of the others
    if Index.of(last) not in load.index[:-1] or not any(windows):
        return None
    if any(_places(kernel, i, over) for i, window in zip(load.index, windows) if window):
        return None
    shape = kernel.buffer(load.buffer).shape
    order = sorted(
        range(len(shape)), key=lambda d: (load.index[d] == Index.of(last), not windows[d])
    )
    axes = {f"{name}_{d}": shape[d] for d in order}
    here = replace(load, index=tuple(Index.of(f"{name}_{d}") for d in range(len(shape))))
    copied = Rewriter(lambda e: here if e == load else e).expression(ended.body)
    return axes, copied, tuple(load.index[d] for d in order), ended.conditions


def _only_load(parts: Iterable[Expression]) -> Load | None:
    """The load without slots that is all that depends on where these stand, if it is."""
    found = {e for e in parts if isinstance(e, Load) or any(indices(e))}
    load = next(iter(found)) if len(found) == 1 else None
    return load if isinstance(load, Load) and not load.slots else None


def _places(kernel: Kernel, index: Index, over: Sequence[str]) -> bool:
    """Of a window, its places are summed up and not its taps: there are more of them."""
    space = kernel.space()
    known = {n: space.bounds(Index.of(n))[1] for n in index.names()}
    return all(n in over for n, size in known.items() if size == max(known.values()))


def _ends(kernel: Kernel, load: Load) -> list[tuple[Index, Index]]:
    """What is not negative where a load stays inside its buffer."""
    return [(i, size - 1 - i) for i, size in zip(load.index, kernel.buffer(load.buffer).shape)]


def _asked(kernel: Kernel, body: Expression) -> tuple[Index, ...]:
    """Conditions under which an operand is not 0, besides that it lies inside its buffer: the taps
    that a strided window has, backwards. Who knows them multiplies no zeros."""
    loads = {e for e in walk(body) if isinstance(e, Load)}
    if not isinstance(body, Guard) or len(loads) != 1:
        return ()
    inside = {c for both in _ends(kernel, *loads) for c in both}
    zero = isinstance(body.other, Constant) and body.other.value == 0
    return tuple(c for c in body.conditions if c not in inside) if zero else ()


def _unasked(reader: Kernel) -> Kernel:
    """What is spelled out is 0 where it is nothing: the loops are shorter, and nobody asks."""

    def change(e: Expression) -> Expression:
        if isinstance(e, Guard) and isinstance(e.body, Load):
            buffer = reader.buffer(e.body.buffer)
            return e.body if buffer.constant and buffer.name.startswith(NAME) else e
        return e

    rewriter = Rewriter(change)
    return replace(reader, values=tuple(map(rewriter.value, reader.values)))


def _fewer(made: Made, other: Made) -> bool:
    """It has fewer elements, as far as these are known."""
    counts = [prod(int(e) for e in axes.values() if e.is_constant) for axes, *_ in (made, other)]
    return counts[0] < counts[1]


def _narrow(side: Expression) -> Expression:
    """Without a widening cast, which stays with the reader."""
    if isinstance(side, Apply) and side.op == "cast":
        return side.args[0] if side.args[0].dtype.bytes < side.dtype.bytes else side
    return side
