"""Operands that all units of work would lay out again are made once, before: one more kernel.

    acc[m, n] = sum_k a[m, k] f(b)[k, n]  -->  op[n, k] = f(b)[k, n]; acc = sum_k a[m, k] op[n, k]

The reader may choose how `op` lies, as it may for a constant: its schedule decides, and the kernel
before writes that layout (`laid_out`). Constants are packed when they are set, so this is for what
changes between calls: weights that are trained, activations, and the windows of an image, written
out or left in a copy of the image with its padding, which needs no conditions. Only where the
kernels together are estimated to take clearly less time than the one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf, prod
from typing import TypeAlias

from ..errors import Illegal
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
from ..kernel.target import Target
from ..kernel.work import extents_at, usual_sizes
from .apart import threads_apart
from .default import drafted
from .divide import divided, trimmed
from .draft import Draft
from .estimate import again, estimate, late
from .laid_out import laid_out

LEAST_SECONDS = 2e-5  # of a kernel: below, another one before it does not pay
LEAST_POINTS = 1 << 18  # of a product: below, it is not even looked at
GAIN = 0.8  # of the time with the operands made inside, at most
APART = 0.9  # the same for a product that would be done again and again
FAST = 2.0  # times the rate of memory: what was just written is partly still in a cache
NAME = "once"  # how the buffers of this module are called

# axes of the kernel that makes an operand, its elements there, where the reader finds them, and the
# conditions under which it does
Made: TypeAlias = tuple[Mapping[str, Index], Expression, tuple[Index, ...], tuple[Index, ...]]


def made_once(kernel: Kernel, target: Target) -> list[Kernel]:
    """The kernels that take the place of a prepared one: operands that are made before it, first.
    What they write are buffers that it has as constants: of a free layout."""
    parts = threads_apart(kernel, target) if target.group > 1 else [kernel]
    return [each for part in parts for each in _made_once(part, target)]


def _made_once(kernel: Kernel, target: Target) -> list[Kernel]:
    names = [v.name for v in kernel.values if any(_sides(kernel, v.name))]
    if not any(_large(kernel, name, target) for name in names):
        return [kernel]
    try:
        draft = drafted(kernel, target)
    except Illegal:
        return [kernel]
    best = estimate(draft)
    if best < LEAST_SECONDS:
        return [kernel]
    if target.group > 1:
        return _before(kernel, draft, names if _across_threads(draft) else [])
    if halves := _computed_again(kernel, draft, best):
        return [part for half in halves for part in made_once(half, target)]
    *makers, kernel = _before(kernel, draft, names if _makes_operands(draft) else [])
    return [*makers, *_streams_apart(kernel, drafted(kernel, target) if makers else draft)]


def _before(kernel: Kernel, draft: Draft, names: Sequence[str]) -> list[Kernel]:
    """The kernels that make operands of these products, and the one that reads them."""
    best, makers, target = estimate(draft), list[Kernel](), draft.target
    for name in names:
        every = [(sides, False) for sides in _sides(kernel, name)]
        every += [(sides, True) for sides, _ in every[-1:]]
        tried = [_tried(kernel, name, *each, target) for each in every]
        seconds, made = min(filter(None, tried), key=lambda each: each[0], default=(best, []))
        if seconds < GAIN * best:
            best, (*first, kernel) = seconds, made
            makers += first
    return [*makers, kernel]


def _across_threads(draft: Draft) -> bool:
    """Lanes of a GPU are positions of a sum of products, because these lie side by side."""
    tile = draft.found.tile
    return tile is not None and tile.reduced and not (tile.rows or draft.found.streams)


def _streams_apart(kernel: Kernel, draft: Draft) -> tuple[Kernel, ...]:
    """The kernel, or its product and behind it what is made of that: where it walks long arrays a
    few lines at a time, in the product's tiles (a weight's gradient, and its update). What sums the
    product up again keeps it in registers."""
    target, whole = draft.target, estimate(draft)
    beside = [v for v in draft.found.values if v not in draft.found.group]
    cold = sum(late(draft, v) * draft.facts.points(v) for v in beside)
    summed = any(v.reduction and {u.name for u in draft.found.group} & v.reads() for v in beside)
    little = cold / target.clock / target.threads < (1 - GAIN) * whole
    if draft.found.streams or summed or little:
        return (kernel,)
    halves = divided(kernel)
    try:
        apart = _in_turn(halves, target)
    except Illegal:
        return (kernel,)
    return halves if len(halves) == 2 and apart < GAIN * whole else (kernel,)


def _computed_again(kernel: Kernel, draft: Draft, whole: float) -> tuple[Kernel, ...]:
    """Two kernels in place of one whose loops walk over more axes than one of its products has."""
    if not any(v.factors and again(draft, v) > 1 for v in draft.found.values):
        return ()
    halves = divided(kernel)
    try:
        apart = _in_turn(halves, draft.target)
    except Illegal:
        return ()
    return halves if len(halves) == 2 and apart < APART * whole else ()


def _in_turn(parts: Sequence[Kernel], target: Target) -> float:
    """What kernels take one after the other."""
    return target.launch + sum(estimate(drafted(part, target)) for part in parts)


def _large(kernel: Kernel, name: str, target: Target) -> bool:
    sizes = extents_at(kernel, usual_sizes(kernel, target.hint))
    return prod(sizes[a] for a in kernel.value(name).points) >= LEAST_POINTS


def _makes_operands(draft: Draft) -> bool:
    """Each unit of work makes some for itself."""
    return bool(draft.operands)


def _sides(kernel: Kernel, name: str) -> Iterator[tuple[int, ...]]:
    """The operands of a product that could be made before: alone, and together."""
    value = next((v for v in kernel.values if v.name == name), None)
    sides = value.factors if value is not None else ()
    free = [n for n, side in enumerate(sides) if _movable(kernel, side)]
    yield from (some for count in (1, 2) for some in combinations(free, count))


def _movable(kernel: Kernel, side: Expression) -> bool:
    """It depends on what changes between calls, and on nothing that the kernel itself makes."""
    loads = [e for e in walk(side) if isinstance(e, Load)]
    alone = not any(isinstance(e, Read) or (isinstance(e, Load) and e.slots) for e in walk(side))
    return alone and any(not kernel.buffer(e.buffer).constant for e in loads)


def _tried(
    kernel: Kernel, name: str, sides: Sequence[int], padded: bool, target: Target
) -> tuple[float, list[Kernel]] | None:
    """The estimated seconds with these operands made before, and the kernels; padded: windows are
    not spelled out, but what they look at is copied with its padding."""
    made = _apart(kernel, kernel.value(name), sides, padded)
    if made is None:
        return None
    makers, reader = made
    try:
        draft = drafted(reader, target)
        layouts = draft.finish()[1].layouts
        free = {b: layouts.get(b.name, ()) for b in reader.buffers}
        first = [each for maker in makers for each in laid_out(maker, free)]
        seconds = estimate(draft) + sum(_making(each, target) for each in first)
    except Illegal:
        return None
    return seconds, [*makers, reader]


def _apart(
    kernel: Kernel, value: Value, sides: Sequence[int], padded: bool
) -> tuple[list[Kernel], Kernel] | None:
    """A kernel for each of the operands, and the one that reads them. None where none of them are
    windows, though they shall be padded."""
    args, buffers, makers = list(value.factors), list(kernel.buffers), list[Kernel]()
    for n in sides:
        body, name = _narrow(args[n]), f"{NAME}{kernel.name}_{value.name}_{'ab'[n]}"
        windows = _padded(kernel, body, name) if padded else None
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
    if padded and all(b.constant for b in buffers[len(kernel.buffers) :]):
        return None
    reads = replace(value, body=Apply("mul", tuple(args), value.body.dtype), domain={})
    values = tuple(reads if v is value else v for v in kernel.values)
    reader = trimmed(replace(kernel, buffers=tuple(buffers), values=values))
    return makers, _unasked(derive_domains(merge_axes(reader)))


def _spelled(kernel: Kernel, value: Value, body: Expression) -> Made:
    """An element of its own for each point at which the operand varies."""
    named = {name for e in walk(body) for index in indices(e) for name in index.names()}
    axes = {a: kernel.axes[a] for a in value.points if a in named}
    return axes, body, tuple(map(Index.of, axes)), _asked(kernel, body)


def _padded(kernel: Kernel, body: Expression, name: str) -> Made | None:
    """An image with its padding, if the operand is windows of such a one, or of what is made of
    each of its elements, and nothing else. Which taps of a window there are, as of strides
    backwards, the reader asks."""
    if not isinstance(body, Guard) or any(isinstance(e, (Guard, Read)) for e in walk(body.body)):
        return None
    if any(isinstance(e, (Load, Read)) or any(indices(e)) for e in walk(body.other)):
        return None  # where the image ends, another one begins
    loads = {e for e in walk(body.body) if isinstance(e, Load) or any(indices(e))}
    load = next(iter(loads)) if len(loads) == 1 else None
    if not isinstance(load, Load) or load.slots:
        return None
    space, ends = kernel.space(), _ends(kernel, load)
    inside = {c for both in ends for c in both}
    bounds = [space.bounds(i) for i in load.index]
    left = _asked(kernel, body)
    known = all(abs(b) < inf for two in bounds for b in two)
    if not (known and inside.union(left).issuperset(body.conditions)):
        return None
    axes = {f"{name}_{d}": Index.of(int(high - low) + 1) for d, (low, high) in enumerate(bounds)}
    here = tuple(Index.of(a) + int(low) for a, (low, _) in zip(axes, bounds))
    there = replace(load, index=here)
    conditions = tuple(
        c for new, old in zip(_ends(kernel, there), ends)
        for c, end in zip(new, old) if end in body.conditions
    )  # fmt: skip
    moved = Rewriter(lambda e: there if e == load else e)
    copied = Guard(conditions, moved.expression(body.body), body.other)
    return axes, copied, tuple(i - int(low) for i, (low, _) in zip(load.index, bounds)), left


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


def _making(maker: Kernel, target: Target) -> float:
    """Seconds of a kernel that makes an operand."""
    draft = drafted(maker, target)
    (value,) = draft.found.values
    moved = 2 * value.dtype.bytes * draft.facts.points(value)
    return target.launch + max(estimate(draft), moved / (FAST * target.bandwidth))
