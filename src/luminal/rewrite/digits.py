"""What a view does, in digits: the positions of its result cut where its index map divides them.

A source dimension whose index is exactly a mixed-radix number of digits is *structural*: permuting,
splitting, merging, repeating are then renamings of axes, and only the rest needs an index map.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import pairwise
from typing import TypeAlias

from ..graph.index import Index, names_of
from ..graph.node import Shape, View, position
from ..graph.space import Space
from .axes import quotient

ONE = Index.of(1)
Cuts: TypeAlias = dict[int, list[Index]]  # position -> strides at which it is cut, minor first


@dataclass(frozen=True)
class DigitView:
    """positions[p]: (name, extent) of the digits of position p, major first. index[d]: of source
    dimension d over digits. order[d]: the digits that dimension d is, major first, if it is
    structural. needed: digits that indices or conditions mention."""

    positions: tuple[tuple[tuple[str, Index], ...], ...]
    index: tuple[Index, ...]
    order: tuple[tuple[str, ...] | None, ...]
    conditions: tuple[Index, ...]
    needed: frozenset[str]


def analyse(view: View, shape: Shape, carried: tuple[bool, ...], sizes: Space) -> DigitView:
    """The view of a source of this shape; `carried[d]`: the source depends on dimension d."""
    axes = {position(p): size for p, size in enumerate(view.shape) if size != 1}
    space = Space(sizes.sizes, axes)
    used = [index for index, here in zip(view.index, carried) if here]
    cuts = {p: _cuts(p, size, used) for p, size in enumerate(view.shape) if size != 1}
    found = _in_digits(view, shape, carried, space, cuts)
    structural = {name for order in found.order if order for name in order}
    useless = [
        p for p, digits in enumerate(found.positions)
        if len(digits) > 1 and not any(name in structural for name, _ in digits)
    ]  # fmt: skip
    if useless:
        kept = {p: cut for p, cut in cuts.items() if p not in useless}
        found = _in_digits(view, shape, carried, space, kept)
    return found


def _in_digits(
    view: View, shape: Shape, carried: tuple[bool, ...], space: Space, cuts: Cuts
) -> DigitView:
    positions, mapping, inner = [], {}, Space(space.sizes)
    for p, size in enumerate(view.shape):
        digits = [] if size == 1 else _digits(p, size, cuts.get(p, []))
        flat = Index.of(0)
        for name, extent in digits:
            inner.add_axis(name, extent)
            flat = flat * extent + name
        positions.append(tuple(digits))
        mapping[position(p)] = flat
    index = tuple(
        inner.simplify(inner.substitute(i, mapping)) if here else Index.of(0)
        for i, here in zip(view.index, carried)
    )
    conditions = tuple(inner.simplify(inner.substitute(c, mapping)) for c in view.conditions)
    order = _orders(index, shape, carried, inner)
    names = names_of((*index, *conditions))
    return DigitView(tuple(positions), index, order, conditions, names & inner.axes.keys())


def _digits(p: int, size: Index, strides: list[Index]) -> list[tuple[str, Index]]:
    """Digits of a position, major first; strides are minor first."""
    bounds = [ONE, *strides, size]
    digits = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        extent = quotient(high, low)
        assert extent is not None
        digits.append((f"{position(p)}_{number}", extent))
    return digits[::-1]


def _orders(
    index: tuple[Index, ...], shape: Shape, carried: tuple[bool, ...], space: Space
) -> tuple[tuple[str, ...] | None, ...]:
    taken: set[str] = set()
    orders: list[tuple[str, ...] | None] = []
    for i, size, here in zip(index, shape, carried):
        order = mixed_radix(i, size, space) if here else None
        if order is not None and taken.intersection(order):
            order = None
        taken.update(order or ())
        orders.append(order)
    return tuple(orders)


def mixed_radix(index: Index, size: Index, space: Space) -> tuple[str, ...] | None:
    """The axes of which the index is exactly the row-major number below `size`, major first."""
    axes = {index.slope(a): a for a in sorted(space.depends(index))}  # by their strides
    if sum((stride * a for stride, a in axes.items() if stride), Index.of(0)) is not index:
        return None
    order: list[str] = []
    expected: Index = ONE
    while expected in axes:
        order.append(axes.pop(expected))
        expected = expected * space.axes[order[-1]]
    return tuple(reversed(order)) if expected is size and not axes else None


# ---- where positions are cut


def _cuts(p: int, size: Index, indices: list[Index]) -> list[Index]:
    """The divisors of position p in floors, minor first, if they form a chain that divides it."""
    found: dict[Index, None] = {}
    for index in indices:
        if position(p) in index.names():
            found.update(dict.fromkeys(_divisors(position(p), index)))
    found.pop(ONE, None)
    found.pop(size, None)
    chain = sorted(found, key=cmp_to_key(_by_division))
    links = [ONE, *chain, size]
    if any(quotient(high, low) is None for low, high in pairwise(links)):
        return []
    return chain


def _by_division(a: Index, b: Index) -> int:
    if quotient(b, a) is not None:
        return -1
    return 1 if quotient(a, b) is not None else (-1 if str(a) < str(b) else 1)


def _divisors(name: str, index: Index) -> Iterable[Index]:
    for atom in index.floors:
        yield from _divisors(name, atom.first)
        stride = atom.first.slope(name)
        along = stride is not None and all(c > 0 for _, c in stride.terms)
        cut = quotient(atom.second, stride) if stride and along else None
        if cut is not None:
            yield cut
