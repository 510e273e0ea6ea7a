"""Index expressions as code: scalars, vectors over lanes, addresses, conditions.

The variables of an index are loop counters, run-time sizes, lanes ("~axis.size") and values of data
(slots). What is known about their ranges is in the `Space`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, reduce
from itertools import chain

from ..errors import Illegal
from ..graph.dtype import DType, boolean, i32, i64
from ..graph.index import Atom, Index, Monomial, atom_names
from ..graph.space import Space
from ..kernel.program import Val
from .builder import Builder, integer, literal
from .place import Lanes, Place, lane_name

Linear = tuple[Index, list[tuple[str, int, int]]]  # at lane 0, (axis, size, stride) of lanes
INNERMOST = 1 << 30  # deeper than any loop
SMALL = 1 << 30  # where lanes reach less far, an index clamped to this keeps the sign of the sum


class Indexing:
    """Variables of indices, and the code that computes indices."""

    def __init__(self, build: Builder, space: Space) -> None:
        self.build, self.space = build, space
        self.scalars: dict[str, Val] = {}
        self.vectors: dict[str, Val | tuple[str, int]] = {}  # lanes, or data with lanes
        self.split, self.known = cache(self._split), cache(self._known)

    # ---- variables

    def counter(self, count: Index) -> tuple[str, Val]:
        """A new loop counter 0 .. count - 1 of the scope that is open."""
        name = f"%i{self.build.number()}"
        var = self.build.fresh(i64)
        self.scalars[name] = var
        self.space.add_axis(name, count)
        return name, var

    def variable(self, val: Val, low: float, high: float) -> Index:
        """An i64 as a variable of indices."""
        if val.literal:
            return Index.of(int(val.name))
        name = f"%x{val.name[1:]}"
        if val.lanes:
            self.vectors[name] = val
        else:
            self.scalars[name] = val
        if name not in self.space.sizes:
            self.space.sizes[name] = (low, high)  # a new name: remembered bounds stay true
        return Index.of(name)

    def opaque(self, index: Index, low: float | None = None, high: float | None = None) -> Index:
        """The same number under a short name."""
        if index.is_constant or isinstance(index.atom, str):
            return index
        least, most = self.space.bounds(index)
        low = least if low is None else max(low, least)
        high = most if high is None else min(high, most)
        return self.variable(self.scalar(index), low, high)

    def lane(self, axis: str, size: int) -> None:
        """Declare the lanes of an axis."""
        name = lane_name(axis, size)
        if name not in self.vectors:
            self.vectors[name] = (axis, size)
            self.space.add_axis(name, size)

    def at(self, index: Index, place: Place) -> Index:
        """An index over axes at a place."""
        mapping = {n: place.index[n] for n in index.names() if n in place.index}
        return self.space.substitute(index, mapping) if mapping else index

    # ---- scalars

    def depth(self, monomial: Monomial) -> int:
        """Depth of the innermost loop that a product depends on; what has lanes comes last."""
        names = (n for atom in monomial for n in atom_names(atom))
        return max((INNERMOST if n in self.vectors else self._scalar(n).depth for n in names),
                   default=0)  # fmt: skip

    def _scalar(self, name: str) -> Val:
        found = self.scalars.get(name)
        if found is None:
            raise Illegal(f"an index mentions {name}, which is neither a size nor walked here")
        return found

    def scalar(self, index: Index) -> Val:
        """The i64 of an index without lanes, added up from the outermost loop inwards."""
        if not index.terms:
            return integer(0)
        key = ("index", id(index))
        found = self.build.recall(key)
        if found is None:
            found = self._sum(index, ())
            self.build.remember(key, found.depth, found)
        return found

    def _sum(self, index: Index, order: Lanes) -> Val:
        terms = sorted(index.terms, key=lambda term: self.depth(term[0]))
        return self._joined("add", (self._product(*term, order) for term in terms), i64, order)

    def _product(self, monomial: Monomial, coefficient: int, order: Lanes) -> Val:
        number = [] if coefficient == 1 and monomial else [integer(coefficient)]
        factors = chain(number, (self._atom(atom, order) for atom in monomial))
        return reduce(lambda a, b: self.apply("mul", [b, a], i64, order), factors)

    def _joined(self, op: str, vals: Iterable[Val], dtype: DType, order: Lanes) -> Val:
        """At least one value, joined by an operation from the first on."""
        return reduce(lambda a, b: self.apply(op, [a, b], dtype, order), vals)

    def _atom(self, atom: Atom, order: Lanes) -> Val:
        if isinstance(atom, str):
            found = self.vectors.get(atom) or self._scalar(atom)
            return found if isinstance(found, Val) else self._iota(found, 1, i64)
        pair = [self.vector(atom.first, order), self.vector(atom.second, order)]
        if atom.kind == "floor":
            return self.quotient(pair[0], pair[1], order)
        return self.apply(atom.kind, pair, i64, order)

    def quotient(self, value: Val, divisor: Val, order: Lanes = ()) -> Val:
        """floor(value / divisor), divisor > 0: a shift where it is a power of two."""
        op, number = "floor_div", int(divisor.name) if divisor.literal else 0
        if number > 0 and number & (number - 1) == 0:
            if number == 1:
                return value
            op, divisor = "shift_right", integer(number.bit_length() - 1)
        return self.apply(op, [value, divisor], i64, order)

    # ---- vectors

    def expand(self, value: Val, lanes: Lanes) -> Val:
        """A value repeated over lanes that it does not vary over."""
        if value.lanes == lanes:
            return value
        if value.literal:
            return Val(value.name, value.dtype, lanes, 0, True)
        return self.build.emit("expand", (value,), value.dtype, lanes)

    def lanes_of(self, index: Index, order: Lanes) -> Lanes:
        """The lanes over which an index varies, in the order of a place."""
        found: set[tuple[str, int]] = set()
        for name in index.names():
            vector = self.vectors.get(name)
            if isinstance(vector, Val):
                found.update(vector.lanes)
            elif vector is not None:
                found.add(vector)
        return tuple(lane for lane in order if lane in found)

    def apply(self, op: str, args: list[Val], dtype: DType, order: Lanes) -> Val:
        """An operation over the lanes that any operand has."""
        found = {lane for a in args for lane in a.lanes}
        lanes = tuple([lane for lane in order if lane in found]) if found else ()
        return self.build.emit(op, tuple([self.expand(a, lanes) for a in args]), dtype, lanes)

    def _split(self, index: Index, order: Lanes) -> Linear | None:
        """(index at lane 0, [(axis, size, stride)]) of an index that is linear in lanes, else
        None."""
        steps = []
        for axis, size in order:
            name = lane_name(axis, size)
            stride = index.coefficient(name)
            if stride:
                steps.append((axis, size, stride))
                index = index - Index.of(name) * stride
        return None if index.names() & self.vectors.keys() else (index, steps)

    def same(self, index: Index) -> Index:
        """The part of an index in which all lanes are alike."""
        parts = [Index.build({m: c}) for m, c in index.terms]
        alike = (part for part in parts if not part.names() & self.vectors.keys())
        return sum(alike, Index.of(0))

    def vector(self, index: Index, order: Lanes, dtype: DType = i64) -> Val:
        """The value of an index, over its lanes."""
        parts = self.split(index, order)
        if parts is None:
            return self.cast(self._sum(index, order), dtype)
        base, steps = parts
        total = self.cast(self.scalar(base), dtype)
        for axis, size, stride in steps:
            lane = self._iota((axis, size), stride, dtype)
            total = lane if _is_zero(total) else self.apply("add", [total, lane], dtype, order)
        return total

    def _iota(self, lane: tuple[str, int], stride: int, dtype: DType) -> Val:
        return self.build.emit("iota", (), dtype, (lane,), (stride,))

    def cast(self, value: Val, dtype: DType) -> Val:
        if value.dtype is dtype:
            return value
        return self.build.emit("cast", (value,), dtype, value.lanes)

    # ---- conditions

    def _known(self, condition: Index, facts: tuple[Index, ...]) -> bool | None:
        """Whether condition >= 0: True or False where it is proven."""
        if self.space.implies(facts, condition):
            return True
        return False if self.space.contradicts(facts, condition) else None

    def open_conditions(self, conditions: Iterable[Index], place: Place) -> list[Val] | None:
        """Those of the conditions (>= 0, at the place) that have to be tested; None where one is
        known to fail."""
        masks = []
        for condition in conditions:
            known = self.known(condition, place.facts)
            if known is False:
                return None
            if known is None:
                masks.append(self.condition(condition, place.lanes))
        return masks

    def condition(self, index: Index, order: Lanes) -> Val:
        """index >= 0, as a bool over its lanes."""
        parts = self.split(index, order)
        if parts is None:
            vector = self.vector(index, order)
            return self.apply("less", [integer(-1), vector], boolean, order)
        base, steps = parts
        if not steps:
            return self.build.emit("less", (integer(-1), self.scalar(base)), boolean)
        reach = sum(abs(stride) * (size - 1) for _, size, stride in steps)
        dtype = i32 if reach < SMALL else i64  # narrow lanes: twice as many in a vector
        start = self.small(base + 1) if dtype is i32 else self.scalar(base + 1)
        lanes = (self._iota((axis, size), -stride, dtype) for axis, size, stride in steps)
        return self.apply("less", [self._joined("add", lanes, dtype, order), start], boolean, order)

    def small(self, index: Index) -> Val:
        """The index as i32; one that does not fit keeps its sign and is large."""
        value = self.scalar(index)
        low, high = self.space.bounds(index)
        if low < -SMALL:
            value = self.build.emit("max", (value, integer(-SMALL)), i64)
        if high > SMALL:
            value = self.build.emit("min", (value, integer(SMALL)), i64)
        return self.cast(value, i32)

    def all_of(self, masks: Iterable[Val], order: Lanes) -> Val | None:
        """The conjunction of conditions; None where there are none."""
        every = [*masks]
        return self._joined("and", every, boolean, order) if every else None

    def negation(self, mask: Val) -> Val:
        one = literal(1, boolean, mask.lanes)
        return self.build.emit("xor", (mask, one), boolean, mask.lanes)


def _is_zero(val: Val) -> bool:
    return val.literal and val.name == "0"


def split_extrema(index: Index, kind: str) -> list[Index]:
    """The parts of a minimum ("min") or maximum: x <= min(a, b) is x <= a and x <= b."""
    atom = index.atom
    if atom and not isinstance(atom, str) and atom.kind == kind:
        return split_extrema(atom.first, kind) + split_extrema(atom.second, kind)
    return [index]
