"""A plan: one alternative a class, which values are stored, and the kernels that follow.

A kernel is a maximal inline piece between stored values. A kernel that reads what another has just
stored, at the same points, may become one kernel with it that stores both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from ..graph.order import post_order
from .cost import CostEstimator
from .extract import Classes, ENode

_STRIDE = 1 << 12  # alternatives of a class, in the key of a kernel
_LOADED = _STRIDE - 1
LOAD = ENode("load", ())  # in place of a class that is in memory


@dataclass(frozen=True)
class FusedKernel:
    """One kernel of a plan.

    roots: the classes it stores. body: (class, node), operands first; what it takes from memory at
    its own point is a "load". reads: the classes that it takes from memory. key: all of that as
    numbers.
    """

    roots: tuple[int, ...]
    body: tuple[tuple[int, ENode], ...]
    reads: frozenset[int]
    key: tuple[int, ...]
    scatter: ENode | None = None
    moved: frozenset[int] = frozenset()  # those of `reads` that are read at other points


@dataclass
class Plan:
    """Choices and the kernels, in an order in which they can run. cost: seconds, as modelled.
    in_rows: matrices are multiplied as their rows lie."""

    classes: Classes
    choice: list[int]
    stored: frozenset[int]
    pieces: list[FusedKernel] = field(default_factory=list)
    cost: float = 0.0
    notes: str = ""
    in_rows: bool = False

    def describe(self) -> str:
        """What each kernel fuses, for `explain()`."""
        lines = [self.notes] if self.notes else []
        lines += [f"  {describe(self.classes, piece)}" for piece in self.pieces]
        return "\n".join(lines)


class Cyclic(Exception):
    """These choices compute a value from itself."""


class Planner:
    """Forms the kernels of choices. A piece is remembered with the choices and bits that it was
    formed under: neighbouring plans share most of their pieces."""

    def __init__(self, classes: Classes, estimator: CostEstimator) -> None:
        self.classes, self.estimator = classes, estimator
        self.memory: dict[int, list[Remembered]] = {}

    def form(
        self, choice: Sequence[int], stored: frozenset[int]
    ) -> tuple[list[FusedKernel], float]:
        """The kernels of these choices and their modelled time. Raises Cyclic."""
        former = _Former(self.classes, self.memory, choice, stored)
        for root in self.classes.roots:
            former.need(root)
        kept = _Merger(self.classes, former.pieces, self.estimator).kept
        return [piece for piece, _ in kept], sum(cost for _, cost in kept)

    def plan(self, choice: Sequence[int], stored: frozenset[int]) -> Plan:
        """The plan of these choices. Raises Cyclic."""
        pieces, cost = self.form(choice, stored)
        in_rows = self.estimator.model.in_rows
        return Plan(self.classes, list(choice), stored, pieces, cost, in_rows=in_rows)


@dataclass(frozen=True)
class Remembered:
    """A piece, and the state of all classes on which its form depends."""

    look: Callable[[Sequence[int]], Any]  # the states of those classes
    states: Any
    piece: FusedKernel
    needs: tuple[int, ...]


class _Former:
    """Walks from the roots and cuts at stored values."""

    def __init__(
        self, classes: Classes, memory: dict[int, list[Remembered]], choice: Sequence[int],
        stored: frozenset[int],
    ) -> None:  # fmt: skip
        self.classes, self.memory = classes, memory
        self.choice, self.stored = choice, stored
        self.states = [2 * option for option in choice]
        for c in stored:
            self.states[c] += 1
        self.pieces: list[FusedKernel] = []
        self.progress: dict[int, int] = {}  # 1: being made, 2: made

    def need(self, c: int) -> None:
        """See to it that a class is in memory."""
        progress = self.progress.get(c)
        if progress == 2:
            return
        if progress == 1:
            raise Cyclic
        self.progress[c] = 1
        if not self.classes.is_input(c):
            known = (m for m in self.memory.get(c, ()) if m.look(self.states) == m.states)
            found = next(known, None) or self._walk(c)
            for read in found.needs:
                self.need(read)
            self.pieces.append(found.piece)
        self.progress[c] = 2

    def _walk(self, c: int) -> Remembered:
        """The kernel that stores a class. Raises Cyclic."""
        node = self.classes.alternatives[c][self.choice[c]]
        scatter = node if node.op == "scatter" else None
        reads = dict.fromkeys(scatter.memory if scatter else ())
        moved, before = set[int](), set[int]()

        def node_of(x: int) -> ENode:
            """What stands for a class in this kernel."""
            found = self.classes.alternatives[x][self.choice[x]]
            in_memory = found.op in ("input", "scatter") or (x in self.stored and x != c)
            return LOAD if in_memory else found

        order = post_order(scatter.inline if scatter else [c], lambda x: node_of(x).inline)
        body, key = [(x, node_of(x)) for x in order], [c]
        for x, node in body:
            if not before.issuperset(node.inline):
                raise Cyclic
            before.add(x)
            moved.update(node.memory)
            reads |= dict.fromkeys([x] if node is LOAD else node.memory)
            key.append(x * _STRIDE + (_LOADED if node is LOAD else self.choice[x]))
        made = FusedKernel(
            (c,), tuple(body), frozenset(reads), tuple(key), scatter, frozenset(moved)
        )
        look = itemgetter(*dict.fromkeys([c, *order]))
        found = Remembered(look, look(self.states), made, tuple(reads))
        self.memory.setdefault(c, []).append(found)
        return found


# ---- several stores in one kernel


Priced = tuple[FusedKernel, float]


class _Merger:
    """Joins consumers to producers where that is cheaper; drops stores that nobody reads."""

    def __init__(
        self, classes: Classes, pieces: list[FusedKernel], estimator: CostEstimator
    ) -> None:
        self.classes, self.estimator = classes, estimator
        self.kept: list[Priced] = []
        self.readers: dict[int, list[int]] = {}  # of a buffer: what the pieces that read it store
        for piece in pieces:
            for read in piece.reads:
                self.readers.setdefault(read, []).append(piece.roots[0])
        for piece in pieces:
            self._add(piece, estimator.price(piece))

    def _add(self, piece: FusedKernel, cost: float) -> None:
        for position in range(len(self.kept) - 1, -1, -1):
            producer, before = self.kept[position]
            if piece.reads.isdisjoint(producer.roots) or not self._mergeable(producer, piece):
                continue
            free, behind = _split(self.kept[position + 1 :], producer)
            if any(not piece.reads.isdisjoint(p.roots) for p, _ in behind):
                continue
            joined = self._join(producer, piece)
            together = self.estimator.price(joined)
            if together < before + cost:
                self.kept[position:] = [*free, (joined, together), *behind]
                return
        self.kept.append((piece, cost))

    def _mergeable(self, producer: FusedKernel, consumer: FusedKernel) -> bool:
        """Both are kernels over the same points, and nothing is read elsewhere than made."""
        if producer.scatter is not None or consumer.scatter is not None:
            return False
        if not consumer.moved.isdisjoint(producer.roots):
            return False
        constant, axes = self.classes.constant, self.classes.axes
        first = consumer.roots[0]
        same = constant[producer.roots[0]] == constant[first]
        return same and all(axes[r] == axes[first] for r in producer.roots)

    def _join(self, producer: FusedKernel, consumer: FusedKernel) -> FusedKernel:
        both = (*producer.roots, *consumer.roots)
        moved = producer.moved | consumer.moved
        wanted = moved.union(self.classes.roots)
        roots = tuple(
            r for r in both
            if r in wanted or any(x not in both for x in self.readers.get(r, ()))
        )  # fmt: skip
        inside = {c for c, _ in producer.body}
        body = (*producer.body, *((c, n) for c, n in consumer.body if c not in inside))
        reads = (producer.reads | consumer.reads).difference(producer.roots)
        key = (*roots, -1, *producer.key, -1, *consumer.key)
        return FusedKernel(roots or consumer.roots, body, reads, key, None, moved)


def _split(later: list[Priced], producer: FusedKernel) -> tuple[list[Priced], list[Priced]]:
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


# ---- text


def describe(classes: Classes, piece: FusedKernel) -> str:
    """One line: what is stored, the reductions, how many operations, what is read."""
    names = classes.encoding.names
    space = classes.encoding.space

    def extents(mask: int) -> str:
        return " x ".join(str(space.axes[a]) for a in names(mask)) or "1"

    reductions = [f"{n.op}[{extents(n.over)}]" for _, n in piece.body if n.over]
    free = ("load", "read", "gather", "const", "one", "index")
    operations = sum(1 for _, n in piece.body if n.op not in free and not n.over)
    kind = "scatter" if piece.scatter is not None else "kernel"
    root = piece.scatter.children[2] if piece.scatter is not None else piece.roots[0]
    constant = ", once" if classes.constant[piece.roots[0]] else ""
    stores = "" if len(piece.roots) == 1 else f", {len(piece.roots)} stores"
    work = " ".join([*reductions, f"{operations} elementwise"])
    head = f"{kind} [{extents(classes.axes[root])}]: {work}"
    return f"{head}, {len(piece.reads)} reads{stores}{constant}"
