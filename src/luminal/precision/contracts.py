"""Precision contracts: passes that let contractions multiply narrower numbers, within a bound.

`whole_contraction` (precision="int8"): sum_k x w, where w is an integer times scales that are
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

`half_contraction` (precision="bf16"): both factors are rounded to bf16 (to nearest, ties to even)
and multiplied and added up in f32: |error| <= (2^-7 + 2^-16) sum_k |x_k w_k|. Where no instruction
multiplies bf16, only factors that are known before the run are rounded, and take half of the
memory: rounding the others would be work for nothing. Those that many rows share are not rounded
either: nothing waits for their memory, and to widen them would be more work. A softmax is not
rounded here before it weighs values: scores, softmax and weighted sum are one pass. Kernels of
machines that multiply matrices, or pairs of bf16 faster than f32, may round its weights, within the
same bound (`half_weights`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, prod

from ..graph.dtype import bf16, f32, i8, i16, i32, u8
from ..graph.graph import Graph
from ..graph.index import Index, names_of
from ..graph.node import Node, Shape, View, position
from ..graph.passes import cast, uniform
from ..graph.views import place, product
from .groups import Groups, Level, without
from .products import Alike, Factor, Leaves, Product, Quantised, most, times

TINY = 1e-30  # 127 / TINY is still a number of f32
GROUPS = (256, 128, 64, 32, 16)  # sizes of groups that are looked for, after the whole dimension
MOST_TERMS = 4
MOST_NODES = 64  # that are looked at to take a weight apart
STREAMED = 16  # rows up to which reading weights takes longer than multiplying them
ROWS = 128  # rows where a size is not known, and has no usual value


def is_contraction(node: Node) -> bool:
    """A sum of products of f32."""
    return node.op == "sum" and node.dtype is f32 and node.inputs[0].op == "mul"


def resolved(graph: Graph, node: Node) -> Factor:
    """A node through the views on it."""
    index = tuple(map(place, range(len(node.shape))))
    if node.op == "view" and not node.attribute.conditions:
        return Factor(node.inputs[0], node.attribute.index)
    return Factor(node, index)


# ---- bf16


def half_contraction(
    graph: Graph, product_node: Node, dims: tuple[int, ...], weights_only: bool = False
) -> Node | None:
    """sum of a b --> sum of f32(bf16(a)) f32(bf16(b)), where each factor lacks a dimension that
    the other has, or one is known before the run; not if one is a share of a sum, whose rounding
    would keep attention from one pass. weights_only: a factor that is not known then
    stays as it is, and so does one that many rows share."""
    factors = [resolved(graph, factor) for factor in product_node.inputs]
    names = [names_of(factor.index) for factor in factors]
    summed = {position(d) for d in dims}
    if not all(mine & summed for mine in names):
        return None
    outer = names[0] - names[1] and names[1] - names[0]
    known = [known_before(factor.node) for factor in factors]
    if not any(known) and (weights_only or not outer or any(map(is_share, factors))):
        return None
    if weights_only:
        weight = names[known.index(True)]
        if _rows(graph, product_node.shape, weight | summed) > STREAMED:
            return None

    def rounded(factor: Factor, known: bool) -> Node:
        node = factor.node
        if known or not weights_only:
            node = cast(graph, cast(graph, node, bf16), f32)
        return graph.moved(node, View(product_node.shape, factor.index))

    a, b = map(rounded, factors, known)
    return graph.add("sum", (graph.add("mul", (a, b)),), dims)


def is_share(factor: Factor) -> bool:
    """A value times the reciprocal of its sum: a softmax."""
    if factor.node.op != "mul":
        return False
    through = [_below_views(x) for x in factor.node.inputs]
    totals = {_below_views(n.inputs[0]) for n in through if n.op == "recip"}
    return any(t.op == "sum" and _below_views(t.inputs[0]) in through for t in totals)


def _below_views(node: Node) -> Node:
    while node.op == "view":
        node = node.inputs[0]
    return node


def _rows(graph: Graph, shape: Shape, names: frozenset[str]) -> int:
    """Products that each element of a factor with these dimensions takes part in, usually."""
    sizes = graph.space.usual(ROWS)
    kept = (extent for d, extent in enumerate(shape) if position(d) not in names)
    return prod(int(extent.evaluate(sizes)) for extent in kept)


def known_before(node: Node) -> bool:
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


# ---- int8


def whole_contraction(
    graph: Graph, product_node: Node, dims: tuple[int, ...], floats: bool = True
) -> Node | None:
    """sum of x w in integers, where one factor allows it. floats: also if w is a float."""
    for w, x in (product_node.inputs, product_node.inputs[::-1]):
        for dim in dims[::-1]:
            found = _Whole(graph, product_node.shape, dims, dim).contraction(w, x, floats)
            if found is not None:
                return found
    return None


class _Whole:
    """Rewrites one contraction over `shape`; dimension `dim` is split into groups.

    Positions before the split are those of `shape`; afterwards those of a level of `Groups`.
    """

    def __init__(self, graph: Graph, shape: Shape, dims: tuple[int, ...], dim: int) -> None:
        self.graph, self.shape, self.dims, self.dim = graph, shape, dims, dim
        self.left = MOST_NODES

    def contraction(self, w: Node, x: Node, floats: bool) -> Node | None:
        size = self.shape[self.dim]
        factor = resolved(self.graph, x)
        if not size.is_constant or size == 0 or position(self.dim) not in names_of(factor.index):
            return None
        found = self._in_groups(self._terms(w, tuple(map(place, range(len(self.shape))))), factor)
        return self._in_groups(self._rounded(w), factor) if found is None and floats else found

    def _in_groups(self, terms: list[Product], x: Factor) -> Node | None:
        """The sum over the largest groups that allow it, if the terms have integers. Groups whose
        scales are integers too are added up in units of as many as share the others."""
        size = self.shape[self.dim].constant
        if not any(term.wholes for term in terms):
            return None
        sizes = [g for g in (size, *GROUPS) if size % g == 0]
        for group, unit in ((g, u) for g in sizes for u in sizes if u % g == 0):
            found = self._grouped(terms, x, Groups(self.shape, self.dim, group, unit))
            if found is not None:
                return found
        return None

    # ---- a weight as terms

    def _terms(self, node: Node, index: Shape) -> list[Product]:
        """The node as a sum of terms."""
        found: list[Product] | None = None
        space = self.graph.positions(self.shape)
        self.left -= 1
        if self.left < 0:
            return [Product(floats=(Factor(node, index),))]
        if node.op == "view" and not node.attribute.conditions:
            mapping = {position(d): i for d, i in enumerate(index)}
            below = (space.simplify(space.substitute(i, mapping)) for i in node.attribute.index)
            return self._terms(node.inputs[0], tuple(below))
        if node.op == "literal":
            found = [Product(float(node.attribute))]
        elif node.op == "cast" and node.inputs[0].dtype in (i8, u8):
            found = [Product(wholes=(Factor(node.inputs[0], index),))]
        elif node.op == "add":
            found = [term for source in node.inputs for term in self._terms(source, index)]
        elif node.op == "mul":
            a, b = (self._terms(source, index) for source in node.inputs)
            found = [times(s, t) for s in a for t in b]
        if found is None or len(found) > MOST_TERMS:
            return [Product(floats=(Factor(node, index),))]
        return found

    def _rounded(self, w: Node) -> list[Product]:
        """A float weight that is known before the run: eight bits, and a scale for each of the
        rows that are summed up."""
        factor = resolved(self.graph, w)
        dims = self._compact(factor, self.shape)
        if dims is None or len(self.dims) > 1 or not known_before(factor.node):
            return []
        index, shape = self._renamed(factor.index, dims), tuple(self.shape[d] for d in dims)
        values, scale = self._quantise(factor.node, index, shape, [dims.index(self.dim)])
        kept = tuple(place(d) for d in dims if d != self.dim)
        return [Product(1.0, (Factor(values, tuple(map(place, dims))),), (Factor(scale, kept),))]

    def _compact(self, factor: Factor, shape: Shape) -> tuple[int, ...] | None:
        """The dimensions that a factor has, unless it repeats elements along them."""
        names = names_of(factor.index)
        dims = tuple(d for d in range(len(shape)) if position(d) in names)
        whole = product([shape[d] for d in dims]) == product(factor.node.shape)
        once = whole or _once(factor, shape, len(dims))
        return dims if once and (self.dim in dims) else None

    @staticmethod
    def _renamed(index: Shape, dims: Sequence[int]) -> Shape:
        """Over the positions of these dimensions alone."""
        mapping = {position(d): place(number) for number, d in enumerate(dims)}
        return tuple(i.substitute(mapping) for i in index)

    # ---- in groups

    def _grouped(self, terms: list[Product], x: Factor, by: Groups) -> Node | None:
        """The sum, if one integer of a term varies in a group, and floats are alike in a unit."""
        alike = self._alike(terms, by)
        whole = [sum(bool(t.wholes) for t in each) for each in alike.values()]
        if not any(whole) or most(max(whole), 0, by) > i32.highest:
            return None
        q = self._activation(self._at(x, by.split), by)
        if q is None:
            return None
        total = None
        for (floats, scales, _), each in alike.items():
            part = self._part(each, scales, q, by)
            for leaf in floats:
                part = self.graph.add("mul", (part, self._view(leaf, by.outer)))
            total = part if total is None else self.graph.add("add", (total, part))
        assert total is not None
        scale = self.graph.moved(q.scale, View(by.outer.shape, without(q.dims, by.digits)))
        return self.graph.add("sum", (self.graph.add("mul", (total, scale)),), self.dims)

    def _alike(self, terms: list[Product], by: Groups) -> dict[Alike, list[Product]]:
        """Terms by their floats, scales and number; what has no integer joins one that has.
        Nothing where the groups do not allow it."""
        found: dict[Alike, list[Product]] = {}
        split = [(self._fine(term, by), term) for term in terms]
        for fine, term in sorted(split, key=lambda each: not each[0]):
            floats, scales = term.floats, tuple(w for w in term.wholes if w not in fine)
            if not by.nested:
                widened = (Factor(cast(self.graph, w.node, f32), w.index) for w in scales)
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
        return tuple(w for w in term.wholes if self._varies(w, by, by.digits[-1:]))

    def _varies(self, leaf: Factor, by: Groups, digits: Sequence[int]) -> bool:
        """It is not constant along these digits of the dimension."""
        names = names_of(self._at(leaf, by.split).index)
        return any(position(d) in names for d in digits)

    def _at(self, leaf: Factor, level: Level) -> Factor:
        space = self.graph.positions(level.shape)
        index = (space.simplify(space.substitute(i, level.mapping)) for i in leaf.index)
        return Factor(leaf.node, tuple(index))

    def _view(self, leaf: Factor, level: Level) -> Node:
        return self.graph.moved(leaf.node, View(level.shape, self._at(leaf, level).index))

    def _activation(self, x: Factor, by: Groups) -> Quantised | None:
        """The other factor in eight bits."""
        dims = self._compact(x, by.split.shape)
        if dims is None or not set(by.digits) <= set(dims):
            return None
        at, shape = [dims.index(d) for d in by.digits], tuple(by.split.shape[d] for d in dims)
        values, scale = self._quantise(x.node, self._renamed(x.index, dims), shape, at)
        sums = self.graph.add("sum", (cast(self.graph, values, i32),), (at[-1],))
        if int(shape[at[-1]]) * -i8.lowest <= i16.highest:  # narrow numbers multiply faster
            sums = cast(self.graph, sums, i16)
        return Quantised(values, sums, scale, dims)

    def _quantise(
        self, node: Node, index: Shape, shape: Shape, at: Sequence[int]
    ) -> tuple[Node, Node]:
        """(values i8 of this shape, scales f32 without the dimensions `at`)."""
        graph, rest = self.graph, [d for d in range(len(shape)) if d not in at]
        kept = tuple(shape[d] for d in rest)
        x = graph.moved(node, View(shape, index))
        size = graph.add("max", (x, graph.add("mul", (x, uniform(graph, -1.0, shape)))))
        largest = graph.add("max", (size,), tuple(at))
        some = graph.add("less", (uniform(graph, TINY, kept), largest))
        inverse = graph.add("div", (uniform(graph, 127.0, kept), largest))
        inverse = graph.add("select", (some, inverse, uniform(graph, 0.0, kept)))
        repeated = graph.moved(inverse, View(shape, tuple(map(place, rest))))
        scaled = graph.add("mul", (x, repeated))
        scale = graph.add("mul", (largest, uniform(graph, 1 / 127, kept)))
        return cast(graph, graph.add("round", (scaled,)), i8), scale

    def _part(
        self, terms: list[Product], scales: tuple[Factor, ...], q: Quantised, by: Groups
    ) -> Node:
        """The sum over units of terms with the same scales, f32."""
        graph, number = self.graph, next((t.number for t in terms if t.wholes), terms[0].number)
        total = self._dots([replace(t, number=t.number / number) for t in terms], q, by)
        for leaf in scales:
            scale = cast(graph, self._view(leaf, by.middle), total.dtype)
            total = graph.add("sum", (graph.add("mul", (total, scale)),), by.digits[:1])
        total = cast(graph, total, f32)
        if number == 1:
            return total
        return graph.add("mul", (total, uniform(graph, number, by.outer.shape)))

    def _dots(self, terms: list[Product], q: Quantised, by: Groups) -> Node:
        """The sum over groups of terms with the same number, i32; f32 where i32 could not hold it,
        or a number is no integer."""
        graph = self.graph
        sums = graph.moved(q.sums, View(by.middle.shape, without(q.dims, by.digits[-1:])))
        values = graph.moved(q.values, View(by.split.shape, tuple(map(place, q.dims))))
        zero, total = sum(t.number for t in terms if not t.wholes), None
        for term in (t for t in terms if t.wholes):
            bits, shift = self._unsigned(term.wholes[0], by.split)
            zero -= shift * term.number
            factors = (cast(graph, bits, i32), cast(graph, values, i32))
            dot = graph.add("sum", (graph.add("mul", factors),), by.digits[-1:])
            total = dot if total is None else graph.add("add", (total, dot))
        if zero:
            fits = zero == int(zero) and most(len(terms), zero, by) <= i32.highest
            kind = i32 if fits else f32
            number = uniform(graph, int(zero) if kind is i32 else zero, by.middle.shape, kind)
            more = cast(graph, cast(graph, sums, i32), kind)
            more = more if zero == 1 else graph.add("mul", (more, number))
            total = more if total is None else graph.add("add", (cast(graph, total, kind), more))
        assert total is not None
        return total

    def _unsigned(self, whole: Factor, split: Level) -> tuple[Node, int]:
        """(u8 integers, what they are too large by): instructions multiply u8 by i8."""
        graph, node, shift = self.graph, whole.node, 0
        if node.dtype is i8:
            bits = cast(graph, node, u8)
            node = graph.add("xor", (bits, uniform(graph, 128, node.shape, u8)))
            shift = 128
        return self._view(replace(whole, node=node), split), shift


def _once(factor: Factor, shape: Shape, count: int) -> bool:
    """Each dimension walks one dimension of the node, some rows of it or all of it together with
    others: no element is met twice. count: dimensions that walk at all."""
    for index, extent in zip(factor.index, factor.node.shape):
        dims = [d for d in range(len(shape)) if position(d) in index.names()]
        rest = [index.substitute({position(d): Index.of(0)}) for d in dims[:1]]
        shifted = len(dims) == 1 and index == place(dims[0]) + rest[0]
        if dims and not shifted and product([shape[d] for d in dims]) != extent:
            return False
        count -= len(dims)
    return count == 0
