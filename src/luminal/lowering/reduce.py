"""Accumulators: when they start, are rescaled, and are finished, as hooks on the loop tree.

A reduction has a total. It is direct if the accumulators are the total: in registers, one for each
element. Else it goes in blocks: accumulators are opened before the innermost part of the path that
can hold them in registers and closed behind it. That is so if the total is a tile in memory (a
matmul in blocks of k), or if the reduced axis has lanes or accumulators of its own (these start at
the identity, and their sum joins the total). A total that several blocks visit is started before
the loops; a running one is finished in every turn of the outermost reduced loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import Illegal
from ..graph.scalars import COMBINE, identity
from ..kernel.kernel import Constant, Expression, Value
from ..kernel.program import Val
from .access import Access
from .builder import Builder
from .homes import Home, Homes
from .place import Place
from .shuffles import across, groups_of
from .tree import Node, Tree
from .values import Registers, Values

if TYPE_CHECKING:
    from .walk import Walk


class Accumulators:
    """Plans every reduction of a kernel on its loop tree."""

    def __init__(
        self, tree: Tree, homes: Homes, values: Values, access: Access, registers: Registers,
        build: Builder, walk: Walk,
    ) -> None:  # fmt: skip
        self.tree, self.homes, self.values, self.access = tree, homes, values, access
        self.held, self.build, self.walk = registers.held, build, walk
        for value in tree.values:
            if value.reduction is not None and value.reduction.scan:
                self._plan_scan(value)
            elif value.reduction is not None:
                self._plan(value)

    def _plan(self, value: Value) -> None:
        path, home = self.tree.paths[value.name], self.homes.by_name[value.name]
        first = self.tree.first(value)
        split = any(n.loop.kind in ("vector", "partial") and n.loop.axis in value.over
                    for n in path[first:])  # fmt: skip
        running = self.tree.running(value.name) and first < len(path)
        if home.registers and not split:
            self._blocks(value, first, first, False)
            self._rescale_held(value, first)
            return
        block = first + 1 if running else first
        if not home.registers:
            block = max(block, _register_part(value, path))
        rescaled = value.reduction is not None and value.reduction.rescale is not None
        if rescaled and any(n.loop.axis in value.over for n in path[first + 1 : block]):
            raise Illegal(f"{value.name} would be rescaled more than once in a step")
        self._blocks(value, first, block, split)

    def _rescale_held(self, value: Value, first: int) -> None:
        """Accumulators that are the total are rescaled where they are."""
        path, items = self.tree.paths[value.name], self.tree.items(value.name)
        assert value.reduction is not None

        def rescale(place: Place) -> None:
            for cell in cells(self.walk, value, path[first + 1 :], place):
                key = Registers.key(value, "sum", cell)
                self.held[key] = self._rescaled(value, self.held[key], cell)

        if value.reduction.rescale is not None:
            items[min(first + 1, len(path))].before.append(rescale)

    # ---- where they start

    def _start(self, value: Value, cell: Place) -> Val:
        """The start value, in all lanes of an accumulator."""
        assert value.reduction is not None
        start = value.reduction.start
        if start is None:
            start = _identity(value)
        return self._spread(start, value, cell)

    def _spread(self, expression: Expression, value: Value, cell: Place) -> Val:
        lanes = tuple(lane for lane in cell.lanes if lane[0] not in cell.collapsed)
        number = self.values.evaluate(expression, cell)
        number = self.values.apply("cast", [number], value.dtype, cell)
        return self.values.indexing.expand(number, lanes)

    def _rescaled(self, value: Value, total: Val, cell: Place) -> Val:
        assert value.reduction is not None
        if value.reduction.rescale is None:
            return total
        factor = self.values.evaluate(value.reduction.rescale, cell)
        return self.values.apply("mul", [total, factor], value.dtype, cell)

    # ---- a total in blocks

    def _blocks(self, value: Value, first: int, block: int, split: bool) -> None:
        path, items = self.tree.paths[value.name], self.tree.items(value.name)
        home, inner = self.homes.by_name[value.name], path[block:]
        once = block == first
        kept = [n for n in path[first:] if n.loop.axis not in value.over]

        def start(place: Place) -> None:
            self.walk.sweep(
                kept, place, lambda p: self._write(value, home, p, self._start(value, p))
            )

        def open_(place: Place) -> None:
            for cell in cells(self.walk, value, inner, place):
                self.held[Registers.key(value, "sum", cell)] = self._opened(
                    value, home, cell, split, once
                )

        def close(place: Place) -> None:
            groups = grouped(value, cells(self.walk, value, inner, place))
            self._close(value, home, groups, split, once)

        if not once:
            items[first].before.append(start)
        items[block].before.append(open_)
        items[block].after.append(close)

    def _opened(self, value: Value, home: Home, cell: Place, split: bool, once: bool) -> Val:
        if split:
            return self._spread(_identity(value), value, cell)
        if once:
            return self._start(value, cell)
        return self._rescaled(value, self._total(value, home, cell), cell)

    def _close(
        self, value: Value, home: Home, groups: list[list[Place]], split: bool, once: bool
    ) -> None:
        assert value.reduction is not None
        combine = COMBINE[value.reduction.op]
        totals = [self._collected(value, combine, group) for group in groups]
        if split:
            totals = self._across(value, combine, totals)
        for group, total in zip(groups, totals):
            place = group[0].plain(frozenset(value.over) if split else frozenset())
            if split and not once:
                old = self._rescaled(value, self._total(value, home, place), place)
                total = self.values.apply(combine, [old, total], value.dtype, place)
            elif split and value.reduction.start is not None:
                start = self._start(value, place)
                total = self.values.apply(combine, [start, total], value.dtype, place)
            self._write(value, home, place, total)

    def _collected(self, value: Value, combine: str, group: list[Place]) -> Val:
        """What the partial accumulators of an element hold."""
        parts = [self.held.pop(Registers.key(value, "sum", cell)) for cell in group]
        total = parts[0]
        for part, cell in zip(parts[1:], group[1:]):
            total = self.values.apply(combine, [total, part], value.dtype, cell)
        return total

    def _across(self, value: Value, combine: str, totals: list[Val]) -> list[Val]:
        """All lanes of reduced axes in one; a group of threads may have others inside them."""
        assert value.reduction is not None
        lanes = totals[0].lanes
        if not any(axis in value.over for axis, _ in lanes):
            return totals
        kept = tuple(lane for lane in lanes if lane[0] not in value.over)
        if kept and (self.build.shuffles or lanes[-1:] != kept or len(lanes) != 2):
            raise Illegal(f"{value.name}: lanes of kept and reduced axes cannot be mixed")
        several = len(totals) > 1 and self.build.shuffles and groups_of(totals[0])
        if several and all(t.lanes == lanes for t in totals):
            return across(self.build, combine, totals)
        op = f"across.{value.reduction.op}"
        return [self.build.emit(op, (t,), value.dtype, kept) for t in totals]

    def _total(self, value: Value, home: Home, place: Place) -> Val:
        if home.registers:
            return self.held[Registers.key(value, "value", place)]
        return self.access.load_tile(value, home, place)

    def _write(self, value: Value, home: Home, place: Place, total: Val) -> None:
        if home.registers:
            self.held[Registers.key(value, "value", place)] = total
        else:
            self.access.store_tile(value, home, place, total)

    # ---- scans

    def _plan_scan(self, value: Value) -> None:
        """Accumulators for each element beside the scanned axis; read at every step."""
        path, items = self.tree.paths[value.name], self.tree.items(value.name)
        first = self.tree.first(value)

        def around(act: Callable[[Place], None]) -> Callable[[Place], None]:
            def hook(place: Place) -> None:
                for cell in cells(self.walk, value, path[first:], place, value.over):
                    act(cell)

            return hook

        def start(cell: Place) -> None:
            self.held[Registers.key(value, "sum", cell)] = self._start(value, cell)

        def finish(cell: Place) -> None:
            del self.held[Registers.key(value, "sum", cell)]

        items[first].before.append(around(start))
        items[first].after.append(around(finish))


def cells(
    walk: Walk, value: Value, path: list[Node], place: Place, skipped: tuple[str, ...] = ()
) -> list[Place]:
    """The places of all accumulators that the written-out loops of a path reach."""
    places = [place]
    for node in path:
        axis, kind = node.loop.axis, node.loop.kind
        own = (axis in value.axes and axis not in skipped) or kind in ("vector", "partial")
        if own and not node.loop.constant:
            raise Illegal(f"{value.name}: the loop {node.loop} lies inside its accumulators")
        if own:
            places = [child for p in places for child in walk.children(node, p)]
        else:  # inside a loop over a reduced axis the tile is one step
            places = [p.at(axis, 0, node.loop.step, node.loop.step) for p in places]
    return places


def grouped(value: Value, places: list[Place]) -> list[list[Place]]:
    """Places of one element together: those that differ in their partial accumulators only."""
    groups: dict[object, list[Place]] = {}
    for place in places:
        groups.setdefault(Registers.key(value, "value", place), []).append(place)
    return list(groups.values())


def _register_part(value: Value, path: list[Node]) -> int:
    """Where the longest end of a path starts that only written-out or reduced loops make."""
    start = len(path)
    while start and (path[start - 1].loop.constant or path[start - 1].loop.axis in value.over):
        start -= 1
    return start


def _identity(value: Value) -> Constant:
    assert value.reduction is not None
    return Constant(identity(value.reduction.op, value.dtype), value.dtype)
