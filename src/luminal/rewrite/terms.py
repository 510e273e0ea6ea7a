"""The form in which programs are rewritten: values as functions of named axes.

A term is the value of an expression at a point of its axes. Which values are kept in memory is not
said here; what is read at other points than the reader's own has to be.
Dimensions are gone: every dimension has become a tuple of axes, an axis has a name ("a0", "a1",
...) and an extent, elementwise operations share axes, broadcasting is "the axis is not mentioned",
and a view that is no renaming of axes is an index map on a read.

    op         operands        attribute            meaning
    input      ()              Leaf                 a buffer from outside the region
    scatter    (base, slot, value)  ScatterMap      the base with the value written at the slot
    read       (source)        Map                  the source at other indices
    gather     (source, slot)  Map                  as read; SLOT in the map is the value of `slot`
    const      ()              number
    index      ()              Index                the value of an index expression
    <scalar>   (x, ...)        None                 a row of SCALARS
    guard      (x, other)      Domain               x where the domain holds, else the other
    sum max min prod  (x)      axes (tuple)         reduction; binds the axes (an axis that the
                                                    operand does not mention repeats it)
    scan       (x)             (op, axis)           running reduction; keeps the axis

`max` and `min` of two values are scalars: they have two children and no attribute. A `const` is a
Python number; terms tell 0.0 from -0.0 and 1 from True, and take all NaNs for one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..graph.dtype import DType
from ..graph.index import Index, names_of
from ..graph.node import REDUCE_OPS
from ..graph.scalars import SCALARS
from ..graph.space import Space
from ..kernel.domains import Number, Outside, outside_guard, outside_scalar

SLOT = "$0"  # the variable of a map that stands for a data-dependent index
FROM_MEMORY = ("read", "gather", "scatter")  # their first operand is in memory
ELSEWHERE = {"read": 1, "gather": 1, "scatter": 3}  # so many operands are taken at other points

Domain: TypeAlias = tuple[Index, ...]  # a conjunction of `index >= 0`


@dataclass(frozen=True)
class Map:
    """Where a buffer is read: axis of the buffer -> Index over the reader's axes, total, sorted by
    axis. `conditions`: where the read is defined at all, beyond what the entries imply (a composed
    map keeps the conditions of the buffers in between)."""

    entries: tuple[tuple[str, Index], ...]
    conditions: Domain = ()

    @property
    def names(self) -> frozenset[str]:
        """All names that the reader brings in."""
        return names_of((*(index for _, index in self.entries), *self.conditions))


@dataclass(frozen=True)
class ScatterMap:
    """Where a scatter writes: axis of the result -> Index over the axes of the points and SLOT.

    `along`: the axes of all points that write, in row-major order (later writes win). The result
    has the axes of `entries`; the base may lack some (it is repeated along them). A slot outside
    its axis writes nothing. mode: as in graph.node.Scatter."""

    entries: tuple[tuple[str, Index], ...]
    along: tuple[str, ...]
    mode: str


@dataclass(frozen=True)
class Leaf:
    """A buffer from outside: its number among the region's (or program's) buffers, its axes in
    memory order (row-major), whether its contents are known before the program runs, and whether
    many calls find it alike: the steps of a loop. outside: what its elements are where a condition
    over its axes fails."""

    number: int
    axes: tuple[str, ...]
    constant: bool = False
    steady: bool = False
    outside: tuple[tuple[Index, Number], ...] = ()


@dataclass(frozen=True)
class Term:
    """A node of the term graph."""

    op: str
    children: tuple[int, ...]
    attribute: Any
    dtype: DType


@dataclass
class Terms:
    """A term graph in topological order, hash-consed. `axes[i]`: the axes that term i depends
    on."""

    space: Space
    nodes: list[Term] = field(default_factory=list)
    axes: list[frozenset[str]] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)

    def add(self, op: str, children: tuple[int, ...], attribute: Any, dtype: DType) -> int:
        """The number of this term; made once."""
        key: tuple[Any, ...] = (op, children, attribute, dtype.name)
        if op == "const":
            key = (op, type(attribute), repr(attribute), dtype.name)
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.nodes)
            term = Term(op, children, attribute, dtype)
            self.nodes.append(term)
            self.axes.append(self.axes_of(term))
        return found

    def axes_of(self, term: Term) -> frozenset[str]:
        """The axes that a term depends on, from those of its children."""
        if is_reduction(term):
            return self.axes[term.children[0]] - set(term.attribute)
        own = frozenset(self.space.axes.keys() & mentioned(term.op, term.attribute))
        return own.union(*(self.axes[c] for c in term.children[ELSEWHERE.get(term.op, 0) :]))


def outside(terms: Terms) -> list[Outside]:
    """What each term is where a condition over its axes fails (see `kernel.domains`)."""
    found: list[Outside] = []
    for node in terms.nodes:
        operands = [terms.nodes[c].attribute if terms.nodes[c].op == "const" else found[c]
                    for c in node.children]  # fmt: skip
        if node.op == "guard":
            found.append(outside_guard(node.attribute, *operands))
        else:
            found.append(outside_scalar(node.op, operands) if is_elementwise(node) else {})
    return found


def mentioned(op: str, found: Any) -> frozenset[str]:
    """The names in the attribute of a term that its axes come from."""
    if isinstance(found, Map):
        return found.names
    if isinstance(found, ScatterMap):
        return frozenset(axis for axis, _ in found.entries)
    if op == "input":
        return frozenset(found.axes)
    if op == "scan":
        return frozenset(found[1:])
    if op == "index":
        return frozenset(found.names())
    return names_of(found) if op == "guard" else frozenset()


def is_reduction(term: Term) -> bool:
    """Whether a term binds axes (the scalars max and min have no attribute)."""
    return term.attribute is not None and term.op in REDUCE_OPS


def is_elementwise(term: Term) -> bool:
    return term.op in SCALARS and not is_reduction(term)


@dataclass(frozen=True)
class Root:
    """A value that must be in memory at the end, and the order of its axes there. The axes may be
    more than those of the term: the value is then repeated along them (a broadcast output)."""

    term: int
    axes: tuple[str, ...]


@dataclass
class Region:
    """A piece of a program that is optimised on its own: from stored values to stored values.

    `terms` uses axes a0, a1, ... numbered by first use, and leaves 0, 1, ... by first use, so that
    repeated layers give equal keys. `inputs[i]` is the program's buffer behind leaf i, `outputs[j]`
    the one behind root j. Buffer numbers of a program: see normalise.Normal. `origins`: positions
    of the program's nodes that it computes.
    """

    key: str
    terms: Terms
    roots: tuple[Root, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    origins: tuple[int, ...] = ()
