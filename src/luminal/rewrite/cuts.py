"""Which values every sensible plan stores: there a program is cut into regions.

- What was computed (reduced, gathered) and a window reads: each reader would compute it again.
- Products that are read at several places, each point more than once (rotated queries and keys), or
  at very many.
- Operands of products that are made in parts: tiles of a convolution.
- What was computed and contractions of several consumers read, or one contraction and a way around
  it: the residual stream, the operand of Q, K and V. Softmax and norms fork as well, but their
  branches meet again before any contraction.
- What is moved again and again: elementwise values that are read at another place, combined, read
  at another place ... double the work with each such step (sorting networks, stencils in time).
- What is compared with itself, as a maximum is with its elements (argmax) and elements with each
  other (ranks of a sort): computed twice, in other orders of summation, it may differ from itself.
- What is expensive and several regions need.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..graph.index import names_of
from ..graph.order import post_order
from ..graph.scalars import SCALARS
from ..graph.stages import CHEAP
from .maps import injective
from .normal import Normal
from .terms import FROM_MEMORY, Terms, is_elementwise, is_reduction

SINK = -1
MOVEMENT = ("guard", "read")
LEAVES = ("input", "const", "index")
CHOOSING = ("max", "min", "select", "cast")  # operations that give one of their operands
MAX_STEPS = 2  # of elementwise values read elsewhere, before one is stored
AGAIN = 1.5  # reads of a point, for which a product is stored
MOST_SUMS = 8  # of one product, that a kernel makes beside each other
EXPENSIVE = 8.0  # vector instructions of an operation that is worth a load


@dataclass
class Facts:
    """What cuts depend on, for each term.

    ends: the roots. users: among live terms. computed: some reduction, scan, gather or scatter is
    below it. fixed: known before the program runs. contraction: the reductions that are matrix
    products, see `_outer_axes`.
    """

    terms: Terms
    ends: frozenset[int]
    live: list[int]
    users: dict[int, list[int]]
    computed: list[bool]
    fixed: list[bool]
    contraction: set[int]
    extents: Mapping[str, int]  # of axes, as they usually are

    def operands(self, contraction: int) -> tuple[int, ...]:
        """What it multiplies."""
        (product,) = self.terms.nodes[contraction].children
        return self.terms.nodes[product].children

    def points(self, t: int) -> float:
        """The usual number of points of a value."""
        return math.prod(self.extents[a] for a in self.terms.axes[t])


def facts_of(normal: Normal) -> Facts:
    terms = normal.terms
    live = reachable(terms, (root.term for root in normal.roots))
    users: dict[int, list[int]] = {t: [] for t in live}
    computed, fixed = [False] * len(terms.nodes), [True] * len(terms.nodes)
    contraction = set()
    outer: dict[int, frozenset[str]] = {}
    for t in live:
        term = terms.nodes[t]
        for child in dict.fromkeys(term.children):
            users[child].append(t)
        if term.op == "input":
            fixed[t] = term.attribute.constant
        reduces = is_reduction(term)
        made = reduces or term.op in ("scan", "gather", "scatter")
        computed[t] = made or any(computed[c] for c in term.children)
        fixed[t] = fixed[t] and all(fixed[c] for c in term.children)
        outer[t] = _outer_axes(terms, t, outer)
        if reduces and not outer[term.children[0]].isdisjoint(term.attribute):
            contraction.add(t)
    ends = frozenset(root.term for root in normal.roots)
    sizes = terms.space.usual()
    extents = {a: int(n.evaluate(sizes)) for a, n in terms.space.axes.items()}
    return Facts(terms, ends, live, users, computed, fixed, contraction, extents)


def reachable(
    terms: Terms, roots: Iterable[int], boundary: frozenset[int] = frozenset()
) -> list[int]:
    """The terms below these, children first; what is below the boundary is left out."""
    tops = set(roots)

    def below(t: int) -> tuple[int, ...]:
        return () if t in boundary and t not in tops else terms.nodes[t].children

    return sorted(post_order(tops, below))


def _outer_axes(terms: Terms, t: int, known: dict[int, frozenset[str]]) -> frozenset[str]:
    """Axes that two operands of an outer product share: each has an axis that the other lacks.

    Looks through elementwise operations that add no axis. A reduction over such an axis is a
    contraction (a matrix product): its operands are used again and again.
    """
    node, mine = terms.nodes[t], terms.axes[t]
    if node.op != "guard" and not is_elementwise(node):
        return frozenset()
    found: frozenset[str] = frozenset().union(
        *(known.get(c, frozenset()) for c in node.children if terms.axes[c] == mine)
    )
    parts = [terms.axes[c] for c in dict.fromkeys(node.children)]
    if not found and len(parts) > 1 and all(part < mine for part in parts):
        found = frozenset().union(*(p & q for i, p in enumerate(parts) for q in parts[:i]))
    return found


def cuts_of(facts: Facts) -> set[int]:
    """The values that every sensible plan stores."""
    paths = Paths(facts)
    found = _read_repeatedly(facts) | _forks(facts, paths) | _compared(facts)
    found |= _products_wanted_again(facts, paths, found) | _chosen(facts)
    return found | _many_steps(facts, found)


# ---- values that windows and gathers read


def _read_repeatedly(facts: Facts) -> set[int]:
    found: set[int] = set()
    terms = facts.terms
    for t in facts.live:
        term = terms.nodes[t]
        if term.op not in ("read", "gather") or not facts.computed[term.children[0]]:
            continue
        if term.op == "gather" or not injective(term.attribute, terms.space):
            found |= _sources(facts, term.children[0])
    return found


def _compared(facts: Facts) -> set[int]:
    """Floats that both sides of a comparison give unchanged, on different ways."""
    nodes = facts.terms.nodes

    def below(t: int) -> tuple[int, ...]:
        return nodes[t].children if nodes[t].op in (*MOVEMENT, *CHOOSING) else ()

    def given(t: int) -> set[int]:
        ends = (x for x in post_order([t], below) if not below(x))
        return {x for x in ends if nodes[x].op not in LEAVES and nodes[x].dtype.is_float}

    found: set[int] = set()
    for t in facts.live:
        if nodes[t].op in ("less", "equal"):
            first, second = nodes[t].children
            if first != second:
                found |= given(first) & given(second)
    return found


def _products_wanted_again(facts: Facts, paths: Paths, cuts: set[int]) -> set[int]:
    """What takes a contraction and is read at several places, together more than once a point, or
    at so many that no kernel has registers for the sums of each.

    A read counts twice if its users go through memory on different ways before they meet.
    """
    moving = {t for t in facts.live if facts.terms.nodes[t].op in FROM_MEMORY}
    moved = paths.most(moving)
    products: set[int] = set()
    wanted: dict[int, float] = {}
    places = Counter[int]()
    for t in facts.live:
        node = facts.terms.nodes[t]
        if t in facts.contraction or not products.isdisjoint(set(node.children) - cuts):
            products.add(t)
        if node.op != "read":
            continue
        uses = 2 if moved[t] > paths.behind(t, moved, moving) else 1
        for source in _sources(facts, node.children[0]).intersection(products) - cuts:
            whole = facts.points(source)
            direct = not moving.issuperset(facts.users[source])
            wanted.setdefault(source, whole if direct else 0.0)
            wanted[source] += uses * min(whole, facts.points(t))
            places[source] += 1
    return {
        source for source, points in wanted.items()
        if points > AGAIN * facts.points(source) or places[source] > MOST_SUMS
    }  # fmt: skip


def _chosen(facts: Facts) -> set[int]:
    """Operands of contractions, made in different ways along an axis that all of them keep: the
    parts share what they are made of, and what multiplies them one by one would make it again."""
    nodes, found = facts.terms.nodes, set[int]()

    def below(t: int) -> tuple[int, ...]:
        return nodes[t].children if nodes[t].op in (*MOVEMENT, "cast", "add") else ()

    for t in facts.contraction:
        operands = facts.operands(t)
        shared = frozenset.intersection(*(facts.terms.axes[x] for x in operands))
        kept = shared.difference(nodes[t].attribute)
        for x in operands:
            guards = [nodes[g] for g in post_order([x], below) if nodes[g].op == "guard"]
            chosen = any(names_of(guard.attribute) <= kept for guard in guards)
            made = any(is_elementwise(nodes[c]) for g in guards for c in g.children)
            if chosen and made and not facts.fixed[x]:
                found.add(x)
    return found


def _sources(facts: Facts, t: int) -> set[int]:
    """The computed values that a value is moved from (the parts of a concatenation, unpadded)."""
    return {s for s in storable(facts, t) if facts.computed[s] and not facts.fixed[s]}


def storable(facts: Facts, t: int) -> set[int]:
    """The values to store instead of one that is only moved or widened."""
    nodes = facts.terms.nodes

    def below(x: int) -> tuple[int, ...]:
        moved = nodes[x].op in MOVEMENT or _widens(facts.terms, x)
        return nodes[x].children if moved else ()

    found = (x for x in post_order([t], below) if not below(x))
    return {x for x in found if nodes[x].op not in LEAVES}


def _widens(terms: Terms, t: int) -> bool:
    """A cast whose operand says the same in fewer bytes, or in the same: that is stored instead."""
    node = terms.nodes[t]
    if node.op != "cast":
        return False
    source = terms.nodes[node.children[0]].dtype
    return source is node.dtype or source.bytes < node.dtype.bytes


def _many_steps(facts: Facts, cuts: set[int]) -> set[int]:
    """Elementwise values that are read elsewhere after others were, a few times over; none that
    has more points than what it is made of."""
    terms = facts.terms
    steps: dict[int, int] = {}
    widest: dict[int, float] = {}  # of what a value is made of
    found: set[int] = set()
    for t in facts.live:
        node = terms.nodes[t]
        passes = bool(node.children) and (is_elementwise(node) or node.op in MOVEMENT)
        widest[t] = max(widest[c] for c in node.children) if passes else facts.points(t)
        child = node.children[0] if node.op in FROM_MEMORY else t
        stored = child != t and is_elementwise(terms.nodes[child])
        stored = stored and facts.points(child) <= widest[child]
        if is_reduction(node) or node.op in ("scan", "scatter") or t in cuts:
            steps[t] = 0
            continue
        steps[t] = stored + max((steps[c] for c in node.children), default=0)
        if steps[t] > MAX_STEPS and not facts.fixed[t]:
            found.add(node.children[0])
            steps[t] = 0
    return found


# ---- forks whose branches meet behind a contraction


def _forks(facts: Facts, paths: Paths) -> set[int]:
    """Computed values with several users, from which a contraction lies on the way to where all
    branches have met."""
    passed = paths.most(facts.contraction)
    found: set[int] = set()
    for t in facts.live:
        readers = len(facts.users[t]) + (t in facts.ends)
        if not facts.computed[t] or facts.fixed[t] or readers < 2:
            continue
        if passed[t] > paths.behind(t, passed, facts.contraction) and not _in_one_pass(facts, t):
            found |= _sources(facts, t)
    operands = set[int]().union(*map(facts.operands, facts.contraction))
    for t in sorted(found - operands):
        if _cheap_again(facts, t, found):
            found.remove(t)
    return found


def _cheap_again(facts: Facts, t: int, stored: set[int]) -> bool:
    """Operations on one value that is stored at the same points: readers do them again in about
    the time that it takes to write and read the result, and nothing has to be kept."""
    nodes, axes = facts.terms.nodes, facts.terms.axes

    def operands(x: int) -> tuple[int, ...]:
        return () if x in stored and x != t else nodes[x].children

    cost, below = 0.0, set[int]()
    for x in post_order([t], operands):
        if x in stored and x != t:
            below.add(x)
        elif is_elementwise(nodes[x]):
            cost += SCALARS[nodes[x].op].cost
        elif nodes[x].op != "const":
            return False
    return cost < CHEAP and [axes[x] for x in below] == [axes[t]]


def _in_one_pass(facts: Facts, t: int) -> bool:
    """Every way reduces over the same axes, one of them in a plain sum, to less than the value:
    what a softmax weighs and the sum of its weights need no weights in memory."""
    terms, firsts = facts.terms, set()
    waiting = [t]
    while waiting:
        for user in facts.users[waiting.pop()]:
            if is_reduction(terms.nodes[user]):
                firsts.add(user)
            elif user in facts.ends or not is_elementwise(terms.nodes[user]):
                return False
            else:
                waiting.append(user)
    return (
        len({terms.nodes[u].attribute for u in firsts}) == 1
        and not facts.contraction.issuperset(firsts)
        and facts.points(t) > max(map(facts.points, firsts))
    )


class Paths:
    """Ways from values to the end of a program. `meeting`: the immediate post-dominators."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.meeting: dict[int, int] = {}
        self._depth: dict[int, int] = {SINK: 0}
        for t in reversed(facts.live):
            users = facts.users[t]
            point = SINK if t in facts.ends or not users or not facts.computed[t] else users[0]
            for user in users:
                point = self._common(point, user)
            self.meeting[t] = point
            self._depth[t] = self._depth[point] + 1

    def _common(self, a: int, b: int) -> int:
        while a != b:
            if self._depth[a] < self._depth[b]:
                b = self.meeting[b]
            else:
                a = self.meeting[a]
        return a

    def most(self, marked: set[int]) -> dict[int, int]:
        """For each term: the most marked terms on a way to the end, itself not counted."""
        found = {SINK: 0}
        for t in reversed(self.facts.live):
            users = self.facts.users[t]
            found[t] = max((found[u] + (u in marked) for u in users), default=0)
        return found

    def behind(self, t: int, most: Mapping[int, int], marked: set[int]) -> int:
        """The most marked terms on a way from where all branches of a term have met."""
        point = self.meeting[t]
        return most[point] + (point in marked)
