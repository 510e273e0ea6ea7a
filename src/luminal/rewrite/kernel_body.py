"""One piece of a plan as values of a kernel.

A value is a reduction, a node used twice, or what is stored; everything else is part of an
expression. Sums over one online maximum share four values: the maximum before a step, after it, the
factor by which sums shrink, and the weights. Products under a sum are regrouped into two factors by
their axes, since the association that the e-graph leaves is arbitrary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import ml_dtypes

from ..graph.dtype import DType
from ..graph.index import Index
from ..graph.order import post_order
from ..kernel.kernel import (
    Apply,
    Buffer,
    Constant,
    Expression,
    Guard,
    Load,
    Position,
    Read,
    Reduction,
    Store,
    Value,
)
from .cost import contraction_operands
from .extract import ENode
from .language import moderate
from .maps import conditions_of
from .plan import FusedKernel, Plan
from .terms import SLOT, ScatterMap

TRIVIAL = frozenset(("load", "read", "const", "index", "one"))
Slots = tuple[tuple[str, Expression], ...]
Known = tuple[Index, ...]  # conditions that hold where an expression is evaluated


@dataclass(frozen=True)
class BufferView:
    """A buffer, its axes in memory order, and which of them the value in it depends on."""

    buffer: Buffer
    axes: tuple[str, ...]
    own: frozenset[str]


def load_from(
    place: BufferView, dtype: DType, at: Mapping[str, Index] = {}, slots: Slots = ()
) -> Load:
    """The buffer at the reader's own point, or elsewhere along some axes."""
    index = (at.get(a, Index.of(a)) if a in place.own else Index.of(0) for a in place.axes)
    return Load(place.buffer.name, tuple(index), dtype, slots)


