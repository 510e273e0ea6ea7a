"""Two kernels for a long reduction whose kept axes cannot occupy the threads.

    acc = sum_k f(k)  -->  acc[p] = sum_k f(p size + k);  whole = sum_p acc[p]

The second kernel goes on with the rest. Only where a second launch is worth it. Online reductions,
attention of one new token over a long past, are the same:

    m = max_k s;  t = sum_k f e^(s - m)   -->   m[p], t[p] over the keys of part p;
    m' = max_p m[p];  t' = sum_p t[p] e^(m[p] - m')

The factors are those by which the sums are rescaled when the maximum moves, with that of a part in
the place of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ..graph.dtype import boolean
from ..graph.index import Index
from ..graph.scalars import identity
from ..kernel.kernel import Apply, Constant, Expression, Guard, Kernel, Read, Rewriter, Value
from ..kernel.merge import substituted
from ..kernel.target import Target
from .decisions import Decisions
from .divide import apart
from .facts import Facts

LEAST_WORK = 1 << 18  # points below which one thread is faster than a second kernel
LEAST_PART = 256  # points of the reduced axis in a part
UNITS = 2  # wanted parallel units a thread
LONG = 4  # times the kept elements: a search may split a reduction of so many points, too
ELEMENTS = 4096  # kept elements from which there is enough to share out anyway
ONLINE = 32  # parts of an online reduction
PART = "part_"  # how axes of this module are called


def split_reductions(kernel: Kernel, target: Target, decisions: Decisions) -> list[Kernel]:
    """The kernel, or those that take its place. Raises Illegal for a number of parts that is no
    option."""
    if target.threads == 1:
        return [kernel]
    online, parts = _online(kernel, target, decisions)
    made = list(_Split(kernel, online, parts).kernels()) if parts > 1 else [kernel]
    return [part for each in made for part in _plain(each, target, decisions)]


# ---- which, and in how many parts


def _online(kernel: Kernel, target: Target, decisions: Decisions) -> tuple[str, int]:
    """The axis of the one stream of a kernel, and a number of parts."""
    online = [v for v in kernel.values if v.rescale]
    streams = {v.over for v in online}
    if len(streams) != 1:
        return "", 1
    ((axis, *others),) = streams
    facts = Facts(kernel, target)
    kept = prod(facts.size[a] for a in set.intersection(*(set(v.axes) for v in online)))
    points = max(facts.points(v) for v in kernel.values)
    totals = [v.name for v in kernel.values if axis in v.over]
    late = kernel.behind(totals, so_far=False)
    again = all(_begins_again(v) for v in kernel.values if axis in v.points and v.name not in late)
    again = again and late.isdisjoint(totals)
    if others or 2 * kept > target.threads or points < LEAST_WORK or not again:
        return "", 1
    return axis, decisions.number("parts", ONLINE, (8, 128, 1))


def _begins_again(v: Value) -> bool:
    """It is neither stored nor a scan, and what starts somewhere may do so in each part."""
    r = v.reduction
    again = r is None or r.start is None or (
        r.op in ("max", "min") and isinstance(r.start, Constant)
    )  # fmt: skip
    return again and not v.store and not v.scans


def _plain(kernel: Kernel, target: Target, decisions: Decisions) -> list[Kernel]:
    facts = Facts(kernel, target)
    for v in kernel.values:
        axis = _long_axis(kernel, v, facts)
        if axis is not None:
            parts = _parts(v, axis, facts, decisions)
            return list(_Split(kernel, axis, parts).kernels()) if parts > 1 else [kernel]
    return [kernel]


def _parts(v: Value, axis: str, facts: Facts, decisions: Decisions) -> int:
    """A number of parts that divides the axis; by default one where the kept axes occupy the
    threads: each row that lies side by side is a unit, else some vectors are."""
    size, threads = facts.size[axis], facts.target.threads
    most = min(size // LEAST_PART, 4 * UNITS * threads)
    exact = [n for n in range(most, threads - 1, -1) if size % n == 0]
    kept = prod(facts.size[a] for a in v.axes)
    rows = any(x.axes & {*v.axes} and x.stride(a) == 1 and not x.packable
               for x in facts.accesses(v) for a in v.over)  # fmt: skip
    few = -(-kept // (1 if rows else 4 * facts.lanes)) < UNITS * threads
    if not few and size < LONG * kept:
        return 1
    some = {*exact[:1], *exact[-1:], *exact[len(exact) // 2 : len(exact) // 2 + 1]}
    return decisions.number("parts", exact[0] if few and exact else 1, [*sorted(some), 1])


def _long_axis(kernel: Kernel, v: Value, facts: Facts) -> str | None:
    """A reduced axis of constant size that holds nearly all the work of a first reduction."""
    if v.reduction is None or v.scans or v.rescale or v.domain:
        return None
    readers = sum(v.name in u.reads() for u in kernel.values)
    alone = kernel.values[0] is v and readers == (0 if v.store else 1)
    running = any(u.reduction and set(u.over) & set(v.over) for u in kernel.values if u is not v)
    kept = prod(facts.size[a] for a in v.axes)
    if not alone or running or kept >= ELEMENTS or facts.points(v) < LEAST_WORK:
        return None
    heavy = facts.points(v) >= sum(facts.points(u) for u in kernel.values) / 2
    if not heavy:
        return None
    fixed = [a for a in v.over if facts.static[a]]
    return max(fixed, key=lambda a: facts.size[a], default=None)


# ---- the two kernels


class _Split:
    """`totals`: the reductions over the axis. `inside`: what differs from part to part: it walks
    the axis, or sees what runs along it. The second kernel has what reads a whole total, or follows
    from it, and all that this needs or that is stored: it may walk the axis again."""

    def __init__(self, kernel: Kernel, axis: str, parts: int) -> None:
        self.kernel, self.axis = kernel, axis
        self.part, self.parts = f"{PART}{axis}", Index.of(parts)
        self.size = kernel.space().floor(kernel.axes[axis] + (parts - 1), parts)
        self.by_name = {v.name: v for v in kernel.values}
        self.totals = {v.name: v for v in kernel.values if axis in v.over}
        factors = {name for v in self.totals.values() for name in v.beside}
        late = kernel.behind(self.totals, so_far=False)
        self.inside = {
            v.name for v in kernel.values if v.name not in late
            and (axis in v.points or v.name in factors or v.reads(so_far=True) & self.totals.keys())
        }  # fmt: skip

    def kernels(self) -> Iterator[Kernel]:
        first = self._first()
        axes = {self.part: self.parts, **self.kernel.axes}
        whole = replace(self.kernel, axes=axes)
        passed = [v for v in first if v.name in self.totals]
        one, two = apart(whole, first, self._second(), passed, direct=True)
        yield replace(one, axes={**one.axes, self.axis: self.size})
        yield two

    def _first(self) -> list[Value]:
        """The values in parts, and what they read that is the same in all of them."""
        here = Index.of(self.part) * self.size + self.axis
        early = (v for v in self.by_name.values() if v.name in self.inside or not v.store)
        alone = replace(self.kernel, values=tuple(replace(v, domain={}) for v in early))
        values = substituted(alone, {self.axis: here}).values
        return [self._of_part(v, here) if v.name in self.inside else v for v in values]

    def _of_part(self, v: Value, here: Index) -> Value:
        body, r = v.body, v.reduction
        if self.axis in v.points:
            outside = identity(r.op, v.dtype) if r else 0
            room = self.kernel.axes[self.axis] - 1 - here
            body = Guard((room,), body, Constant(outside, body.dtype))
        if r is not None and r.op not in ("max", "min"):
            r = replace(r, start=None)
        return replace(v, axes=(self.part, *v.axes), body=body, reduction=r, store=None)

    # ---- and what they come to

    def _second(self) -> Iterator[Value]:
        running = {n for v in self.by_name.values() for n in v.reads(so_far=True)}
        for v in sorted(self.totals.values(), key=lambda v: v.name not in running):
            yield self._whole(v)
        behind = Rewriter(self._of_all)
        yield from (behind.value(replace(v, domain={})) for v in self.by_name.values()
                    if v.name not in self.totals)  # fmt: skip

    def _of_all(self, e: Expression) -> Expression:
        """What is read of totals behind them."""
        total = isinstance(e, Read) and e.value in self.totals
        return Read(_all(e.value), e.dtype) if isinstance(e, Read) and total else e

    def _whole(self, v: Value) -> Value:
        assert v.reduction is not None
        body: Expression = Read(v.name, v.dtype)
        for factor in v.rescale:
            body = self._scaled(v, self.by_name[factor])
        reduction = replace(v.reduction, over=(self.part,), rescale=None)
        return replace(v, name=_all(v.name), body=body, reduction=reduction, domain={})

    def _scaled(self, v: Value, factor: Value) -> Expression:
        """A part's sum, by its factor; a part in which nothing counted has none."""
        body = Apply("mul", (Read(v.name, v.dtype), self._at_parts(factor)), v.dtype)
        for name in sorted(self._seen(factor)):
            top = self.totals[name]
            assert top.reduction is not None
            if top.reduction.start is None:
                nothing = Constant(identity(top.reduction.op, top.dtype), top.dtype)
                empty = Apply("equal", (Read(name, top.dtype), nothing), boolean)
                body = Apply("select", (empty, Constant(0.0, v.dtype), body), v.dtype)
        return body

    def _seen(self, v: Value) -> set[str]:
        """The running totals on which a value depends."""
        found = {*v.reads(so_far=True)} & self.totals.keys()
        for name in v.reads(so_far=False) & self.inside:
            found |= self._seen(self.by_name[name])
        return found

    def _at_parts(self, v: Value) -> Expression:
        """The body of a factor: what ran before it is of a part, what runs is of all."""
        order = list(self.by_name)

        def change(e: Expression) -> Expression:
            if not isinstance(e, Read):
                return e
            if e.value in self.totals:
                early = order.index(v.name) < order.index(e.value)
                return Read(e.value if early else _all(e.value), e.dtype)
            return self._at_parts(self.by_name[e.value]) if e.value in self.inside else e

        return Rewriter(change).expression(v.body)


def _all(name: str) -> str:
    """What a total is called where it is of all parts."""
    return f"{name}_all"
