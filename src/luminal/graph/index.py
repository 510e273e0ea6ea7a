"""Integer expressions over named variables: sizes, axes of a map, loop counters.

An `Index` is kept in normal form: a sum of integer coefficients times products of atoms. An atom
is a variable, `floor(index / index)`, or the minimum or maximum of two indices. `x mod n` is not an
atom but `x - n floor(x / n)`, so that `n floor(x / n) + x mod n = x` is plain cancellation. Indices
are interned: equal expressions are one object, so comparing and hashing are free. What is
known of how large variables can be (proofs, simplifying a floor) is in `space.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, TypeAlias, TypeGuard, Union

from ..errors import DimError
from .index_text import factor, sum_text, term_key


@dataclass(frozen=True, eq=False)
class Binary:
    """floor(first / second), second > 0; or the minimum or maximum of both."""

    kind: str  # "floor" | "min" | "max"
    first: Index
    second: Index

    def __str__(self) -> str:
        if self.kind == "floor":
            return f"({factor(self.first)}//{factor(self.second)})"
        return f"{self.kind}({self.first}, {self.second})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _atom, (self.kind, self.first, self.second)


Atom: TypeAlias = Union[str, Binary]
Monomial: TypeAlias = tuple[Atom, ...]
IndexLike: TypeAlias = Union["Index", int, str]


class Index:
    """An integer expression in normal form; build it with `Index.of` and arithmetic.

    terms: ((monomial, coefficient), ...). is_constant: no variables. constant: the constant term.
    >>> cx.tensor((cx.dim("s", 1, 512) * 2 + 1, 8)).shape
    (2*s + 1, 8)
    """

    __slots__ = ("_hash", "_names", "_text", "constant", "is_constant", "terms")
    terms: tuple[tuple[Monomial, int], ...]
    is_constant: bool
    constant: int
    _hash: int
    _names: frozenset[str] | None
    _text: str | None

    _interned: ClassVar[dict[tuple[tuple[Monomial, int], ...], Index]] = {}

    @staticmethod
    def of(value: IndexLike) -> Index:
        """An index from an integer, a variable's name, or an index."""
        if isinstance(value, Index):
            return value
        if isinstance(value, str):
            return _variable(value)
        return _constant(int(value))

    @staticmethod
    def build(coefficients: Mapping[Monomial, int]) -> Index:
        """The index with these terms, interned."""
        items = [(m, c) for m, c in coefficients.items() if c]
        if len(items) > 1:
            items.sort(key=term_key)
        terms = tuple(items)
        found = Index._interned.get(terms)
        if found is None:
            found = Index._interned.setdefault(terms, Index._make(terms))  # one thread wins
        return found

    @staticmethod
    def _make(terms: tuple[tuple[Monomial, int], ...]) -> Index:
        index = object.__new__(Index)
        index.terms, index._names, index._text = terms, None, None
        index.constant = terms[0][1] if terms and not terms[0][0] else 0  # () sorts first
        index.is_constant = not terms or (len(terms) == 1 and not terms[0][0])
        index._hash = hash(index.constant) if index.is_constant else object.__hash__(index)
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        return Index.build, (dict(self.terms),)  # a copy from elsewhere is interned

    @property
    def text(self) -> str:
        """The expression as text; equal text means equal index."""
        if self._text is None:
            self._text = sum_text(self.terms)
        return self._text

    # ---- arithmetic

    def __add__(self, other: IndexLike) -> Index:
        return _add(self, other if other.__class__ is Index else Index.of(other))

    def __mul__(self, other: IndexLike) -> Index:
        return _multiply(self, other if other.__class__ is Index else Index.of(other))

    def __neg__(self) -> Index:
        return _multiply(self, _constant(-1))

    def __sub__(self, other: IndexLike) -> Index:
        return _subtract(self, other if other.__class__ is Index else Index.of(other))

    def __rsub__(self, other: IndexLike) -> Index:
        return _subtract(Index.of(other), self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, divisor: IndexLike) -> Index:
        return _floor(self, Index.of(divisor))

    def __rfloordiv__(self, other: IndexLike) -> Index:
        return _floor(Index.of(other), self)

    def __mod__(self, divisor: IndexLike) -> Index:
        divisor = Index.of(divisor)
        return self - self // divisor * divisor

    def __rmod__(self, other: IndexLike) -> Index:
        return Index.of(other) % self

    def minimum(self, other: IndexLike) -> Index:
        """min(self, other)."""
        return _extremum("min", self, Index.of(other))

    def maximum(self, other: IndexLike) -> Index:
        """max(self, other)."""
        return _extremum("max", self, Index.of(other))

    def ceil_div(self, divisor: IndexLike) -> Index:
        """ceil(self / divisor)."""
        divisor = Index.of(divisor)
        return (self + divisor - 1) // divisor

    # ---- questions

    def coefficient(self, name: str) -> int:
        """The coefficient of the variable as a term of its own."""
        for monomial, coefficient in self.terms:
            if monomial == (name,):
                return coefficient
        return 0

    def slope(self, atom: Atom) -> Index | None:
        """f where it is f * atom + rest, and the atom is no factor of the rest; None for a power,
        and where f mentions a variable that the atom is."""
        factor: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            others = tuple(a for a in monomial if a is not atom and a != atom)
            if len(others) < len(monomial) - 1:
                return None  # a power
            if isinstance(atom, str) and any(atom in atom_names(a) for a in others):
                return None
            if len(others) < len(monomial):
                factor[others] = factor.get(others, 0) + coefficient
        return Index.build(factor)

    def names(self) -> frozenset[str]:
        """All variables, also those inside floors and extrema."""
        if self._names is None:
            atoms = (atom_names(a) for monomial, _ in self.terms for a in monomial)
            self._names = frozenset().union(*atoms)
        return self._names

    def without(self, names: frozenset[str] | set[str]) -> Index:
        """The terms that mention none of the names."""
        return Index.build(
            {m: c for m, c in self.terms if not any(atom_names(a) & names for a in m)}
        )

    def substitute(
        self, mapping: Mapping[str, Index], floor: Callable[[Index, Index], Index] | None = None
    ) -> Index:
        """Replace variables; `floor` builds the quotients (a `Space` passes its own)."""
        if not self.names() & mapping.keys():
            return self
        return self.rebuilt(lambda atom: _substitute_atom(atom, mapping, floor or _floor))

    def rebuilt(self, of: Callable[[Atom], Index]) -> Index:
        """The index with `of(atom)` in place of every atom."""
        total = _constant(0)
        for monomial, coefficient in self.terms:
            product = _constant(coefficient)
            for atom in monomial:
                product = product * of(atom)
            total = total + product
        return total

    @property
    def atom(self) -> Atom | None:
        """The one atom that it is, and nothing else."""
        if len(self.terms) != 1:
            return None
        ((monomial, coefficient),) = self.terms
        return monomial[0] if coefficient == 1 and len(monomial) == 1 else None

    @property
    def compound(self) -> list[Binary]:
        """The atoms of it that are no variables."""
        return [a for monomial, _ in self.terms for a in monomial if not isinstance(a, str)]

    @property
    def floors(self) -> list[Binary]:
        """The quotients among its atoms."""
        return [a for a in self.compound if is_floor(a)]

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The number (or NumPy array) that the index has for these values of its variables."""
        total: Any = 0
        for monomial, coefficient in self.terms:
            product: Any = coefficient
            for atom in monomial:
                product = product * _evaluate_atom(atom, values)
            total = total + product
        return total

    def __int__(self) -> int:
        if not self.is_constant:
            raise DimError(f"size {self} is known when a program runs; here it must be a number")
        return self.constant

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.is_constant and self.constant == other
        return self is other

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


Dim = Index

_ATOMS: dict[tuple[str, Index, Index], Binary] = {}


def _atom(kind: str, first: Index, second: Index) -> Binary:
    """The one atom of these parts, whichever thread makes it first."""
    return _ATOMS.setdefault((kind, first, second), Binary(kind, first, second))


def atom_index(atom: Atom) -> Index:
    """The index that is this atom."""
    return Index.build({(atom,): 1})


def atom_names(atom: Atom) -> frozenset[str]:
    """The variables of an atom."""
    return frozenset((atom,)) if isinstance(atom, str) else names_of((atom.first, atom.second))


def is_floor(atom: Atom) -> TypeGuard[Binary]:
    """It is a quotient."""
    return not isinstance(atom, str) and atom.kind == "floor"


def names_of(indices: Iterable[Index]) -> frozenset[str]:
    """All variables of some indices."""
    return frozenset().union(*(index.names() for index in indices))


# ---- construction, memoised: the same few thousand indices come again and again


@cache
def _constant(value: int) -> Index:
    return Index.build({(): value})


@cache
def _variable(name: str) -> Index:
    return Index.build({(name,): 1})


@lru_cache(maxsize=1 << 18)
def _add(a: Index, b: Index) -> Index:
    if not a.terms:
        return b
    if not b.terms:
        return a
    total = dict(a.terms)
    for monomial, coefficient in b.terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    return Index.build(total)


@lru_cache(maxsize=1 << 18)
def _subtract(a: Index, b: Index) -> Index:
    if not b.terms:
        return a
    total = dict(a.terms)
    for monomial, coefficient in b.terms:
        total[monomial] = total.get(monomial, 0) - coefficient
    return Index.build(total)


@lru_cache(maxsize=1 << 18)
def _multiply(a: Index, b: Index) -> Index:
    total: dict[Monomial, int] = {}
    for first, x in a.terms:
        for second, y in b.terms:
            key = first + second
            if first and second:
                key = tuple(sorted(key, key=str))
            total[key] = total.get(key, 0) + x * y
    return Index.build(total)


def _divides(divisor: Index, monomial: Monomial, coefficient: int) -> tuple[Monomial, int] | None:
    """The term divided by a divisor of a single term, or None where that leaves a rest."""
    ((other, number),) = divisor.terms
    if coefficient % number:
        return None
    rest = list(monomial)
    for atom in other:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest), coefficient // number


@lru_cache(maxsize=1 << 18)
def _floor(a: Index, n: Index) -> Index:
    """floor(a / n): multiples of n leave the floor, whatever the variables are."""
    if n.is_constant and n.constant <= 0:
        raise DimError(f"({a}) // {n}: a divisor is positive")
    if n == 1 or not a.terms:
        return a
    if a.is_constant and n.is_constant:
        return _constant(a.constant // n.constant)
    if a is n:
        return _constant(1)
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in a.terms:
        exact = _divides(n, monomial, coefficient) if len(n.terms) == 1 else None
        if exact is not None:
            whole[exact[0]] = whole.get(exact[0], 0) + exact[1]
        elif n.is_constant and abs(coefficient) >= n.constant:
            whole[monomial] = whole.get(monomial, 0) + coefficient // n.constant
            rest[monomial] = coefficient % n.constant
        else:
            rest[monomial] = coefficient
    outside, inside = Index.build(whole), Index.build(rest)
    if not inside.terms:
        return outside
    if inside.is_constant and n.is_constant:
        return outside + inside.constant // n.constant
    return outside + atom_index(_atom("floor", inside, n))


@cache
def _extremum(kind: str, a: Index, b: Index) -> Index:
    difference = a - b
    if difference.is_constant:
        first_wins = (difference.constant <= 0) == (kind == "min")
        return a if first_wins else b
    first, second = sorted((a, b), key=str)
    return atom_index(_atom(kind, first, second))


def _substitute_atom(
    atom: Atom, mapping: Mapping[str, Index], floor: Callable[[Index, Index], Index]
) -> Index:
    if isinstance(atom, str):
        return Index.of(mapping.get(atom, atom))
    first, second = (part.substitute(mapping, floor) for part in (atom.first, atom.second))
    return floor(first, second) if is_floor(atom) else _extremum(atom.kind, first, second)


def _evaluate_atom(atom: Atom, values: Mapping[str, Any]) -> Any:
    if isinstance(atom, str):
        return values[atom]
    a, b = atom.first.evaluate(values), atom.second.evaluate(values)
    if is_floor(atom):
        return a // b
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b) if atom.kind == "min" else max(a, b)
    import numpy as np

    return np.minimum(a, b) if atom.kind == "min" else np.maximum(a, b)