class Body:
    """The values of one kernel."""

    def __init__(self, plan: Plan, piece: FusedKernel, place: Callable[[int], BufferView]) -> None:
        self.classes, self.encoding = plan.classes, plan.classes.encoding
        self.space = self.encoding.space
        self.place = place
        self.node = dict(piece.body)
        self.values: list[Value] = []
        self.made: dict[int, Read] = {}
        self.targets: dict[int, BufferView] = {}
        self.order: list[str] = []  # axes, outermost first, as the stored values have them
        self.uses = Counter(child for n in self.node.values() for child in n.inline)
        self.online: dict[tuple[int, int, float], str] = {}
        self.streams = {_stream(n) for n in self.node.values() if n.op == "osum"}

    # ---- values

    def store(self, targets: Mapping[int, BufferView]) -> None:
        """Compute classes and store them."""
        self.targets.update(targets)
        for place in targets.values():
            self.order += [a for a in place.axes if a not in self.order]
        for c in targets:
            self.expression(c, ())

    def axes(self, mask: int) -> tuple[str, ...]:
        """The axes of a mask, in the order of what is stored."""
        names = self.encoding.names(mask)
        rank = {a: i for i, a in enumerate(self.order)}
        return tuple(sorted(names, key=lambda a: rank.get(a, len(rank))))

    def value(
        self, c: int, name: str, body: Expression, reduction: Reduction | None = None
    ) -> Read:
        """A value for a class, stored if the kernel stores the class (by a value of its own if it
        is read in the kernel as well, or repeated along more axes)."""
        dtype = self.classes.dtype[c]
        axes = self.axes(self.classes.axes[c])
        place = self.targets.get(c)
        direct = set(axes) == set(place.axes if place else ()) or reduction is None
        if place is not None and direct and not self.uses[c]:
            store = plain_store(place)
            return self._add(Value(name, place.axes, body, dtype, reduction, store))
        read = self._add(Value(name, axes, body, dtype, reduction))
        if place is not None:
            store = plain_store(place)
            self._add(Value(f"{name}_out", place.axes, read, dtype, store=store))
        return read

    def _add(self, value: Value) -> Read:
        self.values.append(value)
        return Read(value.name, value.dtype)

    # ---- expressions

    def expression(self, c: int, known: Known) -> Expression:
        """The value of a class where these conditions hold."""
        if c in self.made:
            return self.made[c]
        node = self.node[c]
        if node.over or node.op == "scan":
            self.made[c] = self._reduced(c, node)
            return self.made[c]
        shared = self.uses[c] > 1 and node.op not in TRIVIAL
        if c in self.targets or shared:
            self.made[c] = self.value(c, f"v{c}", self.pointwise(c, node, ()))
            return self.made[c]
        return self.pointwise(c, node, known)

    def pointwise(self, c: int, node: ENode, known: Known) -> Expression:
        dtype = self.classes.dtype[c]
        if node.op == "load":
            return load_from(self.place(c), dtype)
        if node.op in ("read", "gather"):
            return self._read(node, dtype, known)
        if node.op == "const":
            return Constant(node.attribute, dtype)
        if node.op == "index":
            return Position(node.attribute, dtype)
        if node.op == "wexp":
            return self._weight(node, dtype, known)
        if node.op == "guard":
            return self._guard(node, known)
        args = tuple(self.expression(x, known) for x in node.children)
        itself = node.op == "cast" and args[0].dtype is dtype  # under another name: `checkpoint`
        return args[0] if itself else Apply(node.op, args, dtype)

    def _read(self, node: ENode, dtype: DType, known: Known) -> Expression:
        """A load at a map; guarded where nothing around it says that it stays inside."""
        found = node.attribute
        place = self.place(node.children[0])
        slots = tuple((SLOT, self.expression(x, known)) for x in node.children[1:])
        load = load_from(place, dtype, dict(found.entries), slots)
        conditions = conditions_of(self.space, found)
        if conditions is None:
            return zero(dtype)
        missing = tuple(c for c in conditions if not self.space.implies(known, c))
        return Guard(missing, load, zero(dtype)) if missing else load

    def _guard(self, node: ENode, known: Known) -> Expression:
        domain: Known = node.attribute
        first, second = node.children
        body = self.expression(first, known + domain)
        complement = (-1 - domain[0],) if len(domain) == 1 else ()
        return Guard(domain, body, self.expression(second, known + complement))

    # ---- reductions

    def _reduced(self, c: int, node: ENode) -> Read:
        name = f"r{c}"
        if node.op == "osum":
            return self._online_sum(c, node)
        if node.op == "scan":
            running, axis = node.attribute
            reduction = Reduction(running, (axis,), scan=True)
            return self.value(c, name, self.expression(node.children[0], ()), reduction)
        child = node.children[-1]
        body = self.product(child) if node.op == "sum" else self.expression(child, ())
        return self.value(c, name, body, Reduction(node.op, self.axes(node.over)))

    def _weight(self, node: ENode, dtype: DType, known: Known) -> Expression:
        """2^(c (x - max_k x)): with the running maximum's end where an online sum runs over it."""
        over, scale = node.attribute
        score = node.children[0]
        if _stream(node) in self.streams:
            top: Expression = Read(f"{self._stream_values(node)}_top", dtype)
        else:
            top = self._maximum(over, score)
        return exponential(self.expression(score, known), top, scale, dtype)

    def _maximum(self, over: int, score: int) -> Expression:
        for c, node in self.node.items():
            if node.op == "max" and node.over == over and node.children[0] == score:
                return self.expression(c, ())
        name = f"m{score}_{over}"
        dtype = self.classes.dtype[score]
        if not any(v.name == name for v in self.values):
            axes = self.axes(self.classes.axes[score] & ~over)
            body, reduction = self.expression(score, ()), Reduction("max", self.axes(over))
            self._add(Value(name, axes, body, dtype, reduction))
        return Read(name, dtype)

    def _stream_values(self, node: ENode) -> str:
        """Running maximum of x over k, its correction, the weights 2^(c (x - maximum so far))."""
        key = _stream(node)
        if key in self.online:
            return self.online[key]
        over, scale, score = key[0], key[2], key[1]
        dtype = self.classes.dtype[score]
        name = f"o{score}_{over}" + (f"_{len(self.online)}" if self.online else "")
        self.online[key] = name
        kept = self.axes(self.classes.axes[score] & ~over)
        along = self.axes(self.classes.axes[score] | over)
        body = self.expression(score, ())
        if not isinstance(body, Read):
            body = self._add(Value(f"{name}_x", along, body, dtype))
        running = Read(f"{name}_top", dtype, so_far=True)
        before = self._add(Value(f"{name}_before", kept, running, dtype))
        start = Constant(lowest(dtype), dtype)
        maximum = Reduction("max", self.axes(over), start)
        self._add(Value(f"{name}_top", kept, body, dtype, maximum))
        shrink = exponential(before, running, scale, dtype)
        self._add(Value(f"{name}_shrink", kept, shrink, dtype))
        weight = exponential(body, running, scale, dtype)
        self._add(Value(f"{name}_p", along, weight, dtype))
        return name

    def _online_sum(self, c: int, node: ENode) -> Read:
        """sum_k f 2^(c (x - max_k x)), in one pass; in a later one if f needs the maximum's end."""
        name, factor = self._stream_values(node), node.children[1]
        dtype, over = self.classes.dtype[c], self.axes(node.over)
        later = self._needs_end(factor, _stream(node))
        weight = self._weight(node, dtype, ()) if later else Read(f"{name}_p", dtype)
        axes = self.classes.axes[node.children[0]] | node.over
        body = weight if self.node[factor].op == "one" else self.product(factor, (axes, weight))
        rescale = None if later else Read(f"{name}_shrink", dtype)
        return self.value(c, f"r{c}", body, Reduction("sum", over, rescale=rescale))

    def _needs_end(self, c: int, stream: tuple[int, int, float]) -> bool:
        """Whether a value of this piece needs all of a running maximum, or of a sum over it."""
        inside = post_order([c], lambda x: self.node[x].inline if x in self.node else ())
        nodes = [self.node[x] for x in inside if x in self.node]
        running = (n for n in nodes if n.op in ("wexp", "osum"))
        maxima = ((n.over, n.children[0]) for n in nodes if n.op == "max")
        return stream in map(_stream, running) or stream[:2] in maxima

    # ---- products under a sum

    def product(self, c: int, *first: tuple[int, Expression]) -> Expression:
        """The factors, regrouped into two sides: each joins the smaller side that has its axes.
        first: one more of them, with its axes."""
        factors, dtype = list(first), self.classes.dtype[c]
        self._flatten(c, factors)
        pair = contraction_operands([mask for mask, _ in factors])
        if pair is None:
            return multiply([factor for _, factor in factors], dtype)
        sides = {factors[h][0]: [factors[h][1]] for h in pair}
        for i, (mask, factor) in enumerate(factors):
            if i not in pair:
                fit = [side for side in sides if not mask & ~side] or list(sides)
                sides[min(fit, key=self._points)].append(factor)
        return Apply("mul", tuple(multiply(side, dtype) for side in sides.values()), dtype)

    def _flatten(self, c: int, factors: list[tuple[int, Expression]]) -> None:
        node = self.node[c]
        if node.op == "mul" and self._inline(c) and not self._keeps_range(node):
            for child in node.children:
                self._flatten(child, factors)
        else:
            factors.append((self.classes.axes[c], self.expression(c, ())))

    def _inline(self, c: int) -> bool:
        return c not in self.made and c not in self.targets and self.uses[c] < 2

    def _keeps_range(self, node: ENode) -> bool:
        """A factor times a number that may keep the whole product from overflowing."""
        numbers = [x for x in node.children if self.node[x].op == "const"]
        products = [x for x in node.children if self.node[x].op == "mul" and self._inline(x)]
        return not products and any(not moderate(self.node[x].attribute) for x in numbers)

    def _points(self, mask: int) -> float:
        extents = (self.space.axes[a] for a in self.encoding.names(mask))
        return prod(min(self.space.bounds(extent)[1], 1 << 20) for extent in extents)


