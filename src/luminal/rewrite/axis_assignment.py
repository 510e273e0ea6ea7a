"""Where the dimensions of nodes lie: their axes while these are being found, and then their names.

Two dimensions of one value never get the same axis: an operand that would need that is renamed,
which is a read with a map.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TypeAlias

from ..graph.index import Index
from ..graph.node import REDUCE_OPS, Node
from ..graph.space import Space
from .axes import Axes, Composite, Dims

Renames: TypeAlias = dict[int, list[tuple[Composite, Composite]]]  # operand -> (its axes, read at)

COMPUTING = ("scan", "gather", "scatter")


class AxisAssignment:
    """The axes of all nodes.

    `mapped`: views that read at a map. `computed`: what a reduction, scan, gather or scatter is
    below of: where axes disagree it keeps its own, since what comes from memory can be read at
    others for nothing. (Operands of a contraction are stored or weights, whose layout is free.)
    `indices`: integers that are an index expression. `space`: the named axes. `given`: nodes that
    come from memory, whatever they are.
    """

    def __init__(self, sizes: Space, given: frozenset[Node] = frozenset()) -> None:
        self.given = given
        self.axes = Axes()
        self.mapped: set[Node] = set()
        self.computed: set[Node] = set()
        self.indices: set[Node] = set()
        self.space = Space(sizes.sizes, hints=sizes.hints, assumed=sizes.assumed)
        self._dims: dict[Node, Dims] = {}
        self._names: dict[int, str] = {}
        self.flat = cache(self._flat)

    # ---- finding axes

    def __getitem__(self, node: Node) -> Dims:
        return self.axes.resolve_dims(self._dims[node])

    def __setitem__(self, node: Node, dims: Dims) -> None:
        self._dims[node] = dims
        if node in self.given:
            return
        reduces = node.op in COMPUTING or (node.op in REDUCE_OPS and node.attribute is not None)
        if reduces or not self.computed.isdisjoint(node.inputs):
            self.computed.add(node)
        moved = node.op in ("view", "cast") and node.dtype.is_integer
        if node.op == "iota" or (moved and node.inputs[0] in self.indices):
            self.indices.add(node)

    def fresh(self, node: Node, where: Iterable[int]) -> Dims:
        """New axes for these dimensions; the value depends on no other."""
        wanted = set(where)
        dims = tuple(
            self.axes.fresh(size) or None if d in wanted else None
            for d, size in enumerate(node.shape)
        )
        self.separate(dims)
        return dims

    def filled(self, node: Node, dims: Dims) -> Dims:
        """With axes for the dimensions along which the node is broadcast."""
        found = tuple(
            (self.axes.fresh(size) or None) if c is None else c for c, size in zip(dims, node.shape)
        )
        self.separate(found)
        return found

    def separate(self, dims: Iterable[Composite | None]) -> None:
        self.axes.separate(a for c in dims if c for a in self.axes.resolve(c))

    def join(self, node: Node, operands: list[tuple[int, Dims]]) -> tuple[Dims, Renames]:
        """Common axes of operands of equal shape (by operand number).

        An index beside other values gives no axes, it is made at theirs: the same one beside many
        values would tie all their axes to each other.
        """
        numbers = [j for j, _ in operands]
        giving = [j for j in numbers if node.inputs[j] not in self.indices] or numbers
        carried = [{d for d, c in enumerate(dims) if c is not None} for _, dims in operands]
        nested = all(a <= b or b <= a for a in carried for b in carried)  # else: a contraction's

        def rank(operand: tuple[int, Dims]) -> tuple[bool, bool, int]:
            source = node.inputs[operand[0]]
            cheap = nested and source not in self.computed
            return source in self.mapped, cheap, -source.number

        ranked = sorted(operands, key=rank)
        result: list[Composite | None] = []
        renames: Renames = {}
        for p in range(len(operands[0][1])):
            found = [(j, c) for j, dims in ranked if (c := dims[p]) is not None]
            givers = [c for j, c in found if j in giving]
            result.append(self._join_dim(found, givers, result, renames) if found else None)
        return self.axes.resolve_dims(tuple(result)), renames

    def _join_dim(
        self, found: list[tuple[int, Composite]], givers: list[Composite],
        before: list[Composite | None], renames: Renames,
    ) -> Composite:  # fmt: skip
        """One dimension: the axes of the first giver that can; all others follow."""
        axes = self.axes
        taken = {a for c in before if c for a in axes.resolve(c)}
        target: Composite | None = None
        for composite in givers:
            current = axes.resolve(composite)
            if target is not None:
                axes.unify(target, current)
                target = axes.resolve(target)
            elif taken.isdisjoint(current):
                target = current
                axes.separate(taken.union(target))
        if target is None:
            target = axes.fresh_like(axes.resolve(found[0][1]))
            axes.separate(taken.union(target))
        for j, composite in found:
            if axes.resolve(composite) != target:
                renames.setdefault(j, []).append((composite, target))
        return target

    # ---- naming them, once all are found

    def names(self, composite: Composite | None) -> tuple[str, ...]:
        """The names of a composite's axes; names are given at first use."""
        found = []
        for axis in self.axes.resolve(composite or ()):
            name = self._names.get(axis)
            if name is None:
                name = self._names[axis] = self.new_axis(self.axes.extents[axis])
            found.append(name)
        return tuple(found)

    def all_names(self, node: Node) -> tuple[str, ...]:
        """The axes of a node, outermost first."""
        return tuple([name for c in self._dims[node] if c for name in self.names(c)])

    def new_axis(self, extent: Index) -> str:
        name = f"a{len(self.space.axes)}"
        self.space.add_axis(name, extent)
        return name

    def _flat(self, composite: Composite) -> Index:
        """The position along a dimension, from its axes."""
        found = Index.of(0)
        for name in self.names(composite):
            found = found * self.space.axes[name] + name
        return found

    def digits(self, composite: Composite | None, position: Index) -> dict[str, Index]:
        """The axes of a dimension, from the position along it."""
        found: dict[str, Index] = {}
        names = self.names(composite)
        for name in reversed(names[1:]):
            extent = self.space.axes[name]
            found[name] = self.space.mod(position, extent)
            position = self.space.floor(position, extent)
        if names:
            found[names[0]] = position
        return found
