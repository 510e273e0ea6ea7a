"""A saturated e-graph as plain classes and alternatives, and seeds for choosing among them.

An extraction is one alternative for every class and one bit for every value: stored or inline.
Classes of values and of buffers share one numbering. Which buffer alternative to take is no choice:
an input is free, a scatter says how it is made, else the value is stored.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..graph.dtype import ALL, DType
from ..once import computed_once
from .encode import Encoding
from .engine import Engine
from .language import BUFFER_SORT, MENTIONING, OPERATIONS, REDUCTIONS, SCALAR
from .terms import Leaf, Region

INFINITE = math.inf


@dataclass(frozen=True)
class ENode:
    """One alternative of a class: operation, literals, classes of its operands."""

    op: str
    literals: tuple[int | float, ...]
    children: tuple[int, ...]

    @computed_once
    def over(self) -> int:
        """The mask of reduced axes; 0 where nothing is reduced."""
        if self.op not in REDUCTIONS:
            return 0
        return int(self.literals[1] if self.op == "Fold" else self.literals[0])


@dataclass
class Classes:
    """The classes of an e-graph. All lists are indexed by class.

    axes: mask; fixed: known before the program runs; constant: also made from a buffer, and of a
    size that does not change: worth keeping in memory.
    first: operands before what is made of them: the first alternative made of earlier classes.
    """

    region: Region
    encoding: Encoding
    alternatives: list[list[ENode]]
    is_buffer: list[bool]
    axes: list[int]
    fixed: list[bool]
    roots: list[int]
    first: dict[int, int] = field(default_factory=dict)
    dtype: list[DType] = field(init=False)
    constant: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.alternatives)
        self.dtype, self.constant = [ALL[0]] * count, [False] * count

    @property
    def order(self) -> Iterable[int]:
        """The classes, operands before what is made of them."""
        return self.first

    def acyclic(self) -> list[int]:
        """A choice without cycles. (Sums of tree costs are huge where values are shared, and then
        too coarse to tell a cycle from none.)"""
        return [self.first.get(c, 0) for c in range(len(self.alternatives))]

    def held(self, buffer: int) -> int:
        """The value that a stored buffer holds."""
        return self.alternatives[buffer][0].children[0]

    def source(self, buffer: int) -> str:
        """How a buffer comes about: "Input", "Scatter" or "Store"."""
        return self.alternatives[buffer][0].op

    def item(self, node: ENode) -> Any:
        """What the first literal of a node stands for: a map, a domain, an operation, a leaf ..."""
        return self.encoding.items[int(node.literals[0])]

    def scalar(self, node: ENode) -> str:
        """The elementwise operation that a node is, by its name in SCALARS; else ""."""
        if node.op in ("Unary", "Binary", "Ternary"):
            return str(self.item(node).op)
        return SCALAR.get(node.op, "")

    def leaf(self, buffer: int) -> Leaf:
        found: Leaf = self.item(self.alternatives[buffer][0]).attribute
        return found


def classes_of(
    engine: Engine, encoding: Encoding, region: Region, everything: bool = False
) -> Classes:
    """The e-graph of a region as plain data; `everything`: also what is never worth taking."""
    tables = engine.tables([*OPERATIONS, "ax", "axT", "fixed", "fixedT", "term"])
    numbers: dict[object, int] = {}
    alternatives: list[list[ENode]] = []
    is_buffer: list[bool] = []

    def number(value: object, buffer: bool) -> int:
        found = numbers.get(value)
        if found is None:
            found = numbers[value] = len(alternatives)
            alternatives.append([])
            is_buffer.append(buffer)
        return found

    for op, kinds in OPERATIONS.items():
        for inputs, output in tables[op]:
            pairs = list(zip(kinds, inputs))
            children = tuple(number(v, k == "T") for k, v in pairs if k in "ET")
            literals = tuple(v for k, v in pairs if k in "if")
            alternatives[number(output, op in BUFFER_SORT)].append(ENode(op, literals, children))
    count = len(alternatives)
    axes, fixed = [0] * count, [False] * count
    for (value,), mask in tables["ax"] + tables["axT"]:
        if value in numbers:
            axes[numbers[value]] = mask
    for (value,), _ in tables["fixed"] + tables["fixedT"]:
        if value in numbers:
            fixed[numbers[value]] = True
    terms = {term: output for (term,), output in tables["term"]}
    roots = [numbers[terms[root.term]] for root in region.roots]
    if not everything:
        alternatives = _anywhere(alternatives, encoding)
        inside = [
            [n for n in options if not _own_axes(n, axes, is_buffer, encoding) & ~mask] or options
            for mask, options in zip(axes, alternatives)
        ]
        alternatives = [_worthwhile(c, options, alternatives) for c, options in enumerate(inside)]
    classes = Classes(region, encoding, alternatives, is_buffer, axes, fixed, roots)
    classes.first = first_choices(classes.alternatives)
    _find_dtypes(classes)
    _find_constants(classes)
    return classes


def _anywhere(alternatives: list[list[ENode]], encoding: Encoding) -> list[list[ENode]]:
    """A read of a buffer without axes takes its one element, also where the read is undefined:
    what is undefined no plan uses. (In the e-graph that would be no equality.)"""

    def single(n: ENode) -> bool:
        return n.op == "Read" and not encoding.items[int(n.literals[0])].entries

    def spread(n: ENode, seen: tuple[int, ...]) -> list[ENode]:
        if not single(n):
            return [n]
        (buffer,) = n.children
        held = [s.children[0] for s in alternatives[buffer] if s.op == "Store"]
        inner = [m for c in held if c not in seen for m in alternatives[c]]
        found = [x for m in inner for x in spread(m, (*seen, *held))]
        return found or [ENode("Load", (), n.children)]

    return [
        list(dict.fromkeys(x for n in options for x in spread(n, (c,))))
        for c, options in enumerate(alternatives)
    ]


def _own_axes(n: ENode, axes: list[int], is_buffer: list[bool], encoding: Encoding) -> int:
    """The axes along which an alternative varies as it is written. Its class may vary along fewer
    (a dead branch, a read of a constant part): then others say the same without them."""
    if n.op == "Scatter":  # it binds the axes of its points
        return 0
    mask = encoding.mentions(int(n.literals[0])) if n.op in MENTIONING else 0
    for c in n.children:
        if not is_buffer[c]:
            mask |= axes[c]
    return mask & ~n.over


def _worthwhile(number: int, options: list[ENode], alternatives: list[list[ENode]]) -> list[ENode]:
    """Without what is as good as another."""
    if options and options[0].op in BUFFER_SORT:
        kinds = ("Input", "Scatter", "Store")
        return [min(options, key=lambda n: kinds.index(n.op))]
    kept = [n for n in options if not _reads_itself(number, n, alternatives)]
    loads = [n for n in kept if n.op == "Load"]
    if loads:
        return loads[:1]
    plain = [n for n in kept if n.op in ("Const", "Literal")]
    if plain:
        return plain[:1]
    return kept


def _reads_itself(number: int, node: ENode, alternatives: list[list[ENode]]) -> bool:
    """A load of what would be stored from this very class."""
    if node.op != "Load":
        return False
    sources = alternatives[node.children[0]]
    return all(s.op == "Store" and s.children[0] == number for s in sources)


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
        classes.dtype[c] = _dtype(classes, classes.alternatives[c][option])


def _dtype(classes: Classes, node: ENode) -> DType:
    if node.op == "Const":
        return ALL[int(node.literals[0])]
    if node.op in ("Literal", "Index", "Input", "Unary", "Binary", "Ternary"):
        found: DType = classes.item(node).dtype
        return found
    if node.op == "One":
        return ALL[0]  # takes the dtype of whatever it weighs
    return classes.dtype[node.children[0]]


def _find_constants(classes: Classes) -> None:
    """Fixed, made from a fixed buffer, and of a size that does not change from run to run."""
    space, names = classes.encoding.space, classes.encoding.names
    from_memory = [False] * len(classes.fixed)
    for c in classes.order:
        buffers = classes.is_buffer[c] and classes.source(c) == "Input"
        from_memory[c] = buffers or any(
            any(from_memory[x] for x in n.children) for n in classes.alternatives[c]
        )
        static = all(space.axes[a].is_constant for a in names(classes.axes[c]))
        classes.constant[c] = classes.fixed[c] and from_memory[c] and static


# ---- seeds: one alternative for every class, bottom up, so never a cycle

_WEIGHTS = {
    "Sum": 10.0, "Max": 10.0, "Fold": 10.0, "OSum": 18.0, "Scan": 10.0, "Exp2": 4.0, "Wexp": 16.0,
    "Read": 0.01, "Gather": 1.0, "Load": 0.01, "Store": 0.02, "Input": 0.0, "Const": 0.0,
    "Literal": 0.0, "Index": 0.1, "Guard": 0.1,
}  # fmt: skip


def seed(classes: Classes, mode: str, rng: random.Random | None = None) -> list[int]:
    """Choices by bottom-up dynamic programming: fewest operations ("work"), what is read at a map
    taken as made once ("written": nearly the program as it was written), or that only for
    reductions ("moved": views go through elementwise operations and no further). With `rng` the
    weights are random."""

    def weight(c: int, node: ENode) -> float:
        factor = 1.0 if rng is None else rng.uniform(0.2, 3.0)
        return 0.01 if classes.constant[c] else factor * _WEIGHTS.get(node.op, 1.0)

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
                for child in node.children:
                    total += best[child]
                if _made_once(classes, node, choice, mode):
                    total *= 0.01
                total = round(total, 6) + 1e-6
                if total < best[c]:
                    best[c], choice[c], changed = total, i, True
    return choice


def _made_once(classes: Classes, node: ENode, choice: list[int], mode: str) -> bool:
    """Whether a mode takes what a buffer holds for made once, however many read it."""
    if node.op != "Store" or mode == "work":
        return False
    (held,) = node.children
    op = classes.alternatives[held][choice[held]].op
    return mode == "written" or op in REDUCTIONS or op == "Scan"
