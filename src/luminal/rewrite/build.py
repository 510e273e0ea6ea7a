"""Makes terms: what is an index stays an index, what is a condition on indices becomes a guard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from ..graph.dtype import DType, i64, wrapped
from ..graph.index import Index
from ..graph.space import Space
from .normal import axis_key
from .terms import Domain, Map, Term, Terms

FARTHEST = 1 << 62  # of two indices that are compared by their difference
MOST_GUARDS = 100  # in each other, through which a read is moved
MOST_PARTS = 32  # of a condition that is taken apart into guards


class Builder:
    """Adds terms in their simplest form."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.terms = Terms(space)
        self._moved = cache(self._read)
        self.domain = cache(self._domain)
        self._sizes: dict[int, int] = {}

    def node(self, term: int) -> Term:
        return self.terms.nodes[term]

    def axes(self, term: int) -> frozenset[str]:
        return self.terms.axes[term]

    # ---- leaves

    def const(self, value: Any, dtype: DType) -> int:
        return self.terms.add("const", (), value, dtype)

    def index(self, index: Index, dtype: DType) -> int:
        """The value of an index, modulo 2^64 where the dtype is i64; it fits others."""
        if index.is_constant:
            return self.const(wrapped(index.constant) if dtype is i64 else index.constant, dtype)
        return self.terms.add("index", (), index, dtype)

    def as_index(self, term: int) -> Index | None:
        """The index that an integer term is, if it is one: machine code computes it in i64."""
        node = self.node(term)
        if node.op == "index" or (node.op == "const" and node.dtype.is_integer):
            index = Index.of(node.attribute)
            return index if self.fits(index, i64) else None
        return None

    def fits(self, index: Index, dtype: DType) -> bool:
        """Proven: the index never leaves the range of the dtype."""
        low, high = self.space.bounds(index)
        return low >= dtype.lowest and high <= dtype.highest

    # ---- reads

    def read(self, term: int, mapping: Mapping[str, Index]) -> int:
        """The term at other indices, which stay inside it wherever the result is looked at.

        Axes that the mapping lacks stay. Reads of reads are one read, and guards are read branch by
        branch: what is only moved is never stored.
        """
        entries = self.entries(self.axes(term), mapping)
        if all(index.text == axis for axis, index in entries):
            return term
        return self._moved(term, entries)

    def _read(self, term: int, entries: tuple[tuple[str, Index], ...]) -> int:
        node, mapping = self.node(term), dict(entries)
        if node.op == "index":
            return self.index(self.space.substitute(node.attribute, mapping), node.dtype)
        if node.op == "cast" and self.node(node.children[0]).op == "index":
            return self.scalar("cast", (self.read(node.children[0], mapping),), node.dtype)
        if node.op == "guard" and self._parts(term) <= MOST_GUARDS:
            conditions = [self.space.substitute(c, mapping) for c in node.attribute]
            body, other = (self.read(child, mapping) for child in node.children)
            return self.guard(conditions, body, other)
        if node.op == "read":
            (source,) = node.children
            inner = {a: self.space.substitute(i, mapping) for a, i in node.attribute.entries}
            if all(index.text == axis for axis, index in inner.items()):
                return source
            whole = Map(self.entries(inner, inner))
            return self.terms.add("read", (source,), whole, node.dtype)
        return self.terms.add("read", (term,), Map(entries), node.dtype)

    def entries(
        self, axes: Iterable[str], mapping: Mapping[str, Index]
    ) -> tuple[tuple[str, Index], ...]:
        names = sorted(axes, key=axis_key)
        return tuple((name, mapping.get(name, Index.of(name))) for name in names)

    def gather(self, term: int, slot: int, mapping: Mapping[str, Index]) -> int:
        """The term at indices that mention the slot."""
        entries = self.entries(self.axes(term), mapping)
        dtype = self.node(term).dtype
        return self.terms.add("gather", (term, slot), Map(entries), dtype)

    # ---- elementwise

    def scalar(self, op: str, children: tuple[int, ...], dtype: DType) -> int:
        """An elementwise operation."""
        if op == "select":
            return self.select(*children)
        twice = self._negated(Term(op, children, None, dtype))
        inner = None if twice is None else self._negated(self.node(twice))
        if inner is not None:  # not (not c) = c
            return inner
        if dtype.is_integer:
            indices = [self.as_index(child) for child in children]
            if all(i is not None for i in indices):
                result = self._arithmetic(op, [i for i in indices if i is not None])
                if result is not None and self.fits(result, dtype) and self.fits(result, i64):
                    return self.index(result, dtype)
        return self._counted(self.terms.add(op, children, None, dtype))

    def _arithmetic(self, op: str, args: list[Index]) -> Index | None:
        """The operation on indices, if its result is a quasi-affine index again."""
        if op == "cast":
            return args[0]
        if op == "add":
            return args[0] + args[1]
        plain = [not self.space.depends(a) for a in args]
        if op == "mul" and any(plain):
            return args[0] * args[1]
        if op in ("floor_div", "mod") and plain[1] and self.space.nonnegative(args[1] - 1):
            return (self.space.floor if op == "floor_div" else self.space.mod)(*args)
        return None

    # ---- conditions on indices

    def select(self, condition: int, yes: int, no: int) -> int:
        """`yes` where the condition holds, else `no`: a guard where that is known from indices."""
        if yes == no:
            return yes
        for truth, first, second in ((True, yes, no), (False, no, yes)):
            domain = self.domain(condition, truth)
            if domain is not None:
                return self.guard(domain, first, second)
        node = self.node(condition)
        negated = self._negated(node)
        if negated is not None:
            return self.select(negated, no, yes)
        if node.op in ("and", "or") and self._about_indices(condition):
            first, second = sorted(node.children, key=lambda c: not self._about_indices(c))
            if node.op == "and":
                return self.select(first, self.select(second, yes, no), no)
            return self.select(first, yes, self.select(second, yes, no))
        return self.terms.add("select", (condition, yes, no), None, self.node(yes).dtype)

    def _about_indices(self, condition: int) -> bool:
        """Whether some part of a condition, which is not too large, is one on indices."""
        if self._parts(condition) > MOST_PARTS:
            return False
        if self.domain(condition, True) is not None or self.domain(condition, False) is not None:
            return True
        node = self.node(condition)
        return node.op in ("and", "or") and any(self._about_indices(c) for c in node.children)

    def _parts(self, condition: int) -> int:
        """How many conditions this one is made of, counted as a tree."""
        return self._sizes.get(condition, 1)

    def _counted(self, term: int) -> int:
        """The term. Counts its conditions, or the guards in each other; operands come first."""
        node = self.node(term)
        inner = self._negated(node)
        if inner is not None:
            self._sizes[term] = self._parts(inner)
        elif node.op in ("and", "or"):
            self._sizes[term] = sum(map(self._parts, node.children))
        elif node.op == "guard":
            self._sizes[term] = 1 + max(map(self._parts, node.children))
        return term

    def _domain(self, condition: int, truth: bool) -> Domain | None:
        """Where a bool term has this value, as a conjunction; None if it is not one."""
        node = self.node(condition)
        if self._parts(condition) > MOST_PARTS:
            return None
        if node.op == "const":
            return () if bool(node.attribute) is truth else (Index.of(-1),)
        if node.op in ("less", "equal"):
            i, j = (self.as_index(c) for c in node.children)
            if i is not None and j is not None:
                if not self._apart(i, j):
                    return None
                if node.op == "less":
                    return (j - i - 1,) if truth else (i - j,)
                return (i - j, j - i) if truth else None
        if node.op == "guard":
            return self._of_guard(node, truth)
        negated = self._negated(node)
        if negated is not None:
            return self.domain(negated, not truth)
        if node.dtype.kind == "bool" and (node.op, truth) in (("and", True), ("or", False)):
            first, second = (self.domain(c, truth) for c in node.children)
            return None if first is None or second is None else first + second
        return None

    def _of_guard(self, node: Term, truth: bool) -> Domain | None:
        """A mask written in a place: one bool inside, the other outside."""
        inside, outside = (self.node(c) for c in node.children)
        if (inside.op, outside.op) != ("const", "const"):
            return None
        if inside.attribute is truth:
            return tuple(node.attribute)
        return (-1 - node.attribute[0],) if len(node.attribute) == 1 else None

    def _apart(self, i: Index, j: Index) -> bool:
        """Proven: the difference of two indices is a number of i64, and so are those beside it."""
        low, high = self.space.bounds(i - j)
        return low >= -FARTHEST and high <= FARTHEST

    def _negated(self, node: Term) -> int | None:
        """c, of `xor(c, True)` and `equal(c, False)`."""
        if node.op not in ("xor", "equal") or node.dtype.kind != "bool":
            return None
        for child, other in (node.children, node.children[::-1]):
            constant = self.node(other)
            if constant.op == "const" and constant.attribute is (node.op == "xor"):
                return child
        return None

    # ---- guards

    def guard(self, conditions: Iterable[Index], body: int, other: int) -> int:
        """`body` where all conditions hold, else `other`; what is known is left out."""
        domain = self.space.domain(conditions)
        if domain is None:
            return other
        if not domain:
            return body
        body = self._inside(body, domain)
        if len(domain) == 1:
            other = self._inside(other, (-domain[0] - 1,))
            if self.node(body).op == "const" and self.node(other).op != "const":
                return self._guard((-domain[0] - 1,), other, body)
        return self._guard(domain, body, other)

    def _guard(self, domain: Domain, body: int, other: int) -> int:
        if body == other:
            return body
        inner = self.node(body)
        if inner.op == "guard" and inner.children[1] == other:
            both = self.space.irredundant(domain + inner.attribute)
            return self._guard(tuple(sorted(both, key=str)), inner.children[0], other)
        return self._counted(self.terms.add("guard", (body, other), domain, self.node(body).dtype))

    def _inside(self, term: int, domain: Domain) -> int:
        """The term as it is inside a domain."""
        node = self.node(term)
        while node.op == "guard":
            if any(self.space.contradicts(domain, c) for c in node.attribute):
                term = node.children[1]
            else:
                left = tuple(c for c in node.attribute if not self.space.implies(domain, c))
                if left == node.attribute:
                    return term
                if left:
                    return self._counted(self.terms.add("guard", node.children, left, node.dtype))
                term = node.children[0]
            node = self.node(term)
        return term
