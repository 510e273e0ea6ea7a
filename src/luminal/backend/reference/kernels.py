"""What a kernel means, in NumPy: every value as one array over the kernel's axes. The oracle.

An array has one NumPy dimension for each axis of the kernel, of length 1 where it does not vary. A
running reduction takes its whole axis in one block: a value that reads it `so_far` before it in
program order sees its start, one behind it sees its end. Sums of floats are made in f64.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import CompileError
from ...graph.dtype import DType
from ...graph.index import Index
from ...graph.scalars import REDUCTIONS, compute, identity
from ...kernel.kernel import Apply, Constant, Expression, Guard, Kernel, Load, Read, Store, Value
from .arrays import Array, grid, hold, write
from .rounding import Rounding, finite


def evaluate(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    at: Mapping[str, Array] | None = None,
    rounding: Rounding | None = None,
) -> None:
    """Run a kernel on its buffers, in place.

    `arrays`: buffer -> array of its shape and dtype (row-major meaning; never packed). `at`: axis
    -> the positions that are walked, of axes that nothing is reduced over; all if it has none.
    `rounding`: results as far off as rounding may leave them. Raises CompileError where a load or a
    store that is not guarded lies outside its buffer.
    """
    run = _Run(kernel, arrays, sizes, at or {}, rounding)
    for value in kernel.values:
        run.value(value)


class _Run:
    """One evaluation: the values so far, over a grid of all axes."""

    def __init__(
        self, kernel: Kernel, arrays: Mapping[str, Array], sizes: Mapping[str, int],
        at: Mapping[str, Array], rounding: Rounding | None,
    ) -> None:  # fmt: skip
        self.kernel, self.arrays, self.at, self.rounding = kernel, arrays, at, rounding
        self.names = list(kernel.axes)
        self.extents = {a: int(e.evaluate(sizes)) for a, e in kernel.axes.items()}
        self.extents |= {axis: len(positions) for axis, positions in at.items()}
        self.grid = grid(self.extents, sizes)
        self.grid |= {a: where.reshape(self.grid[a].shape) for a, where in at.items()}
        self.by_name = {v.name: v for v in kernel.values}
        self.done: dict[str, Array] = {}

    # ---- values

    def value(self, value: Value) -> None:
        """Compute one value and store it."""
        active = self._domain(value)
        if value.reduction is None:
            result = self._expression(value.body, active)
        elif value.reduction.scan:
            result = self._scan(value, active)
        else:
            result = self._reduce(value, active)
        self.done[value.name] = result.astype(value.dtype.numpy, copy=False)
        if value.store is not None:
            self._store(value, value.store, self.done[value.name])

    def _domain(self, value: Value, axes: Sequence[str] | None = None) -> Any:
        """Where the value is looked at, by the bounds of all or some axes: True, or a mask."""
        active: Any = True
        for axis, (low, high) in value.domain.items():
            if axes is not None and axis not in axes:
                continue
            if low is not None:
                active = active & (self.grid[axis] >= low.evaluate(self.grid))
            if high is not None:
                active = active & (self.grid[axis] < high.evaluate(self.grid))
        return active

    def _start(self, value: Value) -> Array:
        assert value.reduction is not None
        if value.reduction.start is not None:
            start = self._expression(value.reduction.start, True)
        else:
            start = np.asarray(identity(value.reduction.op, value.dtype))
        start = start.astype(value.dtype.numpy).reshape(start.shape or [1] * len(self.names))
        if value.reduction.rescale is not None:
            start = compute("mul", value.dtype, start, self._read(value.reduction.rescale))
        return start

    def _reduce(self, value: Value, active: Any) -> Array:
        assert value.reduction is not None
        op, body = value.reduction.op, value.body
        total = None
        if op == "sum" and isinstance(body, Apply) and body.op == "mul":
            total = self._product_sum(value, body, active)
        if total is None:
            terms = self._terms(value, active)
            over = tuple(self.names.index(a) for a in value.over)
            none = _number(op, value.dtype, terms.dtype)
            total = REDUCTIONS[op].reduce(terms, axis=over, keepdims=True, initial=none)
            if self.rounding and value.dtype.is_float and op in ("sum", "prod"):
                squares = np.square(finite(terms)).sum(axis=over, keepdims=True)
                total = self.rounding.reduced(value.dtype, total, squares, self._count(value))
        start = self._start(value).astype(total.dtype, copy=False)
        with np.errstate(all="ignore"):
            return np.asarray(REDUCTIONS[op](start, total))

    def _scan(self, value: Value, active: Any) -> Array:
        assert value.reduction is not None
        op = value.reduction.op
        terms = self._terms(value, active)
        axis = self.names.index(value.over[0])
        running = REDUCTIONS[op].accumulate(terms, axis=axis)
        if self.rounding and value.dtype.is_float and op in ("sum", "prod"):
            squares = np.square(finite(terms)).cumsum(axis=axis)
            running = self.rounding.reduced(value.dtype, running, squares, self._count(value))
        with np.errstate(all="ignore"):
            start = self._start(value).astype(terms.dtype, copy=False)
            return np.asarray(REDUCTIONS[op](start, running))

    def _terms(self, value: Value, active: Any) -> Array:
        """The body over all reduced points, the identity outside the domain, in a wide dtype."""
        assert value.reduction is not None
        terms = self._expression(value.body, active).astype(_wide(value.dtype), copy=False)
        if active is not True:
            terms = np.where(active, terms, _number(value.reduction.op, value.dtype, terms.dtype))
        shape = list(terms.shape)
        for axis in value.over:
            shape[self.names.index(axis)] = self.extents[axis]
        return np.broadcast_to(terms, shape)

    def _product_sum(self, value: Value, body: Apply, active: Any) -> Array | None:
        """A sum of products without the array of products; None where that is not exact."""
        factors = [self._expression(a, active) for a in body.args]
        if not value.dtype.is_float:
            reach = [float(np.abs(f.astype(np.float64)).max(initial=0)) for f in factors]
            count = np.prod([float(self.extents[a]) for a in value.over])
            if not reach[0] * reach[1] * count < 2.0**53:
                return None
        x, y = sorted((f.astype(np.float64) for f in factors), key=np.size)
        inner, outer = self._domain(value, value.over), self._domain(value, value.axes)
        total = np.where(outer, self._masked(y, x, inner, value.over), 0.0)
        if self.rounding and value.dtype.is_float:
            squares = self._masked(np.square(finite(y)), np.square(finite(x)), inner, value.over)
            total = self.rounding.reduced(value.dtype, total, squares, self._count(value))
        return total if value.dtype.is_float else total.astype(np.int64).astype(value.dtype.numpy)

    def _count(self, value: Value) -> int:
        return math.prod(self.extents[a] for a in value.over)

    def _masked(self, x: Array, y: Array, active: Any, over: Sequence[str]) -> Array:
        """The contraction over the active points only. What is not finite is counted apart: a
        contraction may take factors out of its sums, and zero in the place of an inactive x
        leaves NaN where y is infinite."""
        if np.isfinite(x).all() and np.isfinite(y).all():
            return self._contract(x if active is True else np.where(active, x, 0.0), y, over)

        def any_of(*pairs: tuple[Any, Any]) -> Array:
            met = ((a & active, b) for a, b in pairs)
            found = [self._contract(a * 1.0, b * 1.0, over) for a, b in met if a.any() and b.any()]
            return sum(found, np.zeros(())) > 0

        inf, every = np.inf, np.isfinite(y) | True
        rise = any_of((x == inf, y > 0), (x == -inf, y < 0), (x > 0, y == inf), (x < 0, y == -inf))
        fall = any_of((x == inf, y < 0), (x == -inf, y > 0), (x > 0, y == -inf), (x < 0, y == inf))
        none = any_of((np.isnan(x), every), (np.isfinite(x) | True, np.isnan(y)),
                      (np.isinf(x), y == 0), (x == 0, np.isinf(y)))  # fmt: skip
        x, y = (np.where(np.isfinite(z), z, 0.0) for z in (x, y))
        total = self._masked(x, y, active, over)
        total = np.where(rise, inf, np.where(fall, -inf, total))
        return np.where(none | rise & fall, np.nan, total)

    def _contract(self, x: Array, y: Array, over: Sequence[str]) -> Array:
        letters = string.ascii_letters[: len(self.names)]
        own = [[i for i, n in enumerate(z.shape) if n != 1] for z in (x, y)]
        kept = [i for i in sorted({*own[0], *own[1]}) if self.names[i] not in over]
        subscripts = ["".join(letters[i] for i in dims) for dims in (*own, kept)]
        total = np.einsum(
            f"{subscripts[0]},{subscripts[1]}->{subscripts[2]}",
            x.reshape([x.shape[i] for i in own[0]]),
            y.reshape([y.shape[i] for i in own[1]]),
            optimize=True,
        )
        repeats = 1
        for axis in over:
            number = self.names.index(axis)
            if number not in own[0] and number not in own[1]:
                repeats *= self.extents[axis]
        shape = [1] * len(self.names)
        for i, extent in zip(kept, total.shape):
            shape[i] = extent
        return np.asarray(total).reshape(shape) * repeats

    # ---- expressions

    def _expression(self, expression: Expression, active: Any) -> Array:
        """The value of an expression; `active`: the points at which it is looked at."""
        if isinstance(expression, Apply):
            args = [self._expression(a, active) for a in expression.args]
            if self.rounding and expression.dtype.is_float:
                return self.rounding.applied(expression.op, expression.dtype, args)
            return np.asarray(compute(expression.op, expression.dtype, *args))
        if isinstance(expression, Load):
            return self._load(expression, active)
        if isinstance(expression, Read):
            return self._read(expression)
        if isinstance(expression, Guard):
            return self._guard(expression, active)
        shape = [1] * len(self.names)
        if isinstance(expression, Constant):
            return np.full(shape, expression.value, expression.dtype.numpy)
        number = np.asarray(self._at(expression.index))
        return number.astype(expression.dtype.numpy).reshape(number.shape or shape)

    def _guard(self, guard: Guard, active: Any) -> Array:
        holds = self._holds(guard.conditions)
        body = self._expression(guard.body, active & holds)
        other = self._expression(guard.other, active & ~holds)
        return np.where(holds, body, other)

    def _holds(self, conditions: Sequence[Index]) -> Array:
        return hold(conditions, self.grid, [1] * len(self.names))

    def _at(self, index: Index, slots: Mapping[str, Array] | None = None) -> Any:
        return index.evaluate({**self.grid, **slots} if slots else self.grid)

    def _read(self, read: Read) -> Array:
        if read.so_far and read.value not in self.done:
            return self._start(self.by_name[read.value])
        return self.done[read.value]

    def _slots(self, slots: Sequence[tuple[str, Expression]], active: Any) -> dict[str, Array]:
        return {name: self._expression(e, active).astype(np.int64) for name, e in slots}

    def _load(self, load: Load, active: Any) -> Array:
        array = self.arrays[load.buffer]
        slots = self._slots(load.slots, active)
        if array.size == 0:
            return self._empty(load, active)
        where = []
        for index, extent in zip(load.index, array.shape):
            at = np.asarray(self._at(index, slots))
            if not index.names() & slots.keys():
                outside = ((at < 0) | (at >= extent)) & active
                if np.any(outside):
                    raise CompileError(f"load of {load.buffer} at {index} outside 0..{extent - 1}")
            where.append(np.clip(at, 0, extent - 1))
        found = np.asarray(array[tuple(where)])
        return found if found.ndim == len(self.names) else found.reshape([1] * len(self.names))

    def _empty(self, load: Load, active: Any) -> Array:
        """Nothing can be read from an empty buffer: right only where nothing looks."""
        axes = {a for i in load.index for a in i.names() if a in self.extents}
        shape = [n if a in axes else 1 for a, n in self.extents.items()]
        if np.any(np.broadcast_to(active, np.broadcast_shapes(shape, np.shape(active)))):
            raise CompileError(f"load from the empty buffer {load.buffer}")
        return np.zeros(shape, load.dtype.numpy)

    # ---- stores

    def _store(self, value: Value, store: Store, result: Array) -> None:
        shape = [n if a in value.axes else 1 for a, n in self.extents.items()]
        full = np.broadcast_to(result, shape)
        target = self.arrays[store.buffer]
        kept = self._domain(value, value.axes)
        active = np.asarray(kept)
        if self._plain(value, store) and bool(np.all(active)):
            order = [self.names.index(next(iter(i.names()))) for i in store.index]
            rest = [i for i in range(len(self.names)) if i not in order]
            part = full.transpose(order + rest).reshape([shape[i] for i in order])
            target[tuple(slice(0, n) for n in part.shape)] = part
            return
        self._scatter(value, store, full, active)

    def _plain(self, value: Value, store: Store) -> bool:
        """Each dimension is an axis of its own and nothing is combined."""
        axes = [next(iter(i.names()), "") for i in store.index]
        named = all(i == Index.of(a) for i, a in zip(store.index, axes) if a)
        wanted = {a for a in value.axes if self.extents[a] != 1}
        return (
            not self.at and store.mode == "set" and named and "" not in axes and not store.slots
            and len(set(axes)) == len(axes) and wanted <= set(axes) <= set(value.axes)
        )  # fmt: skip

    def _scatter(self, value: Value, store: Store, full: Array, active: Array) -> None:
        target = self.arrays[store.buffer]
        slots = self._slots(store.slots, active)
        order = [self.names.index(a) for a in value.axes]
        order += [i for i in range(len(self.names)) if i not in order]

        def points(x: Any) -> Array:
            x = np.asarray(x)
            x = x if x.ndim else x.reshape([1] * len(self.names))
            return np.broadcast_to(x, full.shape).transpose(order).reshape(-1)

        keep, where = points(active), []
        for index, extent in zip(store.index, target.shape):
            at = points(self._at(index, slots))
            inside = (at >= 0) & (at < extent)
            if not index.names() & slots.keys() and not np.all(inside | ~keep):
                raise CompileError(f"store to {store.buffer} at {index} outside 0..{extent - 1}")
            keep = keep & inside
            where.append(at)
        place = tuple(at[keep] for at in where)
        dtype = self.kernel.buffer(store.buffer).dtype
        write(store.mode, target, place, points(full)[keep].astype(target.dtype), dtype)


def _wide(dtype: DType) -> Any:
    return np.dtype(np.float64) if dtype.is_float else dtype.numpy


def _number(op: str, dtype: DType, wide: Any) -> Array:
    return np.asarray(identity(op, dtype), wide)
