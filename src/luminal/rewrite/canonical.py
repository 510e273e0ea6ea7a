"""A region in canonical form: equal pieces of a program get equal terms and equal keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from ..graph.index import Index
from ..graph.order import post_order
from ..graph.space import Space
from ..kernel.domains import Outside
from .normal import attribute_text, axis_key
from .terms import Leaf, Map, Root, ScatterMap, Term, Terms, is_reduction


class Canonical:
    """Copies the terms below some roots, down to a boundary of stored values; axes and leaves are
    numbered by first use.

    leaves[value] is what stands for a term that another region stores: (buffer, axes); outside:
    what each term is where a condition fails.
    """

    def __init__(
        self, terms: Terms, leaves: dict[int, tuple[int, tuple[str, ...]]],
        outside: Sequence[Outside],
    ) -> None:  # fmt: skip
        self.old, self.leaves, self.outside = terms, leaves, outside
        known = terms.space
        self.terms = Terms(Space(known.sizes, hints=known.hints, assumed=known.assumed))
        self.names: dict[str, str] = {}
        self.made: dict[int, int] = {}
        self.inputs: dict[int, int] = {}  # buffer of the program -> number of the leaf
        self._index = cache(self._renamed)

    def roots(self, roots: Sequence[Root]) -> tuple[Root, ...]:
        """The roots over the new terms."""
        targets = frozenset(root.term for root in roots)
        boundary = frozenset(self.leaves) - targets

        def below(t: int) -> tuple[int, ...]:
            return () if t in boundary else self.old.nodes[t].children

        for t in post_order([root.term for root in roots], below):
            self.made[t] = self._leaf(t) if t in boundary else self._copy(self.old.nodes[t])
        return tuple(Root(self.made[root.term], self._axes(root.axes)) for root in roots)

    # ---- terms

    def _leaf(self, value: int) -> int:
        buffer, axes = self.leaves[value]
        number = self.inputs.setdefault(buffer, len(self.inputs))
        named = self._axes(axes)
        known = tuple((self._index(c), n) for c, n in self.outside[value].items())
        leaf = Leaf(number, named, outside=known)  # no constant: a run may make it anew
        return self.terms.add("input", (), leaf, self.old.nodes[value].dtype)

    def _copy(self, term: Term) -> int:
        children = tuple(self.made[c] for c in term.children)
        return self.terms.add(term.op, children, self._attribute(term), term.dtype)

    def _attribute(self, term: Term) -> object:
        value = term.attribute
        if isinstance(value, Leaf):
            number = self.inputs.setdefault(value.number, len(self.inputs))
            return Leaf(number, self._axes(value.axes), value.constant, value.steady)
        if isinstance(value, Map):
            return Map(self._entries(value.entries), self._domain(value.conditions))
        if isinstance(value, ScatterMap):
            entries = self._entries(value.entries)
            return ScatterMap(entries, self._axes(value.along), value.mode)
        if isinstance(value, Index):
            return self._index(value)
        if term.op == "guard":
            return self._domain(value)
        if term.op == "scan":
            return (value[0], self._axis(value[1]))
        if is_reduction(term):
            return self._axes(value)
        return value

    # ---- axes

    def _axis(self, name: str) -> str:
        new = self.names.get(name)
        if new is None:
            new = self.names[name] = f"a{len(self.names)}"
            self.terms.space.add_axis(new, self.old.space.axes[name])
        return new

    def _axes(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple([self._axis(name) for name in names])

    def _renamed(self, index: Index) -> Index:
        axes = sorted(self.old.space.depends(index), key=lambda a: self._use(index, a))
        return index.substitute({axis: Index.of(self._axis(axis)) for axis in axes})

    def _use(self, index: Index, axis: str) -> tuple[int, str, tuple[int, str]]:
        """How an index uses an axis: the order in which unknown axes get their numbers."""
        return -index.coefficient(axis), str(self.old.space.axes[axis]), axis_key(axis)

    def _entries(self, entries: Sequence[tuple[str, Index]]) -> tuple[tuple[str, Index], ...]:
        named = sorted(((self._axis(a), i) for a, i in entries), key=lambda e: axis_key(e[0]))
        return tuple((axis, self._index(index)) for axis, index in named)

    def _domain(self, conditions: Sequence[Index]) -> tuple[Index, ...]:
        return tuple(sorted(map(self._index, conditions), key=str))

    # ---- the key

    def key(self, roots: Sequence[Root]) -> str:
        """Text that is equal for equal regions: terms, extents, dtypes, constness, sizes with their
        bounds and usual values."""
        lines = [
            f"{t.op} {' '.join(map(str, t.children))} {attribute_text(t)} {t.dtype}"
            for t in self.terms.nodes
        ]
        lines += [f"root {root.term} {' '.join(root.axes)}" for root in roots]
        lines.append(" ".join(map(str, self.terms.space.axes.values())))
        space = self.terms.space
        used = {n for text in lines for n in space.sizes if n in text}
        bounds = (f"{n} {space.sizes[n]} {space.hints.get(n)}" for n in sorted(used))
        return "\n".join([*lines, *bounds])
