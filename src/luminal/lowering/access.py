"""Loads and stores: which elements, in which lanes, under which conditions.

An access is one offset, linear in its lanes or not. The strides of the lanes say what it is: none,
a scalar that is repeated where it is used; consecutive, a vector; else a gather, a scatter, or a
block transposed in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from functools import cache
from math import prod

from ..errors import Illegal
from ..graph.dtype import i64
from ..graph.index import Index, Monomial
from ..graph.scalars import COMBINE
from ..graph.space import Space
from ..kernel.kernel import Expression, Load, Store, Value
from ..kernel.program import Instruction, Val
from .builder import integer
from .homes import Home
from .indexing import Indexing
from .place import Lanes, Memory, Place, Steps, contiguous, in_tile, lanes_of, tile_of
from .shuffles import between, every, every_second, interleaved, joined, turned

ROW = 16  # elements side by side in a matrix, at least
Evaluate = Callable[[Expression, Place], Val]
Locate = Callable[[Place], Index]  # element offset


class Access:
    """Emits loads and stores. `evaluate` computes slots."""

    def __init__(
        self, indexing: Indexing, memories: dict[str, Memory], extents: dict[str, Index]
    ) -> None:
        self.indexing, self.build, self.space = indexing, indexing.build, indexing.space
        self.memories, self.extents = memories, extents  # of axes
        self.evaluate: Evaluate
        self.note: Callable[[Memory, Index, int], None]
        self.offset = cache(self._offset)

    # ---- loads

    def load(self, load: Load, place: Place) -> Val:
        """An element, or the lanes, of a buffer at a place."""
        memory = self.memories[load.buffer]
        data = self._slots(load.slots, place)

        def locate(where: Place) -> Index:
            return self.offset(memory, self._at(load.index, data, where, memory))

        guarded = place.ends.keys() & load.names
        tested = guarded or place.masks
        if not tested or self._inside(load, self._at(load.index, data, place, memory), memory,
                                      place):  # fmt: skip
            return self._load(memory, locate, place, None)
        masks = [*place.masks, *self.tail_masks(guarded, place)]
        held = self.clamped(guarded, place)
        return self._load(memory, locate, held, self.indexing.all_of(masks, place.lanes))

    def step(self, load: Load, place: Place, axis: str) -> Index:
        """How far apart neighbours along an axis lie, of a load without slots."""
        memory = self.memories[load.buffer]
        here, there = (self.offset(memory, self._at(load.index, {}, p, memory))
                       for p in (place, place.moved(axis, 1)))  # fmt: skip
        return there - here

    def load_tile(self, value: Value, home: Home, place: Place) -> Val:
        """A value from its tile in the workspace."""
        memory = self.memories[f"{value.name} tile"]
        return self._load(memory, self._tile(value, home, memory), place, None)

    def _tile(self, value: Value, home: Home, memory: Memory) -> Locate:
        """The offset in a tile: positions count from where the home's loop stands."""

        def locate(where: Place) -> Index:
            inside = (where.index[a] - start for a, start in zip(value.axes, home.base))
            return self.offset(memory, tuple(inside))

        return locate

    def _offset(self, memory: Memory, index: tuple[Index, ...]) -> Index:
        """The number of an element."""
        return memory.storage.offset(index, self.space)

    def _slots(self, slots: Sequence[tuple[str, Expression]], place: Place) -> dict[str, Index]:
        """Data-dependent indices as variables."""
        found = {}
        for name, expression in slots:
            value = self.indexing.cast(self.evaluate(expression, place), i64)
            found[name] = self.indexing.variable(value, -(1 << 63), (1 << 63) - 1)
        return found

    def _at(
        self, index: Sequence[Index], data: dict[str, Index], place: Place, memory: Memory
    ) -> tuple[Index, ...]:
        """The position in each dimension; one that depends on data is clamped into it."""
        found = []
        for position, extent in zip(index, memory.shape):
            here = self.indexing.at(position, place)
            if data and position.names() & data.keys():
                here = here.substitute(data).minimum(extent - 1).maximum(0)
            found.append(here)
        return tuple(found)

    def _inside(self, load: Load, at: Sequence[Index], memory: Memory, place: Place) -> bool:
        """Whether all lanes are in the buffer, or in the zeros that its layout is padded with."""
        dimensions = zip(load.index, at, memory.storage.extents, memory.storage.units)
        return all(
            self.space.inside(here, extent)
            or (plain.names() == {plain.text} and in_tile(here, unit, place.lanes))
            or (self.build.matrices and self._begun(plain, extent, place))
            for plain, here, extent, unit in dimensions
        )

    def _begun(self, plain: Index, extent: Index, place: Place) -> bool:
        """Whether tiles that begin inside of their axes end in the buffer, if not in their axes."""
        walked = dict(self.extents)
        for axis in place.ends.keys() & plain.names():
            tile, size = tile_of(place.index[axis], place.lanes), self.extents[axis]
            if not tile or not size.is_constant:
                return False
            walked[axis] = Index.of(-(-int(size) // tile) * tile)
        return Space(self.space.sizes, walked).inside(plain, extent)

    def clamped(self, axes: Set[str], place: Place) -> Place:
        """With scalar indices that may pass their extent held at the last element."""
        held = {axis: self.indexing.opaque(place.index[axis].minimum(self.extents[axis] - 1))
                for axis in sorted(axes - {a for a, _ in place.lanes})}  # fmt: skip
        return replace(place, index=place.index | held)

    def tail_masks(self, axes: Set[str], place: Place) -> list[Val]:
        """For guarded axes in lanes: which lanes are inside; for others: that there is anything."""
        lanes = {a for a, _ in place.lanes}
        masks = [self.tail(axis, place) for axis in sorted(axes & lanes)]
        for axis in sorted(axes - lanes):
            if not self.space.nonnegative(self.extents[axis] - 1):
                masks.append(self.indexing.condition(self.extents[axis] - 1, place.lanes))
        return masks

    def tail(self, axis: str, place: Place) -> Val:
        """Whether the index of an axis is inside the tile in which it walks."""
        room = place.ends[axis] - 1 - place.index[axis]
        return self.indexing.condition(room, place.lanes)

    def _load(self, memory: Memory, locate: Locate, place: Place, mask: Val | None) -> Val:
        offset = locate(place)
        parts = self.indexing.split(offset, place.lanes)
        if parts is None:
            return self._load_at(memory, offset, place.lanes, mask)
        base, steps = parts
        lanes = lanes_of(steps)
        if mask is not None:
            still = {a for a, _ in mask.lanes} - {a for a, _ in lanes}
            if still:  # a condition keeps the index inside in a row's lanes, not in those behind it
                tails = [self.tail(a, place) for a in sorted(place.ends.keys() & still)]
                mask = self.indexing.all_of([mask, *tails], place.lanes)
                return self._load_at(memory, offset, place.lanes, mask)
            if not lanes:
                return self._load_or_start(memory, base, mask)
            mask = self.indexing.expand(mask, lanes)
        if not contiguous(steps):
            return self._strided(memory, locate, base, steps, place, mask)
        return self._lanes_from(memory, base, lanes, mask)

    def _lanes_from(
        self, memory: Memory, base: Index, lanes: Lanes, mask: Val | None, *strides: int
    ) -> Val:
        """Lanes so many elements apart, from an element on; side by side if it is not said."""
        here, constant = self.position(memory, base)
        self.note(memory, base, prod(size for _, size in lanes))
        args = (here, *_masks(mask))
        op, attrs = ("gather", (constant, *strides)) if strides else ("load", (constant,))
        return self.build.load(memory.name, op, args, attrs, memory.dtype, lanes)

    def _strided(
        self, memory: Memory, locate: Locate, base: Index, steps: Steps, place: Place,
        mask: Val | None,
    ) -> Val:  # fmt: skip
        matrix = self.build.matrices and steps[-1][1] >= ROW
        maskable = mask is None or memory.dtype.bytes >= self.build.maskable
        if len(steps) == 2 and maskable and self.build.shuffles and not matrix:
            found = self._packed(memory, base, mask, *steps)
            if found is not None:
                return found
        if len(steps) != 1:
            return self._load_at(memory, locate(place), place.lanes, mask)
        if self.build.shuffles and mask is None:
            column = self._transposed(memory, locate, base, steps[0], place)
            if column is not None:
                return column
        if self.build.shuffles and steps[0][2] == 2 and maskable:
            return self._every_second(memory, base, *steps[0][:2], mask)
        return self._lanes_from(memory, base, lanes_of(steps), mask, steps[0][2])

    def _load_at(self, memory: Memory, offset: Index, order: Lanes, mask: Val | None) -> Val:
        """Arbitrary lanes: a vector of numbers of elements, or how far apart they lie."""
        lanes = self.indexing.lanes_of(offset, order)
        if mask is not None:
            lanes = tuple(n for n in order if n in lanes or n in mask.lanes)
            mask = self.indexing.expand(mask, lanes)
        kind, where, attrs = self._apart(memory, offset, order, lanes)
        args = (*where, *_masks(mask))
        return self.build.load(memory.name, f"gather{kind}", args, attrs, memory.dtype, lanes)

    def _apart(
        self, memory: Memory, offset: Index, order: Lanes, lanes: Lanes
    ) -> tuple[str, tuple[Val, ...], tuple[int, ...]]:
        """How lanes are reached one by one, as operations take it: from a position on, strides that
        threads or matrices walk, if linear; else ("_at") how much further each lane is."""
        parts, start = self.indexing.split(offset, order), memory.start
        if parts is None and not self.build.shuffles:
            base = self.indexing.same(offset)
            start, constant = self.position(memory, base)
            start = self.build.offset(start, integer(constant)) if constant else start
            offset = offset - base
        elif parts is not None:
            start, constant = self.position(memory, parts[0])
            self.note(memory, parts[0], prod(size for _, size in lanes))
            if not self.build.shuffles or (self.build.matrices and len(lanes) > 1):
                strides = {(axis, size): stride for axis, size, stride in parts[1]}
                return "", (start,), (constant, *(strides.get(lane, 0) for lane in lanes))
            start = self.build.offset(start, integer(constant)) if constant else start
            offset = offset - parts[0]
        further = self.indexing.expand(self.indexing.vector(offset, order), lanes)
        return "_at", (start, further), ()

    def _load_or_start(self, memory: Memory, offset: Index, mask: Val) -> Val:
        """A scalar under a condition: where it fails, the start of the buffer is read instead."""
        where = self.indexing.scalar(offset)
        chosen = self.build.emit("select", (mask, where, integer(0)), i64)
        here = self.build.offset(memory.start, chosen)
        return self.build.load(memory.name, "load", (here,), (0,), memory.dtype, ())

    def _transposed(
        self, memory: Memory, locate: Locate, base: Index, step: tuple[str, int, int], place: Place
    ) -> Val | None:
        """A column of a square block: contiguous rows and a network of shuffles, shared by all
        positions of the written-out axis along which the rows run; None where there is none."""
        axis, size, stride = step
        for other, (position, block) in place.unrolled.items():
            if block != size or {axis, other} & place.ends.keys():
                continue
            first = place.moved(other, -position)
            start = locate(first)
            if locate(place) - start != position or locate(first.moved(other, 1)) - start != 1:
                continue
            rows = self._rows(memory, base - position, axis, size, stride, [None] * size)
            return turned(self.build, rows, ((axis, size),))[position]
        return None

    def _packed(
        self, memory: Memory, base: Index, mask: Val | None, lane: tuple[str, int, int],
        inner: tuple[str, int, int],
    ) -> Val | None:  # fmt: skip
        """Lanes with a few elements each, from vectors along either axis, or gathered."""
        (axis, size, stride), (short, count, step) = lane, inner
        lanes = ((axis, size), (short, count))
        if stride == 1:
            masks = [None if mask is None else every(self.build, mask, n) for n in range(count)]
            rows = self._rows(memory, base, axis, size, step, masks)
            return interleaved(self.build, rows, lanes)
        if step == 1 and mask is None:
            rows = self._rows(memory, base, short, count, stride, [None] * size)
            return joined(self.build, rows, lanes)
        masks = [None if mask is None else every(self.build, mask, n) for n in range(count)]
        rows = [self._lanes_from(memory, base + n * step, lanes[:1], m, stride)
                for n, m in enumerate(masks)]  # fmt: skip
        return interleaved(self.build, rows, lanes)

    def _every_second(
        self, memory: Memory, base: Index, axis: str, size: int, mask: Val | None
    ) -> Val:
        """Lanes two elements apart, out of two vectors: the second ends with the last lane."""
        firsts = (0, size - 1)
        masks = [None if mask is None else between(self.build, mask, n) for n in firsts]
        return every_second(self.build, *self._rows(memory, base, axis, size, size - 1, masks))

    def _rows(
        self, memory: Memory, base: Index, axis: str, size: int, stride: int,
        masks: Sequence[Val | None],
    ) -> list[Val]:  # fmt: skip
        """Vectors `stride` elements apart."""
        lanes = ((axis, size),)
        return [self._lanes_from(memory, base + i * stride, lanes, m) for i, m in enumerate(masks)]

    # ---- stores

    def store_tile(self, value: Value, home: Home, place: Place, result: Val) -> None:
        """A value into its tile in the workspace; lanes in a tail are written too."""
        memory = self.memories[f"{value.name} tile"]
        offset = self._tile(value, home, memory)(place)
        self._store(memory, offset, place.lanes, result, None)

    def store(self, value: Value, store: Store, place: Place, result: Val) -> None:
        """A value into a buffer, where nothing forbids it."""
        memory = self.memories[store.buffer]
        data = self._slots(store.slots, place)
        index = [self.indexing.at(i, place).substitute(data) for i in store.index]
        masks = self._store_masks(value, store, index, data, place)
        if masks is None:
            return
        result = self.indexing.cast(result, memory.dtype)
        scalar = [m for m in masks if not m.lanes]
        lanes = self.indexing.all_of([m for m in masks if m.lanes], place.lanes)
        offset = memory.storage.offset(index, self.space)
        self.build.when(
            self.indexing.all_of(scalar, ()),
            lambda: self._combine(memory, store, offset, place, result, lanes),
        )

    def _store_masks(
        self, value: Value, store: Store, index: list[Index], data: dict[str, Index], place: Place
    ) -> list[Val] | None:
        """The conditions under which a store happens; None: never."""
        masks = [self.tail(axis, place) for axis in sorted(place.ends.keys() & {*value.points})]
        shape = self.memories[store.buffer].shape
        if any(n == 0 for n in shape):
            return None
        slotted = (at for at in zip(store.index, index, shape) if at[0].names() & data.keys())
        conditions = [c for _, here, extent in slotted for c in (here, extent - 1 - here)]
        tested = self.indexing.open_conditions(conditions, place)
        return None if tested is None else masks + tested

    def _combine(
        self, memory: Memory, store: Store, offset: Index, place: Place, result: Val,
        mask: Val | None,
    ) -> None:  # fmt: skip
        if store.mode == "set":
            self._store(memory, offset, place.lanes, result, mask)
            return
        self._check_distinct(store, offset, place)
        old = self._load(memory, lambda _: offset, place, mask)
        new = self.indexing.apply(COMBINE[store.mode], [old, result], memory.dtype, place.lanes)
        self._store(memory, offset, place.lanes, new, mask)

    def _check_distinct(self, store: Store, offset: Index, place: Place) -> None:
        """Lanes that are combined with what stands there must not meet."""
        parts = self.indexing.split(offset, place.lanes)
        steps = parts[1] if parts is not None else []
        apart = len(steps) == len(place.lanes) and (len(steps) < 2 or contiguous(steps))
        if parts is None or not apart:
            raise Illegal(f"lanes of {store.buffer} may meet in one element of a {store.mode}")

    def _store(
        self, memory: Memory, offset: Index, order: Lanes, result: Val, mask: Val | None
    ) -> None:
        lanes = self.indexing.lanes_of(offset, order)
        varying = set(result.lanes) | set(mask.lanes if mask is not None else ())
        if not varying <= set(lanes):
            raise Illegal(f"a store to {memory.name} does not move with its lanes")
        result = self.indexing.expand(result, lanes)
        mask = None if mask is None else self.indexing.expand(mask, lanes)
        parts = self.indexing.split(offset, order)
        if parts is not None and contiguous(parts[1]):
            here, constant = self.position(memory, parts[0])
            self.build.store(memory.name, result, here, constant, mask)
            return
        kind, where, attrs = self._apart(memory, offset, order, lanes)
        args = (result, *where, *_masks(mask))
        self.build.scatter(memory.name, f"scatter{kind}", args, attrs)

    # ---- positions

    def prefetch(self, memory: Memory, offset: Index, further: Iterable[int]) -> None:
        """Elements that are wanted soon."""
        here, constant = self.position(memory, offset)
        asked = [Instruction(None, "prefetch", (here,), (constant + n,)) for n in further]
        self.build.begin(asked, here)

    def position(self, memory: Memory, offset: Index) -> tuple[Val, int]:
        """(position, constant) of an element, added up from the outermost loop inwards."""
        constant = offset.constant
        offset = offset - constant
        if not offset.terms:
            return memory.start, constant
        key = ("position", memory.name, id(offset))
        found = self.build.recall(key)
        if found is None:
            levels: dict[int, dict[Monomial, int]] = {}
            for monomial, coefficient in offset.terms:
                levels.setdefault(self.indexing.depth(monomial), {})[monomial] = coefficient
            found = memory.start
            for depth in sorted(levels):
                step = self.indexing.scalar(Index.build(levels[depth]))
                found = self.build.offset(found, step)
            self.build.remember(key, found.depth, found)
        return found, constant


def _masks(mask: Val | None) -> tuple[Val, ...]:
    return () if mask is None else (mask,)
