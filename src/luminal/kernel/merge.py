"""Fewer axes: axes of one position are dropped, axes that all accesses walk together become one.

Rows and columns of an image under a 1x1 convolution, batch and sequence of a linear layer: the
graph splits them, only the kernel knows that everything walks them side by side. Buffers keep their
bytes in row-major order; they lose dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from ..graph.index import Index
from ..graph.space import Space
from .kernel import (
    Buffer,
    Expression,
    Guard,
    Kernel,
    Load,
    Position,
    Read,
    Rewriter,
    Store,
    Value,
)

A = TypeVar("A", Load, Store)
OnIndex = Callable[[Index], Index]
OnAccess = Callable[[str, tuple[Index, ...]], tuple[Index, ...]]


def merge_axes(kernel: Kernel) -> Kernel:
    """Drop axes and dimensions of extent 1, join dimensions that are digits of one position, then
    merge pairs of axes until none fits."""
    kernel = _without_digits(_squeeze(kernel))
    tried: set[tuple[str, str]] = set()
    while True:
        pair = next((p for p in _pairs(kernel) if p not in tried), None)
        if pair is None:
            return kernel
        tried.add(pair)
        merged = _merge(kernel, *pair)
        if merged is not None:
            kernel, tried = merged, set()


# ---- rewriting every index of a kernel


def rewrite(
    kernel: Kernel, index: OnIndex, access: OnAccess, buffers: Mapping[str, str] = {},
    read: Callable[[Read], Read] = lambda e: e,
) -> Kernel:  # fmt: skip
    """The kernel with other indices in all its accesses, positions and conditions; where it names
    other buffers and values too, only in its values."""

    def moved(e: A) -> A:
        at = access(e.buffer, e.index)
        return replace(e, buffer=buffers.get(e.buffer, e.buffer), index=at)

    def value(v: Value) -> Value:
        s, r, domain = v.store and moved(v.store), v.reduction, v.domain.items()
        if r is not None and r.rescale is not None:
            r = replace(r, rescale=read(r.rescale))
        ends = {a: (low and index(low), high and index(high)) for a, (low, high) in domain}
        return replace(v, store=s, reduction=r, domain=ends)

    rewriter = reindexed(index, moved, read)
    return replace(kernel, values=tuple(value(rewriter.value(v)) for v in kernel.values))


def substituted(kernel: Kernel, places: Mapping[str, Index]) -> Kernel:
    """The kernel with indices in the place of axes, in all that its values look at."""

    def moved(i: Index) -> Index:
        return i.substitute(places)

    return rewrite(kernel, moved, lambda _, at: tuple(map(moved, at)))


def renamed(v: Value, axes: Mapping[str, str], lost: Collection[str] = ()) -> Value:
    """The value over axes of other names, and without those that are lost."""

    def of(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(axes.get(a, a) for a in names if a not in lost)

    reduction, store = v.reduction, v.store
    if reduction is not None:
        reduction = replace(reduction, over=of(reduction.over))
    if store is not None:
        store = replace(store, ordered=of(store.ordered))
    domain = {name: v.domain[a] for a in v.domain for name in of([a])}
    return replace(v, axes=of(v.axes), reduction=reduction, store=store, domain=domain)


def reindexed(
    index: OnIndex, load: Callable[[Load], Load], read: Callable[[Read], Read] = lambda e: e
) -> Rewriter:
    """Changes the indices of positions and conditions, loads, and reads of values."""

    def change(e: Expression) -> Expression:
        if isinstance(e, Load):
            return load(e)
        if isinstance(e, Read):
            return read(e)
        if isinstance(e, Position):
            return replace(e, index=index(e.index))
        if isinstance(e, Guard):
            return replace(e, conditions=tuple(map(index, e.conditions)))
        return e

    return Rewriter(change)


def _accesses(kernel: Kernel) -> Iterator[Load | Store]:
    for v in kernel.values:
        yield from v.loads
        if v.store is not None:
            yield v.store


# ---- axes and dimensions of one position


def _squeeze(kernel: Kernel) -> Kernel:
    single = {a for a, n in kernel.axes.items() if n == 1}
    for v in kernel.values:
        single -= v.serial
        if v.reduction and (v.rescale or set(v.over) <= single):
            single -= set(v.over)
    zero = {a: Index.of(0) for a in single}
    flat = {b.name: _single_dims(kernel, b) for b in kernel.buffers}

    def index(i: Index) -> Index:
        return i.substitute(zero)

    def access(name: str, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(index(i) for d, i in enumerate(indices) if d not in flat[name])

    kernel = rewrite(kernel, index, access)
    buffers = tuple(
        replace(b, shape=tuple(n for d, n in enumerate(b.shape) if d not in flat[b.name]))
        for b in kernel.buffers
    )
    values = tuple(renamed(v, {}, single) for v in kernel.values)
    axes = {a: n for a, n in kernel.axes.items() if a not in single}
    return replace(kernel, buffers=buffers, values=values, axes=axes)


def _single_dims(kernel: Kernel, buffer: Buffer) -> set[int]:
    """Dimensions of extent 1 at which no data-dependent slot is clamped or skipped."""
    dims = {d for d, n in enumerate(buffer.shape) if n == 1}
    for e in _accesses(kernel):
        if e.buffer == buffer.name:
            slots = {name for name, _ in e.slots}
            dims -= {d for d in dims if slots & e.index[d].names()}
    return dims


# ---- dimensions that are digits of one position


def _without_digits(kernel: Kernel) -> Kernel:
    """Neighbouring dimensions become one where that takes floors out of an index: an image that
    was upsampled lies as (row / 2, row mod 2), and a window walks its rows."""
    for name in [b.name for b in kernel.buffers if b.layout is None and not b.constant]:
        at = 0
        while at + 1 < len(kernel.buffer(name).shape):
            found = [e for e in _accesses(kernel) if e.buffer == name]
            if _simpler(found, at, kernel.buffer(name).shape[at + 1]):
                kernel = _join(kernel, {name: at}, lambda i: i)
            else:
                at += 1
    return kernel


def _simpler(accesses: list[Load | Store], at: int, count: Index) -> bool:
    """The two dimensions have fewer floors as one, and data say nothing of where in them."""
    slots = {name for e in accesses for name, _ in e.slots}
    if any(slots & (e.index[at].names() | e.index[at + 1].names()) for e in accesses):
        return False
    apart = [{*e.index[at].floors, *e.index[at + 1].floors} for e in accesses]
    joined = [set((e.index[at] * count + e.index[at + 1]).floors) for e in accesses]
    return joined != apart and all(a <= b for a, b in zip(joined, apart))


def _join(kernel: Kernel, places: Mapping[str, int], index: OnIndex) -> Kernel:
    """The kernel with other indices, and of some buffers two neighbouring dimensions as one.
    places: the first of these."""
    shapes = {b.name: b.shape for b in kernel.buffers}

    def access(name: str, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        at = places.get(name)
        if at is not None:
            one = indices[at] * shapes[name][at + 1] + indices[at + 1]
            indices = (*indices[:at], one, *indices[at + 2 :])
        return tuple(map(index, indices))

    merged = rewrite(kernel, index, access)
    for name, at in places.items():
        shape = shapes[name]
        shapes[name] = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    buffers = tuple(replace(b, shape=shapes[b.name]) for b in kernel.buffers)
    return replace(merged, buffers=buffers)


# ---- pairs


def _pairs(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """Neighbouring axes that every value keeps, reduces or lacks together."""
    seen = dict.fromkeys(
        pair for v in kernel.values for axes in (v.axes, v.over) for pair in pairwise(axes)
    )
    for a, b in seen:
        together = all(_together(v.axes, a, b) and _together(v.over, a, b) for v in kernel.values)
        if together and not any({a, b} & {*v.domain, *v.serial} for v in kernel.values):
            yield a, b


def _together(axes: tuple[str, ...], a: str, b: str) -> bool:
    return (a, b) in pairwise(axes) or {a, b}.isdisjoint(axes)


def _merge(kernel: Kernel, a: str, b: str) -> Kernel | None:
    """One axis a in place of (a, b), if every index depends on a * extent(b) + b alone."""
    above = f"{a}~"
    merged = _as_one(kernel, a, b, Index.of(above))
    return None if any(above in i.names() for v in merged.values for i in v.indices) else merged


def _as_one(kernel: Kernel, a: str, b: str, above: Index) -> Kernel:
    """One axis a in place of (a, b). above: what was a; b is the rest."""
    count = kernel.axes[b]
    digits = {a: above, b: Index.of(a) - above * count}
    merged = _join(kernel, _joined(kernel, a, b), lambda i: i.substitute(digits))
    values = tuple(renamed(v, {}, {b}) for v in merged.values)
    axes = {x: n * count if x == a else n for x, n in kernel.axes.items() if x != b}
    return replace(merged, values=values, axes=axes)


def _joined(kernel: Kernel, a: str, b: str) -> Mapping[str, int]:
    """buffer -> first of two neighbouring dimensions that are walked by a and by b."""
    found: dict[str, int] = {}
    for e in _accesses(kernel):
        for d, (first, second) in enumerate(pairwise(e.index)):
            if a in first.names() and b in second.names():
                found[e.buffer] = d
    slotted = {e.buffer for e in _accesses(kernel) if e.slots}
    return {name: d for name, d in found.items() if name not in slotted}


# ---- positions of an image


def images_as_rows(kernel: Kernel) -> Kernel:
    """Kept axes side by side that only one factor of each product has, such as rows and columns of
    an image, as one axis: what does not walk them together is found by digits of its positions."""
    if any(v.beside or v.scans for v in kernel.values):
        return kernel
    kernel = replace(kernel, values=tuple(replace(v, domain={}) for v in kernel.values))
    while True:
        pair = next((p for p in _pairs(kernel) if _of_one_factor(kernel, *p)), None)
        if pair is None:
            return _without_digits(kernel)
        a, b = pair
        count = kernel.axes[b]
        whole = Space(kernel.sizes, {a: kernel.axes[a] * count})
        kernel = _as_one(kernel, a, b, whole.floor(Index.of(a), count))


def _of_one_factor(kernel: Kernel, a: str, b: str) -> bool:
    products = [v for v in kernel.values if v.factors]
    named = [[{a, b} & kernel.axes_of(side) for side in v.factors] for v in products]
    apart = all(sorted(map(len, sides)) == [0, 2] for sides in named)
    kept = all({a, b} <= {*v.axes} for v in products)
    return bool(products) and apart and kept and kernel.axes[b].is_constant
