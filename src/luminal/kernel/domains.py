"""Domains: where the body of a reduction is more than its identity, where a value is looked at.

Found by what an expression is where a condition fails: `Guard(c, x, 0)` is 0 there, so is a product
with it, `Guard(c, x, -inf) - y` is -inf and its exp2 is 0. A sum whose summand is 0 where
`q - k < 0` needs no k beyond q. The guards stay: a domain is a fact that lets loops end early,
and what is computed beyond it within a block is still right.

What a kernel leaves in memory is known to those that read it (`ended_by_memory`), and what nobody
looks at is no step of a sum (`ended_by_readers`): no guard says either, and both may be dropped.

Contract: factors and shifts at positions that a mask or padding excludes count as finite (a NaN
or an infinity there does not reach the result, as in every kernel that skips masked work).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..graph.index import Index, names_of
from ..graph.scalars import identity
from ..graph.space import Space
from .kernel import (
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
    walk,
)

Number: TypeAlias = int | float | bool
Outside: TypeAlias = dict[Index, Number]  # condition -> what the expression is where it fails
Ends: TypeAlias = tuple[Index | None, Index | None]
Left: TypeAlias = tuple[tuple[str, ...], Outside]  # the axes of a buffer, what its elements are


def ended_by_memory(
    values: Sequence[Value], memory: Mapping[str, Left], space: Space
) -> tuple[list[Value], dict[str, Left]]:
    """Values with the domains that follow from what others left in memory, though no guard says so:
    a sum of what is 0 there ends where that does. And what these values leave in memory."""
    said, known, made = outsides(values, {}), outsides(values, memory), list[Value]()
    for v in values:
        more = {c: number for c, number in known[v.name].items() if c not in said[v.name]}
        made.append(replace(v, domain=_of_reduction(v, more, space)) if more else v)
    whole = (v for v in values if v.reduction is None and _plain(v))
    return made, {**memory, **{v.store.buffer: (v.axes, known[v.name]) for v in whole if v.store}}


def ended_by_readers(
    kernels: Sequence[Kernel], buffers: Collection[str], memory: Mapping[str, Left]
) -> list[Kernel]:
    """Kernels whose sums, read by other values or taken by these buffers to other kernels, walk no
    step where nobody looks at them, or only to multiply them by 0."""
    known = [outsides(k.values, memory) for k in kernels]
    loads = [(load, u, found[u.name]) for k, found in zip(kernels, known) for u in k.values
             for load in u.loads if load.buffer in buffers]  # fmt: skip

    def looked(v: Value, kernel: Kernel, its: Mapping[str, Outside]) -> list[frozenset[Index]]:
        """The conditions under which each reader looks at a sum; none where not all say so."""
        inside = [u for u in kernel.values if v.name in u.reads()]
        if v.store is None:
            read, streams = Read(v.name, v.dtype), any(u.beside for u in kernel.values)
            return [] if streams else [_looked_at(read, u, its[u.name]) for u in inside]
        outside = [each for each in loads if each[0].buffer == v.store.buffer]
        alike = all(e.index == v.store.index and not e.slots for e, _, _ in outside)
        return [_looked_at(*each) for each in outside] if _plain(v) and alike and not inside else []

    def value(v: Value, kernel: Kernel, its: Mapping[str, Outside]) -> Value:
        found = looked(v, kernel, its) if v.factors else []
        return _stepless(v, frozenset.intersection(*found), kernel) if found else v

    return [replace(k, values=tuple(value(v, k, its) for v in k.values))
            for k, its in zip(kernels, known)]  # fmt: skip


def _plain(v: Value) -> bool:
    """It is stored at its own axes, each a dimension."""
    return v.store is not None and v.store.index == tuple(map(Index.of, v.axes))


def _looked_at(read: Expression, reader: Value, found: Outside) -> frozenset[Index]:
    """Conditions of which each holds where a value depends on what it reads. found: what its body
    is where one fails."""
    if any(read in walk(e) for e in list(reader.expressions())[1:]):
        return frozenset()
    sums = reader.reduction if not reader.scans else None
    idle = (c for c, n in found.items() if sums and n == identity(sums.op, reader.dtype))
    return _around(reader.body, read).union(idle)


def _around(e: Expression, read: Expression) -> frozenset[Index]:
    """Conditions of the guards in which every read stands."""
    inside = [_around(x, read) for x in children(e) if read in walk(x)]
    mine = e.conditions if isinstance(e, Guard) and read not in walk(e.other) else ()
    return frozenset.intersection(*inside).union(mine) if inside else frozenset()


def _stepless(v: Value, conditions: frozenset[Index], kernel: Kernel) -> Value:
    """A sum that walks nothing of one axis where a condition fails."""
    space, domain = kernel.space(), dict(v.domain)
    steps = [a for a in v.over if a not in domain and space.axes[a].is_constant]
    for c in sorted(conditions, key=str) if steps and not v.rescale else ():
        if c.names() <= {*v.axes, *kernel.sizes} and not c.floors and not space.nonnegative(c):
            ends = None, (c + 1) * space.axes[steps[0]]
            domain[steps[0]] = _tighter(domain.get(steps[0], (None, None)), ends, space)
    return replace(v, domain=domain)


def outsides(values: Sequence[Value], memory: Mapping[str, Left]) -> dict[str, Outside]:
    """What the body of each value is where a condition fails."""
    known, plain = dict[str, Outside](), dict[str, Outside]()
    for v in values:
        known[v.name] = outside(v.body, plain, memory)
        if v.reduction is None:
            plain[v.name] = known[v.name]
    return known


def derive_domains(kernel: Kernel) -> Kernel:
    """The kernel with the domain of every value."""
    space = kernel.space()
    trimmed = Rewriter(lambda e: _without_proven(e, space))
    bare = [replace(v, body=trimmed.expression(v.body)) for v in kernel.values]
    known = outsides(bare, {})
    values = {v.name: replace(v, domain=_of_reduction(v, known[v.name], space)) for v in bare}
    _narrow_producers(kernel, values)
    _narrow_running(values)
    return replace(kernel, values=tuple(values[v.name] for v in kernel.values))


def _without_proven(e: Expression, space: Space) -> Expression:
    """A guard without the conditions that always hold."""
    if isinstance(e, Guard):
        open_ = tuple(c for c in e.conditions if not space.nonnegative(c))
        if len(open_) < len(e.conditions):
            return Guard(open_, e.body, e.other) if open_ else e.body
    return e


def _of_reduction(value: Value, found: Outside, space: Space) -> dict[str, Ends]:
    """Bounds of each reduced axis from conditions without which the body is the identity."""
    if value.reduction is None or value.scans:
        return dict(value.domain)
    neutral = identity(value.reduction.op, value.dtype)
    domain: dict[str, Ends] = dict(value.domain)
    for condition, number in found.items():
        if number != neutral:
            continue
        for axis in value.over:
            ends = _solve(condition, axis, value, space)
            if ends is not None:
                domain[axis] = _tighter(domain.get(axis, (None, None)), ends, space)
    return domain


def _solve(condition: Index, axis: str, value: Value, space: Space) -> Ends | None:
    """The ends of an axis that `condition >= 0` gives, over kept axes and sizes only."""
    rest = condition.without({axis})
    if rest.floors or set(value.over) & rest.names():
        return None
    low, high = space.solve(condition, axis)
    if low is not None and not space.nonnegative(-low):
        return low, None
    if high is not None and not space.nonnegative(high - space.axes[axis]):
        return None, high
    return None


def _tighter(a: Ends, b: Ends, space: Space) -> Ends:
    return _extreme(a[0], b[0], True, space), _extreme(a[1], b[1], False, space)


def _extreme(a: Index | None, b: Index | None, largest: bool, space: Space) -> Index | None:
    if a is None or b is None:
        return b if a is None else a
    for more, less in ((a, b), (b, a)):
        if space.nonnegative(more - less):
            return more if largest else less
    return a.maximum(b) if largest else a.minimum(b)


def _narrow_producers(kernel: Kernel, values: dict[str, Value]) -> None:
    """A value that only bounded readers look at has their bounds, wherever those agree."""
    for v in reversed(kernel.values):
        others = (values[u.name] for u in kernel.values if u.name != v.name)
        readers = [u for u in others if v.name in u.reads()]
        if v.store is not None or not readers:
            continue
        domain = dict(values[v.name].domain)
        for axis in v.axes:
            ends = readers[0].domain.get(axis)
            same = ends is not None and all(
                axis in u.points and u.domain.get(axis) == ends and _only_in_body(u, v.name)
                for u in readers
            )
            mine = {*v.axes, *kernel.sizes}
            if ends is not None and same and names_of(e for e in ends if e is not None) <= mine:
                domain[axis] = ends
        values[v.name] = replace(values[v.name], domain=domain)


def _narrow_running(values: dict[str, Value]) -> None:
    """What is computed in each step of an online reduction is not needed in steps left out."""
    for v in values.values():
        seen = sorted(v.reads(so_far=True))
        seen += [u.name for u in values.values() if v.name in u.rescale]
        for name in seen:
            other = values[name]
            domain = {a: other.domain[a] for a in other.over if a in other.domain}
            values[v.name] = v = replace(v, domain={**domain, **v.domain})


def _only_in_body(reader: Value, name: str) -> bool:
    others = list(reader.expressions())[1:]
    return not any(isinstance(e, Read) and e.value == name for b in others for e in walk(b))


# ---- what an expression is where a condition fails


def outside(
    e: Expression, values: Mapping[str, Outside] = {}, memory: Mapping[str, Left] = {}
) -> Outside:
    """values, memory: the same of what it may read."""
    if isinstance(e, Read):
        return {} if e.so_far else values.get(e.value, {})
    if isinstance(e, Load) and e.buffer in memory and not e.slots:
        axes, found = memory[e.buffer]
        at = dict(zip(axes, e.index))
        return {condition.substitute(at): number for condition, number in found.items()}
    if isinstance(e, Guard):
        return outside_guard(e.conditions, *(_known(x, values, memory) for x in (e.body, e.other)))
    if isinstance(e, Apply):
        return outside_scalar(e.op, [_known(x, values, memory) for x in e.args])
    return {}


def _known(
    e: Expression, values: Mapping[str, Outside], memory: Mapping[str, Left]
) -> Number | Outside:
    return e.value if isinstance(e, Constant) else outside(e, values, memory)


def outside_guard(
    conditions: Sequence[Index], body: Number | Outside, other: Number | Outside
) -> Outside:
    """`other` where its own condition fails; what both sides are where another one does. An operand
    is a number, or what is known of it."""
    found: Outside = {}
    for condition in dict.fromkeys([*conditions, *(body if isinstance(body, dict) else ())]):
        number = _at(other, condition)
        if number is not None and (condition in conditions or _at(body, condition) == number):
            found[condition] = number
    return found


def outside_scalar(op: str, operands: Sequence[Number | Outside]) -> Outside:
    """The same of an elementwise operation."""
    found: Outside = {}
    for condition in dict.fromkeys(c for x in operands if isinstance(x, dict) for c in x):
        number = _apply(op, [_at(x, condition) for x in operands])
        if number is not None:
            found[condition] = number
    return found


def _at(known: Number | Outside, condition: Index) -> Number | None:
    return known.get(condition) if isinstance(known, dict) else known


def _apply(op: str, args: list[Number | None]) -> Number | None:
    """The result where some operands are known and the others are any finite number."""
    known = [a for a in args if a is not None]
    if op == "cast":
        return known[0] if known else None
    if op == "exp2" and known == [-math.inf]:
        return 0
    if op == "mul":
        if 0 in known:
            return 0
        positive = len(known) == 2 and max(known) > 0 and max(known) < math.inf
        return -math.inf if -math.inf in known and positive else None
    if op == "add" and -math.inf in known and math.inf not in known:
        return -math.inf
    return None
