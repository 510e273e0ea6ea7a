"""The derivative of every kind of node, one row each.

ELEMENTWISE: for each operand of a scalar operation a function that is linear in its first argument
t: what a small change t of that operand does to the result y. Applied to the gradient of y it gives
the gradient of the operand, because elementwise maps are their own transposes; applied to the
tangent of the operand it gives that of y. None: no change passes. STRUCTURAL: operations that move
or combine elements have the two directions apart, `pull` for gradients and `push` for tangents.

Where an extremum is attained several times the gradient is shared equally, as by PyTorch's amax
(not its max along a dimension: see `composites`); beside a number (relu) it is 0 there. NaN is no
special case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import ops
from ..graph.dtype import i64
from ..graph.node import Composite, Node, View
from ..graph.scalars import SCALARS
from ..graph.tensor import Tensor
from ..ops.base import full_like, named, positions, size_value
from .transpose import transposed

LN_2 = math.log(2)
Change = Callable[..., Tensor]  # (t, y, *operands)
Maybe = Tensor | None  # None is zero
Writers = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]


def _beyond(t: Tensor, own: Tensor, other: Tensor, wins: Tensor) -> Tensor:
    """t where this operand of max or min wins, half of it at a tie."""
    if _number(other):
        return ops.where(wins, t, 0.0)
    return ops.where(wins, t, ops.where(ops.eq(own, other), t * 0.5, 0.0))


def _number(x: Tensor) -> bool:
    """One literal everywhere."""
    node = x.node.inputs[0] if x.node.op == "view" else x.node
    return node.op == "literal"


def _cast(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return t.cast(x.dtype if t.dtype is y.dtype else y.dtype)


ELEMENTWISE: dict[str, tuple[Change | None, ...]] = {
    "log2": (lambda t, y, x: t / (x * LN_2),),
    "exp2": (lambda t, y, x: t * (y * LN_2),),
    "sin": (lambda t, y, x: t * ops.cos(x),),
    "cos": (lambda t, y, x: -(t * ops.sin(x)),),
    "sqrt": (lambda t, y, x: t / (y * 2.0),),
    "recip": (lambda t, y, x: -(t * y * y),),
    "add": (lambda t, y, a, b: t, lambda t, y, a, b: t),
    "mul": (lambda t, y, a, b: t * b, lambda t, y, a, b: t * a),
    "div": (lambda t, y, a, b: t / b, lambda t, y, a, b: -(t * y / b)),
    "mod": (lambda t, y, a, b: t, lambda t, y, a, b: -(t * ops.floor(a / b))),
    "max": (
        lambda t, y, a, b: _beyond(t, a, b, b < a),
        lambda t, y, a, b: _beyond(t, b, a, a < b),
    ),
    "min": (
        lambda t, y, a, b: _beyond(t, a, b, a < b),
        lambda t, y, a, b: _beyond(t, b, a, b < a),
    ),
    "select": (
        None,
        lambda t, y, c, a, b: ops.where(c, t, 0.0),
        lambda t, y, c, a, b: ops.where(c, 0.0, t),
    ),
    "cast": (_cast,),
    "floor": (None,),
    "ceil": (None,),
    "trunc": (None,),
    "round": (None,),
}


@dataclass(frozen=True)
class Structural:
    """pull(g, y, inputs): gradients of the inputs from that of the result y. push(tangents, y,
    inputs): the tangent of y; a tangent may be None, not all."""

    pull: Callable[[Tensor, Tensor, Sequence[Tensor]], Sequence[Maybe]]
    push: Callable[[Sequence[Maybe], Tensor, Sequence[Tensor]], Tensor]


def changes(node: Node) -> tuple[Change | None, ...] | None:
    """The row of an elementwise operation; None for the others."""
    if node.op not in SCALARS or node.attribute is not None:
        return None
    stopped = node.op == "cast" and node.dtype is node.inputs[0].dtype
    return (None,) if stopped else ELEMENTWISE[node.op]


# ---- reductions


def spread(g: Tensor, dims: Sequence[int], x: Tensor) -> Tensor:
    """What a reduction of x dropped comes back, by repetition."""
    for dim in dims:
        g = g.unsqueeze(dim)
    return g.expand(x.shape)


def _sum_pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
    return (spread(g, y.node.attribute, inputs[0]),)


def _sum_push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    (t,) = tangents
    assert t is not None
    return t.sum(y.node.attribute)


def _hits(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Where an extremum is attained, and how often."""
    dims = y.node.attribute
    hit = ops.eq(x, spread(y, dims, x))
    return hit, hit.cast(y.dtype).sum(dims)


def _extreme_pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
    (x,) = inputs
    hit, count = _hits(y, x)
    return (ops.where(hit, spread(g / count, y.node.attribute, x), 0.0),)


def _extreme_push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    (t,), (x,) = tangents, inputs
    assert t is not None
    hit, count = _hits(y, x)
    return ops.where(hit, t, 0.0).sum(y.node.attribute) / count


