"""Domains as loop bounds: a serial loop visits only the part of its axis that contributes.

The bounds are taken over the whole tile on which the loop stands, rounded outwards to a step that
all loops over the axis share, so that a tile is written wherever it is read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from ..graph.index import Index
from ..graph.space import Space
from ..kernel.kernel import Guard, Value, walk
from .homes import Homes
from .indexing import Indexing, split_extrema
from .place import Place, lane_name
from .tree import Node, Tree

Bound = Index | None
LARGEST_EDGE = 16  # turns of a loop that are written out where conditions are open
LONGEST_EDGE = 512  # the same, with all turns of the loops inside that are written out for them
MOST_PARTS = 4  # loops that one is cut into


class Limits:
    """The bounds of loops over axes with a domain."""

    def __init__(self, tree: Tree, homes: Homes, indexing: Indexing) -> None:
        self.tree, self.homes, self.indexing = tree, homes, indexing
        self.space: Space = indexing.space
        self.domain = cache(self._domain)
        self.unit: dict[str, int] = {}
        for path in tree.paths.values():
            for node in path:
                if node.outermost and not node.loop.constant:
                    axis = node.loop.axis
                    self.unit[axis] = math.lcm(self.unit.get(axis, 1), node.loop.step)

    def _domain(self, node: Node) -> tuple[Bound, Bound]:
        """The bounds that all values below a loop agree on, and all who read their tiles."""
        if not all(self._followed(value, node) for value in node.leaves()):
            return None, None
        domains = (v.domain.get(node.loop.axis, (None, None)) for v in node.leaves())
        low, high = (ends[0] if len({*ends}) == 1 else None for ends in zip(*domains))
        return low, high

    def _followed(self, value: Value, node: Node) -> bool:
        """Whether those who read what this loop writes walk no more of the axis than it does."""
        axis, home = node.loop.axis, self.homes.by_name.get(value.name)
        if axis not in value.axes or home is None or home.depth >= node.depth:
            return True
        ends = value.domain.get(axis)
        for reader in self.tree.readers(value.name):
            loops = [n.loop for n in self.tree.paths[reader.name] if n.loop.axis == axis]
            if not loops or loops[0].kind != "serial" or reader.domain.get(axis) != ends:
                return False
        return True

    def start(self, node: Node, place: Place) -> Place | None:
        """The place at which the loop starts, with the span that it has to walk; None: all of
        it."""
        low, high = self.domain(node)
        if low is None and high is None:
            return None
        axis, around = node.loop.axis, self._outside(node) or place  # from where it is read
        least = None if low is None else self.extreme(low, around, False)
        most = None if high is None else self.extreme(high, around, True)
        return self._part(axis, place, least, most)

    def _part(self, axis: str, place: Place, least: Bound, most: Bound) -> Place | None:
        unit, span = self.unit[axis], place.span[axis]
        begin = Index.of(0)
        if least is not None:
            first = least.maximum(0).minimum(span)
            begin = self.indexing.opaque(self.space.floor(first, unit), 0) * unit
        end = span
        if most is not None:
            last = most.maximum(begin)
            end = (self.space.floor(last + (unit - 1), unit) * unit).minimum(span)
        if begin == 0 and end is span:
            return None
        return place.at(axis, begin, self._length(end - begin, unit, span))

    def _length(self, length: Index, unit: int, span: Index) -> Index:
        """The length, as a multiple of the unit where the axis is one."""
        length = length.maximum(0)
        if unit == 1 or not (span.is_constant and span.constant % unit == 0):
            return self.indexing.opaque(length, 0)
        return self.indexing.opaque(self.space.floor(length, unit), 0) * unit

    def inside(self, node: Node, place: Place, turns: int) -> tuple[range, frozenset[str]]:
        """The turns of a loop at which the conditions on its axis are proven for a whole tile, and
        their other axes; all turns and no axes if the rest is too much to write out."""
        axis, step, conditions = node.loop.axis, node.loop.step, _conditions(node)
        proven = [all(self._proven(c, place.at(axis, turn * step, step)) for c in conditions)
                  for turn in range(turns)]  # fmt: skip
        first = next((turn for turn in range(turns) if proven[turn]), turns)
        last = next((turn for turn in range(turns, first, -1) if proven[turn - 1]), first)
        axes = frozenset(a for c in conditions for a in c.names() if a in place.index) - {axis}
        edge = turns - (last - first)
        if edge > LARGEST_EDGE or edge * self._written(node, place, axes) > LONGEST_EDGE:
            return range(turns), frozenset()
        return range(first, last), axes

    def _written(self, node: Node, place: Place, axes: frozenset[str]) -> float:
        """How often what is inside a loop is written out where all loops over these axes are."""
        steps: dict[str, int] = {}
        for inner in node.inside():
            axis, step = inner.loop.axis, inner.loop.step
            if axis in axes:
                steps[axis] = min(step, steps.get(axis, step))
        spans = {axis: self.space.bounds(place.span[axis])[1] for axis in steps}
        return math.prod(n if math.isinf(n) else -(-n // steps[a]) for a, n in spans.items())

    def changes(self, node: Node, place: Place, turns: Index) -> list[int]:
        """The turns, but the first, at which a condition on the axis of a loop changes; none where
        other things decide it too, or where there would be too many loops."""
        axis, step, start = node.loop.axis, node.loop.step, place.index[node.loop.axis]
        if not (turns.is_constant and start.is_constant):
            return []
        found: set[int] = set()
        for condition in _conditions(node):
            for end in self.space.solve(condition, axis):  # it holds from here on, or up to here
                if end is not None and end.is_constant:
                    at = end.constant - start.constant
                    found |= {at // step, -(-at // step)}
        inner = sorted(turn for turn in found if 0 < turn < turns.constant)
        return inner if len(inner) < MOST_PARTS else []

    def _proven(self, condition: Index, place: Place) -> bool:
        least = self.extreme(condition, place, False)
        return least is not None and self.space.nonnegative(least)

    def _outside(self, node: Node) -> Place | None:
        """Where the home of a tile stands that this loop writes a part of."""
        for value in node.leaves():
            home = self.homes.by_name.get(value.name)
            if home is None or home.registers or home.place is None:
                continue
            if node.loop.axis in value.axes and home.depth < node.depth:
                return home.place
        return None

    def extreme(self, index: Index, place: Place, upper: bool) -> Bound:
        """The smallest or largest value of an index over a tile; None where it is not known."""
        ends = dict[str, Index]()
        for axis in index.names() & place.index.keys():
            rises = self.space.rises(index, axis)
            if rises is None and not self._single(axis, place):
                return None
            ends[axis] = self._end(axis, place, rises == upper)
        return self.space.substitute(index, ends)

    def _end(self, axis: str, place: Place, upper: bool) -> Index:
        """The first or last index of an axis in a tile, over lanes too."""
        index = place.scalar(axis)
        if not upper:
            return index
        lanes = next((size for name, size in place.lanes if name == axis), 1)
        return index + place.span[axis] - 1 + (lanes - 1)

    def facts(self, node: Node, place: Place) -> Place:
        """The place knowing its domain, where single steps follow it exactly."""
        axis = node.loop.axis
        low, high = self.domain(node)
        if self.unit[axis] != 1 or place.span[axis] != 1 or self._outside(node) is not None:
            return place
        facts: list[Index] = []
        here = place.index[axis]
        if low is not None and self._at_one(low, place):
            facts += [here - self.indexing.at(p, place) for p in split_extrema(low, "max")]
        if high is not None and self._at_one(high, place):
            facts += [self.indexing.at(p, place) - 1 - here for p in split_extrema(high, "min")]
        return replace(place, facts=(*place.facts, *facts)) if facts else place

    def _at_one(self, index: Index, place: Place) -> bool:
        """All axes of an index have one position there."""
        return all(self._single(a, place) for a in index.names() if a in place.index)

    def _single(self, axis: str, place: Place) -> bool:
        """An axis has."""
        lanes = {lane_name(a, n) for a, n in place.lanes}
        return place.span[axis] == 1 and place.index[axis].names().isdisjoint(lanes)


def _conditions(node: Node) -> set[Index]:
    """The conditions below a loop that look at its axis."""
    axis, values = node.loop.axis, node.leaves()
    guards = (e for value in values for body in value.expressions() for e in walk(body)
              if isinstance(e, Guard))  # fmt: skip
    return {c for guard in guards for c in guard.conditions if axis in c.names()}

