"""From terms to the e-graph: axes become bits, maps, domains and indices become numbers.

Index arithmetic stays in Python: a rule that needs a composed map calls for it. Maps are partial
functions: a composed map keeps the conditions under which the buffer in between was read inside its
bounds, so that two reads that differ in where they are defined stay different classes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from ..errors import CompileError
from ..graph.dtype import ALL, DType
from ..graph.index import Index
from ..graph.scalars import SCALARS
from ..graph.space import Space
from .engine import Inserted
from .language import OPAQUE, OPERATIONS, VISIBLE
from .maps import NOWHERE, compose, conditions_of, injective
from .normal import axis_key
from .terms import Domain, Map, Region, ScatterMap, Term, is_reduction, mentioned

DTYPE_CODE = {d: i for i, d in enumerate(ALL)}
MAX_AXES = 62  # bits of a mask


Interned = Map | ScatterMap | Domain | Term  # a term: an operation without its operands


class Encoding:
    """One region's names as numbers, and the arithmetic that rules call."""

    def __init__(self, region: Region) -> None:
        self.space: Space = region.terms.space
        self.axes = tuple(sorted(self.space.axes, key=axis_key))
        if len(self.axes) > MAX_AXES:
            raise CompileError(f"a region has {len(self.axes)} axes, more than {MAX_AXES}")
        self.bit = {name: i for i, name in enumerate(self.axes)}
        self.items: list[Any] = []  # by number
        self.numbers: dict[Hashable, int] = {}

    # ---- sets of axes

    def mask(self, names: Iterable[str]) -> int:
        """The bits of these axes (names that are no axes of the region are sizes or the slot)."""
        return sum(1 << place for place in {self.bit[n] for n in names if n in self.bit})

    def names(self, mask: int) -> tuple[str, ...]:
        """The axes of a mask, in the region's order."""
        return tuple(name for i, name in enumerate(self.axes) if mask >> i & 1)

    # ---- interning

    def number(self, kind: str, item: Interned) -> int:
        """The number of a map, domain, index ..."""
        found = self.numbers.setdefault((kind, item), len(self.items))
        if found == len(self.items):
            self.items.append(item)
        return found

    # ---- terms

    def encoded(self, term: Term) -> Inserted:
        """A term as an e-node; its operands by their positions."""
        op, known = self._operation(term)
        literals, children = iter(known), iter(term.children)
        return op, tuple(next(children if k == "E" else literals) for k in OPERATIONS[op])

    def _operation(self, term: Term) -> tuple[str, tuple[int | float, ...]]:
        """The operation of the e-graph that a term becomes, and its literals."""
        name, attribute, dtype = term.op.capitalize(), term.attribute, term.dtype
        if term.op == "const":
            return self._constant(attribute, dtype)
        if is_reduction(term):
            mask = self.mask(attribute)
            plain = term.op in ("sum", "max")
            fold = replace(term, attribute=None)
            return (name, (mask,)) if plain else ("Fold", (self._head(fold), mask))
        if term.op in VISIBLE and dtype.is_float:
            return VISIBLE[term.op], ()
        if term.op in SCALARS:
            return OPAQUE[len(term.children)], (self._head(term),)
        if term.op == "guard":
            return name, (self.number("domain", attribute),)
        if isinstance(attribute, Map | ScatterMap):
            return name, (self.number("map", attribute),)
        return name, (self._head(term),)

    def _constant(self, value: Any, dtype: DType) -> tuple[str, tuple[int | float, ...]]:
        negative_zero = value == 0 and math.copysign(1.0, value) < 0
        if dtype.is_float and math.isfinite(value) and not negative_zero:
            return "Const", (DTYPE_CODE[dtype], float(value))
        return "Literal", (self._head(Term("const", (), value, dtype)),)

    def _head(self, term: Term) -> int:
        """The number of an operation, without its operands."""
        kind = repr(term.attribute) if term.op == "const" else "head"  # 0.0 and -0.0 differ
        return self.number(kind, replace(term, children=()))

    # ---- what rules call: see `language.FUNCTIONS`

    def compose(self, inner: int, outer: int) -> int:
        """Reading a buffer through `inner`, and the result of that, in memory, through `outer`."""
        return self.number("map", compose(self.space, self.items[inner], self.items[outer]))

    def restrict(self, number: int, mask: int) -> int:
        found = self.items[number]
        if mask & ~self.mask(axis for axis, _ in found.entries):
            raise CompileError(f"{found} leaves out axes of {self.names(mask)}, which it reads")
        entries = tuple((a, i) for a, i in found.entries if mask >> self.bit[a] & 1)
        left = Map(tuple(e for e in found.entries if e not in entries), found.conditions)
        conditions = conditions_of(self.space, left)
        if conditions == () and all(i is Index.of(a) for a, i in entries):
            return -1
        return self.number("map", Map(entries, NOWHERE if conditions is None else conditions))

    def index_at(self, index: int, number: int) -> int:
        if conditions_of(self.space, self.items[number]) != ():
            return -1
        found = self.items[index]
        moved = self.space.substitute(found.attribute, dict(self.items[number].entries))
        return self._head(replace(found, attribute=moved))

    def extend(self, number: int, mask: int) -> int:
        found, inner = self.items[number], self.names(mask)
        if not found.names.isdisjoint(inner) or not injective(found, self.space):
            return -1
        kept = [(a, i) for a, i in found.entries if a not in inner]
        kept += [(a, Index.of(a)) for a in inner]
        entries = sorted(kept, key=lambda entry: axis_key(entry[0]))
        return self.number("map", Map(tuple(entries), found.conditions))

    def near(self, number: int, mask: int) -> int:
        found = self.items[number].entries
        entries = tuple((a, i) for a, i in found if mask >> self.bit[a] & 1)
        return self.number("map", Map(entries))

    def mentions(self, number: int) -> int:
        item = self.items[number]
        op, attribute = (item.op, item.attribute) if isinstance(item, Term) else ("guard", item)
        return self.mask(mentioned(op, attribute))

    def given(self, number: int) -> int:
        return int(not self.items[number].attribute.constant)

    def minimum(self, number: int) -> int:
        return int(self.items[number].op == "min" and self.items[number].dtype.is_float)