def _others(y: Tensor, x: Tensor) -> Tensor:
    """For every element the product of all others: those before it times those after it."""
    dims = y.node.attribute
    kept = [d for d in range(x.ndim) if d not in dims]
    flat = x.permute(*kept, *dims).flatten(len(kept))
    before = _shifted(flat).scan("prod", flat.ndim - 1)
    after = _shifted(flat.flip(-1)).scan("prod", flat.ndim - 1).flip(-1)
    order = [*kept, *dims]
    moved = (before * after).unflatten(-1, [x.node.shape[d] for d in dims])
    return moved.permute([order.index(d) for d in range(x.ndim)])


def _shifted(x: Tensor) -> Tensor:
    """One place to the right along the last dimension; a 1 comes first."""
    return x.pad([(0, 0)] * (x.ndim - 1) + [(1, -1)], 1.0)


def _prod_pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
    (x,) = inputs
    return (spread(g, y.node.attribute, x) * _others(y, x),)


def _prod_push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    (t,), (x,) = tangents, inputs
    return (_others(y, x) * t).sum(y.node.attribute)


# ---- running reductions


def _scan_pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
    (x,), scan = inputs, y.node.attribute
    if scan.op == "sum":
        return (_backwards(g, scan.dim),)
    if scan.op == "prod":
        first = _around_zero(x, scan.dim)
        return (first.pull(g, y, _behind(first, x, g, False)),)
    nothing = full_like(x, 0.0)
    return (nothing._scatter(_attained(y, x), g, scan.dim, "sum"),)


def _scan_push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    (t,), (x,), scan = tangents, inputs, y.node.attribute
    assert t is not None
    if scan.op == "sum":
        return t.scan("sum", scan.dim)
    if scan.op == "prod":
        first = _around_zero(x, scan.dim)
        return first.push(t, y) + _behind(first, x, t, True)
    return t._gather(_attained(y, x), scan.dim)


def _backwards(g: Tensor, dim: int) -> Tensor:
    """Each element and all after it."""
    return g.flip(dim).scan("sum", dim).flip(dim)


def _attained(y: Tensor, x: Tensor) -> Tensor:
    """Where a running extremum was last attained."""
    dim = y.node.attribute.dim
    return ops.where(ops.eq(x, y), positions(x, dim), 0).scan("max", dim)


@dataclass(frozen=True)
class _Zero:
    """Around the first 0 along a dimension. alive: all before it. without, rest: the factors and
    their running product without it."""

    dim: int
    zero: Tensor
    alive: Tensor
    without: Tensor
    rest: Tensor

    def pull(self, g: Tensor, y: Tensor, behind: Tensor | float = 0.0) -> Tensor:
        """behind: the gradients of all behind the 0."""
        before = _backwards(g * y, self.dim) / self._safe
        others = ops.where(self.alive, before, behind)
        return ops.where(self.zero, _backwards(g * self.rest, self.dim), others)

    def push(self, t: Tensor, y: Tensor) -> Tensor:
        """Of what is before the 0, and of the 0."""
        before = ops.where(self.alive, t / self._safe, 0.0).scan("sum", self.dim)
        return y * before + self.rest * ops.where(self.zero, t, 0.0).scan("sum", self.dim)

    @property
    def _safe(self) -> Tensor:
        return ops.where(self.alive, self.without, 1.0)


def _around_zero(x: Tensor, dim: int) -> _Zero:
    flat = ops.eq(x, 0.0)
    count = flat.cast(i64).scan("sum", dim)
    zero = ops.logical_and(flat, ops.eq(count, 1))
    without = ops.where(zero, 1.0, x)
    return _Zero(dim, zero, ops.eq(count, 0), without, without.scan("prod", dim))


def _behind(first: _Zero, x: Tensor, t: Tensor, ahead: bool) -> Tensor:
    """What a change of factors behind the first 0 does: 0, with a slope along that factor, for
    which nothing is computed until it is asked for."""
    value = ops.where(first.zero, x, 0.0).sum(first.dim, keepdim=True).expand(x.shape)
    known = Composite("behind_zero", (value.node, x.node, t.node), (first.dim, ahead))
    return named(full_like(x, 0.0), known)


def behind_zero(x: Tensor, t: Tensor, dim: int, ahead: bool) -> Tensor:
    """The derivative of a running product without its first 0, after that: exact up to a second."""
    first = _around_zero(x, dim)
    second = _around_zero(first.without, dim)
    if not ahead:
        return second.pull(t, first.rest)
    later = ops.where(ops.logical_or(first.alive, first.zero), 0.0, t)
    return second.push(later, first.rest)


# ---- movement


def _view_pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
    return (transposed(g, y.node.attribute, inputs[0].node.shape),)


def _view_push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    (t,), view = tangents, y.node.attribute
    assert t is not None
    fill = t.graph.literal(0, t.dtype).node.attribute if view.conditions else None
    return t.moved(View(view.shape, view.index, view.conditions, fill))


