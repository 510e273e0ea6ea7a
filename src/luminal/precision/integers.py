"""Products of quantised numbers as products of bytes: exact, so a part of every precision.

    sum_k s (a + c) t (b + d)  =  s t (sum_k a b  +  d sum_k a  +  c sum_k b  +  K c d)

where a, b are 8-bit integers, c, d (minus the zero points) and s, t (scales) do not vary along k.
Processors multiply unsigned bytes by signed ones and add neighbours in one instruction, GPUs
signed ones: so a becomes u8, or i8, and b i8, if need be by turning a sign bit, a ^ 128 = a + 128
as the other kind. Sums
of i32 wrap, and so do the parts; sums of floats are turned only where i32 holds them, and are then
rounded once instead of K times. What depends on weights alone is computed when they are set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from ..graph.dtype import DType, f32, i8, i32, u8
from ..graph.folding import number_of
from ..graph.graph import Graph
from ..graph.index import Index, names_of
from ..graph.node import Node, Shape, View, position
from ..graph.passes import Program, cast, rewrite
from ..graph.tensor import Tensor
from ..graph.views import place
from .contracts import load_time_constant

TOGETHER = 4  # products that an instruction adds up
DEEPEST = 6  # operations, from a product to the bytes that it multiplies
MOST = 255  # what n - zero point does not exceed, nor n - zero point after its sign was turned

Shift: TypeAlias = int | Node


@dataclass(frozen=True)
class Bytes:
    """(values + shift) * scales, all of the shape of what they stand for but a number. values: u8
    or i8."""

    values: Node
    shift: Shift = 0
    scales: tuple[Node, ...] = ()


def bytes_multiplied(program: Program, signed: bool = False) -> Program:
    """The pass. signed: both factors become i8."""
    graph = program.graph

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op != "sum" or node.dtype not in (i32, f32) or inputs[0].op != "mul":
            return None
        a, b = (_bytes(graph, factor, DEEPEST) for factor in inputs[0].inputs)
        if a is None or b is None:
            return None
        product = _Product(graph, inputs[0].shape, node.attribute, node.dtype is f32, signed)
        return product.of(a, b)

    return rewrite(program, rule)


# ---- what a factor is made of


def _bytes(graph: Graph, node: Node, left: int) -> Bytes | None:
    """The factor as bytes, if it is made of such."""
    if left == 0 or node.dtype not in (i32, f32):
        return None
    if node.op == "view":
        below = _bytes(graph, node.inputs[0], left - 1)
        return below and _seen(graph, node, below)
    if node.op == "cast":
        (source,) = node.inputs
        return Bytes(source) if source.dtype in (u8, i8) else _bytes(graph, source, left - 1)
    if node.op in ("add", "mul"):
        for one, other in (node.inputs, node.inputs[::-1]):
            found = _bytes(graph, one, left - 1)
            if found is not None:
                return _with(graph, node, found, other)
    return None


def _with(graph: Graph, node: Node, found: Bytes, other: Node) -> Bytes | None:
    """What `add` or `mul` with another value makes of it."""
    if node.op == "mul":
        scales = (*found.scales, other)
        return replace(found, scales=scales) if node.dtype is f32 else None
    number = number_of(other)
    if found.scales or (node.dtype is f32 and (number is None or not float(number).is_integer())):
        return None
    return replace(found, shift=_sum(graph, found.shift, other if number is None else int(number)))


def _seen(graph: Graph, node: Node, found: Bytes) -> Bytes | None:
    """Through a view; the zeros that it puts around are bytes too: the zero point."""
    view: View = node.attribute
    plain, shift = View(view.shape, view.index), found.shift
    fixed = all(not names_of(_index(x)) for x in (*found.scales, shift) if isinstance(x, Node))
    if view.conditions and not (fixed and view.fill == 0):
        return None
    scales = tuple(graph.moved(scale, plain) for scale in found.scales)
    if isinstance(shift, Node):
        shift = graph.moved(shift, plain)
    if not view.conditions:
        return Bytes(graph.moved(found.values, view), shift, scales)
    kind = found.values.dtype
    if isinstance(shift, Node):
        if scales:
            return None
        small, back = _compact(graph, node, range(0))
        zero = graph.wrap(graph.moved(shift, View(small.shape, (Index.of(0),) * len(shift.shape))))
        padded = (graph.wrap(small) - zero).cast(kind)
        return Bytes(graph.moved(padded.node, back), shift)
    if not kind.lowest <= -shift <= kind.highest:
        return None
    ended = View(view.shape, view.index, view.conditions, -shift)
    return Bytes(graph.moved(found.values, ended), shift, scales)


def _sum(graph: Graph, a: Shift, b: Shift) -> Shift:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    a, b = (b, a) if isinstance(a, int) else (a, b)
    assert isinstance(a, Node)
    if b == 0:
        return a
    return (graph.wrap(a) + (graph.wrap(b) if isinstance(b, Node) else b)).node


def _index(node: Node) -> Shape:
    """Where it reads what lies below views, or all of its positions."""
    if node.op == "view" and not node.attribute.conditions:
        index: Shape = node.attribute.index
        return index
    return tuple(map(place, range(len(node.shape))))


def _names(node: Node) -> frozenset[str]:
    """The positions along which its elements differ, as far as its view tells."""
    if node.op != "view":
        return names_of(_index(node))
    view: View = node.attribute
    return names_of((*view.index, *view.conditions)) & {position(d) for d in range(len(view.shape))}


def _compact(graph: Graph, node: Node, more: Sequence[int]) -> tuple[Node, View]:
    """The node with those dimensions only along which it varies, and some more; and the view that
    gives it back."""
    names, count = _names(node), len(node.shape)
    own = [d for d in range(count) if d in more or position(d) in names]
    index = [place(own.index(d)) if d in own else Index.of(0) for d in range(count)]
    small = graph.moved(node, View(tuple(node.shape[d] for d in own), tuple(index)))
    return small, View(node.shape, tuple(map(place, own)))


# ---- the product


class _Product:
    """A sum over dimensions of a product of this shape."""

    def __init__(
        self, graph: Graph, shape: Shape, dims: Sequence[int], floats: bool, signed: bool
    ) -> None:
        self.graph, self.shape, self.dims, self.floats = graph, shape, tuple(dims), floats
        self.signed = signed
        self.summed = frozenset(position(d) for d in dims)
        self.count = prod(shape[d].constant if shape[d].is_constant else 0 for d in dims)

    def of(self, a: Bytes, b: Bytes) -> Node | None:
        """The sum, if it is exact: by an instruction, where one adds such products up and each
        factor is read more often than once; as floats where these hold it."""
        fixed = (x for x in (a.shift, b.shift, *a.scales, *b.scales) if isinstance(x, Node))
        if not self.count or any(_names(x) & self.summed for x in fixed):
            return None
        if self.floats and not self._fits(a, b):
            return None
        mine, its = _names(a.values), _names(b.values)
        both = mine & self.summed and its & self.summed and mine - its and its - mine
        if not both or self.count % TOGETHER:
            return self._in_floats(a, b)
        kinds = {a.values.dtype, b.values.dtype}
        fits = kinds == ({i8} if self.signed else {i8, u8})
        if not self.floats and fits and a.shift == b.shift == 0:
            return None  # it is as it should be
        return self._total(*self._signed(a, b), i32)

    def _in_floats(self, a: Bytes, b: Bytes) -> Node | None:
        """Where f32 holds each sum, products are added to it by one operation; of a factor that is
        known before the run the other one's zero point is multiplied by sums."""
        if not self._fits(a, b) or self.count * MOST * MOST > 1 << 24:
            return None
        known = [load_time_constant(x.values) for x in (a, b)]
        if known == [True, False]:
            a, b = b, a
        if b.shift != 0 or not any(known):
            return None
        return self._total(a, b, f32)

    def _fits(self, a: Bytes, b: Bytes) -> bool:
        """i32 holds the sum, whose shifts are zero points."""
        points = [x.values.dtype for x in (a, b)]
        known = all(
            isinstance(x.shift, int) and kind.lowest <= -x.shift <= kind.highest
            for x, kind in zip((a, b), points)
        )
        return known and self.count * MOST * MOST <= i32.highest

    def _signed(self, a: Bytes, b: Bytes) -> tuple[Bytes, Bytes]:
        """The factor that is u8, and the one that is i8, or both as i8. Of two alike one is turned:
        such that less remains to be added up in a run."""
        if self.signed:
            a, b = (x if x.values.dtype is i8 else self._turned(x) for x in (a, b))
            return a, b
        if a.values.dtype is not b.values.dtype:
            return (a, b) if a.values.dtype is u8 else (b, a)
        if load_time_constant(a.values):
            a, b = b, a
        if a.values.dtype is i8:
            return self._turned(a), b
        turned = self._turned(b)
        return (a, turned) if turned.shift == 0 or b.shift != 0 else (b, self._turned(a))

    def _turned(self, x: Bytes) -> Bytes:
        """The same in the other kind of bytes."""
        by, kind = (-128, u8) if x.values.dtype is i8 else (128, i8)
        source, view = x.values, None
        if source.op == "view":  # what it puts around is turned by itself
            source, view = source.inputs[0], source.attribute
        bits = (self.graph.wrap(cast(self.graph, source, u8)) ^ 128).cast(kind).node
        if view is not None:
            fill = None if view.fill is None else int(view.fill) - by
            bits = self.graph.moved(bits, View(view.shape, view.index, view.conditions, fill))
        return replace(x, values=bits, shift=_sum(self.graph, x.shift, by))

    def _total(self, a: Bytes, b: Bytes, kind: DType) -> Node:
        wide = [self.graph.wrap(cast(self.graph, x.values, kind)) for x in (a, b)]
        total = (wide[0] * wide[1])._reduce("sum", self.dims).cast(i32)
        for one, other in ((a, b), (b, a)):
            if one.shift != 0:
                total = total + self._apart(other.values) * self._outer(one.shift)
        if a.shift != 0 and b.shift != 0:
            total = total + self._outer(a.shift) * self._outer(b.shift) * self.count
        if self.floats:
            total = total.cast(f32)
            for scale in (*a.scales, *b.scales):
                total = total * self._outer(scale)
        return total.node

    def _outer(self, x: Shift) -> Tensor | int:
        """What does not vary along the dimensions that are summed up, without these."""
        if not isinstance(x, Node):
            return x
        kept = [d for d in range(len(self.shape)) if d not in self.dims]
        index = [place(kept.index(d)) if d in kept else Index.of(0) for d in range(len(self.shape))]
        view = View(tuple(self.shape[d] for d in kept), tuple(index))
        return self.graph.wrap(self.graph.moved(x, view))

    def _apart(self, values: Node) -> Tensor:
        """The sum of one factor, over the dimensions that it has."""
        small, back = _compact(self.graph, values, self.dims)
        dims = [n for n, i in enumerate(back.index) if i in map(place, self.dims)]
        total = self.graph.wrap(cast(self.graph, small, i32))._reduce("sum", dims)
        kept = [i for i in back.index if i not in map(place, self.dims)]
        whole = self.graph.moved(total.node, View(values.shape, tuple(kept)))
        outer = self._outer(whole)
        assert isinstance(outer, Tensor)
        return outer
