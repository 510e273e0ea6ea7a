"""Paths of loops merged on their common prefixes: the loop tree that the lowering walks.

Two values share a loop where their paths agree up to it, they follow each other in program order,
and the later one does not read a reduction that is finished only behind that loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias, Union

from ..errors import Illegal
from ..graph.index import Index
from ..kernel.kernel import Kernel, Value, inliner
from ..kernel.schedule import Loop, Path, Schedule
from .place import Place

Hook: TypeAlias = Callable[[Place], None]


@dataclass(eq=False)
class Leaf:
    """A value at the end of its path. `before` and `after` run around each visit."""

    value: Value
    before: list[Hook] = field(default_factory=list)
    after: list[Hook] = field(default_factory=list)


@dataclass(eq=False)
class Node:
    """A loop of the tree; the root has none. `lanes`: size of a vector or collapsed axis."""

    loop: Loop
    depth: int
    lanes: int = 0
    items: list[Item] = field(default_factory=list)
    before: list[Hook] = field(default_factory=list)
    after: list[Hook] = field(default_factory=list)
    reductions: set[str] = field(default_factory=set)  # reduced values computed below
    homes: list[str] = field(default_factory=list)  # values whose storage lives inside
    outermost: bool = True  # no loop around it walks the same axis

    @property
    def reach(self) -> int:
        """Elements of its axis that a turn covers, all lanes together."""
        return max(1, self.lanes) * self.loop.step

    def inside(self) -> Iterator[Node]:
        """The loops below."""
        for item in self.items:
            if isinstance(item, Node):
                yield item
                yield from item.inside()

    def leaves(self) -> Iterator[Value]:
        """The values computed below."""
        for item in self.items:
            if isinstance(item, Leaf):
                yield item.value
            else:
                yield from item.leaves()


Item: TypeAlias = Union[Node, Leaf]


@dataclass
class Tree:
    """The loop tree of a kernel: `values` have paths; the others were inlined."""

    root: Node
    values: tuple[Value, ...]
    paths: dict[str, list[Node]]
    leaves: dict[str, Leaf]

    def items(self, name: str) -> list[Item]:
        """The path of a value and its leaf."""
        return [*self.paths[name], self.leaves[name]]

    def readers(self, name: str) -> list[Value]:
        """Other values that read this one."""
        return [v for v in self.values if v.name != name and name in v.reads()]

    def node(self, name: str, depth: int) -> Node:
        """The node of a path at a depth; depth 0 is the root."""
        return self.paths[name][depth - 1] if depth else self.root

    def first(self, value: Value) -> int:
        """The position in the path of the outermost loop over a reduced axis."""
        path = self.paths[value.name]
        inside = (i for i, n in enumerate(path) if n.loop.axis in value.over)
        return next(inside, len(path))

    def running(self, name: str) -> bool:
        """Whether the reduction is looked at, or rescaled, while it runs."""
        return any(name in v.reads(so_far=True) or (v.name == name and v.rescale)
                   for v in self.values)  # fmt: skip


def shared_depth(first: list[Node], second: list[Node]) -> int:
    """How many outermost loops two paths have in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(first, second)))


def build(kernel: Kernel, schedule: Schedule) -> Tree:
    """The loop tree of a kernel under a schedule."""
    values, paths = scheduled(kernel, schedule)
    root = Node(Loop("", 1), 0)
    tree = Tree(root, values, {}, {})
    by_name = {v.name: v for v in values}
    rightmost: list[Node] = []
    for value in values:
        rightmost = _insert(kernel, tree, value, paths[value.name], rightmost, by_name)
    return tree


def _insert(
    kernel: Kernel, tree: Tree, value: Value, path: Path, rightmost: list[Node],
    by_name: dict[str, Value],
) -> list[Node]:  # fmt: skip
    """Add the loops of a value below as much of the current right-most path as it may share."""
    needed = [by_name[n] for n in value.reads(so_far=False) if n in tree.paths]
    nodes: list[Node] = []
    parent, sharing = tree.root, True
    for level, loop in enumerate(path):
        shared = rightmost[level] if sharing and level < len(rightmost) else None
        if shared is None or shared.loop != loop or _unfinished(tree, shared, needed):
            sharing = False
            shared = Node(loop, level + 1, _lanes(kernel, path[:level], loop))
            shared.outermost = all(n.loop.axis != loop.axis for n in nodes)
            parent.items.append(shared)
        parent = shared
        nodes.append(shared)
        if value.reduction is not None:
            shared.reductions.add(value.name)
    leaf = Leaf(value)
    parent.items.append(leaf)
    tree.paths[value.name], tree.leaves[value.name] = nodes, leaf
    return nodes


def _unfinished(tree: Tree, node: Node, needed: list[Value]) -> bool:
    """Whether a value read in full is still being reduced inside this loop."""
    return any(
        node.loop.axis in v.over and not v.scans
        and any(n is node for n in tree.paths[v.name])
        for v in needed
    )


def _lanes(kernel: Kernel, above: Path, loop: Loop) -> int:
    """Lanes of a vector loop: all that the enclosing loop leaves, as a power of two."""
    if loop.kind not in ("vector", "collapse"):
        return 0
    steps = [outer.step for outer in above if outer.axis == loop.axis]
    extent = Index.of(steps[-1]) if steps else kernel.axes[loop.axis]
    if not extent.is_constant:
        raise Illegal(f"the vector {loop} walks an axis of extent {extent}: put a loop around it")
    lanes = 1 << max(0, -(-extent.constant // loop.step) - 1).bit_length()
    if steps and steps[-1] != lanes * loop.step:
        raise Illegal(f"a vector of {steps[-1]} lanes of {loop.axis}: not a power of two")
    return lanes


# ---- values and paths as they are walked


def scheduled(kernel: Kernel, schedule: Schedule) -> tuple[tuple[Value, ...], dict[str, Path]]:
    """The values that have paths, with the others inlined and stores of reductions apart."""
    for value in kernel.values:
        if value.name not in schedule.paths and (value.reduction or value.store):
            raise Illegal(f"{value.name} is reduced or stored and has no path")
        for rescale in value.rescale - schedule.paths.keys():
            raise Illegal(f"the rescaling {rescale} has no path")
    bodies = {v.name: v.body for v in kernel.values if v.name not in schedule.paths}
    inline = inliner(bodies)
    values: list[Value] = []
    paths: dict[str, Path] = {}
    for value in kernel.values:
        if value.name not in schedule.paths:
            continue
        path = schedule.paths[value.name]
        for part, loops in _apart(inline.value(value), path):
            values.append(part)
            paths[part.name] = loops
    return tuple(values), paths


def _apart(value: Value, path: Path) -> list[tuple[Value, Path]]:
    """A stored reduction is a reduction and a copy of it, behind its reduced loops."""
    if value.reduction is None or value.store is None:
        return [(value, path)]
    over = () if value.scans else value.over
    kept = tuple(loop for loop in path if loop.axis not in over)
    return list(zip(value.apart, (path, kept)))
