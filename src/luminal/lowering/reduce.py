"""Accumulators: when they start, are rescaled, and are finished, as hooks on the loop tree.

A reduction has a total. It is direct if the accumulators are the total: in registers, one for each
element. Else it goes in blocks: accumulators are opened before the innermost part of the path that
can hold them in registers and closed behind it. That is so if the total is a tile in memory (a
matmul in blocks of k), or if the reduced axis has lanes or accumulators of its own (these start at
the identity, and their sum joins the total), or if a sum of floats has very many steps: those of a
block are added up first, as a large sum loses what is small beside it. A total that several blocks
visit is started before the loops; a running one is finished in every turn of the outermost reduced
loop.
"""

from __future__ import annotations

from itertools import takewhile
from math import prod
from typing import TYPE_CHECKING

from ..errors import Illegal
from ..graph.index import Index
from ..graph.scalars import COMBINE, identity
from ..graph.space import LARGEST
from ..kernel.kernel import Constant, Expression, Reduction, Value
from ..kernel.program import Val
from ..kernel.schedule import CHAIN
from .place import Place
from .shuffles import across, groups_of
from .tree import Tree, shared_depth
from .values import Key, register_of

if TYPE_CHECKING:
    from .walk import Walk


class Accumulators:
    """The hooks of one reduction of a kernel on its loop tree."""

    def __init__(self, value: Value, reduction: Reduction, tree: Tree, walk: Walk) -> None:
        self.value, self.reduction, self.combine = value, reduction, COMBINE[reduction.op]
        self.path, self.items = tree.paths[value.name], tree.items(value.name)
        self.first, self.home = tree.first(value), walk.homes.by_name[value.name]
        self.values, self.access, self.held, self.walk = walk.values, walk.access, walk.held, walk
        self.identity = Constant(identity(reduction.op, value.dtype), value.dtype)
        if reduction.scan:
            self._plan_scan()
        else:
            running = tree.running(value.name) and self.first < len(self.path)
            self._plan(running, self._met(tree) if running else 0)

    def _met(self, tree: Tree) -> int:
        """How far those of a step share its loops that see what it came to, and the factor by which
        it is rescaled: blocks are inside."""
        late = tree.values[tree.values.index(self.value) + 1 :]
        seen = {v.name for v in late if self.value.name in v.reads(so_far=True)}
        beside = (seen | self.value.rescale) & tree.paths.keys()
        return max((shared_depth(self.path, tree.paths[name]) for name in beside), default=0)

    def _plan(self, running: bool, met: int) -> None:
        path, first, over = self.path, self.first, self.value.over
        split = any(
            n.loop.kind in ("vector", "partial") and n.loop.axis in over for n in path[first:]
        )
        apart = None if running else self._long()
        if self.home.registers and not split and apart is None:
            self._blocks(first, False)
            if self.reduction.rescale is not None:
                self.items[min(first + 1, len(path))].before.append(self._rescale_held)
            return
        block = max(first + 1 if running else first, apart or 0, met)
        if not self.home.registers:
            block = max(block, self._register_part())
        rescaled = self.reduction.rescale is not None
        if rescaled and any(n.loop.axis in over for n in path[first + 1 : block]):
            raise Illegal(f"{self.value.name} would be rescaled more than once in a step")
        self._blocks(block, split, apart is not None)

    def _long(self) -> int | None:
        """Where a block of a long sum of floats starts, so that both its steps and the blocks are
        few; None where it is not long, or has no such place."""
        plain = self.reduction.op == "sum" and self.value.dtype.is_float
        if not plain or self.reduction.rescale is not None or not self.values.build.shuffles:
            return None
        turns, places = self._turns(), range(self.first + 1, len(self.path))
        if prod(turns) < 2 * CHAIN:
            return None
        inner = [n for n in places if turns[n] > 1 and not self.path[n].loop.constant]
        return min(inner, key=lambda n: prod(turns[:n]) + prod(turns[n:]), default=None)

    def _turns(self) -> list[int]:
        """How often each loop of the path adds to an accumulator, at most."""
        within, found = dict(self.access.extents), list[int]()
        for loop in (node.loop for node in self.path):
            extent, own = within[loop.axis], loop.kind in ("vector", "partial", "collapse")
            within[loop.axis] = Index.of(loop.step)
            summed = loop.axis in self.value.over and not own
            most = int(min(LARGEST, self.access.space.bounds(extent)[1]))
            found.append(-(-most // loop.step) if summed else 1)
        return found

    def _register_part(self) -> int:
        """Where the longest end of its path starts that only written-out or reduced loops make."""
        inside = (n.loop.constant or n.loop.axis in self.value.over for n in self.path[::-1])
        return len(self.path) - len(list(takewhile(bool, inside)))

    def _rescale_held(self, place: Place) -> None:
        """Accumulators that are the total are rescaled where they are."""
        for cell in self._cells(self.first + 1, place):
            key = self._key("sum", cell)
            self.held[key] = self._rescaled(self.held[key], cell)

    def _key(self, role: str, place: Place) -> Key:
        return register_of(self.value, role, place)

    # ---- where they start

    def _start(self, cell: Place) -> Val:
        """The start value, in all lanes of an accumulator."""
        return self._spread(self.reduction.start or self.identity, cell)

    def _spread(self, expression: Expression, cell: Place) -> Val:
        lanes = tuple(lane for lane in cell.lanes if lane[0] not in cell.collapsed)
        number = self.values.evaluate(expression, cell)
        number = self.values.apply("cast", [number], self.value.dtype, cell)
        return self.values.indexing.expand(number, lanes)

    def _rescaled(self, total: Val, cell: Place) -> Val:
        if self.reduction.rescale is None:
            return total
        factor = self.values.evaluate(self.reduction.rescale, cell)
        return self.values.apply("mul", [total, factor], self.value.dtype, cell)

    # ---- a total in blocks

    def _blocks(self, block: int, split: bool, apart: bool = False) -> None:
        """apart: what a block adds up joins the total when it is done."""
        once, apart = block == self.first, apart or split
        kept = [n for n in self.path[self.first :] if n.loop.axis not in self.value.over]

        def start(place: Place) -> None:
            self.walk.sweep(kept, place, lambda p: self._write(p, self._start(p)))

        def open_(place: Place) -> None:
            for cell in self._cells(block, place):
                self.held[self._key("sum", cell)] = self._opened(cell, apart, once)

        def close(place: Place) -> None:
            self._close(self._cells(block, place), split, apart, once)

        if not once:
            self.items[self.first].before.append(start)
        self.items[block].before.append(open_)
        self.items[block].after.append(close)

    def _opened(self, cell: Place, apart: bool, once: bool) -> Val:
        if apart:
            return self._spread(self.identity, cell)
        if once:
            return self._start(cell)
        if self.reduction.rescale is None or not self._of_rows(cell):
            return self._rescaled(self._total(cell), cell)
        for row in self._of_rows(cell):  # registers of matrices only add products
            self._write(row, self._rescaled(self._total(row), row))
        return self._total(cell)

    def _of_rows(self, cell: Place) -> list[Place]:
        """The rows of a matrix that is held as one, each a vector."""
        lanes = [lane for lane in cell.lanes if lane[0] not in cell.collapsed]
        if len(lanes) < 2 or not self.values.build.shuffles:
            return []
        (axis, size), _ = lanes
        plain = cell.plain(frozenset((axis, *self.value.over)))
        return [plain.moved(axis, n) for n in range(size)]

    def _close(self, cells: list[Place], split: bool, apart: bool, once: bool) -> None:
        groups: dict[Key, list[Place]] = {}  # places of one element, apart in partial sums only
        for cell in cells:
            groups.setdefault(self._key("value", cell), []).append(cell)
        totals = [self._collected(group) for group in groups.values()]
        if split:
            totals = self._across(totals)
        for group, total in zip(groups.values(), totals):
            place = group[0].plain(frozenset(self.value.over) if split else frozenset())
            if apart and not once:
                total = self._combined(self._rescaled(self._total(place), place), total, place)
            elif split and self.reduction.start is not None:
                total = self._combined(self._start(place), total, place)
            self._write(place, total)

    def _combined(self, first: Val, second: Val, place: Place) -> Val:
        return self.values.apply(self.combine, [first, second], self.value.dtype, place)

    def _collected(self, group: list[Place]) -> Val:
        """What the partial accumulators of an element hold."""
        parts = [self.held.pop(self._key("sum", cell)) for cell in group]
        total = parts[0]
        for part, cell in zip(parts[1:], group[1:]):
            total = self._combined(total, part, cell)
        return total

    def _across(self, totals: list[Val]) -> list[Val]:
        """All lanes of reduced axes in one; a group of threads may have others inside them."""
        lanes, over, build = totals[0].lanes, self.value.over, self.values.build
        if not any(axis in over for axis, _ in lanes):
            return totals
        kept = tuple(lane for lane in lanes if lane[0] not in over)
        mixed = build.shuffles or len(lanes) != 2
        if kept and (mixed or kept not in (lanes[:1], lanes[1:])):
            raise Illegal(f"{self.value.name}: lanes of kept and reduced axes cannot be mixed")
        several = len(totals) > 1 and build.shuffles and groups_of(totals[0])
        if several and all(t.lanes == lanes for t in totals):
            return across(build, self.combine, totals)
        op = f"across.{self.reduction.op}"
        return [build.emit(op, (t,), self.value.dtype, kept) for t in totals]

    def _total(self, place: Place) -> Val:
        if self.home.registers:
            return self.held[self._key("value", place)]
        return self.access.load_tile(self.value, self.home, place)

    def _write(self, place: Place, total: Val) -> None:
        if self.home.registers:
            self.held[self._key("value", place)] = total
        else:
            self.access.store_tile(self.value, self.home, place, total)

    # ---- scans

    def _plan_scan(self) -> None:
        """Accumulators for each element beside the scanned axis; read at every step."""

        def start(place: Place) -> None:
            for cell in self._cells(self.first, place, self.value.over):
                self.held[self._key("sum", cell)] = self._start(cell)

        def finish(place: Place) -> None:
            for cell in self._cells(self.first, place, self.value.over):
                del self.held[self._key("sum", cell)]

        self.items[self.first].before.append(start)
        self.items[self.first].after.append(finish)

    def _cells(self, depth: int, place: Place, skipped: tuple[str, ...] = ()) -> list[Place]:
        """The places of all accumulators that the written-out loops below a depth reach."""
        places = [place]
        for node in self.path[depth:]:
            axis, kind = node.loop.axis, node.loop.kind
            own = axis in self.value.axes and axis not in skipped
            own = own or kind in ("vector", "partial")
            if own and not node.loop.constant:
                name = self.value.name
                raise Illegal(f"{name}: the loop {node.loop} lies inside its accumulators")
            if own:
                places = [child for p in places for child in self.walk.children(node, p)]
            else:  # inside a loop over a reduced axis the tile is one step
                places = [p.at(axis, 0, node.loop.step) for p in places]
        return places
