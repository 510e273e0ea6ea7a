"""Two kernels for online reductions whose kept axes cannot occupy the threads: attention of one new
token over a long past.

    m = max_k s;  t = sum_k f e^(s - m)   -->   m[p], t[p] over the keys of part p;
    m = max_p m[p];  t = sum_p t[p] e^(m[p] - m)

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
from ..kernel.kernel import (
    Apply,
    Buffer,
    Constant,
    Expression,
    Guard,
    Kernel,
    Load,
    Read,
    Rewriter,
    Store,
    Value,
)
from ..kernel.merge import rewrite
from ..kernel.target import Target
from .decisions import Decisions
from .facts import Facts
from .split import LEAST_WORK, PART, trimmed

PARTS = 32


def split_online(kernel: Kernel, target: Target, decisions: Decisions) -> list[Kernel]:
    """The kernel, or the two that take its place."""
    online = [v for v in kernel.values if v.reduction and v.reduction.rescale]
    streams = {v.over for v in online}
    parted = any(a.startswith(PART) for a in kernel.axes)
    if len(streams) != 1 or target.threads == 1 or parted:
        return [kernel]
    ((axis, *others),) = streams
    facts = Facts(kernel, target)
    kept = prod(facts.size[a] for a in set.intersection(*(set(v.axes) for v in online)))
    points = max(facts.points(v) for v in kernel.values)
    if others or 2 * kept > target.threads or points < LEAST_WORK or not _plain(kernel, axis):
        return [kernel]
    parts = decisions.number("parts", PARTS, (8, 128, 1))
    return list(_Split(kernel, axis, parts).kernels()) if parts > 1 else [kernel]


def _plain(kernel: Kernel, axis: str) -> bool:
    """Nothing along the axis is stored or a scan, and what starts somewhere may do so again."""
    for v in kernel.values:
        r = v.reduction
        again = r is None or r.start is None or (r.op in ("max", "min") and _fixed(r.start))
        if axis in v.points and (v.store or (r and r.scan) or not again):
            return False
    return True


def _fixed(start: Expression) -> bool:
    return isinstance(start, Constant)


class _Split:
    def __init__(self, kernel: Kernel, axis: str, parts: int) -> None:
        self.kernel, self.axis, self.parts = kernel, axis, parts
        self.part = f"{PART}_{axis}"
        self.size = kernel.space().floor(kernel.axes[axis] + (parts - 1), parts)
        self.totals = [v for v in kernel.values if v.over == (axis,)]
        self.names = {v.name for v in self.totals}
        self.inside = self._inside()

    def _inside(self) -> dict[str, Value]:
        """What differs from part to part: it walks the axis, or sees what runs along it."""
        found: dict[str, Value] = {}
        rescales = {v.reduction.rescale.value for v in self.totals
                    if v.reduction and v.reduction.rescale}  # fmt: skip
        for v in self.kernel.values:
            if self.axis in v.points or v.reads(so_far=True) & self.names or v.name in rescales:
                found[v.name] = v
        return found

    def buffer(self, v: Value) -> str:
        return f"{self.kernel.name}_{v.name}_{PART}"

    def kernels(self) -> Iterator[Kernel]:
        made = tuple(
            Buffer(self.buffer(v), v.dtype, (Index.of(self.parts),
                                             *(self.kernel.axes[a] for a in v.axes)))
            for v in self.totals
        )  # fmt: skip
        buffers, axes = (*self.kernel.buffers, *made), self.kernel.axes
        part = {self.part: Index.of(self.parts)}
        first = replace(
            self.kernel, name=f"{self.kernel.name}_parts", buffers=buffers,
            axes={**part, **axes, self.axis: self.size}, values=tuple(self._first()),
        )  # fmt: skip
        second = replace(
            self.kernel, buffers=buffers, axes={**axes, **part}, values=tuple(self._second())
        )
        yield used(first)
        yield used(second)

    # ---- the parts

    def _first(self) -> Iterator[Value]:
        place = {self.axis: Index.of(self.part) * self.size + self.axis}

        def moved(i: Index) -> Index:
            return i.substitute(place)

        room = self.kernel.axes[self.axis] - 1 - moved(Index.of(self.axis))
        before = self._needed()
        alone = replace(self.kernel, values=(*before, *self.inside.values()))
        alone = replace(alone, values=tuple(replace(v, domain={}) for v in alone.values))
        for v in rewrite(alone, moved, lambda _, at: tuple(map(moved, at))).values:
            if v.name not in self.inside:
                yield v
                continue
            body = v.body
            if self.axis in v.points:
                outside = identity(v.reduction.op, v.dtype) if v.reduction else 0
                body = Guard((room,), body, Constant(outside, body.dtype))
            yield replace(v, axes=(self.part, *v.axes), body=body)
        for v in self.totals:
            index = tuple(map(Index.of, (self.part, *v.axes)))
            yield Value(f"{v.name}_{PART}", (self.part, *v.axes), Read(v.name, v.dtype), v.dtype,
                        store=Store(self.buffer(v), index))  # fmt: skip

    def _needed(self) -> list[Value]:
        """Values that the parts read and that are the same in all of them, in order."""
        by_name = {v.name: v for v in self.kernel.values}
        waiting = [n for v in self.inside.values() for n in v.reads()]
        found = set[str]()
        while waiting:
            name = waiting.pop()
            if name not in found and name not in self.inside:
                found.add(name)
                waiting += by_name[name].reads()
        return [v for v in self.kernel.values if v.name in found]

    # ---- and what they come to

    def _second(self) -> Iterator[Value]:
        behind = [v for v in self.kernel.values if v.name not in self.inside]
        running = {n for v in self.kernel.values for n in v.reads(so_far=True)} & self.names
        for v in self.totals:
            if v.name in running:
                yield self._total(v, self._load(v))
        for v in self.totals:
            assert v.reduction is not None
            if v.name not in running:
                factor = v.reduction.rescale
                yield self._total(v, self._scaled(v, factor) if factor else self._load(v))
        yield from (replace(v, domain={}) for v in behind)

    def _total(self, v: Value, body: Expression) -> Value:
        assert v.reduction is not None
        reduction = replace(v.reduction, over=(self.part,), rescale=None)
        return Value(v.name, v.axes, body, v.dtype, reduction)

    def _load(self, v: Value) -> Load:
        return Load(self.buffer(v), tuple(map(Index.of, (self.part, *v.axes))), v.dtype)

    def _scaled(self, v: Value, factor: Read) -> Expression:
        """A part's sum, by its factor; a part in which nothing counted has none."""
        rescale = self.inside[factor.value]
        body = Apply("mul", (self._load(v), self._at_parts(rescale)), v.dtype)
        for name in sorted(self._seen(rescale)):
            top = self.kernel.value(name)
            assert top.reduction is not None
            if top.reduction.start is None:
                nothing = Constant(identity(top.reduction.op, top.dtype), top.dtype)
                empty = Apply("equal", (self._load(top), nothing), boolean)
                body = Apply("select", (empty, Constant(0.0, v.dtype), body), v.dtype)
        return body

    def _seen(self, v: Value) -> set[str]:
        """The running totals on which a value depends."""
        found = {*v.reads(so_far=True)} & self.names
        for name in v.reads(so_far=False) & self.inside.keys():
            found |= self._seen(self.inside[name])
        return found

    def _at_parts(self, v: Value) -> Expression:
        """The body of a factor: what ran before it is of a part, what runs is of all."""
        order = {u.name: n for n, u in enumerate(self.kernel.values)}

        def change(e: Expression) -> Expression:
            if not isinstance(e, Read):
                return e
            if e.value in self.names:
                early = order[v.name] < order[e.value]
                return self._load(self.kernel.value(e.value)) if early else Read(e.value, e.dtype)
            return self._at_parts(self.inside[e.value]) if e.value in self.inside else e

        return Rewriter(change).expression(v.body)


def used(kernel: Kernel) -> Kernel:
    """Without values, buffers and axes that nothing mentions."""
    values, wanted = list[Value](), set[str]()
    for v in reversed(kernel.values):
        if v.store or v.name in wanted:
            values.append(v)
            rescale = {v.reduction.rescale.value} if v.reduction and v.reduction.rescale else set()
            wanted |= {*v.reads(), *rescale}
    return trimmed(replace(kernel, values=tuple(values[::-1])))