def _gather_pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
    (x, index), dim = inputs, y.node.attribute
    last = size_value(x.graph, x.node.shape[dim] - 1, i64)
    inside = ops.maximum(ops.minimum(index.cast(i64), last), 0)
    return full_like(x, 0.0)._scatter(inside, g, dim, "sum"), None


def _gather_push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    t = tangents[0]
    assert t is not None
    return t._gather(inputs[1], y.node.attribute)


# ---- scatter


def _scatter_pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
    base, index, values = inputs
    of_base, of_values = _writers(y, base, index, values)
    picked = g._gather(index, y.node.attribute.dim)
    written = _inside(y, index)
    return of_base(g), None, ops.where(written, of_values(picked), 0.0)


def _scatter_push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    (base, index, values), dim = inputs, y.node.attribute.dim
    t, _, u = tangents
    of_base, of_values = _writers(y, base, index, values)
    total = full_like(base, 0.0) if t is None else of_base(t)
    return total if u is None else total._scatter(index, of_values(u), dim, "sum")


def _inside(y: Tensor, index: Tensor) -> Tensor:
    size = size_value(y.graph, y.node.shape[y.node.attribute.dim], i64)
    wide = index.cast(i64)
    return ops.logical_and(wide >= 0, wide < size)


def _writers(y: Tensor, base: Tensor, index: Tensor, values: Tensor) -> Writers:
    """How a change of the base and one of the values, each at its own place, change the result."""
    return _WRITERS[y.node.attribute.mode](y, base, index, values)


def _added(y: Tensor, base: Tensor, index: Tensor, values: Tensor) -> Writers:
    return (lambda t: t), (lambda t: t)


def _replaced(y: Tensor, base: Tensor, index: Tensor, values: Tensor) -> Writers:
    """The last writer of a place: along the dimension, since only there two can meet."""
    dim = y.node.attribute.dim
    own = positions(index, dim)
    last = full_like(base, -1, i64)._scatter(index, own, dim, "max")
    wins = ops.eq(last._gather(index, dim), own)
    return (lambda t: ops.where(last < 0, t, 0.0)), (lambda t: ops.where(wins, t, 0.0))


def _shared(y: Tensor, base: Tensor, index: Tensor, values: Tensor) -> Writers:
    dim = y.node.attribute.dim
    kept, hit = ops.eq(base, y), ops.eq(values, y._gather(index, dim))
    count = kept.cast(y.dtype)._scatter(index, hit.cast(y.dtype), dim, "sum")
    each = count._gather(index, dim)
    return (lambda t: ops.where(kept, t / count, 0.0)), (lambda t: ops.where(hit, t / each, 0.0))


def _multiplied(y: Tensor, base: Tensor, index: Tensor, values: Tensor) -> Writers:
    """The product of all other factors: of those that are not 0, times those that are."""
    dim = y.node.attribute.dim
    no_base, no_value = ops.eq(base, 0.0), ops.eq(values, 0.0)
    factor, factors = ops.where(no_base, 1.0, base), ops.where(no_value, 1.0, values)
    zeros = no_base.cast(i64)._scatter(index, no_value.cast(i64), dim, "sum")
    whole = factor._scatter(index, factors, dim, "prod")
    nothing, nothings = ops.where(no_base, base, 0.0), ops.where(no_value, values, 0.0)
    total = nothing._scatter(index, nothings, dim, "sum")
    each, all_zeros, all_of = (part._gather(index, dim) for part in (whole, zeros, total))
    others, others_too = zeros - no_base.cast(i64), all_zeros - no_value.cast(i64)
    return (
        lambda t: _times_zeros(t * whole / factor, others, total - nothing),
        lambda t: _times_zeros(t * each / factors, others_too, all_of - nothings),
    )


def _times_zeros(x: Tensor, count: Tensor, total: Tensor) -> Tensor:
    """x times so many zeros, of which a single one has a slope: it is their sum."""
    one = ops.where(ops.eq(count, 1), _finite(x) * total, 0.0)
    return ops.where(ops.eq(count, 0), x, one)


def _finite(x: Tensor) -> Tensor:
    """x, for a product with 0 that is 0."""
    return ops.where(ops.isfinite(x), x, 0.0)


_WRITERS = {
    "set": _replaced,
    "sum": _added,
    "max": _shared,
    "min": _shared,
    "prod": _multiplied,
}
STRUCTURAL = {
    "sum": Structural(_sum_pull, _sum_push),
    "max": Structural(_extreme_pull, _extreme_push),
    "min": Structural(_extreme_pull, _extreme_push),
    "prod": Structural(_prod_pull, _prod_push),
    "scan": Structural(_scan_pull, _scan_push),
    "view": Structural(_view_pull, _view_push),
    "gather": Structural(_gather_pull, _gather_push),
    "scatter": Structural(_scatter_pull, _scatter_push),
}
