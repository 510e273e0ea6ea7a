"""What a schedule may look at: sizes, work, and which access moves how along which axis.

Pure functions of a kernel and a target. No operation is named here but the product under a sum,
which is what multiply-and-add instructions compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod
from typing import Any

from ..graph.dtype import DType
from ..graph.index import Index, atom_names
from ..graph.scalars import SCALARS
from ..kernel.kernel import (
    Apply,
    Constant,
    Expression,
    Guard,
    Kernel,
    Load,
    Read,
    Store,
    Value,
    children,
    inlined,
    walk,
)
from ..kernel.layout import Storage
from ..kernel.schedule import Layout
from ..kernel.target import MatrixInstruction, Target
from ..kernel.work import usual_sizes
from .decisions import Decisions

FAR = 1 << 20  # elements: an axis that moves an access by data
FLOORED = 3  # elements, at least: an axis that moves an access through a floor


def round_up(x: int, step: int) -> int:
    return -(-x // step) * step


@dataclass(frozen=True, eq=False)
class Access:
    """A load, a store, or a read of another value, as loops see it.

    strides: axis -> elements (absent: the access does not move). conditions: under which
    it happens. load: None for a read of a value, whose layout is ours to choose.
    packable: a constant whose dimensions are plain axes: its layout is free.
    """

    name: str
    axes: frozenset[str]
    strides: Mapping[str, int]
    dtype: DType
    conditions: tuple[Index, ...] = ()
    load: Load | None = None
    packable: bool = False
    free: bool = False  # the layout is ours, and unknown so far

    def stride(self, axis: str) -> int:
        """Elements between neighbours along the axis; 1 if we may lay it out as we like."""
        return self.strides.get(axis, 1 if self.free else 0)


class Facts:
    """Everything about one kernel, computed once. `kept`: values that must not be inlined."""

    def __init__(
        self, kernel: Kernel, target: Target, kept: Iterable[str] = (),
        decisions: Decisions | None = None,
    ) -> None:  # fmt: skip
        self.decisions = decisions or Decisions()
        self.target, self.kept = target, frozenset(kept)
        self.hints = usual_sizes(kernel, target.hint)
        self.size = {a: max(1, self.number(e)) for a, e in kernel.axes.items()}
        self.single = {a for a, e in kernel.axes.items() if e == 1}
        self.static = {a: e.is_constant for a, e in kernel.axes.items()}
        self.buffers = {b.name: b for b in kernel.buffers}
        self.rescales = {name for v in kernel.values for name in v.rescale}
        self.packed = set[tuple[str, str]]()  # values whose neighbours along an axis lie together
        self.pairs: dict[str, tuple[MatrixInstruction, str] | None] = {}  # see `instructions`
        self._accesses: dict[str, list[Access]] = {}
        self._work: dict[str, float] = {}
        self._stored: dict[str, dict[str, int]] = {}  # the strides of what is stored
        self.solved: dict[Any, Any] = {}  # what the solver has found
        self.lane_of: dict[str, str | None] = {}  # value -> lane axis, as far as decided
        self.kernel = replace(kernel, values=self._inlined(kernel))
        self.values = self.kernel.values
        self.by_name = {v.name: v for v in self.values}
        self.lanes = self._lanes()
        self.spelled: frozenset[str] = frozenset()  # axes whose ends are seen by proof

    def number(self, extent: Index) -> int:
        """The usual value of a size expression."""
        missing = {n: self.target.hint for n in extent.names() if n not in self.hints}
        return int(extent.evaluate({**self.hints, **missing}))

    def _lanes(self) -> int:
        """Elements of a vector for the whole kernel: those of the dtype that works most."""
        work: dict[DType, float] = {}
        for v in self.values:
            work[v.dtype] = work.get(v.dtype, 0.0) + self.work(v)
        most = max(work, key=lambda d: work[d], default=None)
        return self.target.lanes(most) if most else 1

    # ---- values

    def _inlined(self, kernel: Kernel) -> tuple[Value, ...]:
        """Values that are worth computing once; the others are written into their readers."""
        values = kernel.values
        self.by_name = {v.name: v for v in values}
        bodies: dict[str, Expression] = {}
        for v in values:
            bound = v.reduction or v.store or v.name in self.kept or self.running(v)
            if not bound and self._free_to_repeat(v, values):
                bodies[v.name] = v.body
        kept = inlined(values, bodies)
        self._accesses.clear()
        self._work.clear()
        return kept

    def _free_to_repeat(self, value: Value, values: tuple[Value, ...]) -> bool:
        readers = [u for u in values if value.name in u.reads()]
        repeats = sum(self.points(u) for u in readers) / max(1, self.points(value))
        work = weight(value.body)
        return repeats <= 1 or work < 1 or (work <= 1 and repeats <= len(readers) <= 2)

    def points(self, value: Value) -> int:
        return prod(self.size[a] for a in value.points)

    def work(self, value: Value) -> float:
        """Elementwise operations, at least one a point."""
        found = self._work.get(value.name)
        if found is None:
            found = self._work[value.name] = self.points(value) * max(1.0, weight(value.body))
        return found

    def readers(self, name: str) -> list[Value]:
        return [v for v in self.values if v.name != name and name in v.reads()]

    def running(self, value: Value) -> bool:
        """It must be computed inside the loop of an online reduction."""
        return value.name in self.rescales or bool(value.reads(so_far=True))

    def domain(self, value: Value) -> Mapping[str, tuple[Index | None, Index | None]]:
        """Bounds of its loops. A position of a window that is written out is dropped by proof."""
        return {a: ends for a, ends in value.domain.items() if a not in self.spelled}

    # ---- accesses

    def accesses(self, value: Value) -> list[Access]:
        """All loads and reads of a value, each once."""
        found = self._accesses.get(value.name)
        if found is None:
            every = (pair for body in value.expressions() for pair in guarded(body))
            seen = dict.fromkeys((e, c) for e, c in every if isinstance(e, (Load, Read)))
            found = self._accesses[value.name] = [self.access(e, c) for e, c in seen]
        return [self._now(x) if x.load is None else x for x in found]

    def access(self, e: Load | Read, conditions: tuple[Index, ...] = ()) -> Access:
        """One load or read."""
        if isinstance(e, Read):
            v, axes = self.by_name[e.value], frozenset(self.by_name[e.value].axes)
            made = [] if v.reduction or v.name in self.kept else self.accesses(v)
            whole = (x.strides for x in made if x.load and x.axes == axes)
            strides = next(whole, {})  # made where it is read: as what it is made from lies
            return self._now(
                Access(v.name, axes, strides, v.dtype, conditions, free=not strides)
            )
        buffer, axes = self.buffers[e.buffer], self.kernel.axes_of(e)
        axis = {Index.of(a) for a in axes}
        dims = all(i.is_constant or i in axis for i in e.index)
        named = dims and not conditions and not e.slots
        strides = self._laid_out(e, buffer.layout) if named and buffer.layout else self._strides(e)
        free = named and buffer.constant and buffer.layout is None
        return Access(e.buffer, axes, strides, e.dtype, conditions, e, free)

    def _laid_out(self, e: Load, layout: Layout) -> dict[str, int]:
        """Strides of plain axes in a packed buffer: what its last digits walk, lanes and pairs,
        lies side by side."""
        storage = Storage(self.buffers[e.buffer].shape, layout)
        split = {d for d, step in layout if step > 1}
        near = {d for d, _ in takewhile(lambda digit: digit[0] in split, layout[::-1])}
        moves = {digit.dimension: digit.stride for digit in storage.digits if digit.step == 1}
        return {
            axis: 1 if d in near else self.number(moves[d])
            for d, index in enumerate(e.index) for axis in index.names()
        }  # fmt: skip

    def panel(self, value: Value, axis: str) -> int | None:
        """Neighbours on a kept axis in a panel of a constant that is packed already."""
        loads = (x.load for x in self.accesses(value) if x.load and axis in value.axes)
        steps = (
            step for e in loads for d, step in self.buffers[e.buffer].layout or ()
            if e.index[d] == Index.of(axis) and step > 1
        )  # fmt: skip
        return next(steps, None)

    def _now(self, x: Access) -> Access:
        """A read with the strides that the lane axis of its tile gives, once that is decided."""
        lane = self.lane_of.get(x.name)
        if lane is None:
            return x
        return replace(x, strides={a: 1 if a == lane else FAR for a in x.axes}, free=False)

    def most(self, axis: str) -> float:
        """The most elements that an axis may have, perhaps infinitely many."""
        return self.kernel.space().bounds(self.kernel.axes[axis])[1]

    def bytes(self, buffer: str) -> int:
        """The size of a buffer, usually."""
        found = self.buffers[buffer]
        return found.dtype.bytes * prod(self.number(n) for n in found.shape)

    def store_stride(self, value: Value, axis: str) -> int:
        """Elements between neighbours along an axis where the value is stored."""
        assert value.store is not None
        if value.name not in self._stored:
            self._stored[value.name] = self._strides(value.store)
        return self._stored[value.name].get(axis, 0)

    def _strides(self, e: Load | Store) -> dict[str, int]:
        """How far a step along each axis moves an access; far where data say how far."""
        strides, step = dict[str, float](), 1
        for index, extent in zip(e.index[::-1], self.buffers[e.buffer].shape[::-1]):
            names = index.names()
            data = (self.kernel.axes_of(body) for name, body in e.slots if name in names)
            for axis in frozenset[str]().union(*data):
                strides[axis] = strides.get(axis, 0) + FAR * step
            for axis in names & self.size.keys():
                strides[axis] = strides.get(axis, 0) + self._move(index, axis) * step
            step *= self.number(extent)
        through = frozenset[str]().union(*(atom_names(a) for i in e.index for a in i.compound))
        return {
            a: max(FLOORED, int(abs(n))) if a in through else int(n) for a, n in strides.items()
        }

    def _move(self, index: Index, axis: str) -> float:
        """How far a step moves on the average, the other axes at their start."""
        last = max(1, self.size[axis] - 1)
        start = {n: 0 if n in self.size else self.hints.get(n, self.target.hint)
                 for n in index.names()}  # fmt: skip
        far = index.evaluate({**start, axis: last}) - index.evaluate(start)
        return float(far) / last


def weight(expression: Expression) -> float:
    """Vector instructions of one point, roughly; equal parts count once."""
    seen = {e for e in walk(expression) if isinstance(e, Apply)}
    return sum(SCALARS[e.op].cost for e in seen)


def worked_out(facts: Facts, expression: Expression) -> bool:
    """For each of its elements it is worked out where it lies, by minima of what changes, or which
    of several things it is. Padding with zeros only ends loops; threads of a GPU choose anyway."""
    for e in walk(expression) if facts.target.group == 1 else ():
        if isinstance(e, Guard) and not (isinstance(e.other, Constant) and e.other.value == 0):
            return True
        if isinstance(e, Load) and any(_extrema(i, facts.size.keys()) for i in e.index):
            return True
    return False


def _extrema(index: Index, axes: Collection[str]) -> bool:
    atoms = (a for a in index.compound if a.kind != "floor")
    return any(not atom_names(a).isdisjoint(axes) for a in atoms)


def guarded(
    expression: Expression, guards: tuple[Index, ...] = ()
) -> Iterator[tuple[Expression, tuple[Index, ...]]]:
    """Everything in an expression, with the conditions under which it is looked at."""
    yield expression, guards
    if isinstance(expression, Guard):
        yield from guarded(expression.body, guards + expression.conditions)
        yield from guarded(expression.other, guards)
        return
    for child in children(expression):
        yield from guarded(child, guards)
