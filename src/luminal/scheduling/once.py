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
from functools import partial
from itertools import combinations, pairwise
from math import inf, prod
from typing import TypeAlias

from ..errors import Illegal
from ..graph.index import Index
from ..kernel.domains import derive_domains
from ..kernel.kernel import (
    Apply,
    Buffer,
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
from .default import drafted
from .divide import divided, trimmed
from .draft import Draft
from .facts import weight
from .laid_out import laid_out

LEAST_SECONDS = 2e-5  # of a kernel: below, another one before it does not pay
LEAST_POINTS = 1 << 18  # of a product: below, it is not even looked at
GAIN = 0.8  # of the time with the operands made inside, at most
FAST = 2.0  # times the rate of memory: what was just written is partly still in a cache
SCATTERED, FAR = 2.0, 4.0  # cycles of an element apart from its neighbours, on another page
TURNED = 0.5  # the same where blocks are transposed in registers
WINDOWED, CROWDED = 1.1, 2.5  # times the cycles of a product that reads windows where they lie
NAME = "once"  # how the buffers of this module are called

# axes of the kernel that makes an operand, its elements there, and where the reader finds them
Made: TypeAlias = tuple[Mapping[str, Index], Expression, tuple[Index, ...]]


def made_once(kernel: Kernel, target: Target) -> list[Kernel]:
    """The kernels that take the place of a prepared one: operands that are made before it, first.
    What they write are buffers that it has as constants: of a free layout."""
    names = [v.name for v in kernel.values if any(_sides(kernel, v.name))]
    if target.group > 1 or not any(_large(kernel, name, target) for name in names):
        return [kernel]
    try:
        draft = drafted(kernel, target)
    except Illegal:
        return [kernel]
    best, makers = estimate(draft), list[Kernel]()
    if best < LEAST_SECONDS:
        return [kernel]
    for name in names if _makes_operands(draft) else ():
        every = [(sides, False) for sides in _sides(kernel, name)]
        every += [(sides, True) for sides, _ in every[-1:]]
        tried = [_tried(kernel, name, *each, target) for each in every]
        seconds, made = min(filter(None, tried), key=lambda each: each[0], default=(best, []))
        if seconds < GAIN * best:
            best, (*first, kernel) = seconds, made
            makers += first
            draft = drafted(kernel, target)
    return [*makers, *_streams_apart(kernel, draft)]


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
        apart = target.launch + sum(estimate(drafted(half, target)) for half in halves)
    except Illegal:
        return (kernel,)
    return halves if len(halves) == 2 and apart < GAIN * whole else (kernel,)


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
        axes, copied, index = windows or _spelled(kernel, value, body)
        made = Buffer(name, body.dtype, tuple(axes.values()), constant=windows is None)
        buffers.append(made)
        store = Store(name, tuple(map(Index.of, axes)))
        copy = Value(name, tuple(axes), copied, body.dtype, store=store)
        both = (*kernel.buffers, replace(made, constant=False))
        maker = replace(kernel, axes={**kernel.axes, **axes}, buffers=both, values=(copy,))
        makers.append(trimmed(maker) if windows is None else merge_axes(trimmed(maker)))
        load: Expression = Load(name, index, body.dtype)
        args[n] = load if body is args[n] else Apply("cast", (load,), args[n].dtype)
    if padded and all(b.constant for b in buffers[len(kernel.buffers) :]):
        return None
    reads = replace(value, body=Apply("mul", tuple(args), value.body.dtype), domain={})
    values = tuple(reads if v is value else v for v in kernel.values)
    reader = trimmed(replace(kernel, buffers=tuple(buffers), values=values))
    return makers, derive_domains(merge_axes(reader))


def _spelled(kernel: Kernel, value: Value, body: Expression) -> Made:
    """An element of its own for each point at which the operand varies."""
    named = {name for e in walk(body) for index in indices(e) for name in index.names()}
    axes = {a: kernel.axes[a] for a in value.points if a in named}
    return axes, body, tuple(map(Index.of, axes))


def _padded(kernel: Kernel, body: Expression, name: str) -> Made | None:
    """An image with its padding, if the operand is windows of such a one, or of what is made of
    each of its elements, and nothing else."""
    if not isinstance(body, Guard) or any(isinstance(e, (Guard, Read)) for e in walk(body.body)):
        return None
    if any(isinstance(e, (Load, Read)) or any(indices(e)) for e in walk(body.other)):
        return None  # where the image ends, another one begins
    loads = {e for e in walk(body.body) if isinstance(e, Load) or any(indices(e))}
    load = next(iter(loads)) if len(loads) == 1 else None
    if not isinstance(load, Load) or load.slots:
        return None
    shape, space = kernel.buffer(load.buffer).shape, kernel.space()
    ends = [(i, size - 1 - i) for i, size in zip(load.index, shape)]
    inside = {c for both in ends for c in both}
    bounds = [space.bounds(i) for i in load.index]
    if not inside.issuperset(body.conditions) or any(abs(b) == inf for two in bounds for b in two):
        return None
    axes = {f"{name}_{d}": Index.of(int(high - low) + 1) for d, (low, high) in enumerate(bounds)}
    here = tuple(Index.of(a) + int(low) for a, (low, _) in zip(axes, bounds))
    conditions = tuple(
        c for i, size, two in zip(here, shape, ends) for c, end in zip((i, size - 1 - i), two)
        if end in body.conditions
    )  # fmt: skip
    moved = Rewriter(lambda e: replace(load, index=here) if e == load else e)
    copied = Guard(conditions, moved.expression(body.body), body.other)
    return axes, copied, tuple(i - int(low) for i, (low, _) in zip(load.index, bounds))


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


# ---- what a drawn-up kernel takes, roughly


def estimate(draft: Draft) -> float:
    """What a kernel takes, as far as its schedule tells: the tile of its product, and how often
    and in which steps through memory the values beside it are computed."""
    found, facts, target = draft.found, draft.facts, draft.target
    cycles = 0.0
    for v in found.values:
        each = _apiece(draft, v)
        if v in found.group and found.tile is not None:
            each = found.tile.cycles / len(found.group) * _windowed(draft, v)
        cycles += each * _again(draft, v) * facts.points(v)
    return cycles / target.clock / target.threads


def _windowed(draft: Draft, v: Value) -> float:
    """What a product takes longer for reading windows of an image where they lie: more where all
    steps of a sum land on one set of the first cache, or where they go through a floor."""
    target, factor = draft.target, 1.0
    way = target.l1 // target.l1_ways
    for x in draft.facts.accesses(v):
        if x.load and any(len(i.names()) > 1 for i in x.load.index):
            long = (a for a in x.axes.intersection(v.over) if draft.size[a] > target.l1_ways)
            crowded = any(x.stride(a) * x.dtype.bytes % way == 0 for a in long)
            dear = crowded or any(i.has_floor for i in (*x.load.index, *x.conditions))
            factor = max(factor, CROWDED if dear else WINDOWED)
    return factor


def _again(draft: Draft, v: Value) -> float:
    """How often each element of a value is computed: turns of loops over axes that it lacks."""
    within, turns = dict[str, int](), 1.0
    for loop in draft.paths.get(v.name, ()):
        before = within.get(loop.axis, draft.size[loop.axis])
        turns *= -(-before // loop.step) if loop.axis not in v.points else 1
        within[loop.axis] = loop.step
    return turns


def _apiece(draft: Draft, v: Value) -> float:
    """Cycles of an element: arithmetic in lanes, and one by one what lies apart along them, or
    what is turned in registers."""
    facts, tile = draft.facts, draft.tiles.get(v.name)
    lane = _lane(draft, v)
    steps = [(x.stride(lane), x.dtype) for x in facts.accesses(v) if lane in x.axes or not lane]
    beside = tile.size(tile.beside) if tile is not None else 1
    if v.store is not None:
        steps.append((facts.store_stride(v, lane) // beside if lane else 0, v.dtype))
    lanes = facts.lanes if lane else 1
    cycles = max(1.0, weight(v.body)) / lanes / draft.target.fma_ports + late(draft, v)
    for step, dtype in steps:
        if tile is not None and tile.across:
            cycles += FAR if draft.size[lane] % lanes else TURNED
        elif lane and abs(step) <= 1:
            cycles += 1 / lanes
        else:
            far = SCATTERED if abs(step) * dtype.bytes < draft.target.page else FAR
            cycles += far / beside
    return cycles


def _lane(draft: Draft, v: Value) -> str:
    return next((x.axis for x in draft.paths.get(v.name, ()) if x.kind == "vector"), "")


def late(draft: Draft, v: Value) -> float:
    """Cycles that an element waits for memory where its arrays are long and are walked a few
    elements here, a few on another page: two lines of each run come late."""
    facts, target, lane, run = draft.facts, draft.target, _lane(draft, v), 0
    others = [a for a in v.axes if a != lane]
    path = [loop for loop in draft.paths.get(v.name, ()) if not loop.constant]
    for loop, after in pairwise(path):
        run = loop.step if loop.axis == lane and after.axis != lane else run
    touched = [(x.name, x.dtype, x.stride) for x in facts.accesses(v) if x.load]
    if v.store is not None:
        touched.append((v.store.buffer, v.dtype, partial(facts.store_stride, v)))
    late = sum(
        facts.bytes(name) > target.l2 and stride(lane) == 1
        and any(abs(stride(a)) * dtype.bytes >= target.page for a in others)
        for name, dtype, stride in touched
    )  # fmt: skip
    return 2 * target.costs.cold * late / run if run else 0.0
