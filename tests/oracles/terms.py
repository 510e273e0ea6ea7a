"""The meaning of terms over named axes in NumPy: the oracle of the rewriting stages.

An element that a read takes from outside its buffer is undefined, and so is what is computed from
it; a guard and a select take the side that they choose. Undefined elements are poison (NaN).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.backend.reference.arrays import Sizes, accumulate, grid, hold, reduce, write
from luminal.graph.dtype import DType
from luminal.graph.index import Index
from luminal.graph.node import Node
from luminal.graph.scalars import SCALARS, compute
from luminal.rewrite.normal import Normal, axis_key
from luminal.rewrite.terms import SLOT, Map, Region, Root, ScatterMap, Term, Terms, is_reduction


def run(normal: Normal, feeds: Mapping[Node, Any], sizes: Sizes | None = None) -> dict[Node, Any]:
    """The outputs of a program, in the shapes of their nodes."""
    inputs = {number: np.asarray(feeds[node]) for node, number in normal.sources.items()}
    values = Values(normal.terms, inputs, sizes or {})
    found = {t: values.root(root) for root, t in zip(normal.roots, normal.targets)}
    return _outputs(normal, found, sizes or {})


def run_regions(
    normal: Normal, regions: Sequence[Region], feeds: Mapping[Node, Any],
    sizes: Sizes | None = None,
) -> dict[Node, Any]:  # fmt: skip
    """As `run`, region by region."""
    buffers = {number: np.asarray(feeds[node]) for node, number in normal.sources.items()}
    for region in regions:
        inputs = {leaf: buffers[number] for leaf, number in enumerate(region.inputs)}
        values = Values(region.terms, inputs, sizes or {})
        for root, number in zip(region.roots, region.outputs):
            assert number not in buffers, "a value is stored once"
            buffers[number] = values.root(root)
    return _outputs(normal, buffers, sizes or {})


def _outputs(normal: Normal, buffers: Mapping[int, Any], sizes: Sizes) -> dict[Node, Any]:
    return {
        node: buffers[number].reshape([int(n.evaluate(sizes)) for n in node.shape])
        for node, number in normal.outputs.items()
    }


class Values:
    """The values of all terms; `inputs`: arrays by the numbers of leaves.

    A value has one dimension for each axis that its term depends on, in the order of `axis_key`.
    """

    def __init__(self, terms: Terms, inputs: Mapping[int, np.ndarray], sizes: Sizes) -> None:
        self.terms, self.inputs, self.sizes = terms, inputs, sizes
        self.extents = {a: int(e.evaluate(sizes)) for a, e in terms.space.axes.items()}
        self.values: list[np.ndarray] = []
        self.defined: list[np.ndarray] = []  # where a value is, in the form of the value
        with np.errstate(all="ignore"):
            for number, term in enumerate(terms.nodes):
                value = self._term(term, self.order(number))
                assert value.dtype == term.dtype.numpy, (term, value.dtype)
                self.values.append(value)
                found = self._defined(term, self.order(number))
                self.defined.append(np.broadcast_to(found, value.shape))

    def order(self, term: int) -> tuple[str, ...]:
        return tuple(sorted(self.terms.axes[term], key=axis_key))

    def root(self, root: Root) -> np.ndarray:
        """The value of a root with its axes in memory order."""
        return np.ascontiguousarray(self.at(root.term, root.axes))

    def at(self, term: int, axes: Sequence[str]) -> np.ndarray:
        """A term's value with these axes, repeated along those that it does not depend on."""
        return self._spread(self.values[term], term, axes)

    def defined_at(self, term: int, axes: Sequence[str]) -> np.ndarray:
        """Where a term's value is defined, with these axes."""
        return self._spread(self.defined[term], term, axes)

    def _spread(self, array: np.ndarray, term: int, axes: Sequence[str]) -> np.ndarray:
        mine = self.order(term)
        assert set(mine) <= set(axes), (mine, axes)
        value = array.transpose([mine.index(a) for a in axes if a in mine])
        value = value.reshape([self.extents[a] if a in mine else 1 for a in axes])
        return np.broadcast_to(value, self._shape(axes))

    def _grid(self, axes: Sequence[str]) -> dict[str, Any]:
        """Values of sizes and axes that broadcast over the axes."""
        return grid({a: self.extents[a] for a in axes}, self.sizes)

    def _shape(self, axes: Sequence[str]) -> list[int]:
        return [self.extents[a] for a in axes]

    def _term(self, term: Term, axes: tuple[str, ...]) -> np.ndarray:
        if term.op == "input":
            return self._input(term)
        if term.op in ("read", "gather"):
            return self._read(term, axes)
        if term.op == "scatter":
            return self._scatter(term, axes)
        if term.op == "const":
            return np.asarray(term.attribute, term.dtype.numpy)
        if term.op == "index":
            return self._full(term.attribute, axes).astype(term.dtype.numpy)
        if term.op == "guard":
            holds = self._holds(term.attribute, axes)
            return np.where(holds, *(self.at(child, axes) for child in term.children))
        if term.op == "scan":
            op, axis = term.attribute
            return accumulate(op, self.at(term.children[0], axes), axes.index(axis), term.dtype)
        if is_reduction(term):
            return self._reduce(term, axes)
        assert term.op in SCALARS, term.op
        return np.asarray(compute(term.op, term.dtype, *(self.at(c, axes) for c in term.children)))

    def _input(self, term: Term) -> np.ndarray:
        leaf = term.attribute
        array = self.inputs[leaf.number].reshape(self._shape(leaf.axes))
        return array.transpose([leaf.axes.index(a) for a in sorted(leaf.axes, key=axis_key)])

    def _full(self, index: Index, axes: Sequence[str]) -> np.ndarray:
        """An index at every point of the axes."""
        return np.broadcast_to(np.asarray(index.evaluate(self._grid(axes))), self._shape(axes))

    def _holds(self, conditions: Sequence[Index], axes: Sequence[str]) -> np.ndarray:
        return hold(conditions, self._grid(axes), self._shape(axes))

    def _indices(
        self, entries: Sequence[tuple[str, Index]], axes: Sequence[str], slot: Any, clamp: bool
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """For each axis of a buffer where to read it, made legal; and where that was legal."""
        known = self._grid(axes)
        if slot is not None:
            known[SLOT] = slot.astype(np.int64)
        legal = np.ones(self._shape(axes), bool)
        found = []
        for axis, index in entries:
            here = np.broadcast_to(np.asarray(index.evaluate(known)), legal.shape)
            if not (clamp and SLOT in index.names()):
                legal = legal & (here >= 0) & (here < self.extents[axis])
            found.append(np.clip(here, 0, self.extents[axis] - 1))
        return found, legal

    def _defined(self, term: Term, axes: tuple[str, ...]) -> Any:
        below = [self.defined[c] for c in term.children]
        if term.op in ("read", "gather"):
            found = self._taken(term, axes, self.defined[term.children[0]], np.False_)
            return found & self.defined_at(term.children[1], axes) if below[1:] else found
        if term.op == "scatter":
            return self.defined_at(term.children[0], axes) & bool(below[1].all() & below[2].all())
        if term.op == "guard":
            holds = self._holds(term.attribute, axes)
            return np.where(holds, *(self.defined_at(c, axes) for c in term.children))
        if term.op == "select":
            chosen = self.at(term.children[0], axes)
            condition, *sides = (self.defined_at(c, axes) for c in term.children)
            return condition & np.where(chosen, *sides)
        if term.op == "scan":
            found = self.defined_at(term.children[0], axes)
            return np.logical_and.accumulate(found, axes.index(term.attribute[1]))
        if is_reduction(term):
            found = self.defined_at(term.children[0], (*axes, *term.attribute))
            return found.all(tuple(range(len(axes), found.ndim)))
        return np.logical_and.reduce([self.defined_at(c, axes) for c in term.children] or [True])

    def _read(self, term: Term, axes: tuple[str, ...]) -> np.ndarray:
        return self._taken(term, axes, self.values[term.children[0]], poison(term.dtype))

    def _taken(self, term: Term, axes: tuple[str, ...], buffer: np.ndarray, outside: Any) -> Any:
        """Elements of a buffer, and what stands for those outside."""
        mapping = term.attribute
        assert isinstance(mapping, Map)
        entries = sorted(mapping.entries, key=lambda e: axis_key(e[0]))
        total = tuple(a for a, _ in entries) == self.order(term.children[0])
        assert total, "a map is total on its buffer"
        slot = self.at(term.children[1], axes) if term.op == "gather" else None
        indices, legal = self._indices(entries, axes, slot, clamp=True)
        legal = legal & self._holds(mapping.conditions, axes)
        if buffer.size == 0:
            return np.full(legal.shape, outside, buffer.dtype)
        value = np.broadcast_to(buffer[tuple(indices)], legal.shape)
        return np.where(legal, value, np.asarray(outside, buffer.dtype))

    def _scatter(self, term: Term, axes: tuple[str, ...]) -> np.ndarray:
        mapping: ScatterMap = term.attribute
        base, index, values = term.children
        result = np.array(self.at(base, axes))
        entries = sorted(mapping.entries, key=lambda e: axis_key(e[0]))
        slot = self.at(index, mapping.along)
        indices, legal = self._indices(entries, mapping.along, slot, clamp=False)
        where = tuple(i[legal] for i in indices)
        new = self.at(values, mapping.along)[legal]
        write(mapping.mode, result, where, new, term.dtype)
        return result

    def _reduce(self, term: Term, axes: tuple[str, ...]) -> np.ndarray:
        value = self.at(term.children[0], (*axes, *term.attribute))
        return reduce(term.op, value, tuple(range(len(axes), value.ndim)), term.dtype)


def poison(dtype: DType) -> Any:
    """A value that no test expects: what lies outside a buffer."""
    if dtype.is_float:
        return np.nan
    return True if dtype.kind == "bool" else 0x55
