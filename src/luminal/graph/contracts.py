"""Precision contracts: passes that let contractions multiply narrower numbers, within a bound.

`whole_contractions` (precision="int8"): sum_k x w, where w is an integer times scales that are
constant over groups of k (or a float known before the run, rounded to such a form), becomes

    sum_b  s_b  w_b  (sum_j  q_bj v_bj  -  zero sum_j q_bj)         k = (b, j)

with q = round(x / s_b) of eight bits, s_b = max_j |x_bj| / 127, v the integers of w. The inner sums
are exact; everything outside of them is f32. What is lost is the rounding of x, and of a float w:

    |error| <= sum_k |w_k| (s_b / 2 + TINY)  +  sum_k |x_k| t / 2       t: the scale of a float w

A group whose largest |x| is at most TINY counts as zero; one with a NaN or an infinity gives NaN.
`integer_contractions` (precision="quantised") does so where w is made of integers: without the
second sum, and other contractions stay as they are.

`half_contractions` (precision="bf16"): both factors are rounded to bf16 (to nearest, ties to even)
and multiplied and added up in f32: |error| <= (2^-7 + 2^-16) sum_k |x_k w_k|. `half_weights` is the
same where no instruction multiplies bf16: factors that are known before the run are rounded, and
take half of the memory; rounding the others would be work for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .dtype import DType, bf16, f32, i8, i32, u8
from .graph import Graph
from .index import Index
from .node import Node, Number, Shape, View, position
from .views import place, product

TINY = 1e-30  # 127 / TINY is still a number of f32
GROUPS = (256, 128, 64, 32, 16)  # sizes of groups that are looked for, after the whole dimension
LONGEST = 1 << 15  # of a group: sums of 8-bit products fit 32 bits
MOST_TERMS = 4


@dataclass(frozen=True)
class Placed:
    """A node at positions of a contraction: `index` is over them, one for each dimension."""

    node: Node
    index: Shape


@dataclass(frozen=True)
class Term:
    """number * whole * floats: `whole` of an 8-bit integer dtype."""

    number: float = 1.0
    whole: Placed | None = None
    floats: tuple[Placed, ...] = ()


@dataclass(frozen=True)
class Quantised:
    """q * scale: `values` i8, and `sums` of it (i32) and scales without the dimension of groups.
    dims: the dimensions of the contraction (dimension `split` in two) that `values` has."""

    values: Node
    sums: Node
    scale: Node
    dims: tuple[int, ...]


def is_contraction(node: Node) -> bool:
    """A sum of products of f32."""
    return node.op == "sum" and node.dtype is f32 and node.inputs[0].op == "mul"


def resolved(graph: Graph, node: Node) -> Placed:
    """A node through the views on it."""
    index = tuple(map(place, range(len(node.shape))))
    if node.op == "view" and not node.attribute.conditions:
        return Placed(node.inputs[0], node.attribute.index)
    return Placed(node, index)


# ---- bf16


def half_contraction(
    graph: Graph, product_node: Node, dims: tuple[int, ...], weights_only: bool = False
) -> Node | None:
    """sum of a b --> sum of f32(bf16(a)) f32(bf16(b)), where each factor lacks a dimension that
    the other has, or one is known before the run. weights_only: a factor that is not known then
    stays as it is."""
    factors = [resolved(graph, factor) for factor in product_node.inputs]
    names = [_names(factor.index) for factor in factors]
    summed = {position(d) for d in dims}
    if not all(mine & summed for mine in names):
        return None
    outer = names[0] - names[1] and names[1] - names[0]
    known = [known_before(factor.node) for factor in factors]
    if not any(known) and (weights_only or not outer):
        return None

    def rounded(factor: Placed, known: bool) -> Node:
        node = factor.node
        if known or not weights_only:
            node = _cast(graph, _cast(graph, node, bf16), f32)
        return graph.view(node, View(product_node.shape, factor.index))

    a, b = map(rounded, factors, known)
    return graph.add("sum", (graph.add("mul", (a, b)),), dims)


def known_before(node: Node) -> bool:
    """It depends on parameters and constants only."""
    waiting, seen = [node], set[Node]()
    while waiting:
        n = waiting.pop()
        if n.op == "input" and n.attribute.kind == "input":
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

    Positions before the split are those of `shape`; afterwards dimension dim counts the groups, and
    dim + 1 runs inside them where there is such a dimension.
    """

    def __init__(self, graph: Graph, shape: Shape, dims: tuple[int, ...], dim: int) -> None:
        self.graph, self.shape, self.dims, self.dim = graph, shape, dims, dim

    def contraction(self, w: Node, x: Node, floats: bool) -> Node | None:
        size = self.shape[self.dim]
        factor = resolved(self.graph, x)
        if not size.is_constant or position(self.dim) not in _names(factor.index):
            return None
        terms = self._terms(w, tuple(map(place, range(len(self.shape)))))
        if not any(term.whole for term in terms):
            terms = self._rounded(w) if floats else []
        for group in (size.constant, *GROUPS):
            if terms and size.constant % group == 0 and group <= LONGEST:
                found = self._grouped(terms, factor, group)
                if found is not None:
                    return found
        return None

    # ---- a weight as terms

    def _terms(self, node: Node, index: Shape) -> list[Term]:
        """The node as a sum of terms."""
        found: list[Term] | None = None
        space = self.graph.positions(self.shape)
        if node.op == "view" and not node.attribute.conditions:
            mapping = {position(d): i for d, i in enumerate(index)}
            below = (space.simplify(space.substitute(i, mapping)) for i in node.attribute.index)
            return self._terms(node.inputs[0], tuple(below))
        if node.op == "literal":
            found = [Term(float(node.attribute))]
        elif node.op == "cast" and node.inputs[0].dtype in (i8, u8):
            found = [Term(whole=Placed(node.inputs[0], index))]
        elif node.op == "add":
            found = [term for source in node.inputs for term in self._terms(source, index)]
        elif node.op == "mul":
            a, b = (self._terms(source, index) for source in node.inputs)
            if not any(s.whole and t.whole for s in a for t in b):
                found = [_times(s, t) for s in a for t in b]
        if found is None or len(found) > MOST_TERMS:
            return [Term(floats=(Placed(node, index),))]
        return found

    def _rounded(self, w: Node) -> list[Term]:
        """A float weight that is known before the run: eight bits, and a scale for each of the
        rows that are summed up."""
        factor = resolved(self.graph, w)
        dims = self._compact(factor, self.shape)
        if dims is None or len(self.dims) > 1 or not known_before(factor.node):
            return []
        index, shape = self._renamed(factor.index, dims), tuple(self.shape[d] for d in dims)
        values, scale = self._quantise(factor.node, index, shape, dims.index(self.dim))
        kept = tuple(place(d) for d in dims if d != self.dim)
        return [Term(1.0, Placed(values, tuple(map(place, dims))), (Placed(scale, kept),))]

    def _compact(self, factor: Placed, shape: Shape) -> tuple[int, ...] | None:
        """The dimensions that a factor has, unless it repeats elements along them."""
        names = _names(factor.index)
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

    def _grouped(self, terms: list[Term], x: Placed, group: int) -> Node | None:
        dim, shape = self.dim, self.shape
        count = Index.of(shape[dim].constant // group)
        outer = (*shape[:dim], count, *shape[dim + 1 :])
        split = (*shape[:dim], count, Index.of(group), *shape[dim + 1 :])
        moved = {position(d): place(d + 1) for d in range(dim + 1, len(shape))}
        inside = moved | {position(dim): place(dim) * group + place(dim + 1)}
        if any(position(dim + 1) in _names(self._at(leaf, split, inside).index)
               for term in terms for leaf in term.floats):  # fmt: skip
            return None
        wholes = [t for t in terms if t.whole]
        if any(position(dim + 1) not in _names(self._at(t.whole, split, inside).index)
               for t in wholes if t.whole):  # fmt: skip
            return None
        q = self._activation(self._at(x, split, inside), split)
        if q is None:
            return None
        first = {position(dim): place(dim) * group}
        parts = []
        for floats in dict.fromkeys(t.floats for t in terms):
            alike = [t for t in terms if t.floats == floats]
            dots = [replace(t, whole=self._at(t.whole, split, inside)) if t.whole else t
                    for t in alike]  # fmt: skip
            placed = [self._at(leaf, outer, first) for leaf in floats]
            parts.append(self._scaled(self._dots(dots, q, split, outer), placed, outer))
        scale = self.graph.view(q.scale, View(outer, self._outer(q)))
        total = parts[0]
        for part in parts[1:]:
            total = self.graph.add("add", (total, part))
        return self.graph.add("sum", (self.graph.add("mul", (total, scale)),), self.dims)

    def _at(self, leaf: Placed, shape: Shape, mapping: dict[str, Index]) -> Placed:
        space = self.graph.positions(shape)
        index = (space.simplify(space.substitute(i, mapping)) for i in leaf.index)
        return Placed(leaf.node, tuple(index))

    def _activation(self, x: Placed, split: Shape) -> Quantised | None:
        """The other factor in eight bits."""
        dims = self._compact(x, split)
        if dims is None or self.dim + 1 not in dims:
            return None
        at, shape = dims.index(self.dim + 1), tuple(split[d] for d in dims)
        values, scale = self._quantise(x.node, self._renamed(x.index, dims), shape, at)
        sums = self.graph.add("sum", (_cast(self.graph, values, i32),), (at,))
        return Quantised(values, sums, scale, dims)

    def _quantise(self, node: Node, index: Shape, shape: Shape, at: int) -> tuple[Node, Node]:
        """(values i8 of this shape, scales f32 without dimension `at`)."""
        graph, kept = self.graph, shape[:at] + shape[at + 1 :]
        x = graph.view(node, View(shape, index))
        size = graph.add("max", (x, graph.add("mul", (x, uniform(graph, -1.0, shape)))))
        most = graph.add("max", (size,), (at,))
        some = graph.add("less", (uniform(graph, TINY, kept), most))
        inverse = graph.add("div", (uniform(graph, 127.0, kept), most))
        inverse = graph.add("select", (some, inverse, uniform(graph, 0.0, kept)))
        repeated = tuple(place(d) for d in range(len(shape)) if d != at)
        scaled = graph.add("mul", (x, graph.view(inverse, View(shape, repeated))))
        scale = graph.add("mul", (most, uniform(graph, 1 / 127, kept)))
        return _cast(graph, graph.add("round", (scaled,)), i8), scale

    def _outer(self, q: Quantised) -> Shape:
        """Where sums and scales stand, over the positions without those inside groups."""
        kept = [d for d in q.dims if d != self.dim + 1]
        return tuple(place(d if d <= self.dim else d - 1) for d in kept)

    def _dots(self, terms: list[Term], q: Quantised, split: Shape, outer: Shape) -> Node:
        """The sum over groups of terms with the same scales, f32."""
        graph = self.graph
        sums = graph.view(q.sums, View(outer, self._outer(q)))
        values = graph.view(q.values, View(split, tuple(map(place, q.dims))))
        whole = next((t.number for t in terms if t.whole), 1.0)
        zero, total = sum(t.number for t in terms if not t.whole) / whole, None
        for term in terms:
            if term.whole is None:
                continue
            bits, shift = self._unsigned(term.whole, split)
            zero -= shift * term.number / whole
            factors = (_cast(graph, bits, i32), _cast(graph, values, i32))
            dot = graph.add("sum", (graph.add("mul", factors),), (self.dim + 1,))
            total = dot if total is None else graph.add("add", (total, dot))
        if total is None or zero != int(zero):
            more = graph.add("mul", (_cast(graph, sums, f32), uniform(graph, zero, outer)))
            total = more if total is None else graph.add("add", (_cast(graph, total, f32), more))
        elif zero:
            more = graph.add("mul", (sums, uniform(graph, int(zero), outer, i32)))
            total = graph.add("add", (total, more))
        total = _cast(graph, total, f32)
        return total if whole == 1 else graph.add("mul", (total, uniform(graph, whole, outer)))

    def _unsigned(self, whole: Placed, split: Shape) -> tuple[Node, int]:
        """(u8 integers, what they are too large by): instructions multiply u8 by i8."""
        graph, node, shift = self.graph, whole.node, 0
        if node.dtype is i8:
            bits = _cast(graph, node, u8)
            node = graph.add("xor", (bits, uniform(graph, 128, node.shape, u8)))
            shift = 128
        return graph.view(node, View(split, whole.index)), shift

    def _scaled(self, total: Node, floats: list[Placed], outer: Shape) -> Node:
        for leaf in floats:
            scale = self.graph.view(leaf.node, View(outer, leaf.index))
            total = self.graph.add("mul", (total, scale))
        return total


def _times(a: Term, b: Term) -> Term:
    return Term(a.number * b.number, a.whole or b.whole, a.floats + b.floats)


def _once(factor: Placed, shape: Shape, count: int) -> bool:
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


def _names(index: Shape) -> frozenset[str]:
    return frozenset().union(*(i.names() for i in index))


def _cast(graph: Graph, node: Node, dtype: DType) -> Node:
    return node if node.dtype is dtype else graph.add("cast", (node,), None, dtype)


def uniform(graph: Graph, value: Number, shape: Shape, dtype: DType = f32) -> Node:
    """One number at every point of a shape."""
    return graph.view(graph.literal(value, dtype).node, View(shape, ()))
