"""What is known about variables, and what follows from it: bounds, proofs, simplified floors.

A `Space` knows the range of every run-time size and the extent of every axis (an axis walks
0 .. extent - 1, and its extent may itself be symbolic). A proof that fails means "not known", never
"false": callers keep the condition and test it at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from .index import Atom, Binary, Index, IndexLike, Monomial, atom_index, atom_names, is_floor

Number = float  # an integer or an infinity
Range = tuple[Number, Number]

LARGEST = 1 << 62  # divisor that is made of several: machine code divides in i64
USUAL = 128  # of a size without a hint
PLACES = 256  # at most, of the axes of a condition, at which it is asked how often it holds
_ROUNDS = 8  # of replacing axes and sizes by their ends; each round leaves fewer of them
UNBOUNDED: Range = (-math.inf, math.inf)


class Space:
    """Ranges of sizes (inclusive) and extents of axes.

    `sizes`: name -> (low, high); a name that is nowhere is unbounded. `axes`: name -> extent.
    `hints`: usual values of sizes, for estimates. `assumed`: indices that no run lets be negative.
    """

    def __init__(
        self,
        sizes: Mapping[str, Range] | None = None,
        axes: Mapping[str, IndexLike] | None = None,
        hints: Mapping[str, int] | None = None,
        assumed: Iterable[Index] = (),
    ) -> None:
        self.sizes: dict[str, Range] = dict(sizes or {})
        self.hints: dict[str, int] = dict(hints or {})
        self.axes: dict[str, Index] = {name: Index.of(e) for name, e in (axes or {}).items()}
        self.assumed = list(assumed)
        self._bounds: dict[Index, Range] = {}
        self._floors: dict[tuple[Index, Index], Index] = {}
        self._substituted: dict[tuple[object, ...], Index] = {}

    def add_axis(self, name: str, extent: IndexLike) -> None:
        """Declare an axis. Its name must be new, so that remembered bounds stay true."""
        self.axes[name] = Index.of(extent)

    def add_size(self, name: str, low: Number, high: Number) -> None:
        """Declare a variable with an inclusive range, or narrow its range."""
        self.sizes[name] = (low, high)
        self._forget()

    def assume(self, index: Index) -> None:
        """An index of sizes is at least 0 in each run. (Only what is plain is of use here.)"""
        if not index.compound:
            self.assumed.append(index)
            self._forget()

    def _forget(self) -> None:
        self._bounds.clear()
        self._floors.clear()
        self._substituted.clear()

    def usual(self, default: int = USUAL) -> dict[str, int]:
        """A value for every size: its hint, or the default within its bounds."""
        return {
            name: self.hints.get(name, int(min(max(default, low), high)))
            for name, (low, high) in self.sizes.items()
        }

    # ---- bounds

    def bounds(self, index: IndexLike) -> Range:
        """Inclusive (low, high) of an index; infinities where nothing is known."""
        index = Index.of(index)
        if index.is_constant:
            return index.constant, index.constant
        found = self._bounds.get(index)
        if found is None:
            low, high = self._extreme(index, upper=False), self._extreme(index, upper=True)
            for known in self.assumed:
                if known.names() <= index.names():
                    low = max(low, self._extreme(index - known, upper=False))
                    high = min(high, self._extreme(index + known, upper=True))
            found = self._bounds[index] = low, high
        return found

    def nonnegative(self, index: IndexLike) -> bool:
        """Proven: index >= 0."""
        return self.bounds(index)[0] >= 0

    def inside(self, index: IndexLike, extent: IndexLike) -> bool:
        """Proven: 0 <= index < extent."""
        index = Index.of(index)
        return self.nonnegative(index) and self.nonnegative(Index.of(extent) - index - 1)

    def _extreme(self, index: Index, upper: bool) -> Number:
        """A bound from above or below: replace what has a known end until nothing changes."""
        for _ in range(_ROUNDS):
            simpler = self._pair_remainders(index, upper)
            simpler = self._sizes_at_ends(self._at_ends(simpler, upper), upper)
            if simpler is index:
                break
            index = simpler
        return self._interval(index)[upper]

    def _pair_remainders(self, index: Index, upper: bool) -> Index:
        """Take out k (x mod n) = k x - k n floor(x / n), which lies in [0, k (n - 1)]."""
        floors = index.floors
        for atom in dict.fromkeys(floors):
            for x, n in _remainders(atom, floors):
                factor = index.slope(atom)
                if factor is None or not factor.terms or factor.terms[-1][1] % n.terms[-1][1]:
                    continue
                k = -factor.terms[-1][1] // n.terms[-1][1]
                rest = index - x * k - factor * atom_index(atom)
                if (factor + n * k).terms or len(rest.terms) >= len(index.terms):
                    continue
                index = rest + (n - 1) * k if (k > 0) == upper else rest
        return index

    def _sizes_at_ends(self, index: Index, upper: bool) -> Index:
        """Put a size at an end where the index rises (or falls) with it, whatever others are."""
        names = [a for m, _ in index.terms for a in m if isinstance(a, str)]
        for name in sorted({n for n in names if names.count(n) > 1 and n in self.sizes}):
            slope = index.slope(name)
            if slope is None:
                continue
            low, high = self._interval(slope)
            if low >= 0 or high <= 0:
                end = self.sizes[name][(low >= 0) == upper]
                index = index if math.isinf(end) else index.substitute({name: Index.of(int(end))})
        return index

    def _at_ends(self, index: Index, upper: bool) -> Index:
        """Put every axis at the end of its range that makes the index largest (or smallest)."""
        total = Index.of(0)
        for monomial, coefficient in index.terms:
            term = Index.of(coefficient)
            at_top = (coefficient > 0) == upper
            others = [a for a in monomial if not (isinstance(a, str) and a in self.axes)]
            known_sign = all(self._atom_range(a)[0] >= 0 for a in others)
            for atom in monomial:
                if isinstance(atom, str) and atom in self.axes and known_sign:
                    term = term * ((self.axes[atom] - 1) if at_top else 0)
                else:
                    term = term * atom_index(atom)
            total = total + term
        return total

    def _interval(self, index: Index) -> Range:
        low: Number = 0
        high: Number = 0
        for monomial, coefficient in index.terms:
            term: Range = (coefficient, coefficient)
            for atom in monomial:
                term = times(term, self._atom_range(atom))
            low, high = low + term[0], high + term[1]
        return low, high

    def _atom_range(self, atom: Atom) -> Range:
        if isinstance(atom, str):
            if atom in self.axes:
                return 0, max(0, self.bounds(self.axes[atom] - 1)[1])
            return self.sizes.get(atom, UNBOUNDED)
        return RANGES[atom.kind](self.bounds(atom.first), self.bounds(atom.second))

    # ---- simplification

    def floor(self, index: IndexLike, divisor: IndexLike) -> Index:
        """floor(index / divisor), simplified by divisibility and by ranges."""
        key = Index.of(index), Index.of(divisor)
        found = self._floors.get(key)
        if found is None:
            found = self._floors[key] = self._find_floor(*key)
        return found

    def _find_floor(self, index: Index, divisor: Index) -> Index:
        def simpler(atom: Atom) -> Index:
            return self._simplify_floor(atom) if is_floor(atom) else atom_index(atom)

        plain = index // divisor
        return plain.rebuilt(simpler) if plain.floors else plain

    def mod(self, index: IndexLike, divisor: IndexLike) -> Index:
        """index mod divisor, in [0, divisor)."""
        index = Index.of(index)
        return index - self.floor(index, divisor) * divisor

    def _simplify_floor(self, atom: Binary) -> Index:
        x, n = atom.first, atom.second
        if self.inside(x, n):
            return Index.of(0)
        if not n.is_constant:
            return atom_index(atom)
        low, high = self.bounds(x)
        number = n.constant
        if not math.isinf(low) and not math.isinf(high) and low // number == high // number:
            return Index.of(int(low // number))
        chord = self._chord(x, number)
        if chord is not None:
            return chord
        reduced = self._cancel(x, number)
        if reduced is not None:
            return reduced
        inner = x.atom
        if inner and is_floor(inner) and self.bounds(inner.second * n)[1] <= LARGEST:
            return self.floor(inner.first, inner.second * n)  # of floor(y / m) by n
        return atom_index(atom)

    def _chord(self, x: Index, n: int) -> Index | None:
        """floor(f(a) / n) = first + (second - first) a, for an axis a of two places."""
        (name, *others) = x.names()
        if others or self.axes.get(name) != 2:
            return None
        first, second = (int(x.evaluate({name: at})) // n for at in (0, 1))
        return first + (second - first) * Index.of(name)

    def _cancel(self, x: Index, n: int) -> Index | None:
        """floor((q X + r) / (q m)) = floor(X / m) where 0 <= r < q."""
        steps = {abs(c) for m, c in x.terms if m}
        for q in sorted(steps | {math.gcd(*steps)}, reverse=True):
            if q <= 1 or n % q:
                continue
            multiples: dict[Monomial, int] = {m: c // q for m, c in x.terms if c % q == 0 or not m}
            main = Index.build(multiples)
            low, high = self.bounds(x - main * q)
            if low >= 0 and high < q:
                return self.floor(main, n // q)
        return None

    def substitute(self, index: Index, mapping: Mapping[str, Index]) -> Index:
        """Replace variables; floors are rebuilt and simplified."""
        key = index, *mapping.items()
        found = self._substituted.get(key)
        if found is None:
            found = self._substituted[key] = index.substitute(mapping, self.floor)
        return found

    def simplify(self, index: Index) -> Index:
        """The index with every floor simplified."""

        def simpler(atom: Atom) -> Index:
            if not is_floor(atom):
                return atom_index(atom)
            return self.floor(self.simplify(atom.first), self.simplify(atom.second))

        return index.rebuilt(simpler) if index.floors else index

    # ---- domains: conjunctions of `index >= 0`

    def domain(self, conditions: Iterable[Index]) -> tuple[Index, ...] | None:
        """The conditions that are not proven, in a fixed order; None where one never holds."""
        known = {condition: self.bounds(condition) for condition in conditions}
        if any(high < 0 for _, high in known.values()):
            return None
        return tuple(sorted((c for c, (low, _) in known.items() if low < 0), key=str))

    def implies(self, domain: Iterable[Index], condition: Index) -> bool:
        """Proven: wherever all of the domain holds, the condition holds (multiples of single
        half-spaces)."""
        if self.nonnegative(condition):
            return True
        plain = _half_space(condition)
        return any(
            self.nonnegative(plain - half * times)
            for half in map(_half_space, domain)
            for times in _multiples(plain, half)
        )

    def irredundant(self, domain: Iterable[Index]) -> tuple[Index, ...]:
        """The domain without conditions that another one implies."""
        kept = list(dict.fromkeys(domain))
        for condition in tuple(kept):
            others = [c for c in kept if c is not condition]
            if self.implies(others, condition):
                kept = others
        return tuple(kept)

    def contradicts(self, domain: Iterable[Index], condition: Index) -> bool:
        """Proven: the condition holds nowhere inside the domain (single half-spaces)."""
        if self.bounds(condition)[1] < 0:
            return True
        return any(self.bounds(condition + known)[1] < 0 for known in domain)

    def solve(self, condition: Index, name: str) -> tuple[Index | None, Index | None]:
        """(low, high), half open: where along a variable the condition holds, if it says that."""
        slope, rest = condition.coefficient(name), condition.without({name})
        if not slope or rest + Index.of(name) * slope is not condition:
            return None, None
        if slope > 0:
            return -self.floor(rest, slope), None  # ceil(-rest / slope)
        return None, self.floor(rest, -slope) + 1

    def rises(self, index: Index, name: str) -> bool | None:
        """Whether an index grows with a variable, whatever the others are, or falls; None where
        that is not known."""
        ways = set[bool | None]()
        for monomial, coefficient in index.terms:
            for n, atom in enumerate(monomial):
                if name in atom_names(atom):
                    others = monomial[:n] + monomial[n + 1 :]
                    known = all(self._atom_range(a)[0] >= 0 for a in others)
                    rises = self._atom_rises(atom, name) if known else None
                    ways.add(None if rises is None else rises == (coefficient > 0))
        return ways.pop() if len(ways) == 1 else None

    def _atom_rises(self, atom: Atom, name: str) -> bool | None:
        if isinstance(atom, str):
            return True
        if is_floor(atom) and name in atom.second.names():
            return None
        ways = {self.rises(i, name) for i in (atom.first, atom.second) if name in i.names()}
        return ways.pop() if len(ways) == 1 else None

    def depends(self, index: Index) -> frozenset[str]:
        """The axes that an index mentions."""
        return frozenset(name for name in index.names() if name in self.axes)


def share(
    domain: Iterable[Index], extents: Mapping[str, int], sizes: Mapping[str, int] = {}
) -> float:
    """The part of all points at which a domain holds: exact over short axes, else at some places of
    each. Conditions over other axes count as independent. extents: of axes."""
    groups, whole = dict[frozenset[str], list[Index]](), 1.0
    for condition in domain:
        groups.setdefault(condition.names().intersection(extents), []).append(condition)
    for axes, group in groups.items():
        most = int(PLACES ** (1 / max(1, len(axes))))
        spots = (np.arange(0, extents[a], -(-extents[a] // most)) for a in axes)
        points = {**sizes, **dict(zip(axes, np.meshgrid(*spots, sparse=True)))}
        whole *= np.all([c.evaluate(points) >= 0 for c in group], axis=0).mean()
    return float(whole)


def _remainders(atom: Binary, floors: Iterable[Binary]) -> Iterator[tuple[Index, Index]]:
    """(x, n) with floor(x / n) = the atom: its own, and x a floor of the same numerator."""
    yield atom.first, atom.second
    for x in floors:
        if x.first == atom.first and x != atom and x.second.is_constant:
            n, left = divmod(atom.second.constant, x.second.constant)
            if atom.second.is_constant and not left:
                yield atom_index(x), Index.of(n)


def _multiples(index: Index, part: Index) -> set[int]:
    """1, and the numbers of times that the part can be taken from the index until a variable is
    gone."""
    own = dict(index.terms)
    found = {own.get(m, 0) // c for m, c in part.terms if m and own.get(m, 0) % c == 0}
    return {1, *(times for times in found if times > 0)}


def _half_space(condition: Index) -> Index:
    """An index that is >= 0 where the condition is, without the floor that it has as a term:
    floor(x / n) + r >= 0 is x + n r >= 0, and r - floor(x / n) >= 0 is n r + n - 1 - x >= 0."""
    for monomial, sign in condition.terms:
        atom = monomial[0] if len(monomial) == 1 and abs(sign) == 1 else None
        if atom and is_floor(atom) and atom.second.is_constant:
            x, n, rest = atom.first, atom.second, condition - atom_index(atom) * sign
            if not rest.floors:
                return _half_space(x + rest * n if sign > 0 else rest * n + (n - 1) - x)
    return condition


# ---- ranges of numbers


def times(a: Range, b: Range) -> Range:
    """Of a product."""
    products = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return min(products), max(products)


def quotient(a: Range, b: Range) -> Range:
    """Of floor(x / y), for y that are positive."""
    divisors = max(1, b[0]), b[1]
    lows, highs = ([_floor_number(end, d) for d in divisors] for end in a)
    return min(lows), max(highs)


RANGES: dict[str, Callable[[Range, Range], Range]] = {
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floor": quotient,
}


def _floor_number(value: Number, divisor: Number) -> Number:
    if math.isinf(value):
        return value
    if math.isinf(divisor):
        return -1 if value < 0 else 0
    return value // divisor
