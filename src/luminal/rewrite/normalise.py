"""From a graph to terms over named axes. `placement` found the axes; here the terms are made.

Structural views vanish, other views become reads with an index map and guards; a reduction along a
dimension that its operand does not depend on is a product or a power.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..graph.dtype import i64
from ..graph.index import Floor, Index
from ..graph.node import REDUCE_OPS, Node
from ..graph.scalars import compute, identity
from ..graph.space import Space
from .axes import Composite, Dims
from .build import Builder
from .normal import BufferInfo, Normal
from .placement import Placement, place
from .terms import SLOT, Leaf, Root, ScatterMap

LARGEST_POWER = 64  # a product of more equal factors than this stays a reduction

__all__ = ["BufferInfo", "Normal", "normalise"]


def normalise(sizes: Space, outputs: Sequence[Node]) -> Normal:
    """The terms of what the outputs need; `sizes`: the bounds of run-time sizes."""
    nodes = _reachable(outputs)
    placement = place(nodes, outputs, sizes)
    return _Emitter(sizes, placement).run(nodes, outputs)


def _reachable(outputs: Iterable[Node]) -> list[Node]:
    """The nodes below these, inputs first."""
    seen, stack = set(outputs), list(dict.fromkeys(outputs))
    for node in stack:
        for source in node.inputs:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return sorted(stack, key=lambda node: node.number)


class _Emitter:
    """Makes the terms of nodes, in order."""

    def __init__(self, sizes: Space, placement: Placement) -> None:
        self.place = placement
        self.space = Space(sizes.sizes, hints=sizes.hints)
        self.build = Builder(self.space)
        self.terms: dict[Node, int] = {}
        self.names: dict[int, str] = {}
        self.buffers: list[BufferInfo] = []
        self.sources: dict[Node, int] = {}
        self.orders: dict[int, tuple[str, ...]] = {}
        self._flat: dict[Composite, Index] = {}

    def run(self, nodes: list[Node], outputs: Sequence[Node]) -> Normal:
        for node in nodes:
            term = self.terms[node] = self._term(node)
            self.orders.setdefault(term, self._order(self.place.dims[node], term))
        roots, targets = [], {}
        for node in outputs:
            if node not in targets:
                targets[node] = self._buffer("output", node)
                roots.append(Root(self.terms[node], self.buffers[-1].axes))
        return Normal(
            self.build.terms, roots, list(targets.values()), self.buffers, self.sources, targets,
            self.orders,
        )  # fmt: skip

    # ---- axes and their names

    def axes(self, composite: Composite | None) -> tuple[str, ...]:
        """The names of a composite's axes; names are given at first use."""
        found = []
        for axis in self.place.axes.resolve(composite or ()):
            name = self.names.get(axis)
            if name is None:
                name = self._new_axis(self.place.axes.extents[axis], axis)
            found.append(name)
        return tuple(found)

    def _new_axis(self, extent: Index, axis: int | None = None) -> str:
        name = f"a{len(self.space.axes)}"
        self.space.add_axis(name, extent)
        if axis is not None:
            self.names[axis] = name
        return name

    def flat(self, composite: Composite) -> Index:
        """The position along a dimension, from its axes."""
        found = self._flat.get(composite)
        if found is None:
            found = Index.of(0)
            for name in self.axes(composite):
                found = found * self.space.axes[name] + name
            self._flat[composite] = found
        return found

    def digits(self, composite: Composite, position: Index) -> dict[str, Index]:
        """The axes of a dimension, from the position along it."""
        found: dict[str, Index] = {}
        names = self.axes(composite)
        for name in reversed(names[1:]):
            extent = self.space.axes[name]
            found[name] = self.space.mod(position, extent)
            position = self.space.floor(position, extent)
        if names:
            found[names[0]] = position
        return found

    def _order(self, dims: Dims, term: int) -> tuple[str, ...]:
        depends = self.build.axes(term)
        return tuple(a for c in dims for a in self.axes(c) if a in depends)

    def _buffer(self, kind: str, node: Node) -> int:
        axes = tuple(a for c in self.place.dims[node] for a in self.axes(c))
        self.buffers.append(BufferInfo(kind, node.shape, node.dtype, axes, node))
        return len(self.buffers) - 1

    # ---- nodes

    def _term(self, node: Node) -> int:
        op, build = node.op, self.build
        if op == "input":
            return self._input(node)
        if op == "literal":
            return build.const(node.attribute, node.dtype)
        if op == "iota":
            return self._iota(node)
        if op == "view":
            return self._view(node)
        if op in REDUCE_OPS and node.attribute is not None:
            return self._reduction(node)
        if op == "scan":
            return self._scan(node)
        if op == "gather":
            return self._gather(node)
        if op == "scatter":
            return self._scatter(node)
        operands = tuple(self._operand(node, j) for j in range(len(node.inputs)))
        return build.scalar(op, operands, node.dtype)

    def _operand(self, node: Node, number: int) -> int:
        """An operand at the node's own axes."""
        term = self.terms[node.inputs[number]]
        renames = self.place.renames.get((node, number))
        if not renames:
            return term
        mapping: dict[str, Index] = {}
        for source, target in renames:
            mapping.update(self.digits(source, self.flat(target)))
        return self.build.read(term, mapping)

    def _input(self, node: Node) -> int:
        number = self.sources[node] = self._buffer(node.attribute.kind, node)
        info = self.buffers[number]
        leaf = Leaf(number, info.axes, info.constant)
        return self.build.load(self.build.terms.add("input", (), leaf, node.dtype))

    def _iota(self, node: Node) -> int:
        dims = self.place.dims[node]
        mapping = {f"i{d}": self.flat(c) if c else Index.of(0) for d, c in enumerate(dims)}
        index = self.space.simplify(self.space.substitute(node.attribute, mapping))
        if node.dtype is i64 or self.build.fits(index, node.dtype):
            return self.build.index(index, node.dtype)
        return self.build.terms.add("cast", (self.build.index(index, i64),), None, node.dtype)

    def _view(self, node: Node) -> int:
        view = self.place.views[node]
        at = {name: self.flat(composite) for name, composite in view.digits.items()}
        conditions = [self.space.substitute(c, at) for c in view.conditions]
        mapping: dict[str, Index] = {}
        for composite, index in view.mapped:
            digits = self.digits(composite, self.space.substitute(index, at))
            mapping.update((a, within(self.space, i, conditions)) for a, i in digits.items())
        term = self.build.read(self.terms[node.inputs[0]], mapping)
        if not view.conditions:
            return term
        fill = self.build.const(node.attribute.fill, node.dtype)
        return self.build.guard(conditions, term, fill)

    # ---- reductions

    def _reduction(self, node: Node) -> int:
        dims = self.place.operands[node]
        term = self.terms[node.inputs[0]]
        depends = self.build.axes(term)
        axes = [a for d in node.attribute for a in self.axes(dims[d])]
        over = tuple(a for a in axes if a in depends)
        repeats = [self.space.axes[a] for a in axes if a not in depends]
        repeats += [node.inputs[0].shape[d] for d in node.attribute if dims[d] is None]
        if over:
            term = self.build.terms.add(node.op, (term,), over, node.dtype)
        for size in repeats:
            term = self._repeated(node, term, size)
        return term

    def _repeated(self, node: Node, term: int, size: Index) -> int:
        """A value reduced `size` times with itself."""
        build, dtype = self.build, node.dtype
        if size == 1:
            return term
        if dtype.kind == "bool" or node.op in ("max", "min"):
            whole = term
        elif node.op == "sum":
            whole = build.terms.add("mul", (term, self._number(size, node)), None, dtype)
        elif size.is_constant and 0 < size.constant <= LARGEST_POWER:
            whole = self._power(term, size.constant, node)
        else:
            axis = self._new_axis(size)
            return build.terms.add(node.op, (term,), (axis,), dtype)
        return build.guard([size - 1], whole, build.const(identity_of(node), dtype))

    def _number(self, size: Index, node: Node) -> int:
        if size.is_constant:
            value = compute("cast", node.dtype, size.constant).item()
            return self.build.const(value, node.dtype)
        count = self.build.index(size, i64)
        return self.build.terms.add("cast", (count,), None, node.dtype)

    def _power(self, term: int, count: int, node: Node) -> int:
        """term ** count by squaring."""
        result, square = None, term
        while count:
            if count % 2:
                both = (square,) if result is None else (result, square)
                result = both[0] if len(both) == 1 else self._times(both, node)
            count //= 2
            if count:
                square = self._times((square, square), node)
        assert result is not None
        return result

    def _times(self, factors: tuple[int, ...], node: Node) -> int:
        return self.build.terms.add("mul", factors, None, node.dtype)

    def _scan(self, node: Node) -> int:
        """A scan walks one axis: a composite of several is read as one, and back."""
        build, scan = self.build, node.attribute
        term = self.terms[node.inputs[0]]
        composite = self.place.dims[node][scan.dim]
        if composite is None:
            return term
        names = self.axes(composite)
        if len(names) == 1:
            return build.terms.add("scan", (term,), (scan.op, names[0]), node.dtype)
        axis = self._new_axis(node.shape[scan.dim])
        joined = build.read(term, self.digits(composite, Index.of(axis)))
        result = build.terms.add("scan", (joined,), (scan.op, axis), node.dtype)
        return build.read(result, {axis: self.flat(composite)})

    # ---- reads and writes at indices that are data

    def _gather(self, node: Node) -> int:
        build, dim = self.build, node.attribute
        composite = self.place.operands[node][dim]
        term, slot = self._operand(node, 0), self._operand(node, 1)
        if composite is None or not build.axes(term).intersection(self.axes(composite)):
            return term
        size = node.inputs[0].shape[dim]
        known = build.as_index(slot)
        if known is not None and self.space.inside(known, size):
            return build.read(term, self.digits(composite, known))
        if len(self.axes(composite)) > 1:
            slot = self._clamped(slot, size)
        found = build.gather(term, slot, self.digits(composite, Index.of(SLOT)))
        return build.guard([size - 1], found, build.const(zero_of(node), node.dtype))

    def _clamped(self, slot: int, size: Index) -> int:
        """The slot, put into 0 .. size - 1: digits of it alone could not be."""
        add = self.build.terms.add
        wide = add("cast", (slot,), None, i64)
        low = add("max", (wide, self.build.const(0, i64)), None, i64)
        return add("min", (low, self.build.index(size - 1, i64)), None, i64)

    def _scatter(self, node: Node) -> int:
        build, place = self.build, self.place.scatters[node]
        dim = node.attribute.dim
        entries: dict[str, Index] = {}
        for d, (base, points) in enumerate(zip(place.base, place.points)):
            if d != dim:
                entries.update(self.digits(base, self.flat(points)))
        single = None if place.base[dim] else self._new_axis(Index.of(1))
        if single is not None:
            entries[single] = Index.of(SLOT)
        else:
            entries.update(self.digits(place.base[dim], Index.of(SLOT)))
        along = tuple(a for points in place.points for a in self.axes(points))
        attribute = ScatterMap(build.entries(entries, entries), along, node.attribute.mode)
        children = (build.buffer(self._operand(node, 0)), *(self._operand(node, j) for j in (1, 2)))
        scattered = build.terms.add("scatter", children, attribute, node.dtype)
        result = build.load(scattered)
        return result if single is None else build.read(result, {single: Index.of(0)})


def within(space: Space, index: Index, conditions: Sequence[Index]) -> Index:
    """An index that matters only where the conditions hold: without floors that are 0 there."""
    if not conditions or not any(isinstance(a, Floor) for m, _ in index.terms for a in m):
        return index
    total = Index.of(0)
    for monomial, coefficient in index.terms:
        product = Index.of(coefficient)
        for atom in monomial:
            if not isinstance(atom, Floor):
                product = product * Index.build({(atom,): 1})
                continue
            numerator = within(space, atom.numerator, conditions)
            low = space.implies(conditions, numerator)
            if not low or not space.implies(conditions, atom.divisor - 1 - numerator):
                product = product * space.floor(numerator, atom.divisor)
            else:
                product = Index.of(0)
                break
        total = total + product
    return total


def zero_of(node: Node) -> int | float | bool:
    """What reading an empty tensor gives."""
    if node.dtype.is_float:
        return 0.0
    return False if node.dtype.kind == "bool" else 0


def identity_of(node: Node) -> int | float | bool:
    """What an empty reduction gives, as a number of the node's dtype."""
    value = identity(node.op, node.dtype)
    if node.dtype.is_float:
        return float(value)
    return bool(value) if node.dtype.kind == "bool" else int(value)
