"""A program as basic blocks and loops, in the order in which they run.

A value belongs to the first block that can compute it: one more than the loops that it waits for.
What a later block, or the body of a loop, needs of it is kept in memory; what costs nothing to make
again, takes more memory than what it is made of, or is known before the run, is made again there.
So is, in a later block, what takes a few operations on one value, no larger, that is in memory (a
decayed mean of an optimizer), or that takes less than all that is made of it (a GELU's gradient).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from .loops import Parts, Scopes, parts
from .node import Node
from .order import post_order, reachable
from .scalars import SCALARS
from .space import USUAL

PLAIN = frozenset((*SCALARS, "view"))
CHEAP = 64.0  # vector instructions for a value that is written, kept and read: an erf


@dataclass(frozen=True)
class BasicBlock:
    """kept: nodes that come to lie in memory, where others find them. made: those among `made` of
    the loop around, each with its position there (a row that is carried too: as what is carried).
    given: nodes found in memory. steady: those that all steps of the loop around find alike."""

    kept: tuple[Node, ...]
    made: tuple[tuple[int, Node], ...]
    given: frozenset[Node]
    steady: frozenset[Node] = frozenset()

    @property
    def ends(self) -> tuple[Node, ...]:
        """The nodes of `made`."""
        return tuple(node for _, node in self.made)


@dataclass(frozen=True)
class Repeat:
    """A loop, and the stages of each step."""

    node: Node
    body: tuple[Stage, ...]

    @property
    def parts(self) -> Parts:
        return parts(self.node)


Stage: TypeAlias = BasicBlock | Repeat


def stages_of(roots: Sequence[Node], states: Collection[Node] = ()) -> tuple[Stage, ...]:
    """The stages of a program. Roots that are results of loops are in memory without a block.
    states: parameters that change with each run."""
    wanted = tuple(dict.fromkeys(node for node in roots if node.op != "result"))
    if all(node.op != "loop" for node in reachable(roots)):
        return (BasicBlock(wanted, (), frozenset()),)
    scope = _Scope(Scopes(roots), _load_time_constants(roots, states))
    return scope.stages(roots, wanted, ())


def blocks_of(stages: Iterable[Stage]) -> list[BasicBlock]:
    """All blocks, in order, those of bodies too."""
    return [
        block for stage in stages
        for block in ([stage] if isinstance(stage, BasicBlock) else blocks_of(stage.body))
    ]  # fmt: skip


def _load_time_constants(roots: Iterable[Node], states: Collection[Node]) -> frozenset[Node]:
    """What is known before the run."""
    found: set[Node] = set()
    for node in reachable(roots):
        if node.op == "input":
            known = node.attribute.kind != "input" and node not in states
        else:
            known = node.op != "variable" and found.issuperset(node.inputs)
        if known:
            found.add(node)
    return frozenset(found)


class _Scope:
    """The program, or the body of a loop. outside: nodes that are in memory when it begins."""

    def __init__(
        self, scopes: Scopes, constants: frozenset[Node], outside: frozenset[Node] | None = None
    ) -> None:
        self.scopes, self.constants, self.inside = scopes, constants, outside is not None
        self.outside = outside or frozenset()
        self.level: dict[Node, int] = {}
        self.blocks: list[list[Node]] = []  # what is kept, by level
        self.again = set[Node]()  # what later blocks make once more

    def stages(
        self, roots: Sequence[Node], kept: Sequence[Node], made: Sequence[tuple[int, Node]]
    ) -> tuple[Stage, ...]:
        """roots: all that is computed. kept, made: as of a block."""
        loops = self._find_levels(roots)
        last = max(self.level.values())
        self.blocks = [[node for node in kept if self.level[node] == n] for n in range(last + 1)]
        found: list[Stage] = []
        for level in range(last, -1, -1):
            mine = tuple((n, node) for n, node in made if self.level[node] == level)
            bodies = [self._repeat(loop) for loop in loops if self.level[loop] == level]
            own = tuple(dict.fromkeys(self.blocks[level]))
            ends = (*own, *(node for _, node in mine))
            given = self._before(ends, level)
            if again := self._cheap(given):
                self.again |= again
                given = self._before(ends, level)
            self._keep(given)
            alike = [n for n in given if self.inside and (n in self.outside or n.op == "input")]
            block = BasicBlock(own, mine, frozenset(given), frozenset(alike))
            straight = [block] if own or mine else []
            found[:0] = [*straight, *bodies]
        return tuple(found)

    def _given(self, node: Node) -> bool:
        return node in self.outside or node.op in ("input", "variable")

    def _find_levels(self, ends: Iterable[Node]) -> list[Node]:
        """How many loops lie one behind the other before each node; the loops."""

        def below(node: Node) -> tuple[Node, ...]:
            return () if self._given(node) else self.scopes.operands(node)

        order = post_order(ends, below)
        for node in order:
            level = max((self.level[source] for source in below(node)), default=0)
            self.level[node] = level + (node.op == "result" and not self._given(node))
        return [node for node in order if node.op == "loop"]

    def _keep(self, nodes: Iterable[Node]) -> None:
        """They are in memory already, or a block puts them there."""
        for node in nodes:
            if not self._given(node) and node.op != "result":
                self.blocks[self.level[node]].append(node)

    def _before(self, roots: Iterable[Node], level: int) -> list[Node]:
        """What a block finds in memory."""

        def stops(node: Node) -> bool:
            if self._given(node) or node.op == "result":
                return True
            again = self._made_again(node) or node in self.again
            return self.level[node] < level and not again

        found = post_order(roots, lambda node: () if stops(node) else node.inputs)
        return [node for node in found if stops(node)]

    def _repeat(self, loop: Node) -> Repeat:
        made = parts(loop)
        captured = post_order(
            self.scopes.operands(loop)[len(made.given) :],
            lambda node: node.inputs if self._made_again(node) else (),
        )
        outside = [node for node in captured if not self._made_again(node)]
        self._keep([*made.given, *outside])
        inner = _Scope(self.scopes, self.constants, frozenset(outside))
        once = {loop.attribute.carried + row for row in made.shared}
        ends = [(n, node) for n, node in enumerate(made.made) if n not in once]
        return Repeat(loop, inner.stages(made.made, (), ends))

    def _made_again(self, node: Node) -> bool:
        """It costs nothing, is known before the run, or takes more memory than what it is made of;
        it is not in memory for other reasons."""
        if self._given(node) or node.op == "result":
            return False
        return node in self.constants or node.op == "view" or _widens(node)

    def _cheap(self, given: Sequence[Node]) -> set[Node]:
        """Of what would be kept: what takes a few operations on one value, no larger, that is in
        memory, or that takes less memory than all that is made of it; with what is between."""
        kept = {node for node in given if not self._there(node)}
        found, together = set[Node](), dict[Node, list[tuple[Node, set[Node]]]]()
        for node in (n for n in given if n in kept and n.shape):
            leaves, between = self._made_of(node, kept)
            if leaves:
                whole, *rest = sorted(leaves, key=bytes_of, reverse=True)
                if not (whole in kept or self._there(whole)):
                    together.setdefault(whole, []).append((node, between))
                elif sum(map(bytes_of, rest)) < bytes_of(node):
                    found |= between
                    kept.remove(node)
        for whole, makers in together.items():
            if bytes_of(whole) < sum(bytes_of(node) for node, _ in makers):
                found = found.union(*(between for _, between in makers))
        return found

    def _there(self, node: Node) -> bool:
        """It is in memory, whatever a later block needs."""
        return self._given(node) or node.op == "result" or node in self.blocks[self.level[node]]

    def _made_of(self, node: Node, kept: Collection[Node]) -> tuple[list[Node], set[Node]]:
        """What a value is made of by a few operations: one value, no larger, and shorter ones, not
        known before the run (none if it is made otherwise); and what is made on the way."""

        def below(n: Node) -> tuple[Node, ...]:
            ends = n in self.constants or (n is not node and (n in kept or self._there(n)))
            return n.inputs if n.op in PLAIN and not ends else ()

        order = post_order([node], below)
        between = {n for n in order if below(n)}
        leaves = [n for n in order if n.shape and n not in self.constants | between]
        cost = sum(SCALARS[n.op].cost for n in between if n.op in SCALARS)
        sizes = sorted(map(_points, leaves))
        alone = sizes and sizes[-1] <= _points(node) and all(n < sizes[-1] for n in sizes[:-1])
        wide = any(n.dtype.bytes > node.dtype.bytes for n in leaves)
        cheap = alone and cost <= CHEAP and not wide and between
        return (leaves, between) if cheap else ([], set())


def _widens(node: Node) -> bool:
    """An elementwise value that takes more bytes than what it is made of: factors of a product."""
    if node.op not in SCALARS:
        return False
    below = post_order([node], lambda n: n.inputs if n is node or n.op == "view" else ())
    return bytes_of(node) > sum(bytes_of(n) for n in below if n is not node and n.op != "view")


def bytes_of(node: Node) -> int:
    return node.dtype.bytes * _points(node)


def _points(node: Node) -> int:
    """How many, where all sizes are alike."""
    return prod(size.evaluate(dict.fromkeys(size.names(), USUAL)) for size in node.shape)
