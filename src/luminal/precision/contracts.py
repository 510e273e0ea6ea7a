"""Precision contracts: passes that let contractions multiply narrower numbers, within a bound.

`integer_contraction` (precision="int8"): sum_k x w, where w is an integer times scales that are
constant over groups of k (or a float known before the run, rounded to such a form), becomes

    sum_b  s_b  w_b  (sum_j  q_bj v_bj  -  zero sum_j q_bj)         k = (b, j)

with q = round(x / s_b) of eight bits, s_b = max_j |x_bj| / 127, v the integers of w. Where scales
of groups are integers n too, times scales u of units of groups, a unit has one s_b:

    sum_b  s_b  u_b  (sum_c  n_bc  sum_j  q_bcj v_bcj)                   k = (b, c, j)

Sums of integers are exact; everything else is f32. What is lost is the rounding of x, and of a
float w:

    |error| <= sum_k |w_k| (s_b / 2 + TINY)  +  sum_k |x_k| t / 2       t: the scale of a float w

A group whose largest |x| is at most TINY counts as zero; one with a NaN or an infinity gives NaN.
precision="quantised" does so where w is made of integers only: without the second sum, and other
contractions stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import TypeAlias

from ..graph.dtype import f32, i8, i16, i32, u8
from ..graph.graph import Graph
from ..graph.index import Index, names_of
from ..graph.node import Node, Shape, View, position
from ..graph.tensor import Tensor
from ..graph.views import compose, place, positions, product
from .groups import Groups, without
from .products import Alike, Leaves, Product, Quantised, most, times

TINY = 1e-30  # 127 / TINY is still a number of f32
GROUPS = (256, 128, 64, 32, 16)  # sizes of groups that are looked for, after the whole dimension
MOST_TERMS = 4
MOST_NODES = 64  # that are looked at to take a weight apart


Pair: TypeAlias = tuple[Tensor, Tensor]


def is_contraction(node: Node) -> bool:
    """A sum of products of f32."""
    return node.op == "sum" and node.dtype is f32 and node.inputs[0].op == "mul"


def resolved(node: Node) -> tuple[Node, Shape]:
    """A node through the view on it: what it reads, and at which positions."""
    if node.op == "view" and not node.attribute.conditions:
        return node.inputs[0], node.attribute.index
    return node, tuple(map(place, range(len(node.shape))))


def load_time_constant(node: Node) -> bool:
    """It depends on parameters and constants only."""
    waiting, seen = [node], set[Node]()
    while waiting:
        n = waiting.pop()
        if n.op == "variable" or (n.op == "input" and n.attribute.kind == "input"):
            return False
        new = [source for source in n.inputs if source not in seen]
        seen.update(new)
        waiting += new
    return True


def below_views(node: Node) -> Node:
    while node.op == "view":
        node = node.inputs[0]
    return node


# ---- int8


def integer_contraction(
    graph: Graph, product_node: Node, dims: tuple[int, ...], floats: bool = True
) -> Node | None:
    """sum of x w in integers, where one factor allows it; not of bytes, whose sum has nothing to
    gain from rounding, and may be one of integers. floats: also if w is a float."""
    if all(map(_is_byte, product_node.inputs)):
        return None
    for w, x in (product_node.inputs, product_node.inputs[::-1]):
        for dim in dims[::-1]:
            found = _Integers(graph, product_node.shape, dims, dim).contraction(w, x, floats)
            if found is not None:
                return found
    return None


class _Integers:
    """Rewrites one contraction over `shape`; dimension `dim` is split into groups. Factors are
    nodes of that shape: views of what they read."""

    def __init__(self, graph: Graph, shape: Shape, dims: tuple[int, ...], dim: int) -> None:
        self.graph, self.shape, self.dims, self.dim = graph, shape, dims, dim
        self.left = MOST_NODES

    def contraction(self, w: Node, x: Node, floats: bool) -> Node | None:
        size = self.shape[self.dim]
        if not size.is_constant or size.constant < 2 or self.dim not in _walked(x):
            return None
        found = self._in_groups(self._terms(w, View(self.shape, positions(len(self.shape)))), x)
        return self._in_groups(self._rounded(w), x) if found is None and floats else found

    def _in_groups(self, terms: list[Product], x: Node) -> Node | None:
        """The sum over the largest groups that allow it, if the terms have integers. Groups whose
        scales are integers too are added up in units of as many as share the others."""
        size = self.shape[self.dim].constant
        if not any(term.integers for term in terms):
            return None
        sizes = [g for g in (size, *GROUPS) if size % g == 0]
        for group, unit in ((g, u) for g in sizes for u in sizes if u % g == 0):
            found = self._grouped(terms, x, Groups(self.shape, self.dim, group, unit))
            if found is not None:
                return found
        return None

    def _at(self, node: Node, view: View) -> Tensor:
        return self.graph.wrap(self.graph.moved(node, view))

    # ---- a weight as terms

    def _terms(self, node: Node, view: View) -> list[Product]:
        """The view of the node as a sum of terms."""
        found: list[Product] | None = None
        self.left -= 1
        if self.left < 0:
            return [Product(floats=(self.graph.moved(node, view),))]
        if node.op == "view" and not node.attribute.conditions:
            whole = compose(self.graph.positions(self.shape), view, node.attribute)
            assert whole is not None
            return self._terms(node.inputs[0], whole)
        if node.op == "literal":
            found = [Product(float(node.attribute))]
        elif node.op == "cast" and node.inputs[0].dtype in (i8, u8):
            found = [Product(integers=(self.graph.moved(node.inputs[0], view),))]
        elif node.op == "add":
            found = [term for source in node.inputs for term in self._terms(source, view)]
        elif node.op == "mul":
            a, b = (self._terms(source, view) for source in node.inputs)
            found = [times(s, t) for s in a for t in b]
        if found is None or self.left < 0 or len(found) > MOST_TERMS:
            return [Product(floats=(self.graph.moved(node, view),))]
        return found

    def _rounded(self, w: Node) -> list[Product]:
        """A float weight that is known before the run: eight bits, and a scale for each of the
        rows that are summed up."""
        dims = self._compact(w)
        if dims is None or len(self.dims) > 1 or not load_time_constant(w):
            return []
        values, scale = self._quantise(w, dims, [dims.index(self.dim)])
        kept = (tuple(map(place, dims)), tuple(place(d) for d in dims if d != self.dim))
        whole, number = (x.moved(View(self.shape, at)).node for x, at in zip((values, scale), kept))
        return [Product(1.0, (whole,), (number,))]

    def _compact(self, x: Node) -> tuple[int, ...] | None:
        """The dimensions that a factor has, unless it repeats elements along them."""
        (node, index), dims = resolved(x), _walked(x)
        whole = product([x.shape[d] for d in dims]) == product(node.shape)
        once = whole or _once(index, node.shape, x.shape, len(dims))
        return dims if once and (self.dim in dims or x.shape[self.dim] == 1) else None

    # ---- in groups

    def _grouped(self, terms: list[Product], x: Node, by: Groups) -> Node | None:
        """The sum, if one integer of a term varies in a group, and floats are alike in a unit."""
        alike = self._alike(terms, by)
        whole = [sum(bool(t.integers) for t in each) for each in alike.values()]
        if not any(whole) or most(max(whole), 0, by) > i32.highest:
            return None
        q = self._activation(self.graph.moved(x, by.split), by)
        if q is None:
            return None
        total = None
        for (floats, scales, _), each in alike.items():
            part = self._part(each, scales, q, by)
            for leaf in floats:
                part = part * self._at(leaf, by.outer)
            total = part if total is None else total + part
        assert total is not None
        scale = q.scale.moved(View(by.outer.shape, without(q.dims, by.digits)))
        return (total * scale)._reduce("sum", self.dims).node

    def _alike(self, terms: list[Product], by: Groups) -> dict[Alike, list[Product]]:
        """Terms by their floats, scales and number; what has no integer joins one that has.
        Nothing where the groups do not allow it."""
        found: dict[Alike, list[Product]] = {}
        split = [(self._fine(term, by), term) for term in terms]
        for fine, term in sorted(split, key=lambda each: not each[0]):
            floats, scales = term.floats, tuple(w for w in term.integers if w not in fine)
            if not by.nested:
                widened = (_below_view(self.graph, w, lambda x: x.cast(f32)) for w in scales)
                floats, scales = (*floats, *widened), ()
            varying = any(self._varies(leaf, by, by.digits) for leaf in floats)
            plain = isfinite(term.number) and term.number != 0
            if not plain or varying or len(fine) > 1 or len(scales) != by.nested:
                return {}
            same = [key for key in found if key[:2] == (floats, scales)]
            if fine or not same:
                same = [(floats, scales, term.number)]
            found.setdefault(same[0], []).append(Product(term.number, fine))
        return found

    def _fine(self, term: Product, by: Groups) -> Leaves:
        """The integers of a term that vary in a group."""
        return tuple(w for w in term.integers if self._varies(w, by, by.digits[-1:]))

    def _varies(self, leaf: Node, by: Groups, digits: Sequence[int]) -> bool:
        """It is not constant along these digits of the dimension."""
        return not set(digits).isdisjoint(_walked(self.graph.moved(leaf, by.split)))

    def _activation(self, x: Node, by: Groups) -> Quantised | None:
        """The other factor in eight bits."""
        dims = self._compact(x)
        if dims is None or not set(by.digits) <= set(dims):
            return None
        at = [dims.index(d) for d in by.digits]
        values, scale = self._quantise(x, dims, at)
        sums = values.cast(i32)._reduce("sum", at[-1:])
        if int(x.shape[by.digits[-1]]) * -i8.lowest <= i16.highest:  # narrow ones multiply faster
            sums = sums.cast(i16)
        return Quantised(values, sums, scale, dims)

    def _quantise(self, node: Node, dims: Sequence[int], at: Sequence[int]) -> Pair:
        """Values i8 of these dimensions of a node, scales f32 without those of them at `at`."""
        shape = tuple(node.shape[d] for d in dims)
        rest = [number for number in range(len(dims)) if number not in at]
        places = {d: place(number) for number, d in enumerate(dims)}
        index = tuple(places.get(d, Index.of(0)) for d in range(len(node.shape)))
        x = self._at(node, View(shape, index))
        largest = x.maximum(-x)._reduce("max", at)
        some = largest > TINY
        inverse = (127.0 / largest).where(some, 0.0)
        scaled, scale = x * inverse.moved(View(shape, tuple(map(place, rest)))), largest * (1 / 127)
        return scaled.round().cast(i8), scale

    def _part(
        self, terms: list[Product], scales: tuple[Node, ...], q: Quantised, by: Groups
    ) -> Tensor:
        """The sum over units of terms with the same scales, f32."""
        number = next((t.number for t in terms if t.integers), terms[0].number)
        total = self._dots([replace(t, number=t.number / number) for t in terms], q, by)
        for leaf in scales:
            scaled = total * self._at(leaf, by.middle).cast(total.dtype)
            total = scaled._reduce("sum", by.digits[:1])
        total = total.cast(f32)
        return total if number == 1 else total * number

    def _dots(self, terms: list[Product], q: Quantised, by: Groups) -> Tensor:
        """The sum over groups of terms with the same number, i32; f32 where i32 could not hold it,
        or a number is no integer."""
        sums = q.sums.moved(View(by.middle.shape, without(q.dims, by.digits[-1:])))
        values = q.values.moved(View(by.split.shape, tuple(map(place, q.dims))))
        zero, total = sum(t.number for t in terms if not t.integers), None
        for term in (t for t in terms if t.integers):
            bits, shift = self._unsigned(term.integers[0])
            zero -= shift * term.number
            products = self._at(bits, by.split).cast(i32) * values.cast(i32)
            dot = products._reduce("sum", by.digits[-1:])
            total = dot if total is None else total + dot
        if zero:
            fits = zero == int(zero) and most(len(terms), zero, by) <= i32.highest
            more = sums.cast(i32).cast(i32 if fits else f32)
            more = more if zero == 1 else more * (int(zero) if fits else zero)
            total = more if total is None else total.cast(more.dtype) + more
        assert total is not None
        return total

    def _unsigned(self, whole: Node) -> tuple[Node, int]:
        """(u8 integers, what they are too large by): instructions multiply u8 by i8."""
        if whole.dtype is not i8:
            return whole, 0
        return _below_view(self.graph, whole, lambda x: x.cast(u8) ^ 128), 128


def _is_byte(node: Node) -> bool:
    """It is an integer of eight bits as it stands."""
    source = below_views(node)
    return source.op == "cast" and source.inputs[0].dtype in (i8, u8)


def _walked(node: Node) -> tuple[int, ...]:
    """The dimensions along which a node's elements differ, as far as its view tells."""
    names = names_of(resolved(node)[1])
    return tuple(d for d in range(len(node.shape)) if position(d) in names)


def _below_view(graph: Graph, node: Node, change: Callable[[Tensor], Tensor]) -> Node:
    """A node changed element by element, before it is moved."""
    source, index = resolved(node)
    return graph.moved(change(graph.wrap(source)).node, View(node.shape, index))


def _once(index: Shape, extents: Shape, shape: Shape, count: int) -> bool:
    """Each dimension walks one dimension of a node, some rows of it or all of it together with
    others: no element is met twice. extents: of the node; count: dimensions that walk at all."""
    for i, extent in zip(index, extents):
        dims = [d for d in range(len(shape)) if position(d) in i.names()]
        rest = [i.substitute({position(d): Index.of(0)}) for d in dims[:1]]
        shifted = len(dims) == 1 and i == place(dims[0]) + rest[0]
        if dims and not shifted and product([shape[d] for d in dims]) != extent:
            return False
        count -= len(dims)
    return count == 0
