"""A fused kernel as pure data: values over axes. `backend/reference` runs it in NumPy.

A kernel names buffers and axes and computes values in program order. A value is an expression over
its axes, optionally reduced over further ones, optionally stored. Nothing here says how it runs:
that is a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, Union

from ..errors import VerifyError
from ..graph.dtype import DType, i64
from ..graph.index import Index, names_of
from ..graph.space import Range, Space
from ..once import computed_once
from .schedule import Layout

MOST_TERMS = 1000  # of a tree that values written into each other make


@dataclass(frozen=True)
class Constant:
    """One number."""

    value: int | float | bool
    dtype: DType


@dataclass(frozen=True)
class Position:
    """The value of an index expression over axes and sizes, in an integer dtype."""

    index: Index
    dtype: DType = i64


@dataclass(frozen=True)
class Load:
    """An element of a buffer: one Index for each dimension, over axes, sizes and slots.

    A slot is a variable ("$0", "$1", ...) whose value is data: an integer expression. Where it lies
    outside the dimension it is clamped into it.
    """

    buffer: str
    index: tuple[Index, ...]
    dtype: DType
    slots: tuple[tuple[str, Expression], ...] = ()

    @computed_once
    def names(self) -> frozenset[str]:
        """What its index mentions."""
        return names_of(self.index)


@dataclass(frozen=True)
class Read:
    """Another value of the kernel at the same axes.

    `so_far`: of an online reduction that is still running, at whatever step it has reached.
    """

    value: str
    dtype: DType
    so_far: bool = False


@dataclass(frozen=True)
class Apply:
    """An elementwise operation of `graph.scalars.SCALARS`; `dtype` is that of the result."""

    op: str
    args: tuple[Expression, ...]
    dtype: DType


@dataclass(frozen=True)
class Guard:
    """`body` where every condition (an Index) is >= 0, else `other`; the side not taken is not
    evaluated: its loads may lie outside their buffers."""

    conditions: tuple[Index, ...]
    body: Expression
    other: Expression

    @property
    def dtype(self) -> DType:
        return self.body.dtype


Expression: TypeAlias = Union[Constant, Position, Load, Read, Apply, Guard]


@dataclass(frozen=True)
class Reduction:
    """How a value is reduced over the axes `over`.

    op: "sum", "max", "min", "prod". start: first value of the accumulator (None: the identity).
    rescale: a value that multiplies the accumulator each time an outer step of the axis begins (an
    online reduction). scan: the value keeps the one axis of `over` as one of its own axes and holds
    the running result at each position of it.
    """

    op: str
    over: tuple[str, ...]
    start: Expression | None = None
    rescale: Read | None = None
    scan: bool = False


@dataclass(frozen=True)
class Store:
    """Where a value is written: one Index for each dimension of the buffer, over axes and slots.

    mode: "set", or "sum", "max", "min", "prod" to combine with what stands there. A slot outside
    its dimension writes nothing. Where two points write one element the last in the order of the
    value's axes wins: `ordered` axes run serially.
    """

    buffer: str
    index: tuple[Index, ...]
    slots: tuple[tuple[str, Expression], ...] = ()
    mode: str = "set"
    ordered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Value:
    """name[axes] = body, or the reduction of the body over more axes.

    `domain`: axis -> (low, high), half open: outside, the body of a reduction is its identity and a
    value is never looked at. Derived and proven by `domains.py`, never stated by hand. It is a fact
    that lets loops be shorter, no condition: a lowering may walk more, so bodies keep their guards.
    """

    name: str
    axes: tuple[str, ...]
    body: Expression
    dtype: DType
    reduction: Reduction | None = None
    store: Store | None = None
    domain: Mapping[str, tuple[Index | None, Index | None]] = field(default_factory=dict)

    @property
    def over(self) -> tuple[str, ...]:
        return self.reduction.over if self.reduction else ()

    @property
    def scans(self) -> bool:
        """Whether it is a running reduction."""
        return self.reduction is not None and self.reduction.scan

    @property
    def rescale(self) -> frozenset[str]:
        """The value by which its sum is rescaled, if it is an online one."""
        factor = self.reduction.rescale if self.reduction else None
        return frozenset() if factor is None else frozenset((factor.value,))

    @property
    def beside(self) -> frozenset[str]:
        """What it looks at, or is rescaled by, while a stream runs."""
        return self.reads(so_far=True) | self.rescale

    @property
    def serial(self) -> frozenset[str]:
        """Axes that must be walked one by one: of a scan, and where later stores win."""
        scanned = self.over if self.scans else ()
        return frozenset((*scanned, *(self.store.ordered if self.store else ())))

    @property
    def factors(self) -> tuple[Expression, ...]:
        """The two factors of a sum of products; of anything else none."""
        sums = self.reduction is not None and self.reduction.op == "sum" and not self.scans
        product = sums and isinstance(self.body, Apply) and self.body.op == "mul"
        return children(self.body) if product else ()

    def copied(self, store: Store | None) -> Value:
        """A copy of it that is stored, while the value itself stays to be read."""
        domain = {a: ends for a, ends in self.domain.items() if a in self.axes}
        body = Read(self.name, self.dtype)
        return Value(f"{self.name}.stored", self.axes, body, self.dtype, None, store, domain)

    @property
    def apart(self) -> tuple[Value, Value]:
        """The value without its store, and a copy of it that is stored."""
        return replace(self, store=None), self.copied(self.store)

    @property
    def points(self) -> tuple[str, ...]:
        """All axes that the body walks."""
        return self.axes + tuple(a for a in self.over if a not in self.axes)

    def expressions(self) -> Iterator[Expression]:
        """Everything the value reads: body, start, rescale, slots of the store."""
        yield self.body
        if self.reduction and self.reduction.start is not None:
            yield self.reduction.start
        if self.reduction and self.reduction.rescale is not None:
            yield self.reduction.rescale
        if self.store is not None:
            for _, expression in self.store.slots:
                yield expression

    @computed_once
    def parts(self) -> tuple[Expression, ...]:
        """What it reads, and everything below."""
        return tuple(e for expression in self.expressions() for e in walk(expression))

    @property
    def indices(self) -> Iterator[Index]:
        """Every index and condition of the value, its store and its domain."""
        for part in self.parts:
            yield from indices(part)
        yield from self.store.index if self.store else ()
        for ends in self.domain.values():
            yield from (end for end in ends if end is not None)

    @property
    def loads(self) -> list[Load]:
        return [e for e in self.parts if isinstance(e, Load)]

    def reads(self, so_far: bool | None = None) -> frozenset[str]:
        """Names of the values that it reads: all, or only the finished or the running ones."""
        return frozenset(e.value for e in self.parts
                         if isinstance(e, Read) and so_far in (None, e.so_far))  # fmt: skip


@dataclass(frozen=True)
class Buffer:
    """Memory that a kernel reads or writes: row-major unless a schedule lays a constant out anew.

    constant: its contents are known before the program runs, so its layout is free. layout: unless
    another kernel, which shares it, has laid it out already; () is row-major. steady: many calls
    find it alike, the steps of a loop.
    """

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    constant: bool = False
    layout: Layout | None = None
    steady: bool = False


@dataclass(frozen=True)
class Kernel:
    """Buffers, axes with extents, values in program order.

    sizes: run-time size -> inclusive bounds. hints: a size's usual value, for schedules only.
    """

    name: str
    buffers: tuple[Buffer, ...]
    axes: Mapping[str, Index]
    values: tuple[Value, ...]
    sizes: Mapping[str, Range] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def value(self, name: str) -> Value:
        return next(v for v in self.values if v.name == name)

    def axes_of(self, expression: Expression) -> frozenset[str]:
        """The axes over which an expression varies."""
        reads = (self.value(e.value).axes for e in walk(expression) if isinstance(e, Read))
        named = names_of(i for e in walk(expression) for i in indices(e))
        return frozenset(named.union(*reads) & self.axes.keys())

    def needed(self, names: Collection[str], without: Collection[Value] = ()) -> list[Value]:
        """The values of these names and all that they read, in order; nothing through others."""
        found, values = set(names), [v for v in self.values if v not in without]
        for v in values[::-1]:
            found |= v.reads() if v.name in found else set()
        return [v for v in values if v.name in found]

    def behind(self, names: Collection[str], so_far: bool | None = None) -> set[str]:
        """The values that read one of these, or what comes of it. so_far: as in `Value.reads`."""
        found = set[str]()
        for v in self.values:
            if v.reads(so_far) & {*names, *found}:
                found.add(v.name)
        return found

    @property
    def outputs(self) -> tuple[str, ...]:
        """Buffers that are written."""
        return tuple(dict.fromkeys(v.store.buffer for v in self.values if v.store))

    def space(self, walked: Mapping[str, Index] = {}) -> Space:
        """What is known about axes and sizes. walked: axes that go farther, to the end of tiles."""
        return Space(self.sizes, {**self.axes, **walked}, self.hints)


def verify_scopes(kernel: Kernel) -> None:
    """Raises VerifyError where a value depends on an axis that it does not walk."""
    for value in kernel.values:
        slots = {name for load in value.loads for name, _ in load.slots}
        slots |= {name for name, _ in value.store.slots} if value.store else set()
        allowed = {*value.points, *kernel.sizes, *slots}
        for index in value.indices:
            foreign = index.names() - allowed
            if foreign:
                raise VerifyError(
                    f"{kernel.name}: {value.name}[{' '.join(value.axes)}] mentions {index}, "
                    f"but walks no {', '.join(sorted(foreign))}"
                )


def children(expression: Expression) -> tuple[Expression, ...]:
    """The operands of an expression, slots included."""
    if isinstance(expression, Apply):
        return expression.args
    if isinstance(expression, Guard):
        return (expression.body, expression.other)
    if isinstance(expression, Load):
        return tuple(slot for _, slot in expression.slots)
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything below it."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def indices(expression: Expression) -> tuple[Index, ...]:
    """The indices and conditions of an expression itself."""
    if isinstance(expression, Load):
        return expression.index
    if isinstance(expression, Position):
        return (expression.index,)
    return expression.conditions if isinstance(expression, Guard) else ()


def rebuild(expression: Expression, args: tuple[Expression, ...]) -> Expression:
    """The same expression over other operands (in the order of `children`)."""
    if isinstance(expression, Apply):
        return Apply(expression.op, args, expression.dtype)
    if isinstance(expression, Guard):
        return Guard(expression.conditions, args[0], args[1])
    if isinstance(expression, Load):
        return replace(expression, slots=tuple((n, x) for (n, _), x in zip(expression.slots, args)))
    return expression


class Rewriter:
    """Changes expressions from the leaves up; what is shared stays shared."""

    def __init__(self, change: Callable[[Expression], Expression]) -> None:
        self.change = change
        self._done: dict[int, tuple[Expression, Expression]] = {}

    def expression(self, expression: Expression) -> Expression:
        found = self._done.get(id(expression))
        if found is None:
            below = children(expression)
            args = tuple(map(self.expression, below))
            same = all(a is b for a, b in zip(args, below))
            changed = self.change(expression if same else rebuild(expression, args))
            found = self._done[id(expression)] = expression, changed
        return found[1]

    def value(self, value: Value) -> Value:
        """The value with all that it reads changed; its rescaling stays."""
        reduction, store = value.reduction, value.store
        if reduction is not None and reduction.start is not None:
            reduction = replace(reduction, start=self.expression(reduction.start))
        if store is not None and store.slots:
            store = replace(store, slots=tuple((n, self.expression(e)) for n, e in store.slots))
        return replace(value, body=self.expression(value.body), reduction=reduction, store=store)


def inlined(values: Iterable[Value], bodies: Mapping[str, Expression]) -> tuple[Value, ...]:
    """The values, with those of these bodies, in program order, written into all their readers:
    what is read twice is written twice, and twice again in the next value, so that trees have a
    limit, and what would pass it stays."""
    sizes: dict[str, int] = {}
    for name, body in bodies.items():
        terms = sum(sizes.get(e.value, 1) if isinstance(e, Read) else 1 for e in walk(body))
        if terms <= MOST_TERMS:
            sizes[name] = terms
    inline = inliner({name: bodies[name] for name in sizes})
    return tuple(inline.value(v) for v in values if v.name not in sizes)


def inliner(bodies: Mapping[str, Expression]) -> Rewriter:
    """Puts the bodies of values in the place of their reads."""

    def change(e: Expression) -> Expression:
        body = bodies.get(e.value) if isinstance(e, Read) else None
        return e if body is None else rewriter.expression(body)

    rewriter = Rewriter(change)
    return rewriter
