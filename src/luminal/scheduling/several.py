"""Several kernels in the place of one, where together they are estimated to take clearly less time:

    operands that all units of work would lay out again are made before (`once`)
    rows and columns of an image are one axis, and fill matrices (`images_as_rows`)
    a sum, and behind it what reads it: few rows leave the threads of a GPU without work; loops
    would do a product again, or walk long arrays in the steps of its tiles

The cheapest way is taken, and each of its kernels is looked at again. One estimate prices them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, prod

from ..errors import Illegal
from ..kernel.kernel import Apply, Buffer, Expression, Guard, Kernel, Load, Read, Value, walk
from ..kernel.merge import images_as_rows
from ..kernel.schedule import Layout
from ..kernel.target import Target
from ..kernel.work import extents_at, usual_sizes, work
from . import instructions
from .default import drawn
from .divide import apart
from .draft import Draft
from .estimate import again, estimate, late
from .facts import Facts, worked_out
from .keep import kept_bytes
from .laid_out import laid_out, makers_apart
from .once import movable, operands_before

GAIN = 0.96  # of the time of one kernel, at most
RUNNING, FAR = 0.9, 0.85  # the same where estimates are farther off: of running sums, on GPUs
LEAST_LAUNCHES = 3  # that a kernel takes as long as, before others in its place are looked at
LEAST_POINTS = 1 << 18  # of a product: below, it is not even looked at
STEPS = 32  # in which what they find alike is laid out once
FAST = 2.0  # times the rate of memory: what was just written is partly still in a cache


def several(kernel: Kernel, target: Target) -> list[Kernel]:
    """The kernels that take the place of a prepared one, in order. Operands that are made before
    are constants to their reader: of a free layout."""
    products = [v for v in kernel.values if movable(kernel, v)]
    if not any(_large(kernel, v, target) for v in products) and target.group == 1:
        return [kernel]
    try:
        draft = drawn(kernel, target)
    except Illegal:
        return [kernel]
    whole = _taken(draft)
    if whole < LEAST_LAUNCHES * target.launch:
        return [kernel]
    gain = RUNNING if draft.found.streams else GAIN
    least = (FAR if target.group > 1 else gain) * whole
    best: Sequence[Kernel] = ()
    seen: list[Sequence[Kernel]] = []
    for parts in _ways(kernel, draft, products):
        seconds = inf if parts in seen else _seconds(parts, target, least)
        seen.append(parts)
        if seconds < least:
            least, best = seconds, parts
    return [each for part in best for each in several(part, target)] or [kernel]


def _large(kernel: Kernel, value: Value, target: Target) -> bool:
    sizes = extents_at(kernel, usual_sizes(kernel, target.hint))
    return prod(sizes[a] for a in value.points) >= LEAST_POINTS


# ---- what they take


def _seconds(parts: Sequence[Kernel], target: Target, most: float) -> float:
    """Of kernels one after the other, operands in their readers' layouts; infinitely many where one
    has no schedule, or memory alone takes so many. What is made of what all steps of a loop find is
    made before the loop."""
    makers, readers = makers_apart(parts)
    always = [*readers, *(maker for maker in makers if not _steady(maker))]
    if sum(_of_memory(each, target) for each in always) >= most:
        return inf
    layouts = dict[Buffer, Layout]()
    try:
        drafts = [drawn(reader, target) for reader in readers]
        for reader, draft in zip(readers, drafts if makers else []):
            chosen = draft.finish()[1].layouts
            layouts |= {b: chosen.get(b.name, ()) for b in reader.buffers}
        made = [(drawn(e, target), once) for maker in makers for once in [_steady(maker)]
                for e in laid_out(maker, layouts)]  # fmt: skip
    except Illegal:
        return inf
    before = sum(_taken(draft) / (STEPS if once else 1) for draft, once in made)
    return before + sum(map(_taken, drafts))


def _steady(maker: Kernel) -> bool:
    """All that it reads is alike in the steps of a loop."""
    return all(b.steady for b in maker.buffers if b.name not in maker.outputs)


def _taken(draft: Draft) -> float:
    target, kernel = draft.target, draft.facts.kernel
    if target.group > 1 and kept_bytes(draft) > target.shared:
        return inf
    return max(target.launch + estimate(draft), _of_memory(kernel, target))


def _of_memory(kernel: Kernel, target: Target) -> float:
    return target.launch + work(kernel).bytes / (FAST * target.bandwidth)


# ---- ways


def _ways(kernel: Kernel, draft: Draft, products: Sequence[Value]) -> Iterator[Sequence[Kernel]]:
    threads, tile = draft.target.group > 1, draft.found.tile
    across = tile and tile.reduced and not (tile.rows or draft.found.streams)
    made = across or (draft.operands and not threads)  # lanes along a sum; units make them
    alone = threads or draft.found.streams
    facts = Facts(kernel, draft.target)  # the draft may lack what factors read
    whole = max((i.rows for i in draft.target.instructions if i.registers), default=1)
    for value in (facts.by_name[v.name] for v in products):
        lies = _pairs(draft, value)
        together = [] if alone else instructions.unpaired(facts, value, lies)
        taken = value.factors if threads else instructions.multiplied(facts, value)
        rows_apart = not threads and bool(instructions.matrices(facts, value))
        dear = any(_dear(facts, *both, rows_apart) for both in zip(value.factors, taken))
        if made or together or dear:
            rows = () if threads else value.axes
            yield from operands_before(facts.kernel, value, taken, together, rows, whole)
    pairs = (instructions.pair(draft.facts, v) for v in draft.found.group)
    if threads and any(each and each[0].rows > 1 for each in pairs):
        merged = images_as_rows(kernel)
        yield from [[merged]] * (merged.axes != kernel.axes)
    if threads or _walked_badly(draft):
        yield from _behind_sums(kernel)


def _pairs(draft: Draft, value: Value) -> bool:
    """The draft may multiply pairs as they lie: it neither packs them, nor takes numbers as they
    were before they were rounded."""
    drafted = draft.facts.by_name[value.name]
    paired = draft.operands or instructions.pair(draft.facts, drafted)
    return bool(paired and not draft.facts.packed)


def _dear(facts: Facts, side: Expression, taken: Expression, rows: bool) -> bool:
    """It is worked out for each element of a window what it is, or it is widened there. rows: or
    whether it is padding, where rows of matrices are loaded as they lie."""
    loads = (e for e in walk(side) if isinstance(e, Load))
    windows = any(len(i.names()) > 1 for e in loads for i in e.index)
    cast, padded = isinstance(taken, Apply) and taken.op == "cast", isinstance(taken, Guard)
    return worked_out(facts, side) or (windows and (cast or (rows and padded)))


def _walked_badly(draft: Draft) -> bool:
    """A product's loops walk over axes that it lacks, or arrays beside it a few lines at a time."""
    target, values = draft.target, draft.found.values
    beside = [v for v in values if v not in draft.found.group]
    cold = sum(late(draft, v) * draft.facts.points(v) for v in beside)
    waits = cold / target.clock / target.threads > (1 - GAIN) * estimate(draft)
    return waits or any(v.factors and again(draft, v) > 1 for v in values)


def _behind_sums(kernel: Kernel) -> Iterator[tuple[Kernel, Kernel]]:
    """A sum with what it needs, and the others: these make again what is made of each element. A
    stream stays whole."""
    for v in kernel.values if not any(v.beside for v in kernel.values) else ():
        first = kernel.needed({v.name})
        rest = [u for u in kernel.values if u not in first and (u.store or u.reduction)]
        if v.reduction is None or any(u.scans for u in first) or not any(u.store for u in rest):
            continue
        if not any(u.reduction or not isinstance(u.body, Read) for u in rest):
            continue  # it only stores what the first has
        sums = [u for u in first if u.reduction]
        rest = kernel.needed({u.name for u in rest}, without=sums)
        read = {name for u in rest for name in u.reads()}
        yield apart(kernel, first, rest, [u for u in sums if u.name in read], direct=True)
