"""The walk over the loop tree: loops, tails, domains, units for threads, and what runs inside.

A serial loop becomes a For that carries the accumulators written below it. An unrolled loop is a
loop here. A vector loop opens lanes. Full tiles run unguarded; what is left runs in a guarded copy
of fewer rows or lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import lcm, prod

from ..errors import Illegal
from ..graph.dtype import i64
from ..graph.index import Index
from ..kernel.kernel import Value
from ..kernel.program import For, Parallel, Val
from ..kernel.schedule import Schedule
from .ahead import Ahead
from .builder import literal
from .place import Place
from .tree import Item, Leaf, Node
from .values import Values, register_of
from .walk_limits import Limits

LARGEST_BLOCK = 256  # turns of a loop that may be written out
SHARES = 3  # of a tile
Body = Callable[[Place], None]


class Walk:
    """Walks a loop tree and emits its program."""

    def __init__(self, schedule: Schedule, values: Values, limits: Limits, ahead: Ahead) -> None:
        self.schedule, self.values, self.limits, self.ahead = schedule, values, limits, ahead
        self.access, self.homes, self.held = values.access, values.homes, values.held
        self.indexing, self.build = values.indexing, values.build
        self.space = self.indexing.space

    # ---- items

    def items(self, node: Node, place: Place) -> None:
        """Everything inside one turn of a loop."""
        for name in node.homes:
            self.homes.by_name[name].stand(place, self.values.values[name].axes)
        for item in node.items:
            self.item(item, place)
        for key in [k for k in self.held if k[0] in node.homes and k[1] == "value"]:
            del self.held[key]

    def item(self, item: Item, place: Place) -> None:
        for hook in item.before:
            hook(place)
        if isinstance(item, Leaf):
            self.compute(item.value, place)
        else:
            self.loop(item, place, partial(self.items, item), item.reductions)
        for hook in item.after:
            hook(place)

    def compute(self, value: Value, place: Place) -> None:
        """One value at one place."""
        if value.reduction is not None:
            self._update(value, place)
            return
        zero = literal(0, value.dtype)
        result = zero if place.behind else self.values.evaluate(value.body, place)
        if value.store is not None:
            self.access.store(value, value.store, place, result)
        else:
            self._keep(value, place, result)

    def _keep(self, value: Value, place: Place, result: Val) -> None:
        home = self.homes.by_name[value.name]
        if home.lent is not None:
            self.access.store(value, home.lent, place, result)
        elif home.registers:
            result = self.indexing.cast(result, value.dtype)
            self.held[register_of(value, "value", place)] = result
        else:
            result = self.indexing.cast(result, value.dtype)
            summed = (a for a, _ in place.lanes if self.homes.multiplied(value.name, a))
            ends = [] if place.behind else [a for a in summed if a in place.ends]
            for mask in (self.access.tail(a, place) for a in ends):
                args = [mask, result, literal(0, value.dtype)]
                result = self.indexing.apply("select", args, value.dtype, place.lanes)
            self.access.store_tile(value, home, place, result)

    def _update(self, value: Value, place: Place) -> None:
        key = register_of(value, "sum", place)
        if key not in self.held:
            raise Illegal(f"{value.name} is accumulated where its accumulators are not open")
        self.held[key] = self.values.accumulate(value, self.held[key], place)
        if value.scans:
            self._keep(value, place, self.held[key])

    # ---- loops

    def loop(self, node: Node, place: Place, body: Body, carried: set[str]) -> None:
        """One loop of the tree, of any kind."""
        if node.loop.constant or node.loop.axis in place.spelled:
            for child in self.children(node, place):
                body(child)
            return
        start = self.limits.start(node, place) if node.outermost else None
        if start is None:
            self._serial(node, place, body, carried)
        else:
            self._serial(node, start, lambda p: body(self.limits.facts(node, p)), carried)

    def sweep(self, nodes: list[Node], place: Place, body: Body) -> None:
        """Loops of a path one inside the other, without accumulators."""
        if not nodes:
            body(place)
            return
        self.loop(nodes[0], place, lambda p: self.sweep(nodes[1:], p, body), set())

    def children(self, node: Node, place: Place) -> list[Place]:
        """The places that a written-out loop visits."""
        axis, step = node.loop.axis, node.loop.step
        span = place.span[axis]
        fixed = span.is_constant and axis not in place.ends
        if node.lanes:
            self.indexing.lane(axis, node.lanes)
            whole = fixed and span.constant >= node.lanes * step
            collapsed = node.loop.kind == "collapse"
            return [place.with_lanes(axis, node.lanes, collapsed, not whole, step)]
        high = self.space.bounds(span)[1]
        if high > LARGEST_BLOCK * step:
            raise Illegal(f"{node.loop} would be written out {high // step} times")
        most = int(high)
        return [self._child(node, place, start, most, fixed) for start in range(0, most, step)]

    def _child(self, node: Node, place: Place, start: int, most: int, fixed: bool) -> Place:
        axis, step = node.loop.axis, node.loop.step
        span = min(step, most - start)
        if not place.span[axis].is_constant and step > 1:
            left = (place.span[axis] - start).minimum(step).maximum(0)
            child = place.at(axis, start, self.indexing.opaque(left, 0, span), guarded=True)
        else:
            child = place.at(axis, start, span, guarded=not fixed)
        if node.loop.kind == "partial":
            child.partial = place.partial + (start,)
        if step == 1:
            child.unrolled = {**child.unrolled, axis: (start, most)}
        return child

    def _serial(self, node: Node, place: Place, body: Body, carried: set[str]) -> None:
        axis, step = node.loop.axis, node.loop.step
        span = place.span[axis]
        whole = self.space.floor(span, step)
        rest = span - whole * step
        tested = ("guard",) if node.outermost else ("guard", "inner")
        guard = self.schedule.tails.get(axis) in tested and step > 1 and rest != 0
        if guard:
            whole, rest = self.space.floor(span + (step - 1), step), Index.of(0)
        if not whole.is_constant:
            whole = self.indexing.opaque(whole, 0)

        def full(begin: int, at: Place, turn: Index) -> None:
            offset, left = (turn + begin) * step, Index.of(step)
            if guard:
                left = self.indexing.opaque((span - offset).minimum(step))
            body(at.at(axis, offset, left, guard) if guard else at.whole(axis, offset, step))

        edge, ranges = self._ranges(node, place, whole)
        for begin, end, where in ranges:
            self.repeat(where, end - begin, partial(full, begin), carried)
        if step > 1 and self.space.bounds(rest)[1] > 0:
            self._rest(node, edge, whole, body, carried)
        if not node.reductions:
            self._behind(node, place, body, step > 1 and not guard and rest != 0)

    def _ranges(
        self, node: Node, place: Place, turns: Index
    ) -> tuple[Place, list[tuple[int, Index, Place]]]:
        """Ranges of the turns of a loop, each a loop, and where they stand. Another begins where
        a condition on the axis alone changes: what is read under it, such as a part of a
        concatenation, is read without a test. With edges, turns at which a condition is open are
        written out, each alone. First the place of what full turns leave over."""
        if self.schedule.tails.get(node.loop.axis) == "edges" and turns.is_constant:
            every = range(turns.constant)
            inside, axes = self.limits.inside(node, place, len(every))
            edge = replace(place, spelled=place.spelled | axes)
            before, after = every[: inside.start], every[inside.stop :]
            single = [[(t, Index.of(t + 1), edge) for t in part] for part in (before, after)]
            middle = inside.start, Index.of(inside.stop), place
            return edge, [*single[0], middle, *single[1]]
        begins = [0, *self.limits.changes(node, place, turns)]
        ends = [*map(Index.of, begins[1:]), turns]
        return place, [(begin, end, place) for begin, end in zip(begins, ends)]

    def _rest(
        self, node: Node, place: Place, whole: Index, body: Body, carried: set[str]
    ) -> None:
        """What full steps leave over: if it is not known how much, in smaller ones."""
        axis, step = node.loop.axis, node.loop.step
        rest = place.span[axis] - whole * step
        if rest.is_constant:
            body(place.at(axis, whole * step, rest))
            return
        rest, least = self.indexing.opaque(rest, 0, step - 1), self._smaller(node)

        def some(at: Place, turn: Index) -> None:
            left = self.indexing.opaque((rest - turn * least).minimum(least), 0, least)
            body(at.at(axis, whole * step + turn * least, left, guarded=True))

        if least < step:
            self.repeat(place, self.space.floor(rest + (least - 1), least), some, carried)
            return
        child = place.at(axis, whole * step, rest, guarded=True)
        self.repeat(place, rest.minimum(1), lambda p, turn: body(child), carried)

    def _smaller(self, node: Node) -> int:
        """The steps for what the full ones of a loop leave over: where a step is a tile, a share of
        it with whole lanes, which is less work and less to write out. It divides the step: a tile
        in memory has room for no more. Where readers take all of a tile, all of it is written."""
        axis, step, homes = node.loop.axis, node.loop.step, self.homes
        inside = [n for n in node.inside() if n.loop.axis == axis]
        whole = (homes.multiplied(v.name, axis) or homes.read_whole(v.name, axis)
                 for v in node.leaves())  # fmt: skip
        if any(whole) or not all(n.loop.constant for n in inside):
            return step
        lanes = lcm(*(n.reach for n in inside))
        shares = (step // count for count in range(SHARES, 1, -1) if step % (count * lanes) == 0)
        return next(shares, step)

    def _behind(self, node: Node, place: Place, body: Body, ragged: bool) -> None:
        """Zeros, up to the end of a tile all of which is read: of what matrices sum up, and where
        what lies there may be subnormal numbers, which cost some processors a hundred times as
        much. ragged: the loop leaves something over."""
        axis, step = node.loop.axis, node.loop.step
        span, leaves = place.span[axis], [*node.leaves()]
        whole = max(self.homes.multiplied(v.name, axis) for v in leaves)
        ragged = ragged and not span.is_constant
        if not whole and not (ragged and all(
            v.dtype.is_float and self.homes.read_whole(v.name, axis) for v in leaves
        )):
            return
        most = -(-int(self.space.bounds(span)[1]) // (whole or 1)) * (whole or 1)
        begun = self.space.floor(span + (step - 1), step)
        if begun * step == most:
            return

        def zeros(at: Place, turn: Index) -> None:
            body(at.at(axis, (begun + turn) * step, step))

        self.repeat(replace(place, behind=True), Index.of(-(-most // step)) - begun, zeros, set())

    def repeat(
        self, place: Place, count: Index, body: Callable[[Place, Index], None], carried: set[str]
    ) -> None:
        """A body `count` times, with the accumulators of `carried` as carried values."""
        if count.is_constant and count.constant <= 1:
            if count.constant == 1:
                body(place, Index.of(0))
            return
        build, held = self.build, self.held
        total = self.indexing.scalar(count)
        keys = [key for key in held if key[0] in carried]
        initial = [held[k] for k in keys]
        build.open()
        name, var = self.indexing.counter(count)
        self.ahead.open(name, count)
        phis = [build.fresh(v.dtype, v.lanes) for v in initial]
        held.update(zip(keys, phis))
        body(place, Index.of(name))
        following = [held[k] for k in keys]
        self.ahead.close(len(keys))
        statements = build.close()
        results = [build.fresh(v.dtype, v.lanes) for v in initial]
        held.update(zip(keys, results))
        build.append(For(var, total, statements, list(zip(phis, initial, following, results))))

    # ---- units of work

    def units(self, root: Node, place: Place) -> None:
        """All work as one Parallel: the turns of the outermost parallel loops, nest after nest."""
        nests = list[list[Item]]()
        for parallel, items in groupby(root.items, _is_parallel):
            run = [*items]
            nests += [[item] for item in run] if parallel else [run]
        chains = [_chain(nest[0]) for nest in nests]
        counts = [self._count(chain, place) for chain in chains]
        total = sum(counts, Index.of(0))
        count_val = self.indexing.scalar(total)
        self.build.open()
        name, unit = self.indexing.counter(total)
        before = Index.of(0)
        for nest, chain, count in zip(nests, chains, counts):
            here, last = Index.of(name), before + count
            tested = self._inside(here, before, last)
            self.build.when(tested, partial(self._nest, nest, chain, here - before, place))
            before = last
        self.build.append(Parallel(unit, count_val, self.build.close()))

    def _inside(self, unit: Index, low: Index, high: Index) -> Val | None:
        """Whether a unit is one of low .. high - 1, if that is to be tested."""
        conditions = [c for c in (unit - low, high - 1 - unit) if not self.space.nonnegative(c)]
        return self.indexing.all_of([self.indexing.condition(c, ()) for c in conditions], ())

    def _count(self, chain: list[Node], place: Place) -> Index:
        loops = [(place.span[node.loop.axis], node.loop.step) for node in chain]
        turns = (self.space.floor(span + (step - 1), step) for span, step in loops)
        return prod(turns, start=Index.of(1))

    def _nest(self, nest: list[Item], chain: list[Node], turn: Index, place: Place) -> None:
        """One unit of a nest: where each parallel loop stands, then what is inside."""
        if not chain:
            for item in nest:
                self.item(item, place)
            self.ahead.end()
            return
        rest = self.indexing.scalar(turn)
        for number, node in reversed(list(enumerate(chain))):
            count = self._count([node], place)
            here = rest
            if number:
                size = self.indexing.scalar(count)
                here = self.build.emit("mod", (rest, size), i64)
                rest = self.indexing.quotient(rest, size)
            place = self._unit(node, place, here, count)
        self._whole_or_part(chain, place)
        self.ahead.end()

    def _whole_or_part(self, chain: list[Node], place: Place) -> None:
        """What a unit does: where tails of an axis are units of their own, without a test of its
        index if the unit is whole."""
        named = [n.loop for n in chain if self.schedule.tails.get(n.loop.axis) == "units"]
        cut = [loop for loop in named if not place.span[loop.axis].is_constant]
        conditions = [place.span[loop.axis] - loop.step for loop in cut]
        tests = self.indexing.open_conditions(conditions, place)
        if not cut or tests is None:
            self.items(chain[-1], place)
            return
        steps = {loop.axis: Index.of(loop.step) for loop in cut}
        whole = replace(place, span=place.span | steps)
        condition = self.indexing.all_of(tests, ())
        self.build.when(condition, lambda: self.items(chain[-1], whole))
        if condition is not None:
            other = self.indexing.negation(condition)
            self.build.when(other, lambda: self.items(chain[-1], place))

    def _unit(self, node: Node, place: Place, here: Val, count: Index) -> Place:
        """The place of one turn of a parallel loop."""
        axis, step, span = node.loop.axis, node.loop.step, place.span[node.loop.axis]
        if count == 1:
            return place.at(axis, 0, span)
        turn = self._turn(here, count)
        if span.is_constant and span.constant % step == 0:
            return place.at(axis, turn * step, step)
        left = self.indexing.opaque((span - turn * step).minimum(step), 1, step)
        return place.at(axis, turn * step, left)

    def _turn(self, here: Val, count: Index) -> Index:
        """A turn as a variable that is known to stay below the count."""
        name = f"%u{here.name[1:]}"
        self.indexing.scalars[name] = here
        if name not in self.space.axes:
            self.space.add_axis(name, count)
        self.ahead.open(name, count, units=True)
        return Index.of(name)


def _is_parallel(item: Item) -> bool:
    return isinstance(item, Node) and item.loop.kind == "parallel"


def _chain(item: Item) -> list[Node]:
    """Parallel loops one directly inside the other, from the outermost."""
    chain: list[Node] = []
    while isinstance(item, Node) and item.loop.kind == "parallel":
        chain.append(item)
        if len(item.items) != 1:
            break
        item = item.items[0]
    return chain
