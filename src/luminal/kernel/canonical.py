"""Kernels under standard names, so that equal kernels of different origin are equal text."""

from __future__ import annotations

from dataclasses import replace

from ..graph.index import Index
from .kernel import (
    Apply,
    Buffer,
    Constant,
    Expression,
    Guard,
    Kernel,
    Load,
    Position,
    Read,
    Reduction,
    Store,
    Value,
    walk,
)


class Renaming:
    """Standard names: axes a0, ... and buffers b0, ... by first use, values v0, ... in order. A
    size of one value becomes a number."""

    def __init__(self, kernel: Kernel) -> None:
        self.buffers = {name: f"b{n}" for n, name in enumerate(_buffers_by_use(kernel))}
        self.values = {v.name: f"v{n}" for n, v in enumerate(kernel.values)}
        used = dict.fromkeys(a for v in kernel.values for a in v.points)
        used.update(dict.fromkeys(kernel.axes))
        self.axes = {a: f"a{n}" for n, a in enumerate(used)}
        fixed = {n: Index.of(int(low)) for n, (low, high) in kernel.sizes.items() if low == high}
        self._sizes = sorted(kernel.sizes.keys() - fixed)
        self._indices = {a: Index.of(name) for a, name in self.axes.items()} | fixed
        self._done: dict[int, Expression] = {}

    def kernel(self, kernel: Kernel) -> Kernel:
        return Kernel(
            "",
            tuple(self.buffer(kernel.buffer(name)) for name in self.buffers),
            {name: self.index(kernel.axes[a]) for a, name in self.axes.items() if a in kernel.axes},
            tuple(self.value(v) for v in kernel.values),
            {name: kernel.sizes[name] for name in self._sizes},
            {name: kernel.hints[name] for name in self._sizes if name in kernel.hints},
        )

    def buffer(self, buffer: Buffer) -> Buffer:
        shape = tuple(map(self.index, buffer.shape))
        return replace(buffer, name=self.buffers[buffer.name], shape=shape)

    def value(self, value: Value) -> Value:
        domain = {
            self.axes[axis]: tuple(None if end is None else self.index(end) for end in ends)
            for axis, ends in sorted(value.domain.items())
        }
        return Value(
            self.values[value.name],
            tuple(self.axes[a] for a in value.axes),
            self.expression(value.body),
            value.dtype,
            self.reduction(value.reduction) if value.reduction else None,
            self.store(value.store) if value.store else None,
            domain,  # type: ignore[arg-type]
        )

    def reduction(self, reduction: Reduction) -> Reduction:
        start, rescale = reduction.start, reduction.rescale
        return replace(
            reduction,
            over=tuple(self.axes[a] for a in reduction.over),
            start=None if start is None else self.expression(start),
            rescale=None if rescale is None else self.read(rescale),
        )

    def store(self, store: Store) -> Store:
        return replace(
            store,
            buffer=self.buffers[store.buffer],
            index=tuple(map(self.index, store.index)),
            slots=tuple((name, self.expression(slot)) for name, slot in store.slots),
            conditions=tuple(map(self.index, store.conditions)),
            ordered=tuple(self.axes[a] for a in store.ordered),
        )

    def expression(self, expression: Expression) -> Expression:
        """Shared expressions stay shared: each is renamed once."""
        found = self._done.get(id(expression))
        if found is None:
            found = self._done[id(expression)] = self._rename(expression)
        return found

    def _rename(self, expression: Expression) -> Expression:
        if isinstance(expression, Constant):
            return expression
        if isinstance(expression, Position):
            return Position(self.index(expression.index), expression.dtype)
        if isinstance(expression, Read):
            return self.read(expression)
        if isinstance(expression, Apply):
            args = tuple(map(self.expression, expression.args))
            return Apply(expression.op, args, expression.dtype)
        if isinstance(expression, Load):
            return Load(
                self.buffers[expression.buffer],
                tuple(map(self.index, expression.index)),
                expression.dtype,
                tuple((name, self.expression(slot)) for name, slot in expression.slots),
            )
        conditions = tuple(map(self.index, expression.conditions))
        return Guard(
            conditions, self.expression(expression.body), self.expression(expression.other)
        )

    def read(self, read: Read) -> Read:
        return Read(self.values[read.value], read.dtype, read.so_far)

    def index(self, index: Index) -> Index:
        return index.substitute(self._indices)


def _buffers_by_use(kernel: Kernel) -> list[str]:
    """Names of buffers: those that are read in program order, then those that are only written."""
    loads = (
        e.buffer
        for value in kernel.values
        for root in value.expressions()
        for e in walk(root)
        if isinstance(e, Load)
    )
    used = [*loads, *kernel.outputs, *(b.name for b in kernel.buffers)]
    return list(dict.fromkeys(used))


def canonical(kernel: Kernel) -> tuple[Kernel, dict[str, str]]:
    """The kernel without a name and under standard names, and buffer -> its standard name."""
    renaming = Renaming(kernel)
    return renaming.kernel(kernel), renaming.buffers
