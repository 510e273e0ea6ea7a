"""Transposed movement: where each element of the source of a view was read.

A view reads source[index(i)] at each position i of its result. Its transpose adds up, for each
place j of the source, the elements i with index(i) = j. Wherever the index is quasi-affine that is
a read again, of the positions i(j, f), summed over parameters f that count the readers of a place:

    permute, flip, reshape, roll   i(j), no parameter
    slice, every n-th, pad         i(j) where j was read at all, else 0
    expand                         f is the position along the new dimension
    sliding windows                f is the place inside the window: a transposed convolution

The equations index(i) = j are solved for i, one unknown after the other. Unknowns are positions,
quotients floor(x / n) and remainders x mod n; one that nothing determines becomes a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ..graph.index import Atom, Index, atom_index, atom_names, is_floor
from ..graph.node import Shape, View, position
from ..graph.space import Space
from ..graph.tensor import Tensor
from ..graph.views import ZERO, place, product

WASTE = 16  # elements read for one that is there; strides of 4 x 4 are worth that
Linear: TypeAlias = tuple[dict[Atom, Index], Index]  # factor of each unknown, and the rest
Indices: TypeAlias = Sequence[Index]
Ends: TypeAlias = tuple[Index, Index]  # lowest and highest value


def transposed(g: Tensor, view: View, source: Shape) -> Tensor:
    """The gradient of the view's source (of this shape) from that of its result."""
    repeated = _repeated(view)
    if repeated:
        rest = _without(view, repeated)
        if _one_to_one(g, rest, source):
            return transposed(g.sum(repeated), rest, source)
    try:
        solver = Solver(g.graph.positions(view.shape), view, source)
        index, conditions = solver.solution()
    except _Unsolved:
        return _added(g, view, source)
    shape = (*source, *solver.extents)
    if not solver.extents:
        return _read(g, shape, index, conditions)
    return _factors(g, shape, index, conditions).sum(range(len(source), len(shape)))


def _repeated(view: View) -> list[int]:
    """The dimensions along which a view only repeats."""
    names = {name for index in (*view.index, *view.conditions) for name in index.names()}
    return [d for d in range(len(view.shape)) if position(d) not in names]


def _without(view: View, dims: Sequence[int]) -> View:
    """The view at one place of the dimensions that it repeats along."""
    kept = [d for d in range(len(view.shape)) if d not in dims]
    new = {position(d): place(number) for number, d in enumerate(kept)}
    index = tuple(i.substitute(new) for i in view.index)
    conditions = tuple(c.substitute(new) for c in view.conditions)
    return View(tuple(view.shape[d] for d in kept), index, conditions, view.fill)


def _one_to_one(g: Tensor, view: View, source: Shape) -> bool:
    """Every place is read once at most: what is summed up before is then only moved."""
    try:
        solver = Solver(g.graph.positions(view.shape), view, source)
        solver.solution()
    except _Unsolved:
        return False
    return not solver.extents


def _read(g: Tensor, shape: Shape, index: Indices, conditions: Indices) -> Tensor:
    return g.read(shape, index, conditions, 0 if conditions else None)


def _factors(g: Tensor, shape: Shape, index: Indices, conditions: Indices) -> Tensor:
    """The same read. A product of repeated factors is a term of a contraction: it is not made and
    then read, but its factors are read."""
    if g.node.op != "mul" or not any(x.op == "view" for x in g.node.inputs):
        return _read(g, shape, index, conditions)
    factors = [g.graph.wrap(x) for x in g.node.inputs]
    own = [_open(x, shape, index) for x in factors]
    carrier = 0 if own[0] or not own[1] else 1  # one of them is 0 where nothing was read
    own[carrier] = conditions
    a, b = (_read(x, shape, index, needed) for x, needed in zip(factors, own))
    return a * b


