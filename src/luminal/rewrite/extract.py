"""A saturated e-graph as plain classes and alternatives, and seeds for choosing among them.

An extraction is one alternative for every class and one bit for it: stored or inline. Inputs are in
memory, and scatters always stored.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..graph.dtype import ALL, DType
from .encode import Encoding
from .engine import Engine
from .language import OPERATIONS, SCALAR
from .terms import FROM_MEMORY, Leaf, Region, Term, mentioned

INFINITE = math.inf
SMALL = 1.01  # times what it is made of


@dataclass(frozen=True)
class ENode:
    """One alternative of a class: a term (see `terms.py`) whose operands are classes.

    Of "wexp" and "osum", which only laws make, the attribute is the mask of the axes of the maximum
    and the scale; "one" is the weight of a plain online sum. over: the mask of reduced axes.
    """

    op: str
    children: tuple[int, ...]
    attribute: Any = None
    over: int = 0
    dtype: DType | None = None  # that of its operands, if not given

    @property
    def memory(self) -> tuple[int, ...]:
        """The operand that is found in memory."""
        return self.children[:1] if self.op in FROM_MEMORY else ()

    @property
    def inline(self) -> tuple[int, ...]:
        """The operands at points of the reader."""
        return self.children[1:] if self.op in FROM_MEMORY else self.children


@dataclass
class Classes:
    """The classes of an e-graph. All lists are indexed by class.

    axes: mask; fixed: known before the program runs; constant: also made from an input, and of a
    size that does not change: worth keeping in memory. small: no larger than the inputs that it is
    made of, or a root, which is stored in any case.
    first: operands before what is made of them: the first alternative made of earlier classes.
    """

    region: Region
    encoding: Encoding
    alternatives: list[list[ENode]]
    axes: list[int]
    fixed: list[bool]
    roots: list[int]
    first: dict[int, int] = field(default_factory=dict)
    dtype: list[DType] = field(init=False)
    constant: list[bool] = field(init=False)
    small: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.alternatives)
        self.dtype = [ALL[0]] * count
        self.constant, self.small = [False] * count, [False] * count

    @property
    def order(self) -> Iterable[int]:
        """The classes, operands before what is made of them."""
        return self.first

    def acyclic(self) -> list[int]:
        """A choice without cycles. (Sums of tree costs are huge where values are shared, and then
        too coarse to tell a cycle from none.)"""
        return [self.first.get(c, 0) for c in range(len(self.alternatives))]

    def is_input(self, c: int) -> bool:
        return self.alternatives[c][0].op == "input"

    def is_constant_input(self, c: int) -> bool:
        return self.is_input(c) and self.leaf(c).constant

    def in_memory(self, c: int) -> bool:
        """It is, whatever is chosen."""
        return self.alternatives[c][0].op in ("input", "scatter")

    def leaf(self, c: int) -> Leaf:
        """Of an input."""
        found: Leaf = self.alternatives[c][0].attribute
        return found


def classes_of(
    engine: Engine, encoding: Encoding, region: Region, everything: bool = False,
    again: bool = False,
) -> Classes:  # fmt: skip
    """The e-graph of a region as plain data; `everything`: also what is never worth taking; again:
    what is made of constants and larger than these may be made in every run, and stored."""
    tables = engine.tables([*OPERATIONS, "ax", "fixed", "term"])
    numbers: dict[object, int] = {}
    alternatives: list[list[ENode]] = []

    def number(value: object) -> int:
        found = numbers.setdefault(value, len(alternatives))
        if found == len(alternatives):
            alternatives.append([])
        return found

    for op, kinds in OPERATIONS.items():
        for inputs, output in tables[op]:
            pairs = list(zip(kinds, inputs))
            children = tuple(number(v) for k, v in pairs if k == "E")
            literals = [v for k, v in pairs if k != "E"]
            node = _node(op, literals, children, encoding)
            alternatives[number(output)].append(node)
    masks = {value: mask for (value,), mask in tables["ax"]}
    known = {value for (value,), _ in tables["fixed"]}
    axes = [masks.get(value, 0) for value in numbers]  # they are in the order of their numbers
    fixed = [value in known for value in numbers]
    terms = {term: output for (term,), output in tables["term"]}
    roots = [numbers[terms[root.term]] for root in region.roots]
    if not everything:
        alternatives = _anywhere(alternatives)
        inside = [
            [n for n in options if not _own_axes(n, axes, encoding) & ~mask] or options
            for mask, options in zip(axes, alternatives)
        ]
        alternatives = list(map(_worthwhile, inside))
    classes = Classes(region, encoding, alternatives, axes, fixed, roots)
    classes.first = first_choices(classes.alternatives)
    _find_dtypes(classes)
    _find_constants(classes, again)
    return classes


def _node(op: str, literals: list[Any], children: tuple[int, ...], encoding: Encoding) -> ENode:
    """An e-node as what it stands for."""
    name = SCALAR.get(op) or op.lower()
    if op == "Const":
        return ENode(name, children, literals[1], dtype=ALL[literals[0]])
    if op in ("Sum", "Max"):
        return ENode(name, children, over=literals[0])
    if op in ("Wexp", "OSum"):
        return ENode(name, children, tuple(literals), literals[0] if op == "OSum" else 0)
    if op == "One":
        return ENode(name, children, dtype=ALL[0])  # takes the dtype of whatever it weighs
    item = encoding.items[literals[0]] if literals else None
    if isinstance(item, Term):
        over = literals[1] if op == "Fold" else 0
        return ENode(item.op, children, item.attribute, over, item.dtype)
    return ENode(name, children, item)


def _anywhere(alternatives: list[list[ENode]]) -> list[list[ENode]]:
    """A read of a value without axes takes its one element, also where the read is undefined:
    what is undefined no plan uses. (In the e-graph that would be no equality.)"""

    def spread(n: ENode, seen: tuple[int, ...]) -> list[ENode]:
        if n.op != "read" or n.attribute.entries:
            return [n]
        (source,) = n.children
        inner = [] if source in seen else alternatives[source]
        return [x for m in inner for x in spread(m, (*seen, source))]

    return [
        list(dict.fromkeys(x for n in options for x in spread(n, (c,))))
        for c, options in enumerate(alternatives)
    ]


def _own_axes(n: ENode, axes: list[int], encoding: Encoding) -> int:
    """The axes along which an alternative varies as it is written. Its class may vary along fewer
    (a dead branch, a read of a constant part): then others say the same without them."""
    if n.op in ("input", "scatter"):  # a scatter binds the axes of its points
        return 0
    mask = encoding.mask(mentioned(n.op, n.attribute))
    for c in n.inline:
        mask |= axes[c]
    return mask & ~n.over


def _worthwhile(options: list[ENode]) -> list[ENode]:
    """Without what is as good as another."""
    for op in ("input", "scatter", "const"):
        found = [n for n in options if n.op == op]
        if found:
            return found[:1]
    return options


def first_choices(alternatives: list[list[ENode]]) -> dict[int, int]:
    """Class -> its first alternative whose operands come before it here: never a cycle."""
    done: dict[int, int] = {}
    before = -1
    while before < len(done):
        before = len(done)
        for c, options in enumerate(alternatives):
            if c not in done:
                ready = (i for i, n in enumerate(options) if all(x in done for x in n.children))
                found = next(ready, None)
                if found is not None:
                    done[c] = found
    return done


def _find_dtypes(classes: Classes) -> None:
    for c, option in classes.first.items():
        node = classes.alternatives[c][option]
        classes.dtype[c] = node.dtype or classes.dtype[node.children[0]]


def _find_constants(classes: Classes, again: bool) -> None:
    """Which are small, and which are constant; again: of these only small ones."""
    space, names = classes.encoding.space, classes.encoding.names
    sources = [frozenset[int]()] * len(classes.fixed)  # inputs

    def size(c: int) -> float:
        extents = (space.axes[a] for a in names(classes.axes[c]))
        whole = (n.constant if n.is_constant else INFINITE for n in extents)
        return math.prod(whole) * classes.dtype[c].bytes

    for c in classes.order:
        below = (sources[x] for n in classes.alternatives[c] for x in n.children)
        sources[c] = frozenset([c][: classes.is_input(c)]).union(*below)
        classes.small[c] = c in classes.roots or size(c) <= SMALL * sum(map(size, sources[c]))
        known = classes.fixed[c] and bool(sources[c]) and size(c) < INFINITE
        classes.constant[c] = known and (classes.small[c] or not again)


# ---- seeds: one alternative for every class, bottom up, so never a cycle

_WEIGHTS = {
    "osum": 18.0, "scan": 10.0, "exp2": 4.0, "wexp": 16.0, "read": 0.01, "input": 0.01,
    "const": 0.0, "index": 0.1, "guard": 0.1,
}  # fmt: skip
_STORED = 0.02  # what is kept for a read
_ONCE = 0.01  # of what is taken for made once, however many read it
_REDUCTION = 10.0


def seed(classes: Classes, mode: str, rng: random.Random | None = None) -> list[int]:
    """Choices by bottom-up dynamic programming: fewest operations ("work"), what is read at a map
    taken as made once ("written": nearly the program as it was written), or that only for
    reductions ("moved": views go through elementwise operations and no further). With `rng` the
    weights are random."""

    def weight(c: int, node: ENode) -> float:
        factor = 1.0 if rng is None else rng.uniform(0.2, 3.0)
        usual = _WEIGHTS.get(node.op, _REDUCTION if node.over else 1.0)
        return 0.01 if classes.constant[c] else factor * usual

    alternatives = classes.alternatives
    weights = [[weight(c, n) for n in options] for c, options in enumerate(alternatives)]
    best = [INFINITE] * len(alternatives)
    choice = [0] * len(alternatives)
    changed = True
    while changed:
        changed = False
        for c in classes.order:
            for i, node in enumerate(alternatives[c]):
                total = weights[c][i]
                for child in node.inline:
                    total += best[child]
                for child in node.memory:
                    source = alternatives[child][choice[child]]
                    total += _share(source, mode) * (best[child] + _STORED)
                total = round(total, 6) + 1e-6
                if total < best[c]:
                    best[c], choice[c], changed = total, i, True
    return choice


def _share(source: ENode, mode: str) -> float:
    """The part of its cost that each read of a value adds."""
    if source.op == "input":
        return 0.0
    once = mode == "written" or (mode == "moved" and (source.over or source.op == "scan"))
    return _ONCE if once else 1.0
