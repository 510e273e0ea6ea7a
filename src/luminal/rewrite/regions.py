"""Cuts a program at values that every sensible plan stores; equal pieces have equal keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..graph.index import names_of
from ..graph.order import post_order
from ..graph.scalars import SCALARS
from .canonical import Canonical
from .cuts import EXPENSIVE, LEAVES, MOVEMENT, Facts, cuts_of, facts_of, reachable, storable
from .encode import MAX_AXES
from .normal import BufferInfo, Normal, axis_key
from .terms import Region, Root, is_elementwise, is_reduction, outside

MAX_TERMS = 150  # what saturation time grows with; a region is cut further where it can be
MAX_DEPTH = 120  # of a region: later stages walk expressions by calls of themselves
SMALL = 8  # times what is below a value: there a cut would leave nearly all of a region
SHORT = 2, 4  # parts side by side that lanes around them take with them
PLAIN = 0.07  # of a term: an elementwise operation on which no law acts


Cones: TypeAlias = dict[int, frozenset[int]]  # root -> the terms below it, boundary included


@dataclass
class Group:
    """A region in the making: its roots, the terms it computes, and the stored values it reads."""

    roots: list[int]
    terms: list[int]
    boundary: set[int]


def regions(normal: Normal) -> list[Region]:
    """The pieces of a program in execution order.

    Buffers for the values between them are appended to `normal.buffers`; a value that several
    regions need is stored once.
    """
    facts = facts_of(normal)
    cuts = cuts_of(facts) | _joined_in_rows(normal, facts)
    while True:
        groups = _groups(facts, cuts)
        more = _shared(facts, cuts, groups) or _too_large(facts, cuts, groups)
        if not more:
            return _regions(normal, facts, groups)
        cuts |= more


def _joined_in_rows(normal: Normal, facts: Facts) -> set[int]:
    """What was computed in many parts that lie side by side along the innermost axis in memory. Who
    reads it has lanes along that axis, which the parts do not have: they are turned once."""
    nodes, nothing = facts.terms.nodes, frozenset[str]()
    along: dict[int, frozenset[str]] = {}  # of what is made in parts: the axes of these
    for t in facts.live:
        node = nodes[t]
        below = [along.get(c, nothing) for c in node.children]
        if node.op == "guard":
            names = names_of(node.attribute)
            if len(names) == 1 and names.isdisjoint(facts.terms.axes[node.children[0]]):
                along[t] = below[0] | names
        elif node.op == "add" and all(below):
            along[t] = nothing.union(*below)
    whole = [t for t in along if nodes[t].op == "add" and along.keys().isdisjoint(facts.users[t])
             and facts.computed[t] and not facts.fixed[t]]  # fmt: skip
    features = _features(facts) if whole else nothing
    long = {a for a, n in facts.extents.items() if n not in SHORT}
    return {t for t in whole if along[t] & long & {*_order(normal, t, features)[-1:]}}


# ---- roots that belong together


def _groups(facts: Facts, cuts: set[int]) -> list[Group]:
    """One group for each stored value; some outputs join others.

    Nobody reads an output that is no cut, so these joins make no cycle: an output on the way to one
    group only joins that group; groups of such outputs join where they share costly terms.
    """
    boundary, outputs = frozenset(cuts), facts.ends
    parent = {root: root for root in sorted(outputs | cuts)}
    cones = {root: frozenset(reachable(facts.terms, [root], boundary)) for root in parent}
    for output in sorted(outputs - cuts, reverse=True):
        behind = [root for root, cone in cones.items() if output in cone and root != output]
        owners = {_find(parent, root) for root in behind}
        if len(owners) == 1:
            parent[output] = owners.pop()
    _join_ends(facts, cuts, cones, parent)
    members: dict[int, list[int]] = {}
    for root in parent:
        members.setdefault(_find(parent, root), []).append(root)
    return [_group(cones, roots, boundary) for roots in members.values()]


def _find(parent: dict[int, int], root: int) -> int:
    while parent[root] != root:
        root = parent[root]
    return root


def _join_ends(facts: Facts, cuts: set[int], cones: Cones, parent: dict[int, int]) -> None:
    """Outputs that nobody reads and that share a costly term become one group."""
    blocked = {_find(parent, cut) for cut in cuts}
    costly = _costly(facts, cuts)
    first: dict[int, int] = {}
    for root, cone in cones.items():
        if _find(parent, root) in blocked:
            continue
        for t in cone:
            if costly[t] and t not in cuts:
                mine, other = _find(parent, root), _find(parent, first.setdefault(t, root))
                parent[mine] = other


def _group(cones: Cones, roots: list[int], cuts: frozenset[int]) -> Group:
    cone = frozenset().union(*(cones[root] for root in roots))
    boundary = (cuts - set(roots)) & cone
    return Group(roots, sorted(cone - boundary), set(boundary))


# ---- values that several regions would compute


def _shared(facts: Facts, cuts: set[int], groups: list[Group]) -> set[int]:
    """Expensive values that several groups compute: the last ones that they have in common."""
    owners: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        for t in group.terms:
            owners.setdefault(t, []).append(number)
    costly = _costly(facts, cuts)
    found = set()
    for t, mine in owners.items():
        if len(mine) < 2 or not costly.get(t):
            continue
        below = [owners.get(u, []) for u in facts.users[t]]
        if t in facts.ends or any(theirs != mine for theirs in below):
            found |= storable(facts, t)
    return found - cuts


def _costly(facts: Facts, cuts: set[int]) -> dict[int, bool]:
    """Whether computing a term, from stored values, takes a reduction or a dear operation."""
    costly: dict[int, bool] = {}
    for t in facts.live:
        node = facts.terms.nodes[t]
        row = SCALARS.get(node.op)
        dear = is_reduction(node) or node.op in ("scan", "scatter")
        dear = dear or (row is not None and row.cost >= EXPENSIVE)
        costly[t] = dear or any(costly[c] and c not in cuts for c in node.children)
    return costly


# ---- regions that are too large


def _too_large(facts: Facts, cuts: set[int], groups: list[Group]) -> set[int]:
    found: set[int] = set()
    for group in groups:
        axes = {a for t in group.terms for a in facts.terms.axes[t]}
        if _weight(facts, group) > MAX_TERMS or len(axes) > MAX_AXES:
            found |= _layer_inputs(facts, group) or _half(facts, group)
        elif _depth(facts, group) > MAX_DEPTH:
            found |= _half(facts, group)
    return found - cuts


def _depth(facts: Facts, group: Group) -> int:
    """The most terms of a group above each other."""
    depth: dict[int, int] = {}
    for t in group.terms:
        depth[t] = 1 + max((depth.get(c, 0) for c in facts.terms.nodes[t].children), default=0)
    return max(depth.values(), default=0)


def _weight(facts: Facts, group: Group) -> float:
    """Terms that laws move or take apart: what is below a read or a reduction. Elementwise chains
    at the end of a region stay as they are. An input counts twice: it is read as well."""
    acted: set[int] = set()
    inputs = sum(facts.terms.nodes[t].op == "input" for t in group.terms)
    for t in reversed(group.terms):  # users first
        node = facts.terms.nodes[t]
        if t in acted or not is_elementwise(node):
            acted |= {t, *node.children}
    count = len(acted.intersection(group.terms))
    return count + inputs + PLAIN * (len(group.terms) - count)


def _layer_inputs(facts: Facts, group: Group) -> set[int]:
    """The computed operands of products with constants: the inputs of linear layers."""
    mine, found = set(group.terms), set[int]()
    for contraction in facts.contraction & mine:
        operands = facts.operands(contraction)
        if any(facts.fixed[c] for c in operands):
            for operand in operands:
                if facts.computed[operand] and not facts.fixed[operand]:
                    found |= storable(facts, operand) & mine
    return found - set(group.roots)


def _half(facts: Facts, group: Group) -> set[int]:
    """A value in the middle of the group, with much below it, where few elements are alive."""
    order = {t: place for place, t in enumerate(group.terms)}
    alive = [0.0] * (len(order) + 1)
    below: dict[int, int] = {}  # the places below each term, as bits
    for t, place in order.items():
        last = max((order[u] for u in facts.users[t] if u in order), default=place)
        node = facts.terms.nodes[t]
        if node.op not in LEAVES:
            alive[place] += facts.points(t)
            alive[last] -= facts.points(t)
        below[t] = 1 << place
        for c in node.children:
            below[t] |= below.get(c, 0)
    width, candidates = 0.0, []
    for t, place in order.items():
        width += alive[place]
        op = facts.terms.nodes[t].op
        if op not in LEAVES and t not in group.roots:
            middle = len(order) <= 4 * place <= 3 * len(order)
            bad = not middle or SMALL * below[t].bit_count() < len(order)
            moved, near = op in MOVEMENT, abs(2 * place - len(order))
            candidates.append((bad, width, moved, not facts.computed[t], near, t))
    return {min(candidates)[-1]} if candidates else set()


# ---- the result


def _regions(normal: Normal, facts: Facts, groups: list[Group]) -> list[Region]:
    stored = _buffers(normal, facts, groups)
    known: dict[str, Region] = {}
    result, there = [], outside(normal.terms)
    for group in _in_order(facts, groups):
        roots, targets = _roots(normal, group, stored)
        leaves = {value: stored[value] for value in group.boundary}
        copy = Canonical(normal.terms, leaves, there)
        new = copy.roots(roots)
        key = copy.key(new)
        inputs = tuple(copy.inputs)
        origins = [normal.origins[t] for t in group.terms if t in normal.origins]
        region = Region(key, copy.terms, new, inputs, tuple(targets), tuple(sorted(origins)))
        first = known.setdefault(key, region)
        result.append(replace(region, terms=first.terms, roots=first.roots))
    return result


def _buffers(
    normal: Normal, facts: Facts, groups: Iterable[Group]
) -> dict[int, tuple[int, tuple[str, ...]]]:
    """(buffer, axes) of values that regions read: that of an output, or a temporary."""
    stored: dict[int, tuple[int, tuple[str, ...]]] = {}
    for target, root in zip(normal.targets, normal.roots):
        if frozenset(root.axes) == normal.terms.axes[root.term]:
            stored.setdefault(root.term, (target, root.axes))
    read = {value for group in groups for value in group.boundary}
    features = _features(facts)
    for value in sorted(read - stored.keys()):
        stored[value] = _temporary(normal, value, _inner_axes(facts, value, features))
    return stored


def _inner_axes(facts: Facts, value: int, features: frozenset[str]) -> frozenset[str]:
    """Those that memory has inside of others: none where callers say how all lies that a value is
    made of, or what is made of it."""
    waiting, seen = [value], set[int]()
    while waiting:
        t = waiting.pop()
        if t in facts.contraction and t != value:
            return features if facts.computed[value] else frozenset()
        new = [user for user in facts.users[t] if user not in seen]
        seen.update(new)
        waiting += new
    return frozenset()


def _features(facts: Facts) -> frozenset[str]:
    """Axes along which computed values are multiplied with constants and summed up, what constants
    bring in beside such axes (the channels of heads), and axes that are read there."""
    terms, found, brought = facts.terms, set[str](), list[frozenset[str]]()
    for t in facts.contraction:
        operands = facts.operands(t)
        if len({facts.fixed[c] for c in operands}) > 1:
            found |= frozenset(terms.nodes[t].attribute).intersection(
                *(terms.axes[c] for c in operands)
            )
            computed = (terms.axes[c] for c in operands if not facts.fixed[c])
            fixed = (terms.axes[c] for c in operands if facts.fixed[c])
            brought.append(frozenset[str]().union(*fixed).difference(*computed))
    reads = [terms.nodes[t].attribute for t in facts.live if terms.nodes[t].op == "read"]
    before = -1
    while before < len(found):
        before = len(found)
        found.update(*(axes for axes in brought if axes & found))
        for read in reads:
            found.update(a for a, i in read.entries if (i - i.constant).text in found)
    return frozenset(found)


def _order(normal: Normal, t: int, features: frozenset[str]) -> tuple[str, ...]:
    """The axes of a term, as memory has them."""
    axes = normal.orders.get(t) or tuple(sorted(normal.terms.axes[t], key=axis_key))
    return tuple(sorted(axes, key=lambda a: a in features))


def _temporary(normal: Normal, t: int, features: frozenset[str]) -> tuple[int, tuple[str, ...]]:
    terms, axes = normal.terms, _order(normal, t, features)
    shape = tuple(terms.space.axes[a] for a in axes)
    normal.buffers.append(BufferInfo("temporary", shape, terms.nodes[t].dtype, axes))
    return len(normal.buffers) - 1, axes


def _roots(
    normal: Normal, group: Group, stored: dict[int, tuple[int, tuple[str, ...]]]
) -> tuple[list[Root], list[int]]:
    """The group's roots with all buffers that they go to."""
    roots, targets = [], []
    for t in group.roots:
        homes = {n: r.axes for n, r in zip(normal.targets, normal.roots) if r.term == t}
        if t in stored:
            homes.setdefault(stored[t][0], stored[t][1])
        for number, axes in homes.items():
            roots.append(Root(t, axes))
            targets.append(number)
    return roots, targets