def _open(x: Tensor, shape: Shape, index: Indices) -> Indices:
    """The conditions, those that are not proven, under which the read stays inside x, or inside
    what x is a view of, if that is as well."""
    space, source = x.graph.positions(shape), x.node
    if source.op == "view" and _is_whole(x):
        mapping = {position(d): i for d, i in enumerate(index)}
        index = [space.substitute(i, mapping) for i in source.attribute.index]
        source = source.inputs[0]
    ends = ((i, size - 1 - i) for i, size in zip(index, source.shape))
    return [end for both in ends for end in both if not space.nonnegative(end)]


def _is_whole(x: Tensor) -> bool:
    """A view of all elements of its source, with zeros beside them: no read inside of the source
    finds what is not in the view, nor one outside another number. Run-time sizes count as all."""
    view, (source,) = x.node.attribute, x.node.inputs
    space = x.graph.positions(x.node.shape)
    fixed = ((space.bounds(i), n) for i, n in zip(view.index, source.shape) if n.is_constant)
    whole = all(low <= 0 and high >= n.constant - 1 for (low, high), n in fixed)
    return whole and not (view.conditions and view.fill)


def _added(g: Tensor, view: View, source: Shape) -> Tensor:
    """The same for any index: every element is added to the place that it came from."""
    if view.conditions:
        here = tuple(place(d) for d in range(g.ndim))
        g = g.read(view.shape, here, view.conditions, 0)
    flat = ZERO
    for size, index in zip(source, view.index):
        flat = flat * size + index
    places = g.graph.iota(view.shape, flat).reshape(-1)
    zeros = g.graph.literal(0, g.dtype).expand(product(source))
    return zeros._scatter(places, g.reshape(-1), 0, "sum").reshape(*source)


class _Unsolved(Exception):
    """The index is not quasi-affine."""


