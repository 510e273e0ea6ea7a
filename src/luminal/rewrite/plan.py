"""A plan: one alternative a class, which values are stored, and the kernels that follow.

A kernel is a maximal inline piece between stored values. A kernel that reads what another has just
stored, at the same points, may become one kernel with it that stores both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .cost import Pricer
from .extract import Classes, ENode

_STRIDE = 1 << 12  # alternatives of a class, in the key of a kernel
_LOADED = _STRIDE - 1


@dataclass(frozen=True)
class Piece:
    """One kernel of a plan.

    roots: the classes it stores (a scatter: its buffer class). body: (class, node), operands first;
    what it takes from memory at its own point is a "Load" of that class. reads: the classes whose
    buffers it reads (values, or buffers that are inputs or scatters). key: all of that as numbers.
    """

    roots: tuple[int, ...]
    body: tuple[tuple[int, ENode], ...]
    reads: frozenset[int]
    key: tuple[int, ...]
    scatter: ENode | None = None
    moved: frozenset[int] = frozenset()  # those of `reads` that are read at other points

    @property
    def node(self) -> dict[int, ENode]:
        return dict(self.body)


@dataclass
class Plan:
    """Choices and the kernels, in an order in which they can run. cost: seconds, as modelled."""

    classes: Classes
    choice: list[int]
    stored: frozenset[int]
    pieces: list[Piece] = field(default_factory=list)
    cost: float = 0.0
    notes: str = ""

    def buffer_of(self, c: int) -> int:
        """The class that stands for the memory of a class: a value that is stored, an input, a
        scatter."""
        return _memory(self.classes, self.choice, c)

    def describe(self) -> str:
        """What each kernel fuses, for `explain()`."""
        lines = [self.notes] if self.notes else []
        lines += [f"  {describe(self.classes, piece)}" for piece in self.pieces]
        return "\n".join(lines)


class Cyclic(Exception):
    """These choices compute a value from itself."""


def form(
    classes: Classes, choice: Sequence[int], stored: frozenset[int], pricer: Pricer
) -> tuple[list[Piece], float]:
    """The kernels of these choices and their modelled time. Raises Cyclic."""
    former = _Former(classes, choice, stored)
    for root in classes.roots:
        former.need(root)
    pieces, costs = _merge(classes, former.pieces, pricer)
    return pieces, sum(costs)


def make_plan(
    classes: Classes, choice: Sequence[int], stored: frozenset[int], pricer: Pricer
) -> Plan:
    """The plan of these choices. Raises Cyclic."""
    pieces, cost = form(classes, choice, stored, pricer)
    return Plan(classes, list(choice), stored, pieces, cost)


def _memory(classes: Classes, choice: Sequence[int], c: int) -> int:
    while True:
        if classes.is_buffer[c]:
            if classes.source(c) != "Store":
                return c
            c = classes.held(c)
        else:
            node = classes.alternatives[c][choice[c]]
            if node.op != "Load":
                return c
            c = node.children[0]


class _Former:
    """Walks from the roots and cuts at stored values."""

    def __init__(self, classes: Classes, choice: Sequence[int], stored: frozenset[int]) -> None:
        self.classes, self.choice, self.stored = classes, choice, stored
        self.pieces: list[Piece] = []
        self.state: dict[int, int] = {}  # 1: being made, 2: made

    def need(self, c: int) -> None:
        """See to it that a class is in memory."""
        c = _memory(self.classes, self.choice, c)
        state = self.state.get(c)
        if state == 2:
            return
        if state == 1:
            raise Cyclic
        self.state[c] = 1
        if self.classes.is_buffer[c]:
            if self.classes.source(c) == "Scatter":
                self._scatter(c)
        else:
            node = self.classes.alternatives[c][self.choice[c]]
            self._piece(c, (c,), None, [c], node)
        self.state[c] = 2

    def _scatter(self, c: int) -> None:
        node = self.classes.alternatives[c][0]
        base, slot, values = node.children
        self.need(base)
        self._piece(c, (), node, [slot, values], None)

    def _piece(
        self, c: int, tops: tuple[int, ...], scatter: ENode | None, starts: list[int],
        node: ENode | None,
    ) -> None:  # fmt: skip
        walk = _Walk(self, frozenset(tops))
        for start in starts:
            walk.visit(start)
        for read in walk.reads:
            self.need(read)
        reads = set(walk.reads)
        if scatter is not None:
            reads.add(_memory(self.classes, self.choice, scatter.children[0]))
        self.pieces.append(
            Piece((c,), tuple(walk.body), frozenset(reads), (c, *walk.key), scatter,
                  frozenset(walk.moved))
        )  # fmt: skip


class _Walk:
    """The inline piece below some classes."""

    def __init__(self, former: _Former, tops: frozenset[int]) -> None:
        self.former, self.tops = former, tops
        self.body: list[tuple[int, ENode]] = []
        self.key: list[int] = []
        self.reads: dict[int, None] = {}
        self.moved: set[int] = set()
        self.seen: set[int] = set()
        self.path: set[int] = set()

    def visit(self, c: int) -> None:
        if c in self.seen:
            return
        if c in self.path:
            raise Cyclic
        former = self.former
        option = former.choice[c]
        node = former.classes.alternatives[c][option]
        if node.op == "Load" or (c in former.stored and c not in self.tops):
            self._load(c)
            return
        self.path.add(c)
        for child in node.children:
            if former.classes.is_buffer[child]:
                memory = _memory(former.classes, former.choice, child)
                self.reads[memory] = None
                self.moved.add(memory)
            else:
                self.visit(child)
        self.path.discard(c)
        self.seen.add(c)
        self.body.append((c, node))
        self.key.append(c * _STRIDE + option)

    def _load(self, c: int) -> None:
        memory = _memory(self.former.classes, self.former.choice, c)
        self.reads[memory] = None
        self.seen.add(c)
        self.body.append((c, ENode("Load", (), (memory,))))
        self.key.append(c * _STRIDE + _LOADED)


# ---- several stores in one kernel


def _merge(
    classes: Classes, pieces: list[Piece], pricer: Pricer
) -> tuple[list[Piece], list[float]]:
    """Join consumers to producers where that is cheaper; drop stores that nobody reads."""
    kept: list[Piece] = []
    costs: list[float] = []
    for piece in pieces:
        cost = pricer.price(piece)
        for position in range(len(kept) - 1, -1, -1):
            producer = kept[position]
            if not _mergeable(classes, producer, piece):
                continue
            free, behind = _split(list(zip(kept, costs))[position + 1 :], producer)
            if any(piece.reads & set(p.roots) for p, _ in behind):
                continue
            joined = _join(classes, producer, piece, pieces)
            together = pricer.price(joined)
            if together < costs[position] + cost:
                rest = [*free, (joined, together), *behind]
                kept[position:] = [p for p, _ in rest]
                costs[position:] = [c for _, c in rest]
                break
        else:
            kept.append(piece)
            costs.append(cost)
    return kept, costs


def _mergeable(classes: Classes, producer: Piece, consumer: Piece) -> bool:
    if producer.scatter is not None or consumer.scatter is not None:
        return False
    shared = consumer.reads.intersection(producer.roots)
    if not shared or shared & consumer.moved:
        return False
    if classes.constant[producer.roots[0]] != classes.constant[consumer.roots[0]]:
        return False
    axes = classes.axes[consumer.roots[0]]
    return all(classes.axes[r] == axes for r in producer.roots)


Priced = tuple[Piece, float]


def _split(later: list[Priced], producer: Piece) -> tuple[list[Priced], list[Priced]]:
    """Kernels that do not need the producer, and those that do, directly or not."""
    made = set(producer.roots)
    free, behind = [], []
    for priced in later:
        if priced[0].reads & made:
            made.update(priced[0].roots)
            behind.append(priced)
        else:
            free.append(priced)
    return free, behind


def _join(classes: Classes, producer: Piece, consumer: Piece, pieces: list[Piece]) -> Piece:
    inside = {c for c, _ in producer.body}
    body = list(producer.body)
    body += [(c, n) for c, n in consumer.body if c not in inside]
    wanted = set(classes.roots)
    for other in pieces:
        if not set(other.roots) & {*producer.roots, *consumer.roots}:
            wanted |= other.reads
    wanted |= consumer.moved | producer.moved
    roots = tuple(r for r in (*producer.roots, *consumer.roots) if r in wanted)
    reads = (producer.reads | consumer.reads) - set(producer.roots)
    key = (*roots, -1, *producer.key, -1, *consumer.key)
    return Piece(roots or consumer.roots, tuple(body), reads, key, None,
                 producer.moved | consumer.moved)  # fmt: skip


# ---- text


def describe(classes: Classes, piece: Piece) -> str:
    """One line: what is stored, the reductions, how many operations, what is read."""
    names = classes.encoding.names
    space = classes.encoding.space

    def extents(mask: int) -> str:
        return " x ".join(str(space.axes[a]) for a in names(mask)) or "1"

    reductions = [f"{n.op.lower()}[{extents(n.over)}]" for _, n in piece.body if n.over]
    free = ("Load", "Read", "Gather", "Const", "Literal", "One", "Index")
    operations = sum(1 for _, n in piece.body if n.op not in free and not n.over)
    kind = "scatter" if piece.scatter is not None else "kernel"
    root = piece.scatter.children[2] if piece.scatter is not None else piece.roots[0]
    constant = ", once" if classes.constant[piece.roots[0]] else ""
    stores = "" if len(piece.roots) == 1 else f", {len(piece.roots)} stores"
    work = " ".join([*reductions, f"{operations} elementwise"])
    return f"{kind} [{extents(classes.axes[root])}]: {work}, {len(piece.reads)} reads{stores}{constant}"
