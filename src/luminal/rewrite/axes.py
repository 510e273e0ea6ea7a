"""Axes while they are being found: equal axes are merged, an axis may be cut into several.

An axis is a number here (it gets its name once all are known). A dimension of a value is a
*composite*: the axes whose mixed-radix number, major first, is the position along it. None stands
for a dimension that the value does not depend on (broadcast, or of size 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

from ..graph.index import Index
from ..graph.order import post_order

Composite: TypeAlias = tuple[int, ...]
Dims: TypeAlias = tuple[Composite | None, ...]


@lru_cache(maxsize=1 << 16)
def quotient(size: Index, part: Index) -> Index | None:
    """size / part, where that is exact for all values of the variables; else None."""
    if part == 0:
        return None
    whole = size // part
    return whole if whole * part is size else None


class Axes:
    """Union-find over axes that can also refine an axis into a major and a minor one.

    `apart[a]`: axes that occur beside `a` in one value: they must never become the same.
    """

    def __init__(self) -> None:
        self.extents: list[Index] = []
        self.apart: list[set[int]] = []
        self._replaced: dict[int, Composite] = {}  # a replaced axis -> what stands for it

    def fresh(self, extent: Index) -> Composite:
        """A new axis; none for a size of 1."""
        if extent == 1:
            return ()
        self.extents.append(extent)
        self.apart.append(set())
        return (len(self.extents) - 1,)

    def fresh_like(self, composite: Composite) -> Composite:
        """New axes with the extents of these."""
        return tuple(new for a in composite for new in self.fresh(self.extents[a]))

    def resolve(self, composite: Composite) -> Composite:
        """The axes that stand for these now."""
        replaced = self._replaced
        for axis in composite:
            if axis in replaced:
                return tuple(b for a in composite for b in self._find(a))
        return composite

    def resolve_dims(self, dims: Dims) -> Dims:
        return tuple([c if c is None else self.resolve(c) for c in dims])

    def _find(self, axis: int) -> Composite:
        replaced = self._replaced
        below = replaced.get(axis)
        if below is None:
            return (axis,)
        if not replaced.keys().isdisjoint(below):
            for a in post_order([axis], lambda a: replaced.get(a, ())):
                if a in replaced:
                    replaced[a] = tuple(c for b in replaced[a] for c in replaced.get(b, (b,)))
        return replaced[axis]

    def separate(self, axes: Iterable[int]) -> None:
        """These (current) axes occur in one value."""
        together = set(axes)
        for axis in together:
            self.apart[axis] |= together
            self.apart[axis].discard(axis)

    def split(self, composite: Composite, parts: Sequence[Index]) -> list[Composite] | None:
        """Consecutive pieces with these sizes, refining axes; None where it does not factor."""
        rest, pieces = self.resolve(composite), list[Composite]()
        for need in parts:
            piece: Composite = ()
            while need != 1:
                if not rest:
                    return None
                extent = self.extents[rest[0]]
                left = quotient(need, extent)
                if left is not None:
                    piece, rest, need = (*piece, rest[0]), rest[1:], left
                elif quotient(extent, need) is not None:
                    self._refine(rest[0], need)
                    rest = self.resolve(rest)
                else:
                    return None
            pieces.append(piece)
        return pieces if not rest else None

    def unify(self, first: Composite, second: Composite) -> bool:
        """Make two composites of equal size the same; False where they must stay apart."""
        a, b = self.resolve(first), self.resolve(second)
        while a and b:
            m, n = self.extents[a[0]], self.extents[b[0]]
            if a[0] == b[0] or (m is n and self._merge(a[0], b[0])):
                a, b = a[1:], b[1:]
            elif m is n:
                return False
            elif quotient(n, m) is not None:
                self._refine(b[0], m)
            elif quotient(m, n) is not None:
                self._refine(a[0], n)
            else:
                return False
            a, b = self.resolve(a), self.resolve(b)
        return not a and not b

    def _merge(self, kept: int, gone: int) -> bool:
        apart = self.apart
        if gone in apart[kept]:
            return False
        for other in apart[gone]:
            apart[other].discard(gone)
            apart[other].add(kept)
        apart[kept] |= apart[gone]
        self._replaced[gone] = (kept,)
        return True

    def _refine(self, axis: int, major: Index) -> None:
        """Cut an axis into (major, minor)."""
        minor = quotient(self.extents[axis], major)
        assert minor is not None
        parts = self.fresh(major) + self.fresh(minor)
        for other in self.apart[axis]:
            self.apart[other].discard(axis)
            self.apart[other].update(parts)
        for part in parts:
            self.apart[part] |= self.apart[axis] | (set(parts) - {part})
        self._replaced[axis] = parts
