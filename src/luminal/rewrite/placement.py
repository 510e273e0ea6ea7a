"""Gives every dimension of every node its axes (the first half of the normaliser).

Elementwise operations unify the axes of their operands, dimension by dimension; views rename,
split and merge axes where they can and read at an index map over fresh axes where they cannot. Two
dimensions of one value never get the same axis: an operand that would need that is renamed, which
is a read with a map, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..graph.index import Index
from ..graph.node import REDUCE_OPS, Node
from ..graph.space import Space
from .axes import Axes, Composite, Dims
from .digits import DigitView, analyse


@dataclass
class ViewPlace:
    """A view. mapped: composites of the source, their indices over digits; digits: composites."""

    mapped: list[tuple[Composite, Index]]
    digits: dict[str, Composite]
    conditions: tuple[Index, ...]


@dataclass
class ScatterPlace:
    """base: composites of the base's dimensions; points: those of the values', all dimensions."""

    base: tuple[Composite, ...]
    points: tuple[Composite, ...]


@dataclass
class Placement:
    """Where everything is.

    dims[node]: axes of its dimensions. operands[node]: those of the operand of a reduction or
    gather. renames[node, operand]: composites of the operand and what they are read at.
    """

    axes: Axes = field(default_factory=Axes)
    dims: dict[Node, Dims] = field(default_factory=dict)
    views: dict[Node, ViewPlace] = field(default_factory=dict)
    scatters: dict[Node, ScatterPlace] = field(default_factory=dict)
    operands: dict[Node, Dims] = field(default_factory=dict)
    renames: dict[tuple[Node, int], list[tuple[Composite, Composite]]] = field(default_factory=dict)


def place(nodes: list[Node], outputs: Iterable[Node], sizes: Space) -> Placement:
    """Axes of the nodes, which are in topological order. Outputs get an axis for each dimension."""
    placer = _Placer(sizes)
    for node in nodes:
        placer.place(node)
    for node in outputs:
        placer.fill(node)
    return placer.result


class _Placer:
    def __init__(self, sizes: Space) -> None:
        self.sizes = sizes
        self.result = Placement()
        self.axes = self.result.axes
        self._analysed: dict[object, DigitView] = {}

    def place(self, node: Node) -> None:
        self.result.dims[node] = self._dims(node)

    def fill(self, node: Node) -> None:
        """Axes for the broadcast dimensions of an output: its memory holds all elements."""
        dims = self._filled(node, self.dims(node))
        self._separate(dims)
        self.result.dims[node] = dims

    def dims(self, node: Node) -> Dims:
        return self.axes.resolve_dims(self.result.dims[node])

    def _dims(self, node: Node) -> Dims:
        op = node.op
        if op == "input":
            return self._fresh(node, range(len(node.shape)))
        if op == "iota":
            names = node.attribute.names()
            return self._fresh(node, [d for d in range(len(node.shape)) if f"i{d}" in names])
        if op == "view":
            return self._view(node)
        if op in REDUCE_OPS and node.attribute is not None:
            dims = self.result.operands[node] = self.dims(node.inputs[0])
            return tuple(c for d, c in enumerate(dims) if d not in node.attribute)
        if op == "scan":
            return self._scan(node)
        if op == "gather":
            return self._gather(node)
        if op == "scatter":
            return self._scatter(node)
        return self._join(node, [(j, self.dims(n)) for j, n in enumerate(node.inputs)])

    # ---- small pieces

    def _fresh(self, node: Node, where: Iterable[int]) -> Dims:
        wanted = set(where)
        dims = tuple(
            self.axes.fresh(size) or None if d in wanted else None
            for d, size in enumerate(node.shape)
        )
        self._separate(dims)
        return dims

    def _filled(self, node: Node, dims: Dims) -> Dims:
        return tuple(
            (self.axes.fresh(size) or None) if c is None else c for c, size in zip(dims, node.shape)
        )

    def _separate(self, dims: Iterable[Composite | None]) -> None:
        self.axes.separate(a for c in dims if c for a in self.axes.resolve(c))

    # ---- views

    def _view(self, node: Node) -> Dims:
        (source,) = node.inputs
        dims = self.dims(source)
        carried = tuple(c is not None for c in dims)
        key = (node.attribute, source.shape, carried)
        digits = self._analysed.get(key)
        if digits is None:
            digits = analyse(node.attribute, source.shape, carried, self.sizes)
            self._analysed[key] = digits
        before = len(self.axes.extents)
        bound, mapped = self._bind(digits, dims)
        place = ViewPlace(mapped, bound, digits.conditions)
        result = tuple(self._position(p, digits, bound) for p in digits.positions)
        self.result.views[node] = place
        if len(self.axes.extents) > before:
            self._separate(result)
        return result

    def _bind(
        self, digits: DigitView, dims: Dims
    ) -> tuple[dict[str, Composite], list[tuple[Composite, Index]]]:
        """Digits of structural dimensions are the source's axes; other dimensions are mapped."""
        extents = {name: extent for position in digits.positions for name, extent in position}
        bound: dict[str, Composite] = {}
        mapped: list[tuple[Composite, Index]] = []
        for composite, index, order in zip(dims, digits.index, digits.order):
            if composite is None:
                continue
            pieces = None
            if order is not None:
                pieces = self.axes.split(composite, [extents[name] for name in order])
            if order is None or pieces is None:
                mapped.append((composite, index))
            else:
                bound.update(zip(order, pieces))
        return bound, mapped

    def _position(
        self, position: tuple[tuple[str, Index], ...], digits: DigitView,
        bound: dict[str, Composite],
    ) -> Composite | None:  # fmt: skip
        """The axes of one dimension of a view; fresh ones for digits that are not the source's."""
        if not any(name in bound or name in digits.needed for name, _ in position):
            return None
        for name, extent in position:
            if name not in bound:
                bound[name] = self.axes.fresh(extent)
        return tuple(a for name, _ in position for a in self.axes.resolve(bound[name])) or None

    # ---- operations that bring operands together

    def _join(self, node: Node, operands: list[tuple[int, Dims]]) -> Dims:
        """Common axes of operands of equal shape (by operand number)."""
        simple = self._same(operands)
        if simple is not None:
            return simple
        mapped = {j: self._is_mapped(node.inputs[j]) for j, _ in operands}
        ranked = sorted(operands, key=lambda o: (mapped[o[0]], -node.inputs[o[0]].number))
        result: list[Composite | None] = []
        for p in range(len(operands[0][1])):
            found = [(j, c) for j, dims in ranked if (c := dims[p]) is not None]
            result.append(self._join_dim(node, found, result) if found else None)
        return self.axes.resolve_dims(tuple(result))

    def _same(self, operands: list[tuple[int, Dims]]) -> Dims | None:
        """The common dims, where the operands agree already."""
        result: list[Composite | None] = []
        for composites in zip(*(dims for _, dims in operands)):
            found = {c for c in composites if c is not None}
            if len(found) > 1:
                return None
            result.append(found.pop() if found else None)
        axes = [a for c in result if c for a in c]
        if len(set(axes)) < len(axes):
            return None
        if not any(_covers(dims, result) for _, dims in operands):
            self.axes.separate(axes)
        return tuple(result)

    def _is_mapped(self, node: Node) -> bool:
        return node.op == "view" and bool(self.result.views[node].mapped)

    def _join_dim(
        self, node: Node, found: list[tuple[int, Composite]], before: list[Composite | None]
    ) -> Composite:
        """One dimension: the axes of the first operand that can give them; the others follow."""
        axes = self.axes
        taken = {a for c in before if c for a in axes.resolve(c)}
        target: Composite | None = None
        for _, composite in found:
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
                self.result.renames.setdefault((node, j), []).append((composite, target))
        return target

    def _scan(self, node: Node) -> Dims:
        dims = list(self.dims(node.inputs[0]))
        along = node.attribute.dim
        if dims[along] is None:
            dims[along] = self.axes.fresh(node.shape[along]) or None
            self._separate(dims)
        return tuple(dims)

    def _gather(self, node: Node) -> Dims:
        source, index = (self.dims(n) for n in node.inputs)
        dim: int = node.attribute
        self.result.operands[node] = source
        around = source[:dim] + (None,) + source[dim + 1 :]
        return self._join(node, [(0, around), (1, index)])

    def _scatter(self, node: Node) -> Dims:
        base_node, index_node, values_node = node.inputs
        dim = node.attribute.dim
        points = self._join(node, [(1, self.dims(index_node)), (2, self.dims(values_node))])
        base = self._filled(base_node, self.dims(base_node))
        self._separate(base)
        for d, (mine, other) in enumerate(zip(base, points)):
            if d != dim and mine and other:
                self.axes.unify(mine, other)
        place = ScatterPlace(
            tuple(c or () for c in base), self._points(dim, base, points, index_node.shape[dim])
        )
        self.result.scatters[node] = place
        return base

    def _points(self, dim: int, base: Dims, points: Dims, size: Index) -> tuple[Composite, ...]:
        """Axes for all dimensions of the points: where they have none, those of the base."""
        taken = {a for c in points if c for a in self.axes.resolve(c)}
        result: list[Composite] = []
        for d, composite in enumerate(points):
            if composite is None:
                composite = self.axes.fresh(size)
                if d != dim:
                    mine = self.axes.resolve(base[d] or ())
                    composite = mine if taken.isdisjoint(mine) else self.axes.fresh_like(mine)
                taken.update(composite)
            result.append(composite)
        self._separate(result)
        return tuple(result)


def _covers(dims: Dims, result: list[Composite | None]) -> bool:
    return all(mine is not None or c is None for mine, c in zip(dims, result))
