"""Index maps of reads: where they are defined, one behind another, whether they repeat elements.

Maps are partial functions: a composed map keeps the conditions under which the buffer in between
was read inside its bounds.
"""

from __future__ import annotations

from ..graph.index import Index, is_floor
from ..graph.space import Space
from .terms import SLOT, Domain, Map

NOWHERE: Domain = (Index.of(-1),)  # where a read is never defined


def within(space: Space, found: Map) -> list[Index]:
    """The conditions under which every entry stays inside its axis (a slot is clamped)."""
    conditions = []
    for axis, index in found.entries:
        if SLOT not in index.names():
            conditions += [index, space.axes[axis] - 1 - index]
    return conditions


def conditions_of(space: Space, found: Map) -> Domain | None:
    """Where a read through the map is defined: what is not proven; None: nowhere."""
    return space.domain([*found.conditions, *within(space, found)])


def compose(space: Space, inner: Map, outer: Map) -> Map:
    """The map of a buffer behind a buffer; it keeps where the buffer in between was defined."""
    through = dict(outer.entries)
    entries = tuple((a, space.substitute(i, through)) for a, i in inner.entries)
    between = [space.substitute(c, through) for c in inner.conditions]
    between += [*outer.conditions, *within(space, outer)]
    open_conditions = space.domain(between)
    if open_conditions is None:
        return Map(entries, NOWHERE)
    implied = set(within(space, Map(entries)))
    return Map(entries, tuple(c for c in open_conditions if c not in implied))


def injective(mapping: Map, space: Space) -> bool:
    """Proven: a read takes no element twice (but where it does not depend on an axis at all)."""
    determined: set[str] = set()
    mentioned: set[str] = set()
    for _, index in mapping.entries:
        mentioned |= space.depends(index)
        determined |= _determined(index, space)
    return mentioned <= determined


def _determined(index: Index, space: Space) -> frozenset[str]:
    """The axes of an index, if its value tells their positions: a mixed-radix number with gaps."""
    axes = space.depends(index)
    plain = Index.build({m: c for m, c in index.terms if not any(map(is_floor, m))})
    if plain is not index and len(axes) != 1:
        return frozenset()
    if any(len([a for a in m if a in axes]) > 1 for m, _ in plain.terms):
        return frozenset()
    strides = sorted((abs(plain.coefficient(a)), a) for a in axes)
    reach = Index.of(0)
    for stride, axis in strides:
        if stride == 0 or not space.nonnegative(Index.of(stride) - reach - 1):
            return frozenset()
        reach = reach + (space.axes[axis] - 1) * stride
    if plain is not index and not _wraps_once(index - plain, reach, space):
        return frozenset()
    return axes


def _wraps_once(wrapped: Index, reach: Index, space: Space) -> bool:
    """x - n floor(x / n) is a rotation: it repeats nothing while x walks less than n."""
    for monomial, coefficient in wrapped.terms:
        divisors = [a.second for a in monomial if is_floor(a)]
        rest = tuple(a for a in monomial if not is_floor(a))
        if len(divisors) != 1 or Index.build({rest: -coefficient}) is not divisors[0]:
            return False
        if not space.nonnegative(divisors[0] - reach - 1):
            return False
    return len(wrapped.terms) == 1