def scatter_value(body: Body, node: ENode, place: BufferView) -> None:
    """The value that writes into the buffer of a scatter, in row-major order of its points."""
    found: ScatterMap = node.attribute
    _, slot, values = node.children
    body.order = list(found.along)
    slots, entries = ((SLOT, body.expression(slot, ())),), dict(found.entries)
    index = tuple(entries[a] for a in place.axes)
    plain = {n for i in index if SLOT not in i.names() for n in i.names()}
    ordered = tuple(a for a in found.along if a not in plain)
    if len(ordered) == 1 and _moves(slots[0][1], ordered[0]):
        ordered = ()
    store = Store(place.buffer.name, index, slots, found.mode, ordered)
    number = len(body.values)
    dtype = body.classes.dtype[values]
    content = body.expression(values, ())
    body.values.append(Value(f"w{number}", found.along, content, dtype, store=store))


def _moves(slot: Expression, axis: str) -> bool:
    """Each step along the axis is an element of its own: a position of a cache, and further on."""
    if not isinstance(slot, Position):
        return False
    step = slot.index.coefficient(axis)
    return step != 0 and axis not in (slot.index - step * Index.of(axis)).names()


def _stream(node: ENode) -> tuple[int, int, float]:
    """What online sums must agree in to share a running maximum: axes, score, scale."""
    over, scale = node.attribute
    return over, node.children[0], scale


def plain_store(place: BufferView) -> Store:
    return Store(place.buffer.name, tuple(Index.of(a) for a in place.axes))


# ---- small expressions


def zero(dtype: DType) -> Constant:
    return Constant(0.0 if dtype.is_float else False if dtype.kind == "bool" else 0, dtype)


def lowest(dtype: DType) -> float:
    """The smallest finite number: 2^(x - lowest) is defined also where all x are minus infinity."""
    return float(ml_dtypes.finfo(dtype.numpy).min)


def exponential(x: Expression, top: Expression, scale: float, dtype: DType) -> Expression:
    difference = Apply("add", (x, Apply("mul", (top, Constant(-1.0, dtype)), dtype)), dtype)
    if scale != 1.0:
        difference = Apply("mul", (difference, Constant(scale, dtype)), dtype)
    return Apply("exp2", (difference,), dtype)


def multiply(factors: list[Expression], dtype: DType) -> Expression:
    total = factors[0]
    for factor in factors[1:]:
        total = Apply("mul", (total, factor), dtype)
    return total
