"""Which values every sensible plan stores: there a program is cut into regions.

- What was computed (reduced, gathered) and a window reads: each reader would compute it again.
- What was computed and contractions of several consumers read, or one contraction and a way around
  it: the residual stream, the operand of Q, K and V. Softmax and norms fork as well, but their
  branches meet again before any contraction.
- What is moved again and again: elementwise values that are read at another place, combined, read
  at another place ... double the work with each such step (sorting networks, stencils in time).
- What is expensive and several regions need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..graph.scalars import SCALARS
from .maps import injective
from .normal import Normal
from .terms import Terms, is_reduction

SINK = -1
MOVEMENT = ("guard", "read", "load", "store")
LEAVES = ("input", "const", "index")
MAX_STEPS = 2  # of elementwise values read elsewhere, before one is stored
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
    return Facts(terms, ends, live, users, computed, fixed, contraction)


def reachable(terms: Terms, roots: Iterable[int], walls: frozenset[int] = frozenset()) -> list[int]:
    """The terms below these, children first; what is below a wall is left out."""
    stack = list(dict.fromkeys(roots))
    seen, first = set(stack), set(stack)
    while stack:
        t = stack.pop()
        if t in walls and t not in first:
            continue
        for child in terms.nodes[t].children:
            if child not in seen:
                seen.add(child)
                stack.append(child)
    return sorted(seen)


def _outer_axes(terms: Terms, t: int, known: dict[int, frozenset[str]]) -> frozenset[str]:
    """Axes that two operands of an outer product share: each has an axis that the other lacks.

    Looks through elementwise operations that add no axis. A reduction over such an axis is a
    contraction (a matrix product): its operands are used again and again.
    """
    node, mine = terms.nodes[t], terms.axes[t]
    if node.op != "guard" and not _elementwise(terms, t):
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
    found = _read_repeatedly(facts) | _forks(facts)
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


def _sources(facts: Facts, t: int) -> set[int]:
    """The computed values that a value is moved from (the parts of a concatenation, unpadded)."""
    node = facts.terms.nodes[t]
    if not facts.computed[t] or facts.fixed[t]:
        return set()
    scattered = node.op == "load" and facts.terms.nodes[node.children[0]].op == "scatter"
    if (node.op in MOVEMENT and not scattered) or _widens(facts.terms, t):
        return set().union(*(_sources(facts, c) for c in node.children))
    return set() if node.op == "scatter" else {t}


def _widens(terms: Terms, t: int) -> bool:
    """A cast whose operand says the same in fewer bytes: that is stored instead."""
    node = terms.nodes[t]
    return node.op == "cast" and terms.nodes[node.children[0]].dtype.bytes < node.dtype.bytes


def _many_steps(facts: Facts, cuts: set[int]) -> set[int]:
    """Elementwise values that are read elsewhere after others were, a few times over."""
    terms = facts.terms
    steps: dict[int, int] = {}
    found: set[int] = set()
    for t in facts.live:
        node = terms.nodes[t]
        stored = node.op == "store" and _elementwise(terms, node.children[0])
        if is_reduction(node) or node.op in ("scan", "scatter") or t in cuts:
            steps[t] = 0
            continue
        steps[t] = stored + max((steps[c] for c in node.children), default=0)
        if steps[t] > MAX_STEPS and not facts.fixed[t]:
            found.add(node.children[0])
            steps[t] = 0
    return found


def _elementwise(terms: Terms, t: int) -> bool:
    node = terms.nodes[t]
    return node.op in SCALARS and not is_reduction(node)


# ---- forks whose branches meet behind a contraction


def _forks(facts: Facts) -> set[int]:
    """Computed values with several users, from which a contraction lies on the way to where all
    branches have met."""
    meeting, passed = _meeting_points(facts)
    found: set[int] = set()
    for t in facts.live:
        readers = len(_real_users(facts, t)) + (t in facts.ends)
        if not facts.computed[t] or facts.fixed[t] or readers < 2:
            continue
        point = meeting[t]
        while point != SINK and facts.terms.nodes[point].op == "store":
            point = meeting[point]  # its readers are the branches
        behind = 0 if point == SINK else passed[point] + (point in facts.contraction)
        if passed[t] > behind:
            found |= _sources(facts, t)
    return found


def _real_users(facts: Facts, t: int) -> set[int]:
    """Users of a value, whether they read it in place or from memory."""
    if facts.terms.nodes[t].op == "store":
        return set()
    found: set[int] = set()
    for user in facts.users[t]:
        found |= set(facts.users[user]) if facts.terms.nodes[user].op == "store" else {user}
    return found


def _meeting_points(facts: Facts) -> tuple[dict[int, int], dict[int, int]]:
    """For each term: its immediate post-dominator; the most contractions on a way to the end."""
    meeting: dict[int, int] = {}
    depth: dict[int, int] = {SINK: 0}
    passed: dict[int, int] = {SINK: 0}
    for t in reversed(facts.live):
        users = facts.users[t]
        passed[t] = max((passed[u] + (u in facts.contraction) for u in users), default=0)
        point = SINK if t in facts.ends or not users else users[0]
        if facts.computed[t]:
            for user in users:
                point = _common(point, user, meeting, depth)
        else:  # never asked for
            point = SINK
        meeting[t] = point
        depth[t] = depth[point] + 1
    return meeting, passed


def _common(a: int, b: int, meeting: dict[int, int], depth: dict[int, int]) -> int:
    while a != b:
        if depth[a] < depth[b]:
            b = meeting[b]
        else:
            a = meeting[a]
    return a