def _in_order(facts: Facts, groups: list[Group]) -> list[Group]:
    """Producers first; what gives back more memory than it takes as soon as it can run, what takes
    more only where it is read: a value that is computed again for a gradient."""
    order = Order(facts, [(group.roots, group.boundary) for group in groups])
    earliest = sorted(range(len(groups)), key=lambda n: max(groups[n].roots))
    for number in post_order(filter(order.stays, earliest), order.needed):
        if number not in order.done:
            order.run(number)
    return [groups[number] for number in order.done]


class Order:
    """What gives memory back runs early. The gradient of a weight needs an activation and is the
    last to need it; recorded last, with the update of the weight, it would keep all of them until
    the end. groups: (what each stores, what it reads of others). done: those that run, in order.
    readers: of a stored value, those that did not run."""

    def __init__(self, facts: Facts, groups: Sequence[tuple[Sequence[int], Set[int]]]) -> None:
        self.facts = facts
        self.roots, self.boundary = zip(*groups)
        self.producer = {t: number for number, roots in enumerate(self.roots) for t in roots}
        self.readers: dict[int, set[int]] = {root: set() for root in self.producer}
        for number, boundary in enumerate(self.boundary):
            for value in boundary:
                self.readers[value].add(number)
        self.done: dict[int, None] = {}

    def needed(self, number: int) -> list[int]:
        return [self.producer[value] for value in sorted(self.boundary[number])]

    def stays(self, number: int) -> bool:
        """It runs where it was recorded, whoever reads it."""
        made = sum(map(self._bytes, self.roots[number]))
        read = any(self.readers[t] for t in self.roots[number])
        return not read or made < sum(map(self._bytes, self.boundary[number]))

    def run(self, number: int) -> None:
        """This one, whose producers ran, and what pays then."""
        waiting = self._do([number])
        while waiting:
            paying = self._paying(waiting.pop())
            waiting += self._do(paying)

    def _do(self, numbers: list[int]) -> list[int]:
        """Runs these; the others that read what they have read or made, the first one last."""
        near = set[int]()
        for number in numbers:
            self.done[number] = None
            for value in self.boundary[number]:
                self.readers[value].discard(number)
            touched = (*self.boundary[number], *self.roots[number])
            near = near.union(*(self.readers[t] for t in touched))
        return sorted(near, reverse=True)

    def _paying(self, number: int) -> list[int]:
        """A group, after those it still needs, if memory is given back on the whole."""
        if number in self.done:
            return []
        missing = [n for n in self.needed(number) if n not in self.done]
        if any(other not in self.done for n in missing for other in self.needed(n)):
            return []
        all_of_it = [*dict.fromkeys(missing), number]
        made = {t for n in all_of_it for t in self.roots[n]}
        taken = (t for t in made if not self.readers[t] <= {number})
        given = (t for t in self.boundary[number] - made if self.readers[t] == {number})
        return all_of_it if sum(map(self._bytes, taken)) < sum(map(self._bytes, given)) else []

    def _bytes(self, t: int) -> float:
        """Of a value that is stored for a while: not of an output, which stays."""
        held = t in self.facts.ends or self.facts.fixed[t]
        return 0.0 if held else self.facts.points(t) * self.facts.terms.nodes[t].dtype.bytes