class Solver:
    """Solves index(i) = j for the positions i. `here` knows them; `there` knows the places j, which
    are called @0, @1, ..., and the parameters $0, $1, ...

    known: what has been solved, over j and parameters. ends: of all unknowns that were met.
    meaning: remainders and parameters over the positions i. extents: of the parameters.
    """

    def __init__(self, here: Space, view: View, source: Shape) -> None:
        self.here, self.view, self.source = here, view, source
        self.there = Space(here.sizes, {_at(d): size for d, size in enumerate(source)})
        self.known: dict[Atom, Index] = {}
        self.ends: dict[Atom, Ends] = {}
        for d, size in enumerate(view.shape):
            self.ends[position(d)] = ZERO, size - 1
            if size == 1:
                self.known[position(d)] = ZERO
        self.equations = [index - Index.of(_at(d)) for d, index in enumerate(view.index)]
        self.meaning: dict[str, Index] = {}
        self.extents: list[Index] = []
        self._related: set[Atom] = set()

    def solution(self) -> tuple[list[Index], list[Index]]:
        """(i, conditions >= 0) over the dimensions of the source, then the parameters."""
        axes = [position(d) for d in range(len(self.view.shape))]
        while not all(axis in self.known for axis in axes):
            if not (self._solve() or self._relate()):
                self._choose()
        self._check_work()
        names = [*map(_at, range(len(self.source))), *map(_free, range(len(self.extents)))]
        final = {name: place(d) for d, name in enumerate(names)}
        index = [self.known[axis].substitute(final) for axis in axes]
        return index, [condition.substitute(final) for condition in self._conditions()]

    def _check_work(self) -> None:
        """Where most readers of a place read nothing, adding each element is less work."""
        shapes = self.view.shape, self.source, self.extents
        there, places, readers = (product(shape) for shape in shapes)
        if there.is_constant and places.is_constant and readers.is_constant:
            most = max(there.constant, places.constant)
            if places.constant * readers.constant > WASTE * most:
                raise _Unsolved

    # ---- one unknown after the other

    def _solve(self) -> bool:
        """a u + rest = k where rest walks over less than a: u = floor((k - least rest) / a)."""
        for equation in self.equations:
            terms, known = self._linear(equation)
            for unknown, factor in terms.items():
                low, high = self.here.bounds(factor)
                sign = 1 if low > 0 else -1 if high < 0 else 0
                rest = {u: a * sign for u, a in terms.items() if u != unknown}
                least, most = self._range(rest, ZERO)
                if sign and self.here.nonnegative(factor * sign - 1 - (most - least)):
                    value = self.there.floor(known * -sign - least, factor * sign)
                    self.known[unknown] = value
                    return True
        return False

    def _relate(self) -> bool:
        """x = n floor(x / n) + x mod n, for a quotient that is known."""
        for quotient in self.known:
            if not is_floor(quotient) or quotient in self._related:
                continue
            self._related.add(quotient)
            remainder = quotient.first - quotient.second * atom_index(quotient)
            name = f"mod {len(self._related)}"
            self.meaning[name] = remainder
            none = self.here.implies(self.view.conditions, -remainder)
            self.ends[name] = ZERO, ZERO if none else quotient.second - 1
            self.equations.append(remainder - Index.of(name))
            return True
        return False

    def _choose(self) -> None:
        """Nothing is determined: the unknown with the fewest values becomes a parameter, or its
        quotient does (see `_step`)."""
        open_ones = [u for e in self.equations for u in self._linear(e)[0]]
        if not open_ones:
            axes = (position(d) for d in range(len(self.view.shape)))
            open_ones = [axis for axis in axes if axis not in self.known]
        steps = {u: self._step(u) for u in open_ones}
        counts = {u: _count(self._ends(u)).ceil_div(steps[u]) for u in open_ones}
        unknown = min(open_ones, key=lambda u: self.here.bounds(counts[u])[1])
        low, step = self._ends(unknown)[0], steps[unknown]
        name = _free(len(self.extents))
        self.extents.append(self._settled(counts[unknown]))
        self.there.add_axis(name, self.extents[-1])
        place = self._meaning(unknown) - low
        if step == 1:
            self.meaning[name] = place
            self.known[unknown] = low + Index.of(name)
            return
        self.meaning[name] = place // step
        rest = f"rest {name}"
        self.meaning[rest] = place - self.meaning[name] * step
        self.ends[rest] = ZERO, Index.of(step - 1)
        made = low + Index.of(name) * step + Index.of(rest)
        self.equations = [e.rebuilt(lambda a: made if a == unknown else atom_index(a))
                          for e in self.equations]  # fmt: skip
        self.equations.append(atom_index(unknown) - made)

    def _step(self, unknown: Atom) -> int:
        """How many of its values another unknown of an equation is worth, if they are fewer than it
        has: then its quotient is chosen and its remainder solved, as of strides and windows."""
        for equation in self.equations:
            factors = {u: int(a) for u, a in self._linear(equation)[0].items() if a.is_constant}
            own = abs(factors.pop(unknown, 0))
            for other in factors.values():
                step = abs(other) // own if own and other % own == 0 else 1
                if 1 < step < self.here.bounds(_count(self._ends(unknown)))[0]:
                    return step
        return 1

    def _settled(self, index: Index) -> Index:
        """With quotients that have one value only written out: floor(-1 / s) = -1."""

        def value(atom: Atom) -> Index:
            low, high = self.here.bounds(atom_index(atom))
            return Index.of(int(low)) if low == high else atom_index(atom)

        return index.rebuilt(value)

    def _meaning(self, unknown: Atom) -> Index:
        """An unknown over the positions."""
        remainder = self.meaning.get(unknown) if isinstance(unknown, str) else None
        return atom_index(unknown) if remainder is None else remainder

    # ---- pieces of equations

    def _linear(self, index: Index) -> Linear:
        """The index as factors of what is unknown, and what is known."""
        factors: dict[Atom, Index] = {}
        known = ZERO
        for monomial, coefficient in index.terms:
            factor, unknown = Index.of(coefficient), list[Atom]()
            for atom in monomial:
                value = self._value(atom)
                if value is None:
                    unknown.append(atom)
                else:
                    factor = factor * value
            if not unknown:
                known = known + factor
            elif len(unknown) == 1 and not factor.names() & self.there.axes.keys():
                factors[unknown[0]] = factors.get(unknown[0], ZERO) + factor
            else:
                raise _Unsolved
        return factors, known

    def _value(self, atom: Atom) -> Index | None:
        """What an atom is, if that is known."""
        if atom in self.known:
            return self.known[atom]
        if isinstance(atom, str):
            return None if atom in self.ends else Index.of(atom)
        names = atom_names(atom)
        if all(name in self.known for name in names & self.here.axes.keys()):
            return self.there.substitute(atom_index(atom), self._mapping())
        if not is_floor(atom):
            raise _Unsolved
        return None

    def _mapping(self) -> dict[str, Index]:
        return {name: value for name, value in self.known.items() if isinstance(name, str)}

    def _ends(self, unknown: Atom) -> Ends:
        """Lowest and highest value of an unknown, whatever the others are."""
        if unknown not in self.ends:
            if not is_floor(unknown):
                raise _Unsolved
            low, high = self._range_of(unknown.first)
            n = unknown.second
            self.ends[unknown] = self.here.floor(low, n), self._settled(self.here.floor(high, n))
        return self.ends[unknown]

    def _range_of(self, index: Index) -> Ends:
        """Of an index over the positions."""
        terms: dict[Atom, Index] = {}
        rest = ZERO
        for monomial, coefficient in index.terms:
            moving = [a for a in monomial if atom_names(a) & self.here.axes.keys()]
            fixed = Index.build({tuple(a for a in monomial if a not in moving): coefficient})
            if len(moving) > 1:
                raise _Unsolved
            if moving:
                terms[moving[0]] = terms.get(moving[0], ZERO) + fixed
            else:
                rest = rest + fixed
        return self._range(terms, rest)

    def _range(self, terms: Mapping[Atom, Index], rest: Index) -> Ends:
        """Of factors times unknowns."""
        low = high = rest
        for unknown, factor in terms.items():
            ends = self._ends(unknown)
            least, most = self.here.bounds(factor)
            if least < 0 < most:
                raise _Unsolved
            first, last = ends if least >= 0 else ends[::-1]
            low, high = low + factor * first, high + factor * last
        return low, high

    # ---- what was read at all

    def _conditions(self) -> list[Index]:
        """i lies inside, its own conditions hold, and it is the one that reads j as reader f."""
        mapping = self._mapping()
        found = [self.there.substitute(c, mapping) for c in self.view.conditions]
        for axes, dims, free in self._groups():
            if self._counted(axes, dims, free):
                continue
            for axis in axes:
                found += [mapping[axis], self.ends[axis][1] - mapping[axis]]
            equal = [(self.view.index[d], _at(d)) for d in dims]
            for index, name in [*equal, *((self.meaning[f], f) for f in free)]:
                gap = self.there.substitute(index, mapping) - Index.of(name)
                found += [gap, -gap] if gap.terms else []
        return found

    def _counted(self, axes: Iterable[str], dims: Iterable[int], free: Iterable[str]) -> bool:
        """i --> (j, f) is one to one; between sets of one size it reaches all."""
        if any(c.names() & set(axes) for c in self.view.conditions):
            return False
        reads = product([self.ends[axis][1] + 1 for axis in axes])
        places = product([self.source[d] for d in dims])
        return reads is places * product([self.there.axes[name] for name in free])

    def _groups(self) -> list[tuple[set[str], list[int], list[str]]]:
        """(positions, dimensions of the source, parameters) that have to do with one another."""
        moving = self.here.axes.keys()
        parts: list[tuple[set[str], list[int], list[str]]] = [
            (set(index.names() & moving), [d], []) for d, index in enumerate(self.view.index)
        ]
        free = map(_free, range(len(self.extents)))
        parts += [(set(self.meaning[f].names() & moving), [], [f]) for f in free]
        groups: list[tuple[set[str], list[int], list[str]]] = []
        for part in parts:
            touching = [group for group in groups if group[0] & part[0]]
            groups = [group for group in groups if not group[0] & part[0]]
            for group in touching:
                part = part[0] | group[0], group[1] + part[1], group[2] + part[2]
            groups.append(part)
        return groups


def _at(dim: int) -> str:
    return f"@{dim}"


def _free(number: int) -> str:
    return f"${number}"


def _count(ends: Ends) -> Index:
    return ends[1] - ends[0] + 1
