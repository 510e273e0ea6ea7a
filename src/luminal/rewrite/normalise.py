"""From a graph to terms over named axes.

Every dimension gets axes. Elementwise operations unify the axes of their operands, dimension by
dimension; views rename, split and merge axes where they can and read at an index map over fresh
axes where they cannot. Each rule here finds the axes of one kind of node and says how its term is
made later, when all axes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TypeAlias

from ..graph.dtype import i64, u64
from ..graph.index import Index
from ..graph.node import REDUCE_OPS, Node
from ..graph.order import post_order
from ..graph.scalars import compute, identity
from ..graph.space import Space
from .axes import Composite, Dims
from .axis_assignment import AxisAssignment, Renames
from .build import Builder
from .digits import DigitView, analyse
from .normal import BufferInfo, Normal
from .terms import SLOT, Leaf, Root, ScatterMap

Placed: TypeAlias = tuple[Dims, Callable[[], int]]  # axes of the dimensions; makes the term


def normalise(
    sizes: Space, outputs: Sequence[Node], states: Collection[Node] = (),
    given: frozenset[Node] = frozenset(), made: Sequence[Node] = (),
    steady: frozenset[Node] = frozenset(),
) -> Normal:  # fmt: skip
    """The terms of what the outputs need, each once, and `made`, each as often as it is there;
    `sizes`: the bounds of run-time sizes. A parameter among the states changes with each run: it is
    an input. given: nodes that are in memory already. steady: those that many calls find alike."""
    roots = (*dict.fromkeys(outputs), *made)
    order = post_order(roots, lambda node: () if node in given else node.inputs)
    order.sort(key=lambda node: node.number)
    return _Normaliser(sizes, frozenset(states), given, steady).run(order, roots)


class _Normaliser:
    def __init__(
        self, sizes: Space, states: frozenset[Node], given: frozenset[Node], steady: frozenset[Node]
    ) -> None:
        self.sizes, self.states, self.given, self.steady = sizes, states, given, steady
        self.place = AxisAssignment(sizes, given)
        self.space = self.place.space
        self.build = Builder(self.space)
        self.terms: dict[Node, int] = {}
        self.buffers: list[BufferInfo] = []
        self.sources: dict[Node, int] = {}
        self.analyse = cache(analyse)  # layers that repeat move their tensors in the same ways
        self._rules: dict[str, Callable[[Node], Placed]] = {
            "input": self._input,
            "literal": self._literal,
            "iota": self._iota,
            "view": self._view,
            "scan": self._scan,
            "gather": self._gather,
            "scatter": self._scatter,
        }

    def run(self, nodes: list[Node], outputs: Sequence[Node]) -> Normal:
        """The terms of these nodes, which are in topological order."""
        makers: list[Callable[[], int]] = []
        for node in nodes:
            self.place[node], make = self._placed(node)
            makers.append(make)
        for node in outputs:  # in memory they hold all elements
            self.place[node] = self.place.filled(node, self.place[node])
        orders: dict[int, tuple[str, ...]] = {}
        origins: dict[int, int] = {}
        for node, make in zip(nodes, makers):
            term = self.terms[node] = make()
            if term not in orders:
                depends = self.build.axes(term)
                origins[term] = node.number
                orders[term] = tuple([a for a in self.place.all_names(node) if a in depends])
        roots, targets, numbers = [], dict[Node, int](), list[int]()
        for node in outputs:
            numbers.append(self._buffer("output", node))
            targets.setdefault(node, numbers[-1])
            roots.append(Root(self.terms[node], self.buffers[-1].axes))
        terms = self.build.terms
        return Normal(terms, roots, numbers, self.buffers, self.sources, targets, orders, origins)

    def _placed(self, node: Node) -> Placed:
        if node in self.given:
            return self._input(node)
        if node.op in REDUCE_OPS and node.attribute is not None:
            return self._reduction(node)
        return self._rules.get(node.op, self._scalar)(node)

    def _buffer(self, kind: str, node: Node) -> int:
        axes = self.place.all_names(node)
        self.buffers.append(BufferInfo(kind, node.shape, node.dtype, axes, node))
        return len(self.buffers) - 1

    def _operand(self, node: Node, number: int, renames: Renames) -> int:
        """An operand at the node's own axes."""
        term = self.terms[node.inputs[number]]
        mapping: dict[str, Index] = {}
        for source, target in renames.get(number, ()):
            mapping.update(self.place.digits(source, self.place.flat(target)))
        return self.build.read(term, mapping) if mapping else term

    # ---- sources and elementwise operations

    def _input(self, node: Node) -> Placed:
        def make() -> int:
            source = node.op == "input" and node not in self.states
            kind = node.attribute.kind if source else "input"
            number = self.sources[node] = self._buffer(kind, node)
            info = self.buffers[number]
            leaf = Leaf(number, info.axes, info.constant, node in self.steady)
            return self.build.terms.add("input", (), leaf, node.dtype)

        return self.place.fresh(node, range(len(node.shape))), make

    def _literal(self, node: Node) -> Placed:
        return (), lambda: self.build.const(node.attribute, node.dtype)

    def _iota(self, node: Node) -> Placed:
        names = node.attribute.names()
        dims = self.place.fresh(node, [d for d in range(len(node.shape)) if f"i{d}" in names])

        def make() -> int:
            at = {f"i{d}": self.place.flat(c) if c else Index.of(0) for d, c in enumerate(dims)}
            index = self.space.simplify(self.space.substitute(node.attribute, at))
            if node.dtype is i64 or self.build.fits(index, node.dtype):
                return self.build.index(index, node.dtype)
            return self.build.terms.add("cast", (self.build.index(index, i64),), None, node.dtype)

        return dims, make

    def _scalar(self, node: Node) -> Placed:
        numbers = range(len(node.inputs))
        dims, renames = self.place.join(node, [(j, self.place[node.inputs[j]]) for j in numbers])

        def make() -> int:
            operands = tuple(self._operand(node, j, renames) for j in numbers)
            return self.build.scalar(node.op, operands, node.dtype)

        return dims, make

    # ---- views

    def _view(self, node: Node) -> Placed:
        (source,) = node.inputs
        dims = self.place[source]
        carried = tuple(c is not None for c in dims)
        digits = self.analyse(node.attribute, source.shape, carried, self.sizes)
        before = len(self.place.axes.extents)
        bound, mapped = self._bind(digits, dims)
        result = tuple(self._position(p, digits, bound) for p in digits.positions)
        if mapped:
            self.place.mapped.add(node)
        if len(self.place.axes.extents) > before:
            self.place.separate(result)

        def make() -> int:
            at = {name: self.place.flat(composite) for name, composite in bound.items()}
            conditions = [self.space.substitute(c, at) for c in digits.conditions]
            mapping: dict[str, Index] = {}
            for composite, index in mapped:
                found = self.place.digits(composite, self.space.substitute(index, at))
                mapping.update(found)
            term = self.build.read(self.terms[source], mapping)
            if not digits.conditions:
                return term
            fill = self.build.const(node.attribute.fill, node.dtype)
            return self.build.guard(conditions, term, fill)

        return result, make

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
                pieces = self.place.axes.split(composite, [extents[name] for name in order])
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
        axes = self.place.axes
        for name, extent in position:
            if name not in bound:
                bound[name] = axes.fresh(extent)
        return tuple(a for name, _ in position for a in axes.resolve(bound[name])) or None

    # ---- reductions

    def _reduction(self, node: Node) -> Placed:
        """Along a dimension that its operand does not depend on a sum is a product."""
        (source,) = node.inputs
        dims = self.place[source]

        def make() -> int:
            term, place = self.terms[source], self.place
            axes = [a for d in node.attribute for a in place.names(dims[d])]
            depends = self.build.axes(term)
            over = tuple(a for a in axes if a in depends)
            repeats = [self.space.axes[a] for a in axes if a not in depends]
            repeats += [source.shape[d] for d in node.attribute if dims[d] is None]
            if over:
                term = self.build.terms.add(node.op, (term,), over, node.dtype)
            for size in repeats:
                term = self._repeated(node, term, size)
            return term

        return tuple(c for d, c in enumerate(dims) if d not in node.attribute), make

    def _repeated(self, node: Node, term: int, size: Index) -> int:
        """A value reduced `size` times with itself."""
        build, dtype = self.build, node.dtype
        if size == 1:
            return term
        if dtype.kind == "bool" or node.op in ("max", "min"):
            whole = term
        elif node.op == "sum":
            whole = build.terms.add("mul", (term, self._number(size, node)), None, dtype)
        else:
            axis = self.place.new_axis(size)
            return build.terms.add(node.op, (term,), (axis,), dtype)
        empty = compute("cast", dtype, identity(node.op, dtype)).item()
        return build.guard([size - 1], whole, build.const(empty, dtype))

    def _number(self, size: Index, node: Node) -> int:
        if size.is_constant:
            value = compute("cast", node.dtype, size.constant).item()
            return self.build.const(value, node.dtype)
        count = self.build.index(size, i64)
        return self.build.terms.add("cast", (count,), None, node.dtype)

    def _scan(self, node: Node) -> Placed:
        """A scan walks one axis: a composite of several is read as one, and back."""
        scan, (source,) = node.attribute, node.inputs
        dims = list(self.place[source])
        if dims[scan.dim] is None:
            dims[scan.dim] = self.place.axes.fresh(node.shape[scan.dim]) or None
            self.place.separate(dims)
        composite = dims[scan.dim]

        def make() -> int:
            build, term = self.build, self.terms[source]
            names = self.place.names(composite)
            if composite is None:
                return term
            if len(names) == 1:
                return build.terms.add("scan", (term,), (scan.op, names[0]), node.dtype)
            axis = self.place.new_axis(node.shape[scan.dim])
            joined = build.read(term, self.place.digits(composite, Index.of(axis)))
            result = build.terms.add("scan", (joined,), (scan.op, axis), node.dtype)
            return build.read(result, {axis: self.place.flat(composite)})

        return tuple(dims), make

    # ---- reads and writes at indices that are data

    def _gather(self, node: Node) -> Placed:
        dim, (source_node, index_node) = node.attribute, node.inputs
        source, size = self.place[source_node], source_node.shape[dim]
        around = source[:dim] + (None,) + source[dim + 1 :]
        dims, renames = self.place.join(node, [(0, around), (1, self.place[index_node])])

        def make() -> int:
            build, digits = self.build, self.place.digits
            term, slot = (self._operand(node, j, renames) for j in (0, 1))
            names = self.place.names(source[dim])
            if not build.axes(term).intersection(names):
                return term
            known = build.as_index(slot)
            if known is not None and self.space.inside(known, size):
                return build.read(term, digits(source[dim], known))
            if len(names) > 1 or build.node(slot).dtype is u64:
                slot = self._clamped(slot, size)
            found = build.gather(term, slot, digits(source[dim], Index.of(SLOT)))
            nothing = compute("cast", node.dtype, 0).item()  # what reading an empty tensor gives
            return build.guard([size - 1], found, build.const(nothing, node.dtype))

        return dims, make

    def _clamped(self, slot: int, size: Index) -> int:
        """The slot as i64, put into 0 .. size - 1: digits of it alone could not be."""
        add, dtype = self.build.terms.add, self.build.node(slot).dtype
        if dtype is u64:  # the upper half is no number of i64
            slot = add("min", (slot, self.build.const(i64.highest, u64)), None, u64)
        wide = add("cast", (slot,), None, i64)
        low = add("max", (wide, self.build.const(0, i64)), None, i64)
        return add("min", (low, self.build.index(size - 1, i64)), None, i64)

    def _scatter(self, node: Node) -> Placed:
        base_node, index_node, values_node = node.inputs
        dim = node.attribute.dim
        operands = [(1, self.place[index_node]), (2, self.place[values_node])]
        points, renames = self.place.join(node, operands)
        base = self.place.filled(base_node, self.place[base_node])
        for d, (mine, other) in enumerate(zip(base, points)):
            if d != dim and mine and other:
                self.place.axes.unify(mine, other)
        written = self._written(dim, base, points, index_node.shape[dim])

        def make() -> int:
            build, place = self.build, self.place
            entries: dict[str, Index] = {}
            for d, at in enumerate(written):
                if d != dim:
                    entries.update(place.digits(base[d], place.flat(at)))
            single = None if base[dim] else place.new_axis(Index.of(1))
            slot = Index.of(SLOT)
            entries.update({single: slot} if single else place.digits(base[dim], slot))
            along = tuple(a for at in written for a in place.names(at))
            attribute = ScatterMap(build.entries(entries, entries), along, node.attribute.mode)
            children = tuple(self._operand(node, j, renames) for j in range(3))
            result = build.terms.add("scatter", children, attribute, node.dtype)
            return build.read(result, {single: Index.of(0)}) if single else result

        return base, make

    def _written(self, dim: int, base: Dims, points: Dims, size: Index) -> tuple[Composite, ...]:
        """Axes for all dimensions of the points: where they have none, those of the base."""
        axes = self.place.axes
        taken = {a for c in points if c for a in axes.resolve(c)}
        result: list[Composite] = []
        for d, composite in enumerate(points):
            if composite is None:
                composite = axes.fresh(size)
                if d != dim:
                    mine = axes.resolve(base[d] or ())
                    composite = mine if taken.isdisjoint(mine) else axes.fresh_like(mine)
                taken.update(composite)
            result.append(composite)
        self.place.separate(result)
        return tuple(result)
