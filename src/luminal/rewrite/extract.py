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
from .encode import Encoding
from .engine import Engine
from .language import BUFFER_SORT, OPERATIONS, SCALAR
from .terms import Leaf, Region, Term, mentioned

INFINITE = math.inf


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
        """How a buffer comes about: "input", "scatter" or "store"."""
        return self.alternatives[buffer][0].op

    def leaf(self, buffer: int) -> Leaf:
        found: Leaf = self.alternatives[buffer][0].attribute
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
            literals = [v for k, v in pairs if k in "if"]
            node = _node(op, literals, children, encoding)
            alternatives[number(output, op in BUFFER_SORT)].append(node)
    masks = {value: mask for (value,), mask in tables["ax"] + tables["axT"]}
    known = {value for (value,), _ in tables["fixed"] + tables["fixedT"]}
    axes = [masks.get(value, 0) for value in numbers]  # they are in the order of their numbers
    fixed = [value in known for value in numbers]
    terms = {term: output for (term,), output in tables["term"]}
    roots = [numbers[terms[root.term]] for root in region.roots]
    if not everything:
        alternatives = _anywhere(alternatives)
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
    """A read of a buffer without axes takes its one element, also where the read is undefined:
    what is undefined no plan uses. (In the e-graph that would be no equality.)"""

    def single(n: ENode) -> bool:
        return n.op == "read" and not n.attribute.entries

    def spread(n: ENode, seen: tuple[int, ...]) -> list[ENode]:
        if not single(n):
            return [n]
        (buffer,) = n.children
        held = [s.children[0] for s in alternatives[buffer] if s.op == "store"]
        inner = [m for c in held if c not in seen for m in alternatives[c]]
        found = [x for m in inner for x in spread(m, (*seen, *held))]
        return found or [ENode("load", n.children)]

    return [
        list(dict.fromkeys(x for n in options for x in spread(n, (c,))))
        for c, options in enumerate(alternatives)
    ]


def _own_axes(n: ENode, axes: list[int], is_buffer: list[bool], encoding: Encoding) -> int:
    """The axes along which an alternative varies as it is written. Its class may vary along fewer
    (a dead branch, a read of a constant part): then others say the same without them."""
    if n.op in ("input", "scatter"):  # a scatter binds the axes of its points
        return 0
    mask = encoding.mask(mentioned(n.op, n.attribute) or ())
    for c in n.children:
        if not is_buffer[c]:
            mask |= axes[c]
    return mask & ~n.over


def _worthwhile(number: int, options: list[ENode], alternatives: list[list[ENode]]) -> list[ENode]:
    """Without what is as good as another."""
    kinds = ("input", "scatter", "store")
    if options and options[0].op in kinds:
        return [min(options, key=lambda n: kinds.index(n.op))]
    kept = [n for n in options if not _reads_itself(number, n, alternatives)]
    loads = [n for n in kept if n.op == "load"]
    if loads:
        return loads[:1]
    plain = [n for n in kept if n.op == "const"]
    if plain:
        return plain[:1]
    return kept


def _reads_itself(number: int, node: ENode, alternatives: list[list[ENode]]) -> bool:
    """A load of what would be stored from this very class."""
    if node.op != "load":
        return False
    sources = alternatives[node.children[0]]
    return all(s.op == "store" and s.children[0] == number for s in sources)


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


def _find_constants(classes: Classes) -> None:
    """Fixed, made from a fixed buffer, and of a size that does not change from run to run."""
    space, names = classes.encoding.space, classes.encoding.names
    from_memory = [False] * len(classes.fixed)
    for c in classes.order:
        buffers = classes.is_buffer[c] and classes.source(c) == "input"
        from_memory[c] = buffers or any(
            any(from_memory[x] for x in n.children) for n in classes.alternatives[c]
        )
        static = all(space.axes[a].is_constant for a in names(classes.axes[c]))
        classes.constant[c] = classes.fixed[c] and from_memory[c] and static


# ---- seeds: one alternative for every class, bottom up, so never a cycle

_WEIGHTS = {
    "osum": 18.0, "scan": 10.0, "exp2": 4.0, "wexp": 16.0, "read": 0.01, "load": 0.01,
    "store": 0.02, "input": 0.0, "const": 0.0, "index": 0.1, "guard": 0.1,
}  # fmt: skip
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
    if node.op != "store" or mode == "work":
        return False
    (held,) = node.children
    found = classes.alternatives[held][choice[held]]
    return mode == "written" or found.over != 0 or found.op == "scan"
