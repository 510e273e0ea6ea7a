"""From a fused kernel to kernels that are ready for a schedule.

1. A value that is stored and also read is stored by a copy of itself.
2. Casts and copies are written into their readers: a value that costs next to nothing is no value.
3. A sum of several products of matrices is several sums: instructions multiply one product.
4. Reductions that differ in names only walk the same axes, so that they can share loops.
5. Axes that everything walks together are merged (`merge`).
6. Bytes are widened before their bits are picked, if floats are made of them.
7. What a product multiplies is widened outside of the conditions under which it is read.
8. A long reduction with too little beside it for the threads is split in two kernels (`split`).
9. Bounds of axes are derived from masks and padding (`domains`); of products of matrices no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from ..graph.dtype import i32, u8
from ..graph.index import Index
from ..kernel.domains import derive_domains
from ..kernel.kernel import (
    Apply,
    Constant,
    Expression,
    Guard,
    Kernel,
    Load,
    Read,
    Rewriter,
    Value,
    children,
    indices,
    inlined,
    walk,
)
from ..kernel.merge import merge_axes, reindexed
from ..kernel.target import Target
from . import instructions
from .decisions import Decisions
from .divide import stores_apart
from .facts import Facts, weight
from .split import split_reductions

BITS = ("and", "or", "xor", "shift_right")


def prepare(kernel: Kernel, target: Target, decisions: Decisions | None = None) -> list[Kernel]:
    """The kernels that compute this one, in order. decisions: choices that differ from the
    default's own; afterwards, all that were made. Raises Illegal for a choice that is no option.

    A buffer may have lost dimensions (its bytes are the same, row-major), and buffers that only
    these kernels know stand between them: those whose names the original kernel lacks.
    """
    kernel = merge_axes(_alike(_products_apart(_without_casts(_stores_apart(kernel)))))
    kernel = _widened_last(_widened_first(kernel))
    parts = split_reductions(kernel, target, decisions or Decisions())
    return [_whole_for_matrices(derive_domains(part), target) for part in parts]


def _whole_for_matrices(kernel: Kernel, target: Target) -> Kernel:
    """Products that matrices multiply walk all of what they sum where no condition in the kernel
    ends it: only what lies in memory is 0 there."""
    ended = [v for v in kernel.values if v.domain and v.factors]
    if not ended or not target.instructions:
        return kernel
    bare = derive_domains(
        replace(kernel, values=tuple(replace(v, domain={}) for v in kernel.values))
    )
    facts = Facts(kernel, target)
    whole = {v.name for v in ended if instructions.matrices(facts, v)}
    values = tuple(bare.value(v.name) if v.name in whole else v for v in kernel.values)
    kernel = replace(kernel, values=values)
    return merge_axes(kernel) if target.group > 1 else kernel  # which their ends kept apart


def _stores_apart(kernel: Kernel) -> Kernel:
    """Stored values that others read become a value and a stored copy of it."""
    read = {name for v in kernel.values for name in v.reads() - {v.name}}
    return stores_apart(kernel, lambda v: v.name in read)


def _without_casts(kernel: Kernel) -> Kernel:
    """Each reader computes what costs less than one operation: equal sums then look alike."""
    rescales = {name for v in kernel.values for name in v.rescale}
    cheap = {
        v.name: v.body for v in kernel.values
        if not (v.reduction or v.store or v.reads(so_far=True)) and weight(v.body) < 1
        and v.name not in rescales
    }  # fmt: skip
    return replace(kernel, values=inlined(kernel.values, cheap))


def _products_apart(kernel: Kernel) -> Kernel:
    """sum(a b + c d) = sum(a b) + sum(c d), where these are products of matrices."""
    values, watched = list[Value](), {n for v in kernel.values for n in v.reads(so_far=True)}
    for v in kernel.values:
        r, terms = v.reduction, _terms(v.body)
        sums = r is not None and r.op == "sum" and not (v.scans or v.rescale or r.start)
        apart = sums and v.name not in watched and len(terms) > 1
        if not (apart and all(_of_matrices(kernel, v, e) for e in terms)):
            values.append(v)
            continue
        parts = [replace(v, name=f"{v.name}_{n}", body=e, store=None) for n, e in enumerate(terms)]
        read: list[Expression] = [Read(part.name, v.dtype) for part in parts]
        whole = reduce(lambda a, b: Apply("add", (a, b), v.dtype), read)
        domain = {a: ends for a, ends in v.domain.items() if a in v.axes}
        values += [*parts, replace(v, body=whole, reduction=None, domain=domain)]
    return replace(kernel, values=tuple(values))


def _terms(e: Expression) -> list[Expression]:
    """What is added up."""
    added = isinstance(e, Apply) and e.op == "add"
    return [term for arg in children(e) for term in _terms(arg)] if added else [e]


def _of_matrices(kernel: Kernel, v: Value, e: Expression) -> bool:
    """A product of which each factor has an axis of the value that the other one lacks."""
    if not (isinstance(e, Apply) and e.op == "mul"):
        return False
    first, second = (kernel.axes_of(side) & {*v.axes} for side in e.args)
    return not (first <= second or second <= first)


def _alike(kernel: Kernel) -> Kernel:
    """Reductions equal but for buffers and names of reduced axes get the names of the first."""
    values: list[Value] = []
    for v in kernel.values:
        like = (_named_like(v, u, kernel) for u in values if _bound(v, kernel) and u.over)
        values.append(next((found for found in like if found is not None), v))
    used = {a for v in values for a in v.points}
    axes = {a: n for a, n in kernel.axes.items() if a in used}
    return replace(kernel, axes=axes, values=tuple(values))


def _bound(v: Value, kernel: Kernel) -> bool:
    """The names of its reduced axes are its own affair: nothing that it reads, and nobody who reads
    it while it runs, walks them too."""
    if v.reduction is None or v.scans or v.rescale or v.domain:
        return False
    inside = {a for name in v.reads() for a in kernel.value(name).axes}
    running = any(v.name in u.reads(so_far=True) for u in kernel.values)
    return not running and inside.isdisjoint(v.over)


def _named_like(v: Value, u: Value, kernel: Kernel) -> Value | None:
    """The reduction v over the axes of the reduction u, if that makes them alike."""
    given, wanted = _by_use(v), _by_use(u)
    extents = [[kernel.axes[a] for a in names] for names in (given, wanted)]
    if v.axes != u.axes or v.over == u.over or extents[0] != extents[1]:
        return None
    if v.reduction is None or not {*v.axes}.isdisjoint(wanted):
        return None
    axes = dict(zip(given, map(Index.of, wanted)))
    if _over(v.body, axes, erase=True) != _over(u.body, {}, erase=True):
        return None
    reduction = replace(v.reduction, over=u.over)
    return replace(v, body=_over(v.body, axes), reduction=reduction)


def _by_use(v: Value) -> list[str]:
    """The reduced axes in the order in which the body mentions them."""
    used = [
        a
        for e in walk(v.body)
        for index in indices(e)
        for a in sorted(index.names().intersection(v.over), key=index.coefficient)
    ]
    return list(dict.fromkeys([*used, *v.over]))


def _over(body: Expression, axes: Mapping[str, Index], erase: bool = False) -> Expression:
    """The body over other axes. erase: without the names of buffers."""

    def index(i: Index) -> Index:
        return i.substitute(axes)

    def load(e: Load) -> Load:
        name = "" if erase else e.buffer
        return replace(e, buffer=name, index=tuple(map(index, e.index)))

    return reindexed(index, load).expression(body)


def _widened_first(kernel: Kernel) -> Kernel:
    """cast(w & 15) of bytes becomes cast(cast(w, i32) & 15): the digits of a byte share the inner
    cast, and bit operations have lanes as wide as what is made of them."""

    def change(e: Expression) -> Expression:
        if isinstance(e, Apply) and e.op == "cast" and e.dtype.is_float:
            return replace(e, args=tuple(map(_wide, e.args)))
        return e

    rewriter = Rewriter(change)
    return replace(kernel, values=tuple(map(rewriter.value, kernel.values)))


def _widened_last(kernel: Kernel) -> Kernel:
    """Guard(cast(x), 0) as a factor becomes cast(Guard(x, 0)): instructions take it narrow."""

    def widened(v: Value) -> Value:
        args = tuple(map(_guard_inside, v.factors))
        return replace(v, body=Apply("mul", args, v.dtype)) if args else v

    return replace(kernel, values=tuple(map(widened, kernel.values)))


def _guard_inside(e: Expression) -> Expression:
    if not (isinstance(e, Guard) and isinstance(e.body, Apply) and e.body.op == "cast"):
        return e
    (inner,) = e.body.args
    zero = isinstance(e.other, Constant) and e.other.value == 0
    if not zero or inner.dtype.bytes >= e.dtype.bytes:
        return e
    return Apply("cast", (Guard(e.conditions, inner, Constant(0, inner.dtype)),), e.dtype)


def _wide(e: Expression) -> Expression:
    """Bits picked from bytes, as i32; anything else as it is."""
    if not (isinstance(e, Apply) and e.op in BITS and e.dtype is u8):
        return e
    return Apply(e.op, tuple(_as_i32(_wide(a)) for a in e.args), i32)


def _as_i32(e: Expression) -> Expression:
    if isinstance(e, Constant):
        return Constant(e.value, i32)
    return e if e.dtype is i32 else Apply("cast", (e,), i32)
